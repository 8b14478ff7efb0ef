// What the products of a warpgroup read of shared memory, through their matrix descriptors.

const UNIT = 16;

/** The factors in shared memory of the product that a warp begins in a step. */
const factorsAt = (step, warp) => data.factors.filter((one) =>
  data.flights[one.flight].step === step && Math.floor(warp / 4) === Math.floor(one.warp / 4));

/** The bytes at which the units of 16 bytes of a factor begin, line by line. */
const unitsOf = ({ start, pattern }) => data.patterns[pattern].map((unit) => start + UNIT * unit);

/** The bytes of an element: where they begin, and the bit it begins at. */
function placeIn(factor, row, col) {
  const [line, at] = factor.byRow ? [row, col] : [col, row], length = factor.byRow ? factor.cols : factor.rows;
  const across = length * factor.bits / (8 * UNIT), bit = at * factor.bits, unit = Math.floor(bit / (8 * UNIT));
  const start = factor.start + UNIT * data.patterns[factor.pattern][line * across + unit];
  return [start + Math.floor((bit % (8 * UNIT)) / 8), bit % 8];
}

/** Shared memory after any step. */
function memoryAt(step) {
  const found = memory.slice(), [low, high] = [from.shared[Math.min(step, state.step) + 1], from.shared[Math.max(step, state.step) + 1]];
  for (let entry = low; entry < high; entry++) changeRun(found, entry);
  return found;
}

/** The elements of a factor from column ``first`` on, in the colours of their banks; of A the rows of this warp. */
function factorCells(factor, words, first, most) {
  const own = factor.name === "A" ? factor.rows / 4 : factor.rows, top = factor.name === "A" ? own * (state.warp % 4) : 0;
  const kind = BITS[baseOf(state.kind)] === factor.bits ? baseOf(state.kind) : state.kind !== "hex" && BITS[factor.dtype] === factor.bits ? factor.dtype : "hex";
  const rows = range(own).map((row) => top + row), count = Math.min(most, factor.cols - first), cells = [];
  for (const row of rows) for (let col = first; col < first + count; col++) {
    const [byte, bit] = placeIn(factor, row, col), word = byte >> 2, low = 8 * (byte & 3) + bit;
    const bits = [factor.bits === 32 ? words[word] : (words[word] >>> low) & ((1 << factor.bits) - 1)];
    cells.push({ row, col, lane: word % BANKS, word, bits, text: elementText(kind, bits, factor.bits, briefer) });
  }
  return { fragment: { name: factor.name, registers: [], result: false }, layout: { ...factor, matrices: 1 }, cells, rows, kind, first, count,
    where: `in shared memory, by bank${factor.swizzle === "none" ? "" : `, swizzle ${factor.swizzle}`}`, width: Math.max(3, ...cells.map(({ text }) => text.length)) * DIGIT + CELL_ROOM };
}
