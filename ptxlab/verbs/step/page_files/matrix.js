// The last instruction of the warp that has fragments, drawn as its matrices.

const COLUMNS = 16, DIGIT = 6.65, CELL_HIGH = 17, CELL_ROOM = 1.6;

const hasFragments = (place, turn) => place.fragments.length > 0 && lanesOfTurn(turn) !== 0;

/** The step of the warp's last turn at an instruction with fragments, the one at hand among them. */
function lastMatrixStep() {
  for (let turn = turnAfter(state.step) - 1; turn >= 0; turn--) {
    if (hasFragments(placeOf(stepOfTurn(turn)), turn)) return stepOfTurn(turn);
  }
  return null;
}

/** When the result of an instruction is there: its own step, of an asynchronous product that of its landing; null if later. */
function resultStep(step) {
  const product = data.flights.find((one) => one.step === step && one.queue === "products");
  if (!product) return step;
  return product.landed === null || product.landed > state.step + 1 ? null : product.landed - 1;
}

/** The type of an operand's elements, and their width. */
function elementKind(fragment, layout) {
  const base = baseOf(state.kind), fits = (kind) => BITS[kind] === layout.bits;
  if (fits(base)) return base;
  if (state.kind === "hex") return "hex";
  const held = fragment.registers[0] === null ? "" : baseOf(data.registers[fragment.registers[0]].holds);
  return [fragment.dtype, held].find(fits) || "hex";
}

/** The elements of columns from ``first`` on that this warp holds: by row and column, whose they are, and their bits. */
function cellsOf(fragment, values, first, most) {
  const layout = expand(data.layouts[fragment.layout]), kind = elementKind(fragment, layout), cells = [];
  const own = threadsOf(layout) > LANES ? LANES * (state.warp % (threadsOf(layout) / LANES)) : 0;
  for (const lane of range(LANES)) layout.table[own + lane].forEach((places, register) => places.forEach(([row, col], i) => {
    if (col < first || col >= first + most || matrixOf(layout, own + lane) !== state.matrix % layout.matrices) return;
    const words = values[register] ? wordsOf(values[register], lane) : null, bits = words && elementBits(words, i, layout.bits);
    cells.push({ row, col, lane, register, bits, text: bits ? elementText(kind, bits, layout.bits, briefer) : "·" });
  }));
  const rows = [...new Set(cells.map(({ row }) => row))].sort((a, b) => a - b);
  return { fragment, layout, cells, rows, kind, first, count: Math.min(most, layout.cols - first),
    width: Math.max(3, ...cells.map(({ text }) => text.length)) * DIGIT + CELL_ROOM };
}

/** The words that hold element ``i`` alone, in their low bits. */
function elementBits(words, i, bits) {
  const low = i * bits, word = words[low >> 5];
  return bits < 32 ? [(word >>> (low & 31)) & ((1 << bits) - 1)] : words.slice(low >> 5, (low + bits) >> 5);
}

const elementText = (kind, words, bits, text) => (kind === "hex" ? inHex(words, bits) : text(kind, numberOf(kind, words[0], words[1])));

/** An operand in a box at x and y, and its size. */
function drawBox({ fragment, layout, cells, rows, kind, first, count, width }, x, y, fresh) {
  const at = new Map(rows.map((row, i) => [row, i])), shown = cells.filter(({ row }) => at.has(row));
  const body = shown.map(({ row, col, lane, register, word, bits, text }) => {
    const number = word === undefined ? fragment.registers[register] : undefined, left = x + (col - first) * width, top = y + at.get(row) * CELL_HIGH;
    const look = `${fresh.has(`${number},${lane}`) ? " on" : ""}${(word === undefined ? lane === state.lane && number === state.register : word === state.word) ? " at" : ""}`;
    const about = [fragment.name, row, col, word === undefined ? lane : `w${word}`, number, kind, layout.bits, ...(bits || [])].join();
    const holds = word === undefined ? `data-register="${number}" data-lane="${lane}"` : `data-word="${word}"`;
    return `<g class="c${look}" ${holds} data-about="${about}">` +
      `<rect class="l${lane}" x="${round(left)}" y="${top}" width="${round(width)}" height="${CELL_HIGH}"/>` +
      `<text x="${round(left + width / 2)}" y="${top + 12}">${text}</text></g>`;
  }).join("");
  const columns = range(count).map((i) => `<text class="i" x="${round(x + (i + .5) * width)}" y="${y - 4}">${first + i}</text>`).join("");
  const lines = rows.map((row, i) => `<text class="i e" x="${x - 5}" y="${y + i * CELL_HIGH + 12}">${row - (fragment.name === "R" ? rows[0] : 0)}</text>`).join("");
  return { svg: body + columns + lines, wide: count * width, high: rows.length * CELL_HIGH };
}

