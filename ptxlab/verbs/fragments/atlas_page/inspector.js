// What is known of the chosen element or lane: in words, in the picture's highlights, as a formula.

const chip = (lane, text) => `<span class="chip" style="--lane:var(--l${lane % LANES})">${text}</span>`;
/** What holds an element: chips of its places, or its offset in shared memory. */
const held = (name, row, col) => (operand(name) ? placeChip(name, placesAt(operand(name), state.matrix, row, col))
  : `<span class="k">${offsetOf(name, row, col)}</span>`);
const placeChip = (name, places) => places.map((p) => chip(p.lane, `${p.lane}:${lower(name)}${p.register}`)).join(" ");

/** Which B rows a column of a sparse A may multiply: its chunk, of which the metadata picks. */
function rowsOfB(col) {
  const sparse = state.entry.sparse;
  if (!sparse) return [col, 1];
  const { kept, of } = sparse;
  return [Math.floor(col / kept) * of, of];
}

/** What else decides the dot product of D[row, col]: the metadata of A's row, and the scales. */
function deciders(row, col) {
  const { sparse, scales } = state.entry, found = [];
  if (sparse) {
    const parts = [];
    sparse.places[row].forEach(([lane, bit], chunk) => {
      const last = parts[parts.length - 1];
      if (last && last.lane === lane && last.bit + 4 * last.chunks === bit) last.chunks++;
      else parts.push({ lane, bit, first: chunk, chunks: 1 });
    });
    found.push(`<h3>metadata: ${sparse.kept} of ${sparse.of} kept; selector 0</h3><dl class="held">${parts.map(({ lane, bit, first, chunks }) =>
      `<dt>j ${span(first * sparse.kept, chunks * sparse.kept)}</dt><dd>${chip(lane, `${holder()} ${lane}`)} bits ${bit} to ${bit + 4 * chunks - 1}</dd>`).join("")}</dl>`);
  }
  if (scales) {
    const scale = (name, line, block) => {
      const [lane, byte] = scales[name].places[line][block];
      return `<td>${chip(lane, `lane ${lane}`)} byte ${byte}</td>`;
    };
    const { blocks, dtype } = scales.A, length = rowsOf("B") / blocks;
    found.push(`<h3>scales of ${dtype}; byte-id 0, thread-id 0</h3><table class="sum"><tr><th>k</th><th>of A in</th><th>of B in</th></tr>${
      range(blocks).map((block) => `<tr><td class="k">${span(block * length, length)}</td>${scale("A", row, block)}${scale("B", col, block)}</tr>`).join("")}</table>`);
  }
  return found.join("");
}

/** The dot product of D[row, col], terms of one register of A and one of B together. */
function terms(row, col) {
  const found = [];
  const key = (name, r, c) => (operand(name)
    ? placesAt(operand(name), state.matrix, r, c).map((p) => `${p.lane}:${p.register}`).join() : unitOf(name, r, c).slice(0, 2).join());
  for (let k = 0; k < colsOf("A"); k++) {
    const [first, count] = rowsOfB(k);
    const right = new Map(range(count).map((i) => [key("B", first + i, col), first + i]).reverse());
    const id = `${key("A", row, k)}|${[...right.keys()].join(";")}`;
    const last = found[found.length - 1];
    if (last && last.id === id) last.count++;
    else found.push({ id, k, count: 1, right: [...right.values()].sort((x, y) => x - y), first, of: count });
  }
  return found;
}

function dotProduct(row, col) {
  const { operation, scales } = state.entry;
  const sign = operation ? `popc(A ${operation} B)` : scales ? "scaled A · scaled B" : "A·B";
  const sum = state.entry.sparse ? `Σ A[${row},j] · B[k(j),${col}], k(j) chosen by the metadata` : `Σ ${sign} over k`;
  const rows = terms(row, col).map((t) =>
    `<tr><td class="k">${span(t.k, t.count)}</td><td>${held("A", row, t.k)}</td>` +
    `<td>${t.right.map((k) => held("B", k, col)).join(" ")}${state.entry.sparse ? ` <span class="k">k ${span(t.first, t.of)}${t.count > state.entry.sparse.kept ? "…" : ""}</span>` : ""}</td></tr>`).join("");
  const c = operand("C") ? "C" : "D";
  return `<h3>D[${row},${col}] = ${c}[${row},${col}] + ${sum}</h3><table class="sum">` +
    `<tr><th>${state.entry.sparse ? "j" : "k"}</th><th>A in</th><th>B in</th></tr>${rows}` +
    `<tr><td class="k">${c}</td><td>${held(c, row, col)}</td><td></td></tr></table>${deciders(row, col)}`;
}

