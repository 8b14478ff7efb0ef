// CUDA C, PTX and machine code beside each other, with the lines of the instruction at hand.

let panes = [];

function pane(id, title, lines, lookup) {
  const box = $(id), list = document.createElement("ol");
  list.innerHTML = lines.map(({ mark, text, ran }) =>
    `<li${ran ? ' class="ran"' : ""}><span>${mark}</span>${escape(text)}</li>`).join("");
  box.querySelector(".lines").replaceChildren(list);
  box.querySelector("h2 small").textContent = title;
  return { box, list, lookup, now: [] };
}

function buildCode() {
  const ran = new Set(data.places.map((place) => place.line));
  const ptx = pane("ptx", shortPath(data.path), withSource(data.ptx).map((text, i) => ({ mark: i + 1, text, ran: ran.has(i + 1) })),
    (place) => [place.line - 1]);
  ptx.places = (index) => (place) => place.line === index + 1;
  panes = [ptx];
  if (typeof data.sass === "string") $("sass").querySelector(".lines").innerHTML = `<p class="hint">${escape(data.sass)}</p>`;
  else {
    const byLine = new Map();
    data.sass.forEach(({ line }, i) => byLine.set(line, [...(byLine.get(line) || []), i]));
    const sass = pane("sass", plural(data.sass.length, "instruction"), data.sass.map(({ address, text, line }) =>
      ({ mark: bare(address, 4), text, ran: ran.has(line) })), (place) => byLine.get(place.line) || []);
    sass.places = (index) => (place) => place.line === data.sass[index].line;
    panes.push(sass);
  }
  $("cuda").hidden = !Object.keys(data.sources).length;
  document.body.classList.toggle("no-source", $("cuda").hidden);
}

/** PTX in which each .loc is followed by the line of the source that it names. */
function withSource(lines) {
  const files = new Map(lines.map((text) => text.match(/^\s*\.file\s+(\d+)\s+"([^"]*)"/)).filter(Boolean).map(([, number, path]) => [number, path]));
  return lines.map((text) => {
    const [, file, line] = text.match(/^\s*\.loc\s+(\d+)\s+(\d+)/) || [], path = files.get(file);
    const found = (data.sources[path] || [])[line - 1];
    return found === undefined ? text : `${text.trimEnd()}  // ${shortPath(path)}:${line}  ${found.trim()}`;
  });
}

const shortPath = (path) => path.split("/").pop();
let shownSource = null;

/** The line of an instruction that is looked at: its own, or that of a call it was inlined from; -1 is the last. */
const frameOf = ({ sources }) => sources[state.call < 0 ? sources.length - 1 : Math.min(state.call, sources.length - 1)];

/** Show the file that an instruction comes from, and the calls that led there. */
function drawSource(place) {
  const [path] = frameOf(place) || [], box = $("cuda");
  box.querySelector("h2 span").innerHTML = place.sources.map((frame, i) => {
    const last = place.sources.length > 1 && i === place.sources.length - 1;
    return `<button type="button" data-call="${last ? -1 : i}" aria-pressed="${frame === frameOf(place)}" title="${i ? "called from here" : "the line itself"}">${escape(shortPath(frame[0]))}:${frame[1]}</button>`;
  }).join("");
  if (!data.sources[path] || path === shownSource) return;
  shownSource = path;
  const at = (one) => one.sources.filter(([file]) => file === path).map(([, line]) => line), ran = new Set(data.places.flatMap(at));
  const found = pane("cuda", "", data.sources[path].map((text, i) => ({ mark: i + 1, text, ran: ran.has(i + 1) })),
    (one) => { const [file, line] = frameOf(one) || []; return file === path ? [line - 1] : []; });
  found.places = (index) => (one) => at(one).includes(index + 1);
  panes = [...panes.filter((one) => one.box.id !== "cuda"), found];
}

function drawCode(place) {
  if (place) drawSource(place);
  for (const one of panes) {
    one.now.forEach((row) => row.removeAttribute("aria-current"));
    one.now = place ? one.lookup(place).map((index) => one.list.children[index]).filter(Boolean) : [];
    one.now.forEach((row) => row.setAttribute("aria-current", "true"));
    if (one.now.length) bringIntoSight(one.box.querySelector(".lines"), one.now[one.now.length - 1]);
  }
}

/** Scroll a box, and nothing else, so that a row is not at its edge. */
function bringIntoSight(box, row) {
  const top = row.offsetTop, room = box.clientHeight, margin = Math.min(40, room / 4);
  if (top < box.scrollTop + margin || top + row.offsetHeight > box.scrollTop + room - margin) box.scrollTop = top - room / 2.5;
}

function goToLine(event) {
  const row = event.target.closest("li"), one = panes.find(({ box }) => box.contains(event.target));
  if (row && one) goToNext(one.places([...one.list.children].indexOf(row)));
}

/** Go to the next step at a place that is wanted, or else to the first one. */
function goToNext(wanted) {
  const first = () => { const turn = range(turnCount()).find((at) => wanted(placeOf(stepOfTurn(at)))); return turn === undefined ? null : stepOfTurn(turn); };
  const later = seek(1, wanted);
  go(later === null ? first() : later);
}
