// Drawing: the lanes that are in sight, at any scale, and what is selected.

const view = { from: 0, to: END };
const state = { hovered: null, pinned: null };
const LEAST = 8;  // steps in sight at least
let colour = {}, rgba = {}, hatch = {}, small = null;

/** Read the colours of the scheme, and make the hatched ones. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "quiet", "ground", "accent", "even", "odd", "other",
    ...CLASSES.slice(0, -1).flatMap((name) => [name, `${name}-pale`])];
  colour = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  rgba = Object.fromEntries(names.map((name) => [name, [5, 3, 1].reduce(
    (word, at) => word * 256 + parseInt(colour[name].slice(at, at + 2), 16), 255)]));
  hatch = Object.fromEntries(["copy", "sync", "mma"].map((name) => [name, hatched(colour[name])]));
  small = null;
}

function hatched(ink) {
  const tile = document.createElement("canvas"), pen = tile.getContext("2d");
  tile.width = tile.height = 6;
  pen.strokeStyle = ink;
  pen.lineWidth = 1.6;
  pen.beginPath();
  for (const shift of [-6, 0, 6]) { pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); }
  pen.stroke();
  return pen.createPattern(tile, "repeat");
}

/** A canvas as large as it is shown, and its pen. */
function penOf(canvas, tall) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
  if (tall) canvas.style.height = `${tall}px`;
  const size = [Math.round(width * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, canvas.clientHeight);
  pen.font = "11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
  pen.textBaseline = "middle";
  return pen;
}

const scale = () => $("lanes").clientWidth / (view.to - view.from);
const x = (moment) => (moment - view.from) * scale();
const inSight = (item) => item.to >= view.from && item.from <= view.to;

/** Steps too narrow for rectangles of their own: each column of pixels is stacked of as much of each class as there is. */
function drawColumns(pen, lane, { from, to }, top, tall) {
  const wide = pen.canvas.width, per = wide / (to - from), { steps } = lane;
  const image = pen.createImageData(wide, tall), pixels = new Uint32Array(image.data.buffer);
  const counts = new Uint32Array(CLASSES.length), column = (moment) => Math.max(0, Math.floor((moment - from) * per));
  pixels.fill(rgba.ground);
  for (let at = below(steps, from - 1) + 1; at < steps.length && steps[at] < to;) {
    const left = column(steps[at]), first = at;
    counts.fill(0);
    do { counts[classOfPlace[data.executed[steps[at]]]] += 1; at += 1; } while (at < steps.length && column(steps[at]) === left);
    const right = Math.min(wide, Math.max(left + 1, column(steps[at - 1] + 1)));
    let row = 0, above = 0;
    counts.forEach((count, kind) => {
      above += count;
      for (const under = Math.round(tall * above / (at - first)); row < under; row += 1) {
        pixels.fill(rgba[CLASSES[kind]], row * wide + left, row * wide + right);
      }
    });
  }
  pen.putImageData(image, 0, top);
}

const WIDE = 9;  // pixels of a step from which on it has a rectangle of its own
const NAMED = 60;  // and from which on its opcode is written there

function drawSteps(pen, lane) {
  const per = scale(), ratio = pen.canvas.width / pen.canvas.clientWidth, { steps, top } = lane;
  if (per < WIDE) {
    drawColumns(pen, lane, view, Math.round(top * ratio), Math.round(lane.height * ratio));
    return;
  }
  for (let at = below(steps, view.from - 1) + 1; at < steps.length && steps[at] < view.to; at += 1) {
    pen.fillStyle = colour[CLASSES[classOfPlace[data.executed[steps[at]]]]];
    pen.fillRect(x(steps[at]), top, per - 1, lane.height);
    if (per > NAMED) label(pen, opcodeOf(place(steps[at]).text), x(steps[at]), per, lane);
  }
}

function label(pen, text, left, width, lane) {
  const from = Math.max(left, 0) + 4, room = Math.min(left + width, $("lanes").clientWidth) - from - 2;
  if (room < 14) return;
  const most = Math.floor(room / 6.05);
  pen.fillStyle = colour.ink;
  if (text.length <= most) pen.fillText(text, from, lane.top + lane.height / 2 + .5);
  else if (most > 5) pen.fillText(`${text.slice(0, most - 1)}…`, from, lane.top + lane.height / 2 + .5);
}

