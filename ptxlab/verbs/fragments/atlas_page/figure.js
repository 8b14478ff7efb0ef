// The picture of an instruction's operands.

const scaleOf = (name, layout) => {
  const run = layout.runs[0][0];
  const text = Math.max(...layout.runs[0].map((r) => ownerText(name, r.places).length));
  return { width: (text * CHARACTER + PADDING) / run.cols, height: CELL / run.rows };
};

function drawOperand(name, layout, matrix, box, title, first = 0, count = layout.cols) {
  const cells = layout.runs[matrix].map((run, i) => {
    if (run.col < first || run.col >= first + count) return "";
    const x = box.x + run.col * box.width, y = box.y + run.row * box.height;
    const w = run.cols * box.width, h = run.rows * box.height;
    return `<g class="c" data-run="${i}"><rect class="l${run.places[0].lane % LANES}" x="${round(x)}" y="${round(y)}" width="${round(w)}" height="${round(h)}"/>` +
      `<text x="${round(x + w / 2)}" y="${round(y + h / 2 + 3.5)}">${ownerText(name, run.places)}</text></g>`;
  }).join("");
  const left = box.x + first * box.width, width = count * box.width, height = layout.rows * box.height;
  const about = `${title}, ${layout.rows} by ${layout.cols} ${layout.bits}-bit elements`;
  return `<text class="t" x="${round(left)}" y="${round(box.y - LINE)}">${title}</text>` +
    `<g class="operand" tabindex="0" role="application" aria-label="${about}; arrow keys move" data-operand="${name}" data-matrix="${matrix}" ` +
    `data-box="${[box.x, box.y, box.width, box.height].map(round3).join(" ")}">${cells}` +
    `<rect class="spot" visibility="hidden"/><rect class="frame" x="${round(left - 3)}" y="${round(box.y - 3)}" width="${round(width + 6)}" height="${round(height + 6)}" rx="4"/></g>`;
}

const round3 = (x) => Math.round(x * 1000) / 1000;

function columnIndices(layout, matrix, box, first = 0, width = layout.cols) {
  const seen = new Map(layout.runs[matrix].filter((run) => run.col >= first && run.col < first + width)
    .map((run) => [run.col, run.cols]));
  return [...seen].map(([col, count]) => {
    const text = span(col, count), fits = text.length * 5.6 <= count * box.width;
    return `<text class="i" x="${round(box.x + (col + count / 2) * box.width)}" y="${round(box.y - 5)}">${fits ? text : `${col}..`}</text>`;
  }).join("");
}

function rowIndices(layout, matrix, box) {
  const seen = new Map(layout.runs[matrix].map((run) => [run.row, run.rows]));
  return [...seen].map(([row, count]) =>
    `<text class="i e" x="${round(box.x - 6)}" y="${round(box.y + (row + count / 2) * box.height + 3)}">${span(row, count)}</text>`).join("");
}

/** The lanes of each warp as 8 groups of 4: the key to the colours, and a way to ask for one. */
function drawWarp(x, y, idle = () => false) {
  const count = state.entry.operands ? threads() : LANES, warps = count / LANES;
  const w = warps > 1 ? 28 : 36, h = 17, gap = 4 * w + 6, wide = (warps - 1) * gap + 4 * w;
  const cells = range(count).map((lane) => {
    const cx = x + Math.floor(lane / LANES) * gap + (lane % 4) * w, cy = y + Math.floor((lane % LANES) / 4) * h;
    return `<g class="c${idle(lane) ? " idle" : ""}" data-lane="${lane}"><rect class="l${lane % LANES}" x="${cx}" y="${cy}" width="${w}" height="${h}"/>` +
      `<text x="${cx + w / 2}" y="${cy + h / 2 + 3.5}">${lane}</text></g>`;
  }).join("");
  const title = warps > 1 ? `threads of the warpgroup` : "lanes of the warp";
  return `<text class="t" x="${x}" y="${y - 8}">${title}</text>` +
    `<g class="operand lanes" tabindex="0" role="application" aria-label="the ${count} ${holder()}s; arrow keys move" data-lanes="1">${cells}` +
    `<rect class="frame" x="${x - 3}" y="${y - 3}" width="${wide + 6}" height="${8 * h + 6}" rx="4"/></g>`;
}

function frame(width, height, body) {
  const size = `max-width:${Math.round(width * 1.25)}px;min-width:${Math.round(Math.min(width * 0.72, 900))}px;--natural:${Math.ceil(width)}px`;
  return `<svg viewBox="0 0 ${round(width)} ${round(height)}" style="${size}" role="group">${body}</svg>`;
}

const sameTables = (c, d) => c === d || JSON.stringify(c.table) === JSON.stringify(d.table);
const axes = { A: "m×k", B: "k×n", C: "m×n", D: "m×n" };

/** Buttons and lists for what a picture leaves open: the matrix, the number of a group, the columns. */
function picks() {
  const { group, number, columns, scaled } = state.entry, count = matrices(), found = [];
  const option = (value, text, chosen) => `<option value="${value}"${chosen ? " selected" : ""}>${text}</option>`;
  if (count > 1) found.push(`<span>${multiplies() ? "product" : "access"} of the warp ${range(count).map((i) =>
    `<button type="button" data-matrix-pick="${i}" aria-pressed="${i === state.matrix}">${i}</button>`).join("")}</span>`);
  if (group) found.push(`<label>${group.letter} <select id="number">${group.choices.map((n) =>
    option(n, n, n === number)).join("")}</select></label>`);
  if (group && operand(scaled).cols > columns) found.push(`<label>columns <select id="columns">${
    range(Math.ceil(operand(scaled).cols / columns)).map((i) => option(i * columns,
      span(i * columns, Math.min(columns, operand(scaled).cols - i * columns)), i * columns === state.first)).join("")}</select></label>`);
  return found.length ? `<div class="pick">${found.join("")}</div>` : "";
}

