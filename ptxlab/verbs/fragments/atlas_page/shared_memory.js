// ldmatrix and stmatrix: the rows lanes address, their banks, and the lanes they go to.

const ROW_BYTES = 16, WORD = 4, BANKS = 32, PHASE = 8;
const SWIZZLES = ["none", "32B", "64B", "128B"];

/** Where a lane's row lies: matrices of 8 rows below each other, then beside; larger ones beside. */
function addressOf(lane) {
  const { matrices, rows } = state.entry.load;
  const matrix = Math.floor(lane / rows), row = lane % rows;
  if (matrix >= matrices) return null;
  const [down, right] = rows > PHASE ? [0, matrix] : [matrix % 2, matrix >> 1];
  const plain = (row + down * rows) * state.pitch + right * ROW_BYTES;
  const mask = ((1 << state.swizzle) - 1) << 4;
  return { matrix, row, plain, bytes: plain ^ ((plain >> 3) & mask) };
}

/** How many rows of each phase of eight lanes share the bank that most of them share. */
function wavefronts() {
  const lanes = range(LANES).filter((lane) => addressOf(lane));
  return range(Math.ceil(lanes.length / PHASE)).map((phase) => {
    const load = new Map();
    lanes.slice(phase * PHASE, (phase + 1) * PHASE).forEach((lane) => {
      const bank = (addressOf(lane).bytes / WORD) % BANKS;
      load.set(bank, new Set([...(load.get(bank) || []), addressOf(lane).bytes]));
    });
    return { load, most: Math.max(...[...load.values()].map((rows) => rows.size)) };
  });
}

const hex = (n) => `0x${n.toString(16).padStart(4, "0")}`;

function drawLoad() {
  const { load } = state.entry, layout = expand(data.layouts[load.fragment]), phases = wavefronts();
  const group = 40, left = 84, top = 52, right = left + 8 * group + 60;
  const scale = { width: scaleOf("r", layout).width, height: CELL };
  let y = top, body = "";
  for (let matrix = 0; matrix < load.matrices; matrix++) {
    const box = { x: right, y, ...scale };
    body += `<text class="t" x="2" y="${y - 24}">matrix ${matrix}</text>`;
    range(8).forEach((i) => { body += `<text class="i" x="${left + (i + .5) * group}" y="${y - 5}">${4 * i}..${4 * i + 3}</text>`; });
    body += `<text class="i e" x="${left - 6}" y="${y - 5}">lane, address</text><text class="i" x="${left + 4 * group}" y="${y - 18}">banks of shared memory</text>`;
    for (let row = 0; row < load.rows; row++) {
      const lane = matrix * load.rows + row, at = addressOf(lane), bank = (at.bytes / WORD) % BANKS, cy = y + row * CELL;
      range(8).forEach((i) => { body += `<rect class="bank" x="${left + i * group}" y="${cy}" width="${group}" height="${CELL}"/>`; });
      const clash = phases[Math.floor(lane / PHASE)].load.get(bank).size > 1;
      body += `<text class="i e" x="${left - 6}" y="${cy + 13}">${lane}  ${hex(at.bytes)}</text>` +
        `<g class="c" data-lane="${lane}" data-bank="${bank}"><rect class="l${lane}" x="${left + bank / 4 * group}" y="${cy}" width="${group}" height="${CELL}"/>` +
        `<text${clash ? ' class="clash"' : ""} x="${left + (bank / 4 + .5) * group}" y="${cy + 13.5}">${clash ? "⚠ " : ""}${lane}</text></g>`;
    }
    body += `<text class="t" x="${right}" y="${y - 24}">${load.store ? "comes from" : "goes to"}</text>` +
      columnIndices(layout, 0, box) + rowIndices(layout, 0, box);
    body += layout.runs[0].map((run) => {
      const x = box.x + run.col * box.width, cy = box.y + run.row * box.height, w = run.cols * box.width, h = run.rows * box.height;
      const register = run.places[0].register + matrix * layout.registers, lane = run.places[0].lane;
      return `<g class="c" data-lane="${lane}" data-receives="1"><rect class="l${lane}" x="${round(x)}" y="${round(cy)}" width="${round(w)}" height="${round(h)}"/>` +
        `<text x="${round(x + w / 2)}" y="${round(cy + h / 2 + 3.5)}">${lane}:r${register}</text></g>`;
    }).join("");
    y += load.rows * CELL + top;
  }
  const width = right + layout.cols * scale.width + 8;
  body = `<g class="operand" tabindex="0" role="application" aria-label="the rows of each matrix by lane; arrow keys move" data-lanes="1">${body}` +
    `<rect class="frame" x="1" y="1" width="${round(width - 2)}" height="${round(y - top + 6)}" rx="4"/></g>`;
  const total = phases.reduce((sum, phase) => sum + phase.most, 0), free = total === phases.length;
  const swizzles = SWIZZLES.map((name, i) => `<button type="button" data-swizzle="${i}" aria-pressed="${i === state.swizzle}">${name}</button>`).join("");
  const pitches = [16, 32, 64, 128, 144, 256, 272].map((p) => `<button type="button" data-pitch="${p}" aria-pressed="${p === state.pitch}">${p}</button>`).join("");
  $("stage").innerHTML =
    `<div class="pick"><span><label for="pitch">bytes from row to row</label> <input id="pitch" type="number" min="16" max="1024" step="16" value="${state.pitch}"> ${pitches}</span>` +
    `<span>swizzle ${swizzles}</span></div>` +
    `<p id="verdict" class="verdict ${free ? "good" : "bad"}">${total} wavefront${total > 1 ? "s" : ""} for ${phases.length} phase${phases.length > 1 ? "s" : ""} of eight rows: ` +
    `${free ? "no bank conflict" : `${total - phases.length} more than needed`}</p>` +
    frame(width, y - top + 8, body);
}

function inspectLoad(what) {
  const { load } = state.entry, layout = expand(data.layouts[load.fragment]);
  if (!what) return `<h2>nothing chosen</h2><p class="hint">Hover or tap a lane: the row whose address it supplies and the elements it ${load.store ? "gives" : "receives"} light up.</p>`;
  const at = addressOf(what.lane);
  const supplies = at ? `supplies the address of row <b>${at.row}</b> of matrix <b>${at.matrix}</b>: <b>${hex(at.bytes)}</b>, banks <b>${span((at.bytes / WORD) % BANKS, 4)}</b>` +
    (at.bytes === at.plain ? "" : `, swizzled from ${hex(at.plain)}`) : "supplies no address here";
  const held = range(load.matrices).flatMap((matrix) => layout.table[what.lane].map((elements, register) =>
    `<dt>r${register + matrix * layout.registers}</dt><dd>matrix ${matrix}: ${elements.map(([r, c]) => `[${r},${c}]`).join(" ")}</dd>`)).join("");
  return `<h2>lane ${what.lane}</h2><p class="where">${chip(what.lane, `lane ${what.lane}`)} ${supplies}</p>` +
    `<h3>${load.store ? "gives" : "receives"}, low bits first</h3><dl class="held">${held}</dl>`;
}
