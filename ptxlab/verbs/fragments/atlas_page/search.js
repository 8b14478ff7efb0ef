// The search: words of names, types, targets and machine code, and an element such as D[5,6].

const ELEMENT = /\b([a-dr])\s*\[\s*(\d+)\s*,\s*(\d+)\s*\]/i;

/** The element that the search names, or null. */
function sought() {
  const found = ELEMENT.exec($("search").value);
  return found && { operand: found[1].toUpperCase(), row: Number(found[2]), col: Number(found[3]) };
}

/** Why the chosen instruction has no such element; nothing where it has. */
function lacking({ operand: name, row, col }) {
  const { entry } = state, rows = entry.operands ? rowsOf(name) : 0;
  if (!rows) return `no ${name} in ${entry.family}`;
  return row < rows && col < colsOf(name) ? "" : `no ${name}[${row},${col}]: ${name} is ${rows}×${colsOf(name)}`;
}

/** Whether an entry has a word; of what others call types (half, fp8, int8) one that it may mean, whole. */
function has(one, word) {
  const types = data.synonyms[word];
  return one.words.includes(word) || (types || []).some((type) => new RegExp(`(^|[^a-z0-9])${type}([^a-z0-9]|$)`).test(one.words));
}

/** The entries that have all words; or else, as machine code is written, all parts between dots. */
function matching(some) {
  const text = lower($("search").value.replace(ELEMENT, " ")), within = (words) => some.filter((one) => words.every((word) => has(one, word)));
  const found = within(text.split(/[\s,]+/).filter(Boolean));
  return found.length ? found : within(text.split(/[\s,.]+/).filter(Boolean));
}

function drawList() {
  const shown = matching(entries), without = shown.length ? [] : matching(data.elsewhere), what = sought();
  const families = new Map();
  shown.forEach((entry) => families.set(entry.family, [...(families.get(entry.family) || []), entry]));
  $("list").innerHTML = [...families].map(([family, members]) =>
    `<section style="--count: ${members.length}"><h2>${family} <small>${total(members)}</small></h2>` + members.map((entry) =>
      `<button type="button" data-name="${entry.name}" title="${entry.name}"${entry === listed(state.entry) ? ' aria-current="true"' : ""}>` +
      `<span class="shape">${filled(entry.shape, "N")}</span><span>${entry.types} <span class="more">${entry.more}</span></span>` +
      `<span class="dot${entry.hardware ? " good" : ""}" title="${verdict(entry)}"></span></button>`).join("") + "</section>").join("") +
    without.map(({ name, why }) => `<p class="without"><b>${name}</b> ${why}. <code>ptxlab explain ${name}</code></p>`).join("") ||
    '<p class="without">Nothing has all of these words. They may be parts of a name (ldmatrix x4 trans), a shape, types, a target, ' +
    "an opcode of machine code (HMMA.16816), or an element (D[5,6]).</p>";
  const count = shown.length === entries.length ? `${total(shown)} instructions` : `${total(shown)} of ${total(entries)} instructions`;
  $("count").textContent = (what && lacking(what)) || count;
}

/** Show what has been typed: the list, and the element at once. */
function search() {
  drawList();
  const what = sought();
  if (!what || lacking(what)) return;
  pin(what);
  bringIntoSight();
}

function bringIntoSight() {
  const cell = $("stage").querySelector("[data-operand] .at");
  if (cell) cell.scrollIntoView({ block: "center" });
}
