// What is chosen: instruction, element or lane; the list to choose from, and the address that keeps it.

const state = { entry: null, matrix: 0, pinned: null, hovered: null, pitch: 128, swizzle: 0 };
const entries = [...data.instructions, ...data.moves];
entries.forEach((entry) => {
  if (entry.sparse !== undefined) entry.sparse = data.sparse[entry.sparse];
  if (entry.scales) entry.scales = Object.fromEntries(Object.entries(entry.scales).map(([name, i]) => [name, data.scales[i]]));
  entry.words = lower([entry.name, entry.family, entry.shape, entry.types, entry.needs, entry.more,
    entry.hardware ? "verified" : "unverified"].join(" "));
});
const operand = (name) => expand(data.layouts[state.entry.operands[name]]);
const multiplies = () => Boolean(state.entry.mnk);
const matrices = () => operand(Object.keys(state.entry.operands)[0]).matrices;
const selection = () => state.hovered || state.pinned;

function readHash() {
  const asked = Object.fromEntries(decodeURIComponent(location.hash.slice(1)).split("&").map((part) => {
    const cut = part.indexOf("=");
    return [part.slice(0, cut), part.slice(cut + 1)];
  }));
  const entry = entries.find((e) => e.name === asked.op) || entries.find((e) => e.name === data.first);
  state.pinned = null;
  state.hovered = null;
  state.entry = entry;
  state.matrix = 0;
  state.pitch = inside(Number(asked.pitch), 16, 1024) && asked.pitch % 16 === 0 ? Number(asked.pitch) : 128;
  state.swizzle = inside(Number(asked.swizzle), 0, 3) ? Number(asked.swizzle) : 0;
  if (entry.operands) {
    if (inside(Number(asked.matrix), 0, matrices() - 1)) state.matrix = Number(asked.matrix);
    const [name, row, col] = (asked.at || "").split(",");
    if (entry.operands[name] !== undefined && placesAt(operand(name), state.matrix, Number(row), Number(col)))
      state.pinned = { operand: name, row: Number(row), col: Number(col) };
  }
  if (asked.lane !== undefined && inside(Number(asked.lane), 0, LANES - 1)) state.pinned = { lane: Number(asked.lane) };
}

const inside = (x, low, high) => Number.isInteger(x) && x >= low && x <= high;

function hashOf() {
  const parts = [`op=${state.entry.name}`];
  if (state.pinned) parts.push(state.pinned.lane !== undefined ? `lane=${state.pinned.lane}`
    : `at=${state.pinned.operand},${state.pinned.row},${state.pinned.col}`);
  if (state.matrix) parts.push(`matrix=${state.matrix}`);
  if (state.entry.load) parts.push(`pitch=${state.pitch}`, `swizzle=${state.swizzle}`);
  return `#${parts.join("&")}`;
}

const remember = () => history.replaceState(null, "", hashOf());

function choose(entry) {
  Object.assign(state, { entry, pinned: null, hovered: null, matrix: 0 });
  history.pushState(null, "", hashOf());
  drawAll();
}

function pin(what) {
  state.pinned = what;
  state.hovered = null;
  remember();
  drawSelection();
}

function drawList() {
  const words = lower($("search").value).split(/[\s,]+/).filter(Boolean);
  const shown = entries.filter((entry) => words.every((word) => entry.words.includes(word)));
  const families = new Map();
  shown.forEach((entry) => families.set(entry.family, [...(families.get(entry.family) || []), entry]));
  $("list").innerHTML = [...families].map(([family, members]) =>
    `<h2>${family} <small>${members.length}</small></h2>` + members.map((entry) =>
      `<button type="button" data-name="${entry.name}" title="${entry.name}"${entry === state.entry ? ' aria-current="true"' : ""}>` +
      `<span class="shape">${entry.shape}</span><span>${entry.types} <span class="more">${entry.more}</span></span>` +
      `<span class="dot${entry.hardware ? " good" : ""}" title="${verdict(entry)}"></span></button>`).join("")).join("");
  $("count").textContent = shown.length === entries.length ? `${shown.length} instructions`
    : `${shown.length} of ${entries.length} instructions`;
}

function markCurrent() {
  for (const button of $("list").querySelectorAll("button")) {
    const mine = button.dataset.name === state.entry.name;
    if (mine) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    if (mine) button.scrollIntoView({ block: "nearest" });
  }
}

const verdict = (entry) => entry.open ? "PTX leaves this layout open: ptxlab's own choice"
  : entry.hardware ? `verified on ${entry.hardware}` : "unverified on hardware";

function drawFacts() {
  const entry = state.entry;
  $("name").innerHTML = entry.name.replace(/\./g, ".<wbr>");
  document.title = `${entry.name} · ptxlab atlas`;
  const facts = [[verdict(entry), entry.hardware ? "good" : "open"], [entry.needs], [`PTX ${entry.ptx}`]];
  if (multiplies()) facts.push([`${(2 * entry.mnk[0] * entry.mnk[1] * entry.mnk[2] * matrices()).toLocaleString("en")} operations`]);
  facts.push([`PTX ISA: ${data.sections[entry.section]}`]);
  $("facts").innerHTML = facts.map(([text, look]) => `<li${look ? ` class="${look}"` : ""}>${text}</li>`).join("");
}
