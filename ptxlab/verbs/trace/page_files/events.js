// Pointer, keyboard, light and dark, and the start.

function look(from, to) {
  const span = Math.min(END, Math.max(LEAST, to - from));
  view.from = Math.min(Math.max(0, from), Math.max(0, END - span));
  view.to = view.from + span;
  draw();
}

/** Show more or less of the steps: a moment stays where it is. */
function zoom(factor, moment = (view.from + view.to) / 2) {
  if (!factor) { look(0, END); return; }
  const span = Math.min(END, Math.max(LEAST, (view.to - view.from) * factor));
  const part = (moment - view.from) / (view.to - view.from);
  look(moment - part * span, moment + (1 - part) * span);
}

function choose(what, item) {
  if (same(state[what], item)) return;
  state[what] = item;
  draw();
  drawNames();
  drawInspector();
  const at = what === "pinned" && item && place(stepOf(item));
  if (at) tellLab({ at: { line: at.line, sources: at.source ? [[at.source.path, at.source.line]] : [] } });
}

const same = (a, b) => a === b || Boolean(a && b && a.lane === b.lane && a.from === b.from && a.kind === b.kind);

/** What lies under the pointer; what is thin is found beside it. */
function under(event) {
  const box = $("lanes").getBoundingClientRect();
  const down = event.clientY - box.top, moment = view.from + (event.clientX - box.left) / scale();
  const lane = lanes.find((one) => down >= one.top - GAP / 2 && down < one.top + one.height + GAP / 2);
  if (!lane) return null;
  for (const beside of [0, 2, -2, 4, -4]) {
    const item = itemAt(lane, moment + beside / scale());
    if (item) return item;
  }
  return null;
}

const canvas = $("lanes");
let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  drag = { at: event.clientX, from: view.from, moved: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!drag) { if (event.pointerType !== "touch") choose("hovered", under(event)); return; }
  const by = (drag.at - event.clientX) / scale();
  if (Math.abs(drag.at - event.clientX) > 3) drag.moved = true;
  if (!drag.moved) return;
  canvas.classList.add("dragging");
  look(drag.from + by, drag.from + by + view.to - view.from);
});
canvas.addEventListener("pointerup", (event) => {
  const clicked = drag && !drag.moved;
  drag = null;
  canvas.classList.remove("dragging");
  if (!clicked) return;
  const item = under(event);
  choose("pinned", same(item, state.pinned) ? null : item);
});
canvas.addEventListener("pointercancel", () => { drag = null; });
canvas.addEventListener("pointerleave", () => choose("hovered", null));
canvas.addEventListener("dblclick", (event) => zoom(.4, momentAt(event)));
const momentAt = (event) => view.from + (event.clientX - canvas.getBoundingClientRect().left) / scale();
$("scroll").addEventListener("wheel", (event) => {
  const scrolls = $("scroll").scrollHeight > $("scroll").clientHeight;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    const by = event.deltaX / scale();
    look(view.from + by, view.to + by);
  } else if (event.ctrlKey || !scrolls) {
    event.preventDefault();
    zoom(Math.exp(event.deltaY * .0015), momentAt(event));
  }
}, { passive: false });

function center(event) {
  const box = $("overview").getBoundingClientRect(), half = (view.to - view.from) / 2;
  const moment = (event.clientX - box.left) / box.width * END;
  look(moment - half, moment + half);
}
$("overview").addEventListener("pointerdown", (event) => {
  $("overview").setPointerCapture(event.pointerId);
  center(event);
});
$("overview").addEventListener("pointermove", (event) => { if (event.buttons) center(event); });
$("zoom").addEventListener("click", (event) => {
  const { zoom: factor } = event.target.dataset;
  if (factor !== undefined) zoom(Number(factor));
});

// ---- keyboard ----