/** Who reads what a fill has brought. */
function drawReads(pen, item, lane) {
  let last = -1;
  for (const step of item.fill.read) {
    const at = Math.round(x(step));
    if (at === last || step < view.from - 1 || step > view.to) continue;
    last = at;
    const reader = CLASSES[classOfPlace[data.executed[step]]];
    pen.fillStyle = colour[reader === "sync" || reader === undefined ? "mma" : reader];
    pen.fillRect(x(step), lane.top + lane.height / 2, Math.max(1.2, scale() - 1), lane.height / 2);
  }
}

/** Where a fill begins, and where it has landed. */
function drawEnds(pen, item, lane, ink) {
  pen.fillStyle = ink;
  pen.fillRect(x(item.from), lane.top, 1.5, lane.height);
  if (item.fill.landed !== null) pen.fillRect(x(item.fill.landed) - .75, lane.top, 1.5, lane.height);
}

/** The number of a fill, on a ground of its own, where there is room. */
function chip(pen, item, lane, ground) {
  const text = String(item.fill.number), wide = 6.1 * text.length + 6, room = (item.to - item.from) * scale();
  if (room < wide + 8 || x(item.to) < wide) return;
  const left = Math.max(x(item.from), 0) + 4;
  pen.fillStyle = ground;
  pen.fillRect(left, lane.top + 3, wide, lane.height - 6);
  pen.fillStyle = colour.ink;
  pen.fillText(text, left + 3, lane.top + lane.height / 2 + .5);
}

function block(pen, from, to, lane, fill, inset = 0) {
  pen.fillStyle = fill;
  pen.fillRect(x(from), lane.top + inset, Math.max(1.5, (to - from) * scale()), lane.height - 2 * inset);
}

const PAINT = {
  wait(pen, item, lane) {
    block(pen, item.from, item.to, lane, colour["sync-pale"], 3);
    block(pen, item.from, item.to, lane, hatch.sync, 3);
  },
  fill(pen, item, lane) {
    const landed = end(item.fill.landed);
    block(pen, item.from, landed, lane, hatch.copy);
    if (!item.drains) block(pen, landed, item.to, lane, colour["copy-pale"]);
    drawReads(pen, item, lane);
    drawEnds(pen, item, lane, colour.copy);
    chip(pen, item, lane, colour["copy-pale"]);
  },
  columns(pen, item, lane) {
    const landed = end(item.fill.landed);
    block(pen, item.from, landed, lane, hatch.mma);
    block(pen, landed, item.to, lane, colour["mma-pale"]);
    drawReads(pen, item, lane);
    drawEnds(pen, item, lane, colour.mma);
    chip(pen, item, lane, colour["mma-pale"]);
  },
  allocation(pen, item, lane) {
    block(pen, item.from, item.to, lane, colour["memory-pale"]);
    label(pen, `${item.allocation.end - item.allocation.start} columns from ${item.allocation.start}`, x(item.from), (item.to - item.from) * scale(), lane);
  },
  commit(pen, item, lane) {
    block(pen, item.from, item.to, lane, colour["sync-pale"]);
    block(pen, item.from, item.from + 1, lane, colour.sync);
  },
  product(pen, item, lane) {
    block(pen, item.from, item.to, lane, colour["mma-pale"]);
    pen.fillStyle = colour.mma;
    pen.fillRect(x(item.from), lane.top, Math.max(1.5, scale()), lane.height);
    const { group, work, queue } = item.flight, text = queue === "products" ? "group" : `${work}, commit`;
    label(pen, group === null ? "" : `${text} ${group}`, x(item.from + 1), (item.to - item.from - 1) * scale(), lane);
  },
  state(pen, item, lane) {
    block(pen, item.from, item.to, lane, colour[item.state.phase % 2 ? "odd" : "even"]);
    if (item.state.tx > 0) {
      const part = lane.height * .5 * item.state.tx / lane.most;
      pen.fillStyle = colour.copy;
      pen.globalAlpha = .55;
      pen.fillRect(x(item.from), lane.top + lane.height - part, (item.to - item.from) * scale(), part);
      pen.globalAlpha = 1;
    }
    pen.fillStyle = colour.quiet;
    const came = (item.mbarrier.expected - item.state.pending) / item.mbarrier.expected;
    if (came > 0) pen.fillRect(x(item.from), lane.top, (item.to - item.from) * scale(), 3 * came);
  },
  barrier(pen, item, lane) {
    block(pen, item.from, item.to, lane, colour["sync-pale"]);
    for (const step of item.barrier.arrivals) block(pen, step, step + 1, lane, colour.sync);
  },
};

