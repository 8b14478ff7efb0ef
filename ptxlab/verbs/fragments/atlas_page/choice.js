// What is chosen: instruction, element or lane; the list to choose from, and the address that keeps it.

// All facts come from the JSON beside this script; what is shown is computed from those.
const data = JSON.parse($("data").textContent);
const state = { entry: null, matrix: 0, first: 0, pinned: null, hovered: null, pitch: 128, swizzle: 0 };
const entries = [...data.instructions, ...data.moves, ...data.groups];
const filled = (text, number) => text.replace("{n}", number);
const total = (some) => some.reduce((sum, entry) => sum + (entry.choices ? entry.choices.length : 1), 0);
entries.forEach((entry) => {
  if (entry.sparse !== undefined) entry.sparse = data.sparse[entry.sparse];
  if (entry.scales) entry.scales = Object.fromEntries(Object.entries(entry.scales).map(([name, i]) => [name, data.scales[i]]));
  entry.words = lower([entry.name, entry.family, entry.shape, entry.types, entry.needs, entry.more, entry.sass,
    entry.hardware ? "verified" : "unverified",
    ...(entry.choices || []).map((n) => (entry.letter === "n" ? filled(entry.shape, n) : `x${n}`))].join(" "));
});

/** One instruction of a group: the first columns of the scaled operand, in its first registers. */
function concrete(entry, number) {
  if (!entry.choices) return entry;
  entry.made = entry.made || new Map();
  if (!entry.made.has(number)) {
    const part = number / entry.choices[entry.choices.length - 1];
    const { rows, cols, bits, registers, elements, matrices, vertical, steps, threads } =
      data.layouts[entry.operands[entry.scaled]];
    const own = { rows, cols: cols * part, bits, registers: registers * part, elements, matrices, vertical, threads };
    own.steps = { ...steps, register: steps.register.slice(0, Math.ceil(Math.log2(own.registers))) };
    const made = { ...entry, group: entry, number, own, name: filled(entry.name, number), shape: filled(entry.shape, number) };
    if (entry.mnk) made.mnk = [entry.mnk[0], number, entry.mnk[2]];
    if (entry.shared) made.shared = { ...entry.shared, B: { ...entry.shared.B, cols: number } };
    entry.made.set(number, made);
  }
  return entry.made.get(number);
}

/** The number of a group to begin with: one that was searched for, the last one chosen, or the largest. */
function preferred(entry) {
  const words = lower($("search").value).split(/[\s,.]+/);
  const asked = entry.choices.find((n) => words.includes(filled(entry.shape, n)) || words.includes(`${entry.letter}${n}`));
  return asked || (entry.choices.includes(state.number) ? state.number : entry.choices[entry.choices.length - 1]);
}

/** The entry of a name, or, as one opcode may name several, the first that says only more than it. */
function entryOf(name) {
  const within = (asked) => {
    for (const entry of entries) {
      const number = (entry.choices || [0]).find((n) => asked(filled(entry.name, n)));
      if (number !== undefined) return concrete(entry, number);
    }
    return null;
  };
  return within((own) => own === name) || within((own) => own.startsWith(`${name}.`));
}

const listed = (entry) => entry.group || entry;

/** The layout of an operand in registers; null of one in shared memory. */
function operand(name) {
  const { own, scaled, operands } = state.entry;
  if (operands[name] === undefined) return null;
  return expand(own && name === scaled ? own : data.layouts[operands[name]]);
}
const shared = (name) => (state.entry.shared || {})[name];
const threads = () => threadsOf(operand(Object.keys(state.entry.operands)[0]));
const holder = () => (state.entry.operands && threads() > LANES ? "thread" : "lane");
const multiplies = () => Boolean(state.entry.mnk);
const matrices = () => operand(Object.keys(state.entry.operands)[0]).matrices;
const selection = () => state.hovered || state.pinned;

function readHash() {
  const asked = Object.fromEntries(decodeURIComponent(location.hash.slice(1)).split("&").map((part) => {
    const cut = part.indexOf("=");
    return [part.slice(0, cut), part.slice(cut + 1)];
  }));
  const entry = entryOf(asked.op) || entryOf(data.first);
  state.pinned = null;
  state.hovered = null;
  state.entry = entry;
  state.matrix = 0;
  state.first = 0;
  state.pitch = inside(Number(asked.pitch), 16, 1024) && asked.pitch % 16 === 0 ? Number(asked.pitch) : 128;
  state.swizzle = inside(Number(asked.swizzle), 0, 3) ? Number(asked.swizzle) : 0;
  if (entry.operands) {
    if (inside(Number(asked.matrix), 0, matrices() - 1)) state.matrix = Number(asked.matrix);
    const [name, row, col] = (asked.at || "").split(",");
    if (inside(Number(row), 0, rowsOf(name) - 1) && inside(Number(col), 0, colsOf(name) - 1))
      state.pinned = { operand: name, row: Number(row), col: Number(col) };
  }
  if (asked.lane !== undefined && inside(Number(asked.lane), 0, (entry.operands ? threads() : LANES) - 1))
    state.pinned = { lane: Number(asked.lane) };
  show(state.pinned);
}

const rowsOf = (name) => ((state.entry.operands[name] !== undefined ? operand(name) : shared(name)) || { rows: 0 }).rows;
const colsOf = (name) => ((state.entry.operands[name] !== undefined ? operand(name) : shared(name)) || { cols: 0 }).cols;

/** Bring the columns that hold an element into the picture, where not all are drawn; say if they move. */
function show(what) {
  const { scaled, columns, shared: inShared } = state.entry, before = state.first;
  if (!columns || !what || (what.operand !== scaled && !(inShared && what.operand === "B"))) return false;
  state.first = Math.floor(what.col / columns) * columns;
  return state.first !== before;
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

function choose(entry, number = entry.choices && preferred(entry)) {
  if (number) state.number = number;
  Object.assign(state, { entry: concrete(entry, number), pinned: null, hovered: null, matrix: 0, first: 0 });
  const what = sought();
  if (what && !lacking(what)) { state.pinned = what; show(what); }
  history.pushState(null, "", hashOf());
  drawAll();
  if (what) { drawList(); bringIntoSight(); }
}

function pin(what) {
  state.pinned = what;
  state.hovered = null;
  remember();
  if (show(what)) drawAll();
  else drawSelection();
}

function markCurrent() {
  for (const button of $("list").querySelectorAll("button")) {
    const mine = button.dataset.name === listed(state.entry).name;
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
  if (entry.sass) facts.push([`SASS: ${entry.number ? filled(entry.sass, entry.number) : entry.sass}`]);
  facts.push([`PTX ISA: ${data.sections[entry.section]}`]);
  $("facts").innerHTML = facts.map(([text, look]) => `<li${look ? ` class="${look}"` : ""}>${text}</li>`).join("");
}
