// Tensor Memory, lanes by columns: coloured by what filled each cell, framed what the step reads, bright what is new.

const TENSOR_LANES = 128, TENSOR_COLUMNS = 512, LANE_HIGH = 3, TENSOR_LEFT = 34, TENSOR_TOP = 15;
const FILLED_BY = { product: "--filled", copy: "--copy", shift: "--copy", store: "--stored" };
let cellWrites = [], cellFilled, pointed = null, tensorShape = null;

/** What came into Tensor Memory when: products, copies and stores when they landed. */
function prepareTensor() {
  for (const [number, flight] of data.flights.entries()) {
    if (flight.landed === null) continue;
    for (const span of flight.cells_written) if (span.cta === data.rank) cellWrites.push({ step: flight.landed - 1, number, span });
  }
  cellWrites.sort((a, b) => a.step - b.step);
  cellFilled = { by: new Int32Array(cells.length).fill(-1), count: 0 };
  const own = data.allocations.filter(({ cta }) => cta === data.rank);
  if (own.length) tensorShape = { first: Math.min(...own.map(({ start }) => start)), end: Math.max(...own.map((one) => one.end)) };
}

/** Call a function with each cell of a span. */
function eachCell({ start, end, lanes: [low, high] }, tell) {
  for (let lane = low; lane < high; lane++) for (let at = start; at < end; at++) tell(lane * TENSOR_COLUMNS + at);
}

/** Bring up to the moment, for each cell, the number of the flight that it has from. */
function moveCellWrites() {
  if (cellFilled.count && cellWrites[cellFilled.count - 1].step > state.step) cellFilled = { by: cellFilled.by.fill(-1), count: 0 };
  for (; cellFilled.count < cellWrites.length && cellWrites[cellFilled.count].step <= state.step; cellFilled.count++) {
    const { span, number: flight } = cellWrites[cellFilled.count];
    eachCell(span, (cell) => { cellFilled.by[cell] = flight; });
  }
}

/** What the step does: cells that it reads, cells that are being written, and how many are new. */
function cellsTouched() {
  const own = (spans) => spans.filter(({ cta }) => cta === data.rank), facts = [];
  const reads = data.loads.filter(({ step }) => step === state.step).map(({ lanes: rows, columns: [start, end] }) => ({ start, end, lanes: rows }));
  for (const one of reads) facts.push(`${spanText(one)} are read`);
  const begun = data.flights.filter(({ step }) => step === state.step);
  for (const flight of begun) {
    reads.push(...own(flight.cells_read));
    if (own(flight.cells_written).length) facts.push(`a ${flight.work} to ${spanText(hull(own(flight.cells_written)))} begins${flight.shape ? `: ${flight.shape}` : ""}`);
  }
  const aloft = data.flights.filter(({ step, landed }) => step <= state.step && (landed === null || landed > state.step + 1)).flatMap(({ cells_written: spans }) => own(spans));
  let news = 0;
  for (let run = from.cells[state.step]; run < from.cells[state.step + 1]; run++) news += column["cells.count"][run];
  if (news) facts.push(`${plural(news, "cell")} new`);
  return { reads, aloft, facts };
}

const spanText = ({ start, end, lanes: [low, high] }) => `columns ${start} to ${end - 1} of lanes ${low} to ${high - 1}`;

/** The span that spans lie in. */
const hull = (spans) => ({ start: Math.min(...spans.map(({ start }) => start)), end: Math.max(...spans.map(({ end }) => end)),
  lanes: [Math.min(...spans.map((one) => one.lanes[0])), Math.max(...spans.map((one) => one.lanes[1]))] });

function drawTensor() {
  $("tensor").hidden = !tensorShape;
  if (!tensorShape) return;
  moveCellWrites();
  const { facts } = cellsTouched();
  $("cellfacts").textContent = facts.join("; ") || "not touched in this step";
  drawCell();
  paintCells();
}

/** Whether a column is allocated at the moment. */
const isHeld = (at) => data.allocations.some((one) => one.cta === data.rank && one.start <= at && at < one.end
  && one.since <= state.step + 1 && (one.until === null || one.until > state.step));