/** The number of each phase, where it has room. */
function drawPhases(pen, lane) {
  let first = 0;
  lane.items.forEach((item, at) => {
    const next = lane.items[at + 1];
    if (next && next.state.phase === item.state.phase) return;
    const from = lane.items[first].from;
    pen.fillStyle = colour.quiet;
    pen.fillRect(x(from), lane.top, 1, lane.height);
    label(pen, `phase ${item.state.phase}`, x(from), (item.to - from) * scale(), lane);
    first = at + 1;
  });
}

function drawLanes() {
  const canvas = $("lanes"), pen = penOf(canvas, height);
  for (const lane of lanes) {
    pen.fillStyle = colour.ground;
    pen.fillRect(0, lane.top, canvas.clientWidth, lane.height);
    if (lane.steps) drawSteps(pen, lane);
    for (const item of lane.items) if (inSight(item)) PAINT[item.kind](pen, item, lane);
    if (lane.kind === "mbarrier") drawPhases(pen, lane);
  }
  const item = state.hovered || state.pinned;
  if (item) drawChosen(pen, item);
}

function drawChosen(pen, item) {
  pen.strokeStyle = colour.accent;
  pen.globalAlpha = .55;
  pen.lineWidth = 1;
  pen.setLineDash([3, 3]);
  for (const moment of [item.from, item.to]) {
    pen.beginPath();
    pen.moveTo(x(moment), 0);
    pen.lineTo(x(moment), height);
    pen.stroke();
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
  for (const one of related(item)) outline(pen, one, colour.ink, 1.2);
  outline(pen, item, colour.accent, 2.5);
}

function outline(pen, item, ink, width) {
  pen.strokeStyle = ink;
  pen.lineWidth = width;
  pen.strokeRect(x(item.from) - .5, item.lane.top - .5, Math.max(2, (item.to - item.from) * scale()) + 1, item.lane.height + 1);
}

/** Numbers along an axis: what of it is in sight, how many pixels one is, and where each is. */
function drawScale(canvas, { from, to }, per, placed) {
  const pen = penOf(canvas), least = 80 / per;
  const ten = 10 ** Math.floor(Math.log10(least));
  const by = Math.max(1, [1, 2, 5, 10].map((part) => part * ten).find((part) => part >= least));
  pen.textAlign = "center";
  for (let moment = Math.ceil(from / by) * by; moment <= to; moment += by) {
    pen.fillStyle = colour.quiet;
    pen.fillText(number(moment), Math.min(Math.max(placed(moment), 16), canvas.clientWidth - 18), 9);
    pen.fillRect(placed(moment), 17, 1, 5);
  }
  pen.textAlign = "start";
}

/** All of it, small, as it is drawn once for a scheme and a size. */
function overviewOf(canvas) {
  const picture = document.createElement("canvas"), pen = picture.getContext("2d");
  [picture.width, picture.height] = [canvas.width, canvas.height];
  const rows = lanes.filter((lane) => ["warp", "tile", "product", "columns"].includes(lane.kind));
  const wide = picture.width / END, tall = picture.height / rows.length;
  rows.forEach((lane, row) => {
    const top = Math.round(row * tall), thick = Math.max(1, Math.round(tall * .85));
    if (lane.steps) drawColumns(pen, lane, { from: 0, to: END }, top, thick);
    for (const item of lane.items) {
      pen.fillStyle = colour[{ fill: "copy", product: "mma", columns: "mma", wait: "sync-pale" }[item.kind]];
      const until = item.fill ? end(item.fill.landed) : item.to;
      pen.fillRect(item.from * wide, top, Math.max(.7, (until - item.from) * wide), thick);
    }
  });
  return picture;
}

function drawOverview() {
  const canvas = $("overview"), pen = penOf(canvas), wide = canvas.clientWidth / END;
  if (!small || small.width !== canvas.width) small = overviewOf(canvas);
  pen.drawImage(small, 0, 0, canvas.clientWidth, canvas.clientHeight);
  pen.fillStyle = colour.ground;
  pen.globalAlpha = .6;
  pen.fillRect(0, 0, view.from * wide, canvas.clientHeight);
  pen.fillRect(view.to * wide, 0, canvas.clientWidth, canvas.clientHeight);
  pen.globalAlpha = 1;
  pen.strokeStyle = colour.accent;
  pen.lineWidth = 1.5;
  pen.strokeRect(view.from * wide + 1, 1, (view.to - view.from) * wide - 2, canvas.clientHeight - 2);
}

function drawNames() {
  const chosen = (state.hovered || state.pinned || {}).lane;
  $("names").style.height = `${height}px`;
  $("names").replaceChildren(
    ...titles.map(({ text, top }) => named("b", text, top)),
    ...lanes.map((lane) => named("span", lane.name, lane.top + lane.height / 2 - 5, lane === chosen)),
  );
}

function named(tag, text, top, at) {
  const element = document.createElement(tag);
  element.textContent = element.title = text;
  element.style.top = `${top}px`;
  if (at) element.className = "at";
  return element;
}

let asked = false;
function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (!$("lanes").clientWidth) return; // in a frame that is not in sight, now or already
    drawLanes();
    drawScale($("ruler"), view, scale(), x);
    drawCycles();
    drawOverview();
  });
}

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[c]));