function feeds(name, row, col) {
  const d = operand("D"), inRow = name === "A";
  const [first, count] = inRow ? rowsOfB(col) : [row, 1];
  const cells = inRow ? range(d.cols).map((n) => [row, n]) : range(d.rows).map((m) => [m, col]);
  const lanes = [...new Set(cells.flatMap(([r, c]) => placesAt(d, state.matrix, r, c).map((p) => p.lane)))].sort((x, y) => x - y);
  const other = inRow ? `B[${span(first, count)},n]` : `A[m,${state.entry.sparse ? "j" : row}]`;
  const where = inRow ? `row ${row}` : `column ${col}`;
  const maybe = state.entry.sparse ? (inRow ? ", the row the metadata names" : ", where the metadata names this k") : "";
  return `<h3>multiplied with ${other}${maybe}, into ${where} of D</h3><p class="where">${lanes.map((l) => chip(l, l)).join(" ")}</p>`;
}

function strip(name, layout, place, at) {
  const boxes = range(layout.elements).reverse().map((i) => {
    const [row, col] = layout.table[place.lane][place.register][i];
    const label = layout.elements > 8 ? "" : `${row},${col}`;
    return `<button type="button" style="--lane:var(--l${place.lane % LANES})" data-go="${name},${row},${col}" title="${name}[${row},${col}], bits ${i * layout.bits} to ${(i + 1) * layout.bits - 1}" ` +
      `aria-pressed="${i === at}">${label}</button>`;
  }).join("");
  const width = layout.bits * layout.elements;
  return `<div class="strip">${boxes}</div><p class="scale"><span>bit ${width - 1}</span><span>${lower(name)}${place.register} of ${holder()} ${place.lane}</span><span>0</span></p>`;
}

function holdings(lane) {
  const names = Object.keys(state.entry.operands);
  const parts = names.map((name) => {
    const layout = operand(name);
    const cells = layout.table[lane].map((elements, register) => {
      const runs = [];
      elements.forEach(([row, col]) => {
        const last = runs[runs.length - 1];
        if (last && last.row === row && last.col + last.count === col && !last.down) last.count++;
        else if (last && last.col === col && last.row + (last.down || 1) === row && last.count === 1) last.down = (last.down || 1) + 1;
        else runs.push({ row, col, count: 1 });
      });
      return `<dt>${lower(name)}${register}</dt><dd>${runs.map((r) => `${name}[${span(r.row, r.down || 1)},${span(r.col, r.count)}]`).join(" ")}</dd>`;
    });
    return cells.join("");
  });
  return `<dl class="held">${parts.join("")}</dl>`;
}

function extras(name, row, col) {
  const { sparse, scales } = state.entry, found = [];
  if (sparse && name === "A") {
    const [lane, bit] = sparse.places[row][Math.floor(col / sparse.kept)];
    found.push(`<h3>metadata: ${sparse.kept} of ${sparse.of} kept; selector 0</h3><p class="where">${chip(lane, `${holder()} ${lane}`)} bits <b>${bit} to ${bit + 3}</b></p>`);
  }
  if (scales && scales[name]) {
    const { places, blocks, dtype } = scales[name], line = name === "A" ? row : col;
    const k = name === "A" ? col : row, length = (name === "A" ? operand("A").cols : operand("B").rows) / blocks;
    const [lane, byte] = places[line][Math.floor(k / length)];
    found.push(`<h3>scaled by a ${dtype}; byte-id 0, thread-id 0</h3><p class="where">${chip(lane, `lane ${lane}`)} byte <b>${byte}</b> of its scale register</p>`);
  }
  return found.join("");
}

function inspect(what) {
  if (!what) return `<h2>nothing chosen</h2><p class="hint">Hover an element or a lane, or tap to keep it. Every cell says lane and register; neighbours in one register share a cell.</p>`;
  if (what.lane !== undefined) {
    const warp = threads() > LANES ? `warp ${what.lane >> 5}, ` : "";
    return `<h2>${holder()} ${what.lane}</h2><p class="where">${warp}group ${(what.lane % LANES) >> 2}, number ${what.lane & 3} of it</p>${holdings(what.lane)}`;
  }
  const { operand: name, row, col } = what, layout = operand(name);
  if (!layout) return inspectShared(name, row, col);
  const places = placesAt(layout, state.matrix, row, col);
  const names = !multiplies() ? Object.keys(state.entry.operands)
    : name === "D" && operand("C") && sameTables(operand("C"), layout) ? ["C", "D"] : [name];
  const where = names.map((n) => placesAt(operand(n), state.matrix, row, col).map((p) =>
    `<p class="where">${names.length > 1 ? `${n} in ` : ""}${chip(p.lane, `${holder()} ${p.lane}`)} register <b>${lower(n)}${p.register}</b> ${bitsText(p.element * layout.bits, layout.bits)}</p>`).join("")).join("");
  return `<h2>${name}[${row},${col}]</h2>${where}${strip(name, layout, places[0], places[0].element)}${accesses(name, places[0])}` +
    (!multiplies() ? "" : name === "A" || name === "B" ? feeds(name, row, col) + extras(name, row, col) : dotProduct(row, col)) +
    `<h3 class="holds">${holder()} ${places[0].lane} holds</h3>${holdings(places[0].lane)}`;
}