function drawFigure() {
  const [a, b, c, d] = ["A", "B", "C", "D"].map(operand), matrix = state.matrix;
  const same = sameTables(c, d), sums = same ? [["D", d, "C and D"]] : [["D", d, "D"], ["C", c, "C"]];
  const scales = { A: scaleOf("A", a), B: scaleOf("B", b), C: scaleOf("C", c), D: scaleOf("D", d) };
  const line = Math.max(scales.A.height, ...sums.map(([name]) => scales[name].height));
  const column = Math.max(scales.B.width, ...sums.map(([name]) => scales[name].width));
  const warp = 4 * 36, notes = Object.keys(axes).map((name) => {
    const layout = operand(name), kept = name === "A" && layout.cols < state.entry.mnk[2] ? "/2" : "";
    return [name, `${axes[name]}${kept}`, `${layout.rows}×${layout.cols}`, state.entry.dtypes[name],
      `${layout.registers} reg${layout.registers > 1 ? "s" : ""}`];
  });
  const wide = Math.max(a.cols * scales.A.width + INDEX, warp + 232);
  const dx = MARGIN + wide + INDEX;
  const dy = Math.max(2 * LINE + b.rows * scales.B.height + 3 * LINE, 8 * 17 + 5 * LINE);
  const boxes = {
    A: { x: dx - INDEX - a.cols * scales.A.width, y: dy, width: scales.A.width, height: line },
    B: { x: dx, y: dy - 2.4 * LINE - b.rows * scales.B.height, width: column, height: scales.B.height },
  };
  const offset = warp + 18;
  let body = drawWarp(MARGIN + 3, 24) + notes.map((parts, i) =>
    `<text class="s" x="${MARGIN + offset}" y="${34 + LINE * i}">${parts[0]}  ${parts[1]} = ${parts[2]} ${parts[3]}</text>`).join("") +
    `<text class="s" x="${MARGIN + offset}" y="${34 + LINE * 5}">6:a0 is lane 6, register a0</text>`;
  body += drawOperand("A", a, matrix, boxes.A, "A") + columnIndices(a, matrix, boxes.A) + rowIndices(a, matrix, boxes.A);
  body += drawOperand("B", b, matrix, boxes.B, "B") + columnIndices(b, matrix, boxes.B) + rowIndices(b, matrix, boxes.B);
  let x = dx;
  sums.forEach(([name, layout, title]) => {
    const box = { x, y: dy, width: column, height: line };
    body += drawOperand(name, layout, matrix, box, title);
    x += layout.cols * column + INDEX;
  });
  $("stage").innerHTML = picks() + frame(x - INDEX + 8, dy + Math.max(a.rows, d.rows) * line + 8, body);
}

/** The operands of what moves a matrix and multiplies nothing, side by side. */
function drawPanels() {
  let x = 4 * 36 + 40 + INDEX, bottom = 0, body = drawWarp(MARGIN + 3, 24);
  Object.keys(state.entry.operands).forEach((name) => {
    const layout = operand(name), scale = scaleOf(name, layout), first = state.first;
    const count = Math.min(state.entry.columns || layout.cols, layout.cols - first);
    const box = { x: x - first * scale.width, y: 3 * LINE, ...scale }, matrix = state.matrix;
    body += drawOperand(name, layout, matrix, box, state.entry.titles[name], first, count) +
      columnIndices(layout, matrix, box, first, count) + rowIndices(layout, matrix, { ...box, x });
    x += Math.max(count * box.width, 130) + INDEX + 12;
    bottom = Math.max(bottom, box.y + layout.rows * box.height);
  });
  $("stage").innerHTML = picks() + frame(x - INDEX, Math.max(bottom, 24 + 8 * 17) + 8, body);
}

/** What the marks of a picture mean, those that it has. */
function drawMarks() {
  const { entry } = state, holds = entry.operands && Object.keys(entry.operands).map((name) => [name, operand(name)]);
  const said = [];
  if (holds) {
    const [name] = holds[0], copies = holds.some(([, layout]) => layout.runs.some((runs) => runs.some((run) => run.places.length > 1)));
    said.push(`<code>6:${lower(name)}0</code> ${holder()} 6, register ${lower(name)}0; its colour is that of the ${holder() === "lane" ? "lane" : "lane in its warp"}`);
    if (copies) said.push("<code>×2</code> as many hold a copy, and the first is named");
    said.push("<b>framed</b> what is pointed at or kept", `<b>framed thinly</b> what goes into it, or is held by the same ${holder()}`);
    if (multiplies()) said.push("<b>half pale</b> what it goes into");
    if (holds.some(([, { steps }]) => steps && Object.values(steps).flat().some(([row, col]) => !row && !col))) said.push("<code>–</code> in the formula: a bit that changes nothing, where a copy is held");
  } else said.push("<code>⚠</code> shares a bank with another row of its eight", `<code>6:r0</code> lane 6, register r0, ${entry.load.store ? "gives" : "gets"} these elements`);
  $("marks").innerHTML = said.map((text) => `<li>${text}</li>`).join("");
}
