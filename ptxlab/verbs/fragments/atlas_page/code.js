// How an element is loaded or stored, as code to copy.

const opened = { ptx: false };

/** The C++ expression of an element, and its PTX: the template of the layout, with the numbers of a place. */
function accessOf(name, { lane, register, element }) {
  const found = data.accesses[`${state.entry.operands[name]}${name}`];
  if (!found) return null;
  const layout = operand(name), [row, col] = layout.table[0][register][element], low = element * layout.bits;
  const numbers = { row, col, register, low, high: low + layout.bits - 1 };
  const [cuda, ...ptx] = found.replace(/\{(\w+)\}/g, (_, key) => numbers[key]).split("\n");
  return { cuda, ptx: ptx.join("\n") };
}

const copyable = (text) => `<div class="code"><pre>${text}</pre><button type="button" class="copy">copy</button></div>`;

function accesses(name, place) {
  const found = accessOf(name, place);
  if (!found) return "";
  const does = name === "D" ? "stored to" : "loaded from";
  return `<h3>${does} row-major memory of ld${lower(name)} elements a row</h3>${copyable(found.cuda)}` +
    `<details class="ptx"${opened.ptx ? " open" : ""}><summary>PTX</summary>${copyable(found.ptx)}</details>`;
}

$("inspector").addEventListener("toggle", (event) => { opened.ptx = event.target.open; }, true);

document.addEventListener("click", ({ target }) => {
  if (target.classList.contains("copy")) copyFrom(target, target.parentElement.querySelector("pre, h1").textContent);
});
