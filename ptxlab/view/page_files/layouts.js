"use strict";
// Fragment layouts, which come as the row and column that each bit of lane, register and element adds.

const $ = (id) => document.getElementById(id);
const range = (n) => Array.from({ length: n }, (_, i) => i);
const span = (first, count) => (count === 1 ? `${first}` : `${first}..${first + count - 1}`);
const lower = (text) => text.toLowerCase();
const round = (x) => Math.round(x * 10) / 10;
const LANES = 32, CELL = 20, CHARACTER = 6.1, PADDING = 10, INDEX = 36, LINE = 17, MARGIN = 4;

const added = (steps, index) =>
  steps.reduce(([r, c], [dr, dc], bit) => ((index >> bit) & 1 ? [r + dr, c + dc] : [r, c]), [0, 0]);

/** Give a layout its table, [lane][register][element] -> [row, col], and its inverse. */
function expand(layout) {
  if (layout.table) return layout;
  const { steps, cells } = layout;
  const at = steps
    ? (l, r, e) => [added(steps.lane, l), added(steps.register, r), added(steps.element, e)]
        .reduce(([a, b], [c, d]) => [a + c, b + d])
    : (l, r, e) => {
        const n = cells[(l * layout.registers + r) * layout.elements + e];
        return [Math.floor(n / layout.cols), n % layout.cols];
      };
  layout.table = range(threadsOf(layout)).map((l) =>
    range(layout.registers).map((r) => range(layout.elements).map((e) => at(l, r, e))));
  layout.places = range(layout.matrices).map(() => new Map());
  layout.table.forEach((registers, lane) => registers.forEach((elements, register) =>
    elements.forEach(([row, col], element) => {
      const owners = layout.places[matrixOf(layout, lane)], key = row * layout.cols + col;
      if (!owners.has(key)) owners.set(key, []);
      owners.get(key).push({ lane, register, element });
    })));
  layout.runs = range(layout.matrices).map((matrix) => runsOf(layout, matrix));
  return layout;
}

/** The number of threads that hold a layout: a warp's, or a warpgroup's. */
const threadsOf = (layout) => layout.threads || LANES;

/** The matrix a lane belongs to: of four, one a quad-pair; of two, one each half of the warp. */
const matrixOf = (layout, lane) =>
  (layout.matrices === 2 ? (lane % LANES) >> 4 : Math.floor(lane / 4) % layout.matrices);

function placesAt(layout, matrix, row, col) {
  return (row < layout.rows && col < layout.cols && layout.places[matrix].get(row * layout.cols + col)) || null;
}

/** Cut the operand into neighbouring elements that share a register, as verbs/fragments/runs.py does. */
function runsOf(layout, matrix) {
  const down = layout.vertical ? 1 : 0, right = 1 - down, found = [];
  const follows = (before, after) => before && after && before.length === after.length &&
    after.every((p, i) => p.lane === before[i].lane && p.register === before[i].register &&
      p.element === before[i].element + 1);
  const owner = (row, col) => (row < 0 || col < 0 ? null : placesAt(layout, matrix, row, col));
  for (let row = 0; row < layout.rows; row++) for (let col = 0; col < layout.cols; col++) {
    if (follows(owner(row - down, col - right), owner(row, col))) continue;
    let length = 1;
    while (follows(owner(row + (length - 1) * down, col + (length - 1) * right),
      owner(row + length * down, col + length * right))) length++;
    found.push({ row, col, length, rows: down ? length : 1, cols: down ? 1 : length, places: owner(row, col) });
  }
  return found;
}

const runAt = (layout, matrix, row, col) => layout.runs[matrix].find((run) =>
  row >= run.row && row < run.row + run.rows && col >= run.col && col < run.col + run.cols);

/** The text of a cell: the first place, and how many copies there are. */
function ownerText(operand, places) {
  const copies = places.length > 1 ? `×${places.length}` : "";
  return `${places[0].lane}:${lower(operand)}${places[0].register}${copies}`;
}

const bitsText = (first, count) => (count === 1 ? `bit <b>${first}</b>` : `bits <b>${first} to ${first + count - 1}</b>`);