function drawMatrix() {
  const step = lastMatrixStep(), box = $("operands");
  $("matrix").hidden = !data.places.some((place) => place.fragments.length);
  $("matrices").innerHTML = jumps(seek(-1, hasFragments), seek(1, hasFragments), "", "instruction with fragments");
  if (step === null) {
    $("which").textContent = "";
    box.innerHTML = '<p class="hint">No instruction with fragments yet.</p>';
    box.dataset.drawn = "";
    return;
  }
  const place = placeOf(step), landed = resultStep(step), now = landed === state.step, away = turnAfter(state.step) - turnAfter(step);
  $("which").innerHTML = `<button type="button" data-go="${step}">${escape(place.text.split(" ").find((word) => !word.startsWith("@")))}</button> ` +
    `<span class="hint">${away ? `${plural(away, "turn")} ago` : "now"}${landed === null ? ", on its way" : ""}</span>`;
  const key = [step, landed === null ? state.step : now, state.warp, state.kind, state.first, state.matrix, state.register, state.lane, state.word, box.clientWidth].join();
  if (key === box.dataset.drawn) return;
  box.dataset.drawn = key;
  const factors = factorsAt(step, state.warp), words = factors.length ? memoryAt(step) : null;
  const part = (cols) => (cols > 2 * COLUMNS ? [state.first, COLUMNS] : [0, Infinity]);
  const widest = Math.max(...place.fragments.map(({ layout }) => data.layouts[layout].cols), ...factors.map(({ cols }) => cols)), pager = widest > 2 * COLUMNS;
  if (state.first >= widest) state.first = 0;
  const drawn = place.fragments.map((fragment) => {
    const when = fragment.result ? (landed === null ? state.step : landed) : step - 1;
    return cellsOf(fragment, fragment.registers.map((register) => (register === null ? null : valueAt(register, when))), ...part(data.layouts[fragment.layout].cols));
  }).concat(factors.map((factor) => factorCells(factor, words, ...part(factor.cols))));
  const count = Math.max(...drawn.map(({ layout }) => layout.matrices));
  const pages = pager ? picks("columns", "first", range(Math.ceil(widest / COLUMNS)).map((i) => i * COLUMNS), (first) => span(first, Math.min(COLUMNS, widest - first))) : "";
  box.innerHTML = (count > 1 ? picks("product", "matrix", range(count), String) : "") + pages + arranged(drawn, now ? freshNow() : new Set());
  keepHeight(box);
}

/** Keep what stands below in its place: a box stays as high as it has been at this width. */
function keepHeight(box) {
  const known = box.dataset.width === String(box.clientWidth) ? parseFloat(box.style.minHeight) : 0;
  box.style.minHeight = "";
  Object.assign(box.dataset, { width: box.clientWidth });
  box.style.minHeight = `${Math.max(known, box.offsetHeight)}px`;
}

/** The registers and lanes that the step at hand has changed. */
function freshNow() {
  const found = new Set();
  changedNow().forEach((delta, register) => delta.forEach((word, i) => { if (word) found.add(`${register},${i % LANES}`); }));
  return found;
}

/** A list to choose from what is drawn: the columns, or one of the matrices that a warp multiplies at once. */
const picks = (label, name, values, text) => `<label class="hint">${label} <select name="${name}">${values.map((value) =>
  `<option value="${value}"${value === state[name] ? " selected" : ""}>${text(value)}</option>`).join("")}</select></label> `;

/** What is said of an element that is pointed at. */
function aboutElement(cell) {
  const [name, row, col, lane, register, kind, bits, ...words] = cell.dataset.about.split(",");
  const text = words.length ? elementText(kind, words.map(Number), Number(bits), whole) : "·";
  const where = lane.startsWith("w") ? `${hex(addressOf(Number(lane.slice(1))))} of shared memory` : `lane ${lane}${register ? `, ${data.registers[register].name}` : ""}`;
  return `${name}[${row}, ${col}] = ${text}, ${where}`;
}

/** Light what an element of D that is pointed at is made of: its row of A, its column of B, and C. */
function lightFactors(cell) {
  const [name, row, col] = cell ? cell.dataset.about.split(",") : [];
  const feeds = { A: (r) => r === row, B: (r, c) => c === col, C: (r, c) => r === row && c === col };
  for (const one of document.querySelectorAll("#operands .c")) {
    const [other, ...place] = one.dataset.about.split(",");
    one.classList.toggle("feeds", name === "D" && other in feeds && feeds[other](...place));
  }
}

/** The 8 x 8 matrices, or larger ones, that an instruction moves, which lie below each other in its operand. */
function matricesOf(one) {
  const { rows, cols } = one.layout, high = rows > 8 ? 8 : rows;
  if (one.fragment.name !== "R") return [one];
  return range(rows / high).map((i) => ({ ...one, rows: one.rows.slice(high * i, high * (i + 1)), title: `matrix ${i}`, size: `${high}×${cols}` }));
}

/** The result, then what it is made of: side by side as far as there is room. */
function arranged(drawn, fresh) {
  const GAP = 24, TOP = 34, room = $("operands").clientWidth - GAP, parts = [];
  const same = (one, other) => String(one.fragment.registers) === String(other.fragment.registers);
  const [result] = drawn.filter((one) => one.fragment.name === "D");
  const order = ["D", "C", "B", "A"].flatMap((name) => drawn.filter((one) => one.fragment.name === name && !(name === "C" && result && same(one, result))));
  let x = GAP, y = TOP, wide = 0, bottom = 0;
  for (const one of order.length ? order : drawn.flatMap(matricesOf)) {
    if (x > GAP && x + one.count * one.width > room) [x, y] = [GAP, bottom + TOP + 2];
    const found = drawBox(one, x, y, one.fragment.result ? fresh : new Set());
    const size = `${one.size || `${one.layout.rows}×${one.layout.cols}`} ${one.kind}`, some = !one.size && one.rows.length < one.layout.rows ? ", this warp's rows" : "", where = one.where ? `, ${one.where}` : "";
    parts.push(`<text class="t" x="${x}" y="${y - 17}">${one.title || one.fragment.name} <tspan class="s">${size}${some}${where}</tspan></text>${found.svg}`);
    bottom = Math.max(bottom, y + found.high);
    wide = Math.max(wide, x + found.wide);
    x += found.wide + GAP;
  }
  const size = `${round(wide + 4)} ${round(bottom + 4)}`.split(" ");
  return `<div class="scrolls" tabindex="0" role="region" aria-label="matrix"><svg width="${size[0]}" height="${size[1]}" viewBox="0 0 ${size.join(" ")}" role="group">${parts.join("")}</svg></div>`;
}
