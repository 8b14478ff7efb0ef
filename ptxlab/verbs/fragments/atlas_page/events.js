// Pointer, keyboard, light and dark, and the start.

function drawAll() {
  drawFacts();
  markCurrent();
  drawMarks();
  if (state.entry.shared) drawWarpgroup();
  else if (multiplies()) drawFigure();
  else if (state.entry.operands) drawPanels();
  else drawLoad();
  drawBits();
  drawSelection();
  fit();
}

const BESIDE = 330;  // the width of what is selected, with the gaps around it

/** Put what is selected below the picture, always in sight, where there is no room beside it. */
function fit() {
  const least = parseFloat($("stage").querySelector("svg").style.minWidth);
  $("bench").classList.toggle("below", $("bench").clientWidth < least + BESIDE);
}

/** What lies under the pointer: an element of an operand, or a lane. */
function under(event) {
  const cell = event.target.closest(".c");
  if (!cell) return null;
  if (cell.dataset.lane !== undefined) return { lane: Number(cell.dataset.lane) };
  const group = cell.closest(".operand"), name = group.dataset.operand, layout = operand(name);
  const run = layout ? layout.runs[state.matrix][Number(cell.dataset.run)] : unitAt(cell);
  const box = cell.querySelector("rect").getBoundingClientRect();
  const part = (at, from, size, count) => Math.min(count - 1, Math.max(0, Math.floor((at - from) / size * count)));
  return { operand: name, row: run.row + part(event.clientY, box.top, box.height, run.rows),
    col: run.col + part(event.clientX, box.left, box.width, run.cols) };
}

const alike = (a, b) => JSON.stringify(a) === JSON.stringify(b);

$("stage").addEventListener("pointermove", (event) => {
  if (event.pointerType === "touch") return;
  const what = under(event);
  if (alike(what, state.hovered)) return;
  state.hovered = what;
  drawSelection();
});
$("stage").addEventListener("pointerleave", () => {
  if (!state.hovered) return;
  state.hovered = null;
  drawSelection();
});
$("stage").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) { settings(button.dataset); return; }
  const what = under(event);
  if (what) pin(alike(what, state.pinned) ? null : what);
});
$("stage").addEventListener("change", (event) => {
  const { id, value } = event.target;
  if (id === "pitch") settings({ pitch: value });
  if (id === "columns") { state.first = Number(value); state.hovered = null; drawAll(); }
  if (id === "number") choose(state.entry.group, Number(value));
  if ($(id)) $(id).focus();
});

function settings({ matrixPick, pitch, swizzle }) {
  if (matrixPick !== undefined) Object.assign(state, { matrix: Number(matrixPick), pinned: null });
  if (swizzle !== undefined) state.swizzle = Number(swizzle);
  if (pitch !== undefined) state.pitch = Math.min(1024, Math.max(16, 16 * Math.round(Number(pitch) / 16)));
  const focus = [["matrixPick", "matrix-pick"], ["swizzle", "swizzle"], ["pitch", "pitch"]]
    .map(([key, name]) => ({ matrixPick, swizzle, pitch }[key] !== undefined ? `[data-${name}="${{ matrixPick, swizzle, pitch }[key]}"]` : null))
    .find(Boolean);
  state.hovered = null;
  remember();
  drawAll();
  const again = $("stage").querySelector(focus) || $("pitch");
  if (again) again.focus();
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

$("stage").addEventListener("keydown", (event) => {
  const group = event.target.closest(".operand"), step = STEPS[event.key];
  if (!group || !step) return;
  event.preventDefault();
  const limit = (x, n) => Math.min(n - 1, Math.max(0, x));
  if (group.dataset.lanes) {
    const down = state.entry.operands ? 4 : 1, count = state.entry.operands ? threads() : LANES;
    const now = state.pinned && state.pinned.lane !== undefined ? state.pinned.lane + down * step[0] + step[1] : 0;
    pin({ lane: limit(now, count) });
    return;
  }
  const name = group.dataset.operand, now = state.pinned;
  const [row, col] = now && now.operand === name ? [now.row + step[0], now.col + step[1]] : [0, 0];
  const start = now && now.operand === name ? col : Math.max(col, name === state.entry.scaled ? state.first : 0);
  pin({ operand: name, row: limit(row, rowsOf(name)), col: limit(start, colsOf(name)) });
  const again = $("stage").querySelector(`[data-operand="${name}"]`);
  if (again) again.focus();
});
$("inspector").addEventListener("click", (event) => {
  const go = event.target.dataset.go;
  if (!go) return;
  const [name, row, col] = go.split(",");
  pin({ operand: name, row: Number(row), col: Number(col) });
  const again = $("inspector").querySelector(`[data-go="${go}"]`);
  if (again) again.focus();
});
$("list").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) choose(entries.find((entry) => entry.name === button.dataset.name));
});
$("list").addEventListener("keydown", (event) => {
  const buttons = [...$("list").querySelectorAll("button")], here = buttons.indexOf(event.target);
  const move = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (move === undefined) return;
  event.preventDefault();
  if (move < 0) $("search").focus();
  else if (buttons[move]) buttons[move].focus();
});
$("search").addEventListener("input", search);
$("search").addEventListener("keydown", (event) => {
  const first = $("list").querySelector("button");
  if (!first || !["ArrowDown", "Enter"].includes(event.key)) return;
  event.preventDefault();
  if (event.key === "Enter") choose(entries.find((entry) => entry.name === first.dataset.name));
  first.focus();
});
document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "TEXTAREA"].includes(event.target.tagName);
  if (event.key === "/" && !typing) { event.preventDefault(); $("search").focus(); }
  if (event.key !== "Escape") return;
  if (event.target === $("search")) { $("search").value = ""; drawList(); }
  else pin(null);
});
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("stage").querySelector(".operand").focus();
});

addEventListener("resize", fit);
addEventListener("hashchange", () => { readHash(); drawAll(); });

readHash();
drawList();
drawAll();
