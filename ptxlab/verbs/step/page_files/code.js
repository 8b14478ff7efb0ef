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
  const ptx = pane("ptx", shortPath(data.path), data.ptx.map((text, i) => ({ mark: i + 1, text, ran: ran.has(i + 1) })),
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

const shortPath = (path) => path.split("/").pop();
let shownSource = null;

/** Show the file that an instruction comes from. */
function drawSource(place) {
  const [path, line] = place.source || [];
  if (!data.sources[path]) return;
  if (path !== shownSource) {
    shownSource = path;
    const ran = new Set(data.places.filter((one) => one.source && one.source[0] === path).map((one) => one.source[1]));
    const found = pane("cuda", shortPath(path), data.sources[path].map((text, i) => ({ mark: i + 1, text, ran: ran.has(i + 1) })),
      (one) => (one.source && one.source[0] === path ? [one.source[1] - 1] : []));
    found.places = (index) => (one) => one.source && one.source[0] === path && one.source[1] === index + 1;
    panes = [...panes.filter((one) => one.box.id !== "cuda"), found];
  }
  return line;
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
  if (!row || !one) return;
  const wanted = one.places([...one.list.children].indexOf(row));
  const first = () => { const turn = range(turnCount()).find((at) => wanted(placeOf(stepOfTurn(at)))); return turn === undefined ? null : stepOfTurn(turn); };
  const later = seek(1, wanted);
  go(later === null ? first() : later);
}
