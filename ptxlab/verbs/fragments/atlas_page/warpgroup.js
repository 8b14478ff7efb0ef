// wgmma: D and A of 128 threads, and the units of 16 bytes that descriptors place in shared memory.

const UNIT_BITS = 128, LINES = 8, UNIT_WIDTH = 132;

/** The line of an element along k, its unit of 16 bytes in that line, and the bit it begins at. */
function unitOf(name, row, col) {
  const [line, k] = name === "A" ? [row, col] : [col, row], bit = k * shared(name).bits;
  return [line, Math.floor(bit / UNIT_BITS), bit % UNIT_BITS];
}

/** Where an element lies if the matrix is contiguous along k and nothing is swizzled. */
function offsetOf(name, row, col) {
  const [line, unit, bit] = unitOf(name, row, col), lines = Math.floor(line / LINES);
  const times = (count, word) => (count > 1 ? [`${count} ${word}`] : count ? [word] : []);
  const rest = UNIT_BITS / 8 * (line % LINES) + Math.floor(bit / 8);
  return ["start", ...times(lines, "SBO"), ...times(unit, "LBO"), ...(rest ? [rest] : [])].join(" + ") +
    (bit % 8 ? ` bit ${bit % 8}` : "");
}

/** The elements of a cell of eight lines of one unit. */
function unitAt(cell) {
  const [row, col, rows, cols] = cell.dataset.unit.split(" ").map(Number);
  return { row, col, rows, cols };
}

/** Draw units of an operand in a box of elements, ``lines`` of them from ``first`` on. */
function drawShared(name, box, first, lines) {
  const { rows, cols, bits } = shared(name), per = UNIT_BITS / bits, isA = name === "A";
  const units = (isA ? cols : rows) / per, cells = [];
  for (let unit = 0; unit < units; unit++) for (let line = first; line < first + lines; line += LINES) {
    const [row, col, down, across] = isA ? [line, unit * per, LINES, per] : [unit * per, line, per, LINES];
    const x = box.x + (col - (isA ? 0 : first)) * box.width, y = box.y + row * box.height;
    cells.push(`<g class="c unit" data-unit="${[row, col, down, across].join(" ")}"><rect class="bank" x="${round(x)}" y="${round(y)}" ` +
      `width="${round(across * box.width)}" height="${round(down * box.height)}"/><text x="${round(x + across * box.width / 2)}" ` +
      `y="${round(y + down * box.height / 2 + 3.5)}">${offsetOf(name, row, col)}</text></g>`);
  }
  const width = (isA ? cols : lines) * box.width, height = rows * box.height;
  return `<text class="t" x="${round(box.x)}" y="${round(box.y - LINE)}">${name} in shared memory</text>` +
    `<g class="operand" tabindex="0" role="application" aria-label="${name} in shared memory, ${rows} by ${cols}; arrow keys move" data-operand="${name}">` +
    `${cells.join("")}<rect class="frame" x="${round(box.x - 3)}" y="${round(box.y - 3)}" width="${round(width + 6)}" height="${round(height + 6)}" rx="4"/></g>`;
}

function sharedIndices(name, box, first, lines) {
  const { rows, cols, bits } = shared(name), per = UNIT_BITS / bits, isA = name === "A";
  const downs = range(rows / (isA ? LINES : per)).map((i) => (isA ? [i * LINES, LINES] : [i * per, per]));
  const acrosses = range((isA ? cols : lines) / (isA ? per : LINES)).map((i) => (isA ? [i * per, per] : [first + i * LINES, LINES]));
  return downs.map(([row, count]) =>
    `<text class="i e" x="${round(box.x - 6)}" y="${round(box.y + (row + count / 2) * box.height + 3)}">${span(row, count)}</text>`).join("") +
    acrosses.map(([col, count]) =>
      `<text class="i" x="${round(box.x + (col - (isA ? 0 : first) + count / 2) * box.width)}" y="${round(box.y - 5)}">${span(col, count)}</text>`).join("");
}

function drawWarpgroup() {
  const a = operand("A"), d = operand("D"), b = shared("B"), first = state.first;
  const count = Math.min(state.entry.columns, d.cols - first), scale = scaleOf("D", d);
  const per = UNIT_BITS / b.bits, deep = 2.4 * LINE / per, warp = 4 * (4 * 28 + 6);
  const kept = state.entry.sparse ? "/2" : "";
  const below = 24 + 8 * 17 + 24, notes = [`A m×k${kept}, ${a ? `${a.registers} registers` : "in shared memory"}`,
    `B k×n ${b.rows}×${b.cols}, in shared memory`, `D m×n ${d.rows}×${d.cols}, ${d.registers} registers`,
    "start, SBO, LBO: of the matrix descriptor, along k, no swizzle", "6:d0 is thread 6, register d0"];
  const aScale = a ? scaleOf("A", a) : { width: UNIT_WIDTH / (UNIT_BITS / shared("A").bits) };
  const aWidth = colsOf("A") * aScale.width, dx = MARGIN + Math.max(aWidth + INDEX, warp) + INDEX;
  const dy = Math.max(6 * LINE + b.rows * deep, below + 7 * LINE);
  const boxes = {
    A: { x: dx - INDEX - aWidth, y: dy, width: aScale.width, height: scale.height },
    B: { x: dx, y: dy - 2.6 * LINE - b.rows * deep, width: scale.width, height: deep },
    D: { x: dx - first * scale.width, y: dy, ...scale },
  };
  let body = drawWarp(MARGIN + 3, 24) + notes.map((text, i) =>
    `<text class="s" x="${MARGIN}" y="${below + LINE * i}">${text}</text>`).join("");
  body += a ? drawOperand("A", a, 0, boxes.A, "A") + columnIndices(a, 0, boxes.A) + rowIndices(a, 0, boxes.A)
    : drawShared("A", boxes.A, 0, shared("A").rows) + sharedIndices("A", boxes.A, 0, shared("A").rows);
  body += drawShared("B", boxes.B, first, count) + sharedIndices("B", boxes.B, first, count);
  body += drawOperand("D", d, 0, boxes.D, "D", first, count) + columnIndices(d, 0, boxes.D, first, count);
  $("stage").innerHTML = picks() + frame(dx + count * scale.width + 8, dy + d.rows * scale.height + 8, body);
}

function inspectShared(name, row, col) {
  const [line, unit, bit] = unitOf(name, row, col), { bits } = shared(name);
  return `<h2>${name}[${row},${col}]</h2><p class="where">shared memory <b>${offsetOf(name, row, col)}</b></p>` +
    `<p class="hint">line ${line}, 16 bytes number ${unit} along k, ${bitsText(bit, bits)} of them. So far from the start address ` +
    `if the matrix is contiguous along k and nothing is swizzled; <code>ptxlab layout --descriptor</code> has the other layouts.</p>` +
    feeds(name, row, col) + extras(name, row, col);
}

/** Mark the units that hold the chosen element, or go into the chosen one of D. */
function markShared(group, what) {
  const name = group.dataset.operand;
  group.querySelectorAll("[data-unit]").forEach((cell) => {
    const { row, col, rows, cols } = unitAt(cell);
    const inRow = what.row >= row && what.row < row + rows, inCol = what.col >= col && what.col < col + cols;
    if (what.operand === name && inRow && inCol) cell.classList.add("at");
    else if (what.operand === "D" && (name === "A" ? inRow : inCol)) cell.classList.add("on");
  });
}