function sentence(what) {
  if (!what) return "";
  if (what.lane !== undefined) return `${holder()} ${what.lane}`;
  if (!operand(what.operand)) return `${what.operand}[${what.row},${what.col}] is in shared memory, ${offsetOf(what.operand, what.row, what.col)}`;
  return placesAt(operand(what.operand), state.matrix, what.row, what.col).map((p) =>
    `${what.operand}[${what.row},${what.col}] is in ${holder()} ${p.lane}, register ${lower(what.operand)}${p.register}, element ${p.element}`).join("; ");
}

function drawSelection() {
  const what = selection(), entry = state.entry;
  $("inspector").innerHTML = `<div>${entry.operands ? inspect(what) : inspectLoad(what)}</div>`;
  $("inspector").classList.toggle("empty", !what);
  $("say").textContent = entry.operands ? sentence(what) : what ? `lane ${what.lane}` : "";
  const svg = $("stage").querySelector("svg");
  svg.classList.toggle("busy", Boolean(what));
  svg.querySelectorAll(".on, .at, .feeds").forEach((cell) => cell.classList.remove("on", "at", "feeds"));
  svg.querySelectorAll(".spot").forEach((spot) => spot.setAttribute("visibility", "hidden"));
  if (!what) return;
  const mine = what.lane !== undefined ? [what.lane] : !operand(what.operand) ? []
    : placesAt(operand(what.operand), state.matrix, what.row, what.col).map((p) => p.lane);
  svg.querySelectorAll("[data-lane]").forEach((cell) => {
    if (mine.includes(Number(cell.dataset.lane))) cell.classList.add("on");
  });
  if (!entry.operands) return;
  svg.querySelectorAll(".operand[data-operand]").forEach((group) =>
    (operand(group.dataset.operand) ? markOperand(group, what, mine) : markShared(group, what)));
}

function markOperand(group, what, mine) {
  const name = group.dataset.operand, layout = operand(name), result = multiplies() && "CD".includes(what.operand);
  const pointed = what.row === undefined ? null : runAt(layout, state.matrix, what.row, what.col);
  group.querySelectorAll("[data-run]").forEach((cell) => {
    const run = layout.runs[state.matrix][Number(cell.dataset.run)];
    const here = name === what.operand && pointed === run;
    const moved = !multiplies() && pointed === run;
    const fed = result && ((name === "A" && run.row <= what.row && what.row < run.row + run.rows) ||
      (name === "B" && run.col <= what.col && what.col < run.col + run.cols));
    if (here) cell.classList.add("at");
    else if (result ? fed : moved || run.places.some((p) => mine.includes(p.lane))) cell.classList.add("on");
    else if (multiplies() && (what.operand === "A" && name === "D" && run.row <= what.row && what.row < run.row + run.rows) ||
      multiplies() && (what.operand === "B" && name === "D" && run.col <= what.col && what.col < run.col + run.cols)) cell.classList.add("feeds");
    if (here && run.length > 1) {
      const [x, y, w, h] = group.dataset.box.split(" ").map(Number), spot = group.querySelector(".spot"), bar = 4;
      const shape = layout.vertical ? { x: x + (what.col + 1) * w - bar, y: y + what.row * h, width: bar, height: Math.max(h, 2) }
        : { x: x + what.col * w, y: y + (what.row + 1) * h - bar, width: Math.max(w, 2), height: bar };
      Object.entries({ ...shape, visibility: "visible" }).forEach(([key, value]) => spot.setAttribute(key, value));
    }
  });
}

function drawBits() {
  if (!state.entry.operands) { $("bits").innerHTML = ""; return; }
  const rows = Object.keys(state.entry.operands).map((name) => {
    const layout = operand(name);
    return layout.steps ? [name, layout.steps] : null;
  }).filter(Boolean);
  const most = (part) => Math.max(...rows.map(([, steps]) => steps[part].length));
  const parts = [["lane", most("lane")], ["register", most("register")], ["element", most("element")]];
  const head = parts.filter(([, n]) => n > 0);
  const cell = (step) => {
    if (!step) return "<td></td>";
    const [row, col] = step;
    if (!row && !col) return '<td class="still">–</td>';
    return `<td class="${row ? "row" : "col"}">${[row && `row+${row}`, col && `col+${col}`].filter(Boolean).join(" ")}</td>`;
  };
  $("bits").innerHTML = `<h2>The formula: what each bit of a place adds</h2><table class="bitmap"><thead><tr><th rowspan="2" scope="col"></th>` +
    head.map(([part, n]) => `<th colspan="${n}" scope="colgroup">${part === "lane" ? holder() : part}</th>`).join("") + "</tr><tr>" +
    head.map(([, n]) => range(n).reverse().map((bit) => `<th scope="col">bit ${bit}</th>`).join("")).join("") + "</tr></thead><tbody>" +
    rows.map(([name, steps]) => `<tr><th scope="row">${name}</th>${head.map(([part, n]) =>
      range(n).reverse().map((bit) => cell(steps[part][bit])).join("")).join("")}</tr>`).join("") + "</tbody></table>";
}