/** The event before (-1) or after (1) a moment in a lane; of another kind if ``other`` is given. */
function next(lane, moment, by, other) {
  const kinds = (item) => (item.kind === "step" ? classOfPlace[data.executed[item.step]] : item.kind);
  const found = lane.items.filter((item) => (by > 0 ? item.from > moment : item.from < moment)
    && (other === undefined || kinds(item) !== other));
  if (lane.steps) {
    for (let at = below(lane.steps, moment) + (by > 0 ? 1 : lane.steps[below(lane.steps, moment)] === moment ? -1 : 0);
      at >= 0 && at < lane.steps.length; at += by) {
      const item = stepItem(lane, lane.steps[at]);
      if (other !== undefined && kinds(item) === other) continue;
      found.push(item);
      break;
    }
  }
  return found.sort((a, b) => by * (a.from - b.from))[0] || null;
}

function go(key, shift) {
  const now = state.pinned, first = lanes.find((lane) => lane.steps || lane.items.length);
  if (!now) return first && next(first, view.from - 1, 1);
  const kind = now.kind === "step" ? classOfPlace[data.executed[now.step]] : now.kind;
  if (key === "ArrowLeft" || key === "ArrowRight") {
    return next(now.lane, now.from, key === "ArrowRight" ? 1 : -1, shift ? kind : undefined);
  }
  const by = key === "ArrowDown" ? 1 : -1;
  for (let at = now.lane.number + by; at >= 0 && at < lanes.length; at += by) {
    const item = itemAt(lanes[at], now.from) || next(lanes[at], now.from, 1) || next(lanes[at], now.from, -1);
    if (item) return item;
  }
  return null;
}

function keep(item) {
  choose("hovered", null);
  choose("pinned", item);
  const span = view.to - view.from;
  if (item.from < view.from || item.from + 1 > view.to) look(item.from - span / 2, item.from + span / 2);
  const box = $("scroll"), top = item.lane.top;
  if (top < box.scrollTop || top + 30 > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 2;
  const { title, facts } = wordsOf(item);
  $("say").textContent = `${item.lane.name}: ${title}; ${facts.map((fact) => fact.join(" ")).join(", ")}`;
}

canvas.addEventListener("keydown", (event) => {
  const pan = (view.to - view.from) / 4;
  const act = {
    "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), "−": () => zoom(2), 0: () => zoom(0),
    a: () => look(view.from - pan, view.to - pan), d: () => look(view.from + pan, view.to + pan),
    Escape: () => { choose("pinned", null); choose("hovered", null); },
  }[event.key];
  if (!act && !event.key.startsWith("Arrow")) return;
  event.preventDefault();
  if (act) { act(); return; }
  const item = go(event.key, event.shiftKey);
  if (item) keep(item);
});

$("inspector").addEventListener("click", (event) => {
  const { lane, from } = (event.target.closest("[data-lane]") || { dataset: {} }).dataset;
  if (lane !== undefined) keep(lanes[lane].items.find((item) => item.from === Number(from)));
});

// ---- light and dark ----

redraws.push(() => {
  readColours();
  draw();
});
new ResizeObserver(draw).observe(canvas);

const KEY = [["mma", "tensor cores"], ["copy", "asynchronous copy"], ["sync", "synchronization"], ["shared", "shared memory"],
  ["memory", "other memory"], ["other", "rest"]].filter(([name]) => classOfPlace.includes(CLASSES.indexOf(name)));
if (data.columns.length) KEY.push(["mma", "being filled", "hatched"], ["mma-pale", "in Tensor Memory"]);
if (data.tiles.length) KEY.push(["copy", "on its way", "hatched"], ["copy-pale", "landed"]);
if (data.waits.length) KEY.push(["sync", "waits", "hatched"]);
if (data.mbarriers.length) KEY.push(["even", "even phase"], ["odd", "odd phase"], ["quiet", "arrivals"]);
$("key").innerHTML = KEY.map(([name, text, more]) => `<li class="${more || ""}" style="--look:var(--${name})">${text}</li>`).join("");
drawNames();
drawInspector();
dress();
joinLab({
  goTo(line, file) {
    const wanted = (at) => (file ? at.source && at.source.path.endsWith(file) && at.source.line === line : at.line === line);
    const now = state.pinned && place(stepOf(state.pinned));
    if (now && wanted(now)) return;
    const step = data.executed.findIndex((instruction, at) => instruction >= 0 && wanted(place(at)));
    const lane = lanes.find(({ steps }) => steps && steps.includes(step));
    if (lane) keep(stepItem(lane, step));
  },
  dress,
});