function paintCells() {
  const box = $("cells"), canvas = box.querySelector("canvas"), ratio = devicePixelRatio || 1;
  const { first, end } = tensorShape, count = end - first, wide = Math.max(2, Math.min(14, (box.clientWidth - TENSOR_LEFT - 6) / count));
  const size = [TENSOR_LEFT + count * wide + 4, TENSOR_TOP + TENSOR_LANES * LANE_HIGH + 4];
  [canvas.width, canvas.height] = size.map((one) => Math.round(one * ratio));
  [canvas.style.width, canvas.style.height] = size.map((one) => `${one}px`);
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement), ink = (name) => style.getPropertyValue(name).trim();
  const colours = Object.fromEntries(Object.entries(FILLED_BY).map(([work, name]) => [work, ink(name)])), { reads, aloft } = cellsTouched();
  const x = (at) => TENSOR_LEFT + (at - first) * wide, y = (lane) => TENSOR_TOP + lane * LANE_HIGH;
  pen.scale(ratio, ratio);
  pen.font = "11px ui-monospace, monospace";
  pen.textBaseline = "middle";
  pen.fillStyle = ink("--quiet");
  pen.textAlign = "center";
  for (let at = Math.ceil(first / 32) * 32; at < end; at += count > 256 ? 64 : 32) pen.fillText(at, x(at) + Math.max(8, wide / 2), TENSOR_TOP / 2);
  pen.textAlign = "right";
  for (let lane = 0; lane < TENSOR_LANES; lane += 32) pen.fillText(lane, TENSOR_LEFT - 5, y(lane) + 5);
  for (let at = first; at < end; at++) {
    pen.fillStyle = ink(isHeld(at) ? "--ground" : "--paper");
    pen.fillRect(x(at), TENSOR_TOP, wide, TENSOR_LANES * LANE_HIGH);
  }
  for (let lane = 0; lane < TENSOR_LANES; lane++) for (let at = first; at < end; at++) {
    const by = cellFilled.by[lane * TENSOR_COLUMNS + at];
    if (by < 0 || !isHeld(at)) continue;
    pen.fillStyle = colours[data.flights[by].work];
    pen.fillRect(x(at), y(lane), wide - (wide > 4 ? .6 : 0), LANE_HIGH - .4);
  }
  pen.fillStyle = ink("--accent");
  pen.globalAlpha = .45;
  for (let run = from.cells[state.step]; run < from.cells[state.step + 1]; run++) {
    const cell = column["cells.first"][run], lane = Math.floor(cell / TENSOR_COLUMNS);
    pen.fillRect(x(cell % TENSOR_COLUMNS), y(lane), column["cells.count"][run] * wide, LANE_HIGH - .4);
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = ink("--line");
  for (let lane = 0; lane <= TENSOR_LANES; lane += 32) pen.strokeRect(TENSOR_LEFT, y(lane), count * wide, .01);
  frame(pen, aloft, ink("--quiet"), [3, 3], x, y);
  frame(pen, reads, ink("--ink"), [], x, y);
  if (pointed !== null) {
    pen.strokeStyle = ink("--accent");
    pen.lineWidth = 2;
    pen.strokeRect(x(pointed % TENSOR_COLUMNS) - 1, y(Math.floor(pointed / TENSOR_COLUMNS)) - 1, wide + 2, LANE_HIGH + 2);
  }
}

function frame(pen, spans, ink, dashes, x, y) {
  pen.strokeStyle = ink;
  pen.lineWidth = 1.5;
  pen.setLineDash(dashes);
  for (const { start, end, lanes: [low, high] } of spans) pen.strokeRect(x(start), y(low), x(end) - x(start), y(high) - y(low));
  pen.setLineDash([]);
}

function cellUnder(event) {
  const box = $("cells").querySelector("canvas").getBoundingClientRect(), { first, end } = tensorShape;
  const wide = (box.width - TENSOR_LEFT - 4) / (end - first), at = first + Math.floor((event.clientX - box.left - TENSOR_LEFT) / wide);
  const lane = Math.floor((event.clientY - box.top - TENSOR_TOP) / LANE_HIGH);
  return at < first || at >= end || lane < 0 || lane >= TENSOR_LANES ? null : lane * TENSOR_COLUMNS + at;
}

/** The type that cells are shown as: what is chosen, or f32. */
const cellKind = () => (state.kind === "auto" ? "f32" : BITS[baseOf(state.kind)] > 32 ? "hex" : state.kind);

function cellText(cell) {
  const by = cellFilled.by[cell], flight = by < 0 ? null : data.flights[by];
  const line = flight && placeOf(flight.step).line;
  return { value: elements(cellKind(), [cells[cell]], 32, whole).join(" "), flight, line };
}

/** What the cell holds that is chosen. */
function drawCell() {
  if (pointed === null) {
    $("cell").innerHTML = '<span class="hint">point at a cell, click to keep it</span>';
    return;
  }
  const { value, flight, line } = cellText(pointed), kind = cellKind();
  const by = flight ? ` <span class="hint">by the ${flight.work} of <button type="button" class="see" data-go="${flight.step}">line ${line}</button></span>` : "";
  $("cell").innerHTML = `<b>lane ${Math.floor(pointed / TENSOR_COLUMNS)}, column ${pointed % TENSOR_COLUMNS}</b> <code>0x${bare(cells[pointed], 8)}</code>` +
    `${kind === "hex" ? "" : ` <span class="hint">${kind}</span> <code>${value}</code>`}${by}`;
}