/** The lines where warps stand longest, with a way to the longest wait at each. */
function longestWaits() {
  const lines = new Map(), items = lanes.flatMap((lane) => lane.items).filter((item) => item.kind === "wait");
  for (const item of items) {
    const { line, text } = place(item.wait.step), known = lines.get(line) || { line, text, steps: 0, longest: item };
    known.steps += item.to - item.from;
    if (item.to - item.from > known.longest.to - known.longest.from) known.longest = item;
    lines.set(line, known);
  }
  const rows = [...lines.values()].sort((a, b) => b.steps - a.steps).slice(0, 5).map(({ line, text, steps, longest }) => (
    `<li><button type="button" data-lane="${longest.lane.number}" data-from="${longest.from}" title="${escape(text)}">`
    + `line ${line} <small>${plural(steps, "step")}</small><code>${escape(opcodeOf(text))}</code></button></li>`));
  return rows.length ? `<h3>where warps wait longest</h3><ul class="waits">${rows.join("")}</ul>` : "";
}

function drawInspector() {
  const item = state.hovered || state.pinned, box = $("inspector");
  if (!item) {
    box.innerHTML = `<h2>nothing chosen</h2><p class="quiet">Point at a lane: what is there is told here,
      with its line of PTX, and what it has to do with is outlined.</p>${longestWaits()}`;
    return;
  }
  const { title, facts } = wordsOf(item), step = stepOf(item);
  const known = step >= 0 && step < END && data.executed[step] >= 0 ? place(step) : null;
  const rows = facts.map(([name, what]) => `<dt>${escape(name)}</dt><dd>${escape(what)}</dd>`).join("");
  let html = `<h2>${escape(title)}</h2>`;
  if (known) html += `<code class="ptx">${escape(known.text)}</code>`;
  html += `<dl>${rows}</dl>`;
  if (known && known.source) {
    html += `<h3>${escape(known.source.path.split("/").pop())}, line ${known.source.line}</h3>
      <code class="ptx">${escape(known.source.text || "")}</code>`;
  }
  if (known) html += `<h3>PTX, line ${known.line}</h3><ol>${around(known.line)}</ol>`;
  box.innerHTML = html;
}

function around(line) {
  return [-4, -3, -2, -1, 0, 1, 2, 3, 4].map((by) => line + by).filter((one) => data.text[one] !== undefined)
    .map((one) => `<li${one === line ? ' class="at"' : ""}><span>${one}</span>${escape(data.text[one])}</li>`).join("");
}
