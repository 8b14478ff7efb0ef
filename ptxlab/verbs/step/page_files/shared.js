// Shared memory by bank: 32 banks of a word, a line of 128 bytes below the other, coloured by who wrote each word.

const BANKS = 32, ROW = 17, LABEL = 52;
const [NOBODY, ENGINE] = [-1, -2];
/** Units of 16 bytes that a swizzle moves within lines of 128 bytes: the bits of the line that it adds. */
const SWIZZLES = { "32B": 1, "64B": 3, "128B": 7 };
let writes, written, cell = 20, through = false, valued = false, hovered = null;

/** What came into shared memory when: what threads stored, and copies when they landed. */
function prepareShared() {
  writes = [];
  const landing = new Map();
  for (const flight of data.flights) {
    if (!flight.writes.length || flight.landed === null) continue;
    if (!landing.has(flight.step)) landing.set(flight.step, flight.landed - 1);
    for (const { cta, start, end } of flight.writes) {
      if (cta === data.rank && flight.queue !== "copies") writes.push({ step: flight.landed - 1, flight, first: start >> 2, last: (end - 1) >> 2 });
    }
  }
  column["access.kind"].forEach((kind, access) => {
    const step = column["access.step"][access], there = kind === 2 ? landing.get(step) : step;
    if (kind && there !== undefined) writes.push({ step: there, access });
  });
  writes.sort((a, b) => a.step - b.step);
  written = { by: new Int32Array(memory.length).fill(NOBODY), count: 0 };
}

/** Call a function with each word that an access touches, and the lane. */
function eachWord(access, tell) {
  const size = column["access.nbytes"][access];
  let at = addressesFrom[access];
  for (let lane = 0; lane < LANES; lane++) {
    if (!((column["access.lanes"][access] >>> lane) & 1)) continue;
    const address = column["access.addresses"][at++];
    for (let word = address >> 2; word <= (address + size - 1) >> 2; word++) tell(word, lane);
  }
}

/** The address of a word, as the program has it. */
const addressOf = (word) => data.sharedBase + 4 * word;

/** Bring up to the moment, for each word, the number of the write that it has from. */
function moveWrites() {
  if (written.count && writes[written.count - 1].step > state.step) written = { by: written.by.fill(NOBODY), count: 0 };
  for (; written.count < writes.length && writes[written.count].step <= state.step; written.count++) {
    const one = writes[written.count];
    if (one.flight) written.by.fill(written.count, one.first, one.last + 1);
    else eachWord(one.access, (word) => { written.by[word] = written.count; });
  }
}

/** The swizzle of each line that is known by now. */
function swizzlesNow() {
  const lines = new Map();
  for (const flight of data.flights) {
    if (!flight.swizzle || flight.step > state.step) continue;
    for (const { cta, start, end } of flight.writes) {
      if (cta === data.rank) for (let line = start >> 7; line <= (end - 1) >> 7; line++) lines.set(line, flight.swizzle);
    }
  }
  for (const one of data.factors) {
    if (one.swizzle !== "none" && data.flights[one.flight].step <= state.step) unitsOf(one).forEach((byte) => lines.set(byte >> 7, one.swizzle));
  }
  return lines;
}

/** What a swizzle adds to the number of a unit of 16 bytes in a line: bits of the address that the program has. */
const swizzleOf = (line, name) => (line + (data.sharedBase >> 7)) & SWIZZLES[name];

/** The word that is drawn at a place: with a swizzle looked through, where its bytes really are. */
function wordAt(line, bank, swizzles) {
  const name = through ? swizzles.get(line) : undefined;
  if (!name) return line * BANKS + bank;
  return ((line * 128 + bank * 4) ^ (swizzleOf(line, name) << 4)) >> 2;
}

/** What the step does to shared memory: by word the lane and what it does, and what is new. */
function touchedNow() {
  const lanes = new Map(), fresh = new Set(), facts = [];
  for (let access = from.access[state.step]; access < from.access[state.step + 1]; access++) {
    const warp = column["access.warp"][access], kind = ["reads", "writes", "copies to"][column["access.kind"][access]];
    if (!(ofCta(warp) && warp % data.ctaWarps === state.warp)) continue;
    eachWord(access, (word, lane) => lanes.set(word, { lane, kind }));
    const size = column["access.nbytes"][access], count = bitsSet(column["access.lanes"][access]), [fronts, passes] = wavefronts(access);
    facts.push(`${plural(count, "lane")} ${kind.replace(/s( to)?$/, "$1").replace("copie", "copy")} ${plural(size, "byte")} each: ` +
      `${plural(fronts, "wavefront")}, ${fronts > passes ? `of which ${fronts - passes} for bank conflicts` : "no bank conflict"}`);
  }
  for (const one of factorsAt(state.step, state.warp)) {
    const units = unitsOf(one);
    units.forEach((byte) => range(UNIT / 4).forEach((i) => lanes.set((byte >> 2) + i, { lane: one.name, kind: "reads" })));
    facts.push(`${one.name} is read, ${plural(UNIT * units.length, "byte")} from ${hex(data.sharedBase + one.start)} on`);
  }
  for (const flight of data.flights) {
    if (flight.step !== state.step || flight.queue === "copies" || !flight.warps.includes(data.rank * data.ctaWarps + state.warp)) continue;
    for (const { cta, start, end } of flight.writes) {
      if (cta !== data.rank) continue;
      for (let word = start >> 2; word < end >> 2; word++) lanes.set(word, { lane: "", kind: "copies to" });
      facts.push(`a copy of ${plural(end - start, "byte")} to ${hex(data.sharedBase + start)} begins`);
    }
  }
  for (const { cta, start, end } of data.flights.filter((one) => one.landed === state.step + 1).flatMap((one) => one.writes)) {
    if (cta === data.rank) for (let word = start >> 2; word < end >> 2; word++) fresh.add(word);
  }
  for (let run = from.shared[state.step]; run < from.shared[state.step + 1]; run++) {
    for (let i = 0; i < column["shared.count"][run]; i++) fresh.add(column["shared.first"][run] + i);
  }
  return { lanes, fresh, facts };
}

/** The wavefronts of an access, and how many it needs: passes of 128 bytes, each as many as words of one bank. */
function wavefronts(access) {
  const size = Math.max(4, column["access.nbytes"][access]), together = Math.max(1, 128 / size), passes = new Map();
  eachWord(access, (word, lane) => {
    const pass = Math.floor(lane / together), banks = passes.get(pass) || passes.set(pass, range(BANKS).map(() => new Set())).get(pass);
    banks[word % BANKS].add(word);
  });
  return [[...passes.values()].reduce((sum, banks) => sum + Math.max(...banks.map((one) => one.size)), 0), passes.size];
}

let touched = null, swizzled = null;

function drawShared() {
  $("shared").hidden = !data.sharedBytes;
  if (!data.sharedBytes) return;
  moveWrites();
  touched = touchedNow();
  swizzled = swizzlesNow();
  const names = [...new Set([...data.flights, ...data.factors].map((one) => one.swizzle).filter((name) => name && name !== "none"))];
  $("colours").textContent = `by bank, coloured by the lane that wrote it${names.length ? "; of a swizzled copy by the unit of 16 bytes, 0 to 7, before the swizzle" : ""}`;
  $("through").hidden = !names.length;
  $("through").setAttribute("aria-pressed", String(through));
  $("values").setAttribute("aria-pressed", String(valued));
  $("through").textContent = `look through the swizzle ${names.join(", ")}`;
  const news = touched.fresh.size ? [`${plural(touched.fresh.size, "word")} new`] : [];
  $("touched").textContent = [...touched.facts, ...news].join("; ") || "not touched in this step";
  const words = [...touched.lanes.keys(), ...touched.fresh];
  if (words.length) showLine(Math.min(...words.map((word) => Math.floor(word / BANKS))), Math.max(...words.map((word) => Math.floor(word / BANKS))));
  paintBanks();
}

function showLine(first, last) {
  const box = $("banks"), room = box.clientHeight - ROW, top = first * ROW, bottom = (last + 1) * ROW;
  if (top < box.scrollTop || bottom > box.scrollTop + room) box.scrollTop = Math.max(0, top - ROW);
}

const lines = () => Math.ceil(memory.length / BANKS);

function paintBanks() {
  const box = $("banks"), canvas = box.querySelector("canvas"), ratio = devicePixelRatio || 1;
  cell = valued ? Math.max(...inSight(box).map((word) => wordText(word, briefer).length), 4) * 6.65 + 6
    : Math.max(15, Math.floor((box.clientWidth - LABEL - 2) / BANKS));
  const wide = LABEL + BANKS * cell;
  box.firstElementChild.style.height = `${(lines() + 1) * ROW + 4}px`;
  box.firstElementChild.style.width = `${wide}px`;
  const high = box.clientHeight;
  [canvas.width, canvas.height] = [wide * ratio, high * ratio];
  [canvas.style.width, canvas.style.height] = [`${wide}px`, `${high}px`];
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  pen.scale(ratio, ratio);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const paint = { ink: colour("--ink"), quiet: colour("--quiet"), line: colour("--line"), ground: colour("--ground"), copy: colour("--copy"), accent: colour("--accent") };
  const lanes = range(LANES).map((lane) => colour(`--l${lane}`)), top = box.scrollTop;
  for (let line = Math.floor(top / ROW); line < Math.min(lines(), (top + high) / ROW); line++) {
    const y = ROW + line * ROW - top;
    pen.font = "11px ui-monospace, monospace";
    pen.textAlign = "right";
    pen.fillStyle = swizzled.has(line) && through ? paint.accent : paint.quiet;
    pen.fillText(hex(data.sharedBase + line * 128), LABEL - 7, y + ROW / 2);
    pen.textAlign = "center";
    for (let bank = 0; bank < BANKS; bank++) {
      const word = wordAt(line, bank, swizzled);
      if (word < memory.length) paintWord(pen, word, LABEL + bank * cell, y, paint, lanes);
    }
  }
  pen.fillStyle = colour("--raised");
  pen.fillRect(0, 0, wide, ROW);
  pen.fillStyle = paint.quiet;
  pen.font = "11px ui-monospace, monospace";
  range(BANKS).forEach((bank) => { if (cell > 17 || bank % 2 === 0) pen.fillText(bank, LABEL + (bank + .5) * cell, ROW / 2); });
}

function paintWord(pen, word, x, y, paint, lanes) {
  const write = written.by[word], now = touched.lanes.get(word), one = write === NOBODY ? null : writes[write];
  const lane = one && !one.flight ? laneOf(one.access, word) : null;
  const unit = one && one.flight && swizzled.has(word >> 5) ? ((word >> 2) & 7) ^ swizzleOf(word >> 5, swizzled.get(word >> 5)) : null;
  pen.fillStyle = one === null ? paint.ground : unit !== null ? lanes[4 * unit] : one.flight ? paint.copy : lanes[lane];
  pen.fillRect(x + .5, y + .5, cell - 1, ROW - 1);
  if (touched.fresh.has(word)) outline(pen, x, y, paint.accent);
  else if (now) outline(pen, x, y, paint.ink);
  if (state.word === word || hovered === word) {
    pen.fillStyle = paint.ink;
    pen.fillRect(x + 1, y + ROW - 4, cell - 2, 3);
  }
  const text = valued ? (one || now ? wordText(word, briefer) : "") : now ? now.lane : unit !== null ? (word % 4 ? "" : unit) : lane;
  if (text !== null) {
    pen.font = now ? "700 11px ui-monospace, monospace" : "11px ui-monospace, monospace";
    pen.fillStyle = now || valued ? paint.ink : paint.quiet;
    pen.fillText(text, x + cell / 2, y + ROW / 2 + .5);
  }
}

/** The type that words of shared memory are shown as: what is chosen, or what the warp loads or multiplies from there. */
function wordKind() {
  if (state.kind !== "auto") return BITS[baseOf(state.kind)] > 32 ? "hex" : state.kind;
  const load = data.places.find(({ text, writes: into }) => /\bld(matrix|\S*\.shared)/.test(text) && into.length && BITS[baseOf(data.registers[into[0]].holds)]);
  if (load) return data.registers[load.writes[0]].holds;
  const product = data.places.map(({ text }) => /^wgmma.*\.(bf16|f16|e4m3|e5m2|s8|u8)\b/.exec(text)).find(Boolean);
  return product ? `${product[1]}x${32 / BITS[product[1]]}` : "hex";
}

const wordText = (word, text) => elements(wordKind(), [memory[word]], 32, text).join(" ");

/** The words that are in sight. */
function inSight(box) {
  const first = Math.floor(box.scrollTop / ROW) * BANKS;
  return range(Math.min(memory.length - first, Math.ceil(box.clientHeight / ROW) * BANKS)).map((i) => first + i).filter((word) => written.by[word] !== NOBODY);
}

function outline(pen, x, y, colour) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1.6;
  pen.strokeRect(x + 1.2, y + 1.2, cell - 2.4, ROW - 2.4);
}

function laneOf(access, wanted) {
  let found = null;
  eachWord(access, (word, lane) => { if (word === wanted) found = lane; });
  return found;
}

function wordUnder(event) {
  const box = $("banks").querySelector("canvas").getBoundingClientRect();
  const bank = Math.floor((event.clientX - box.left - LABEL) / cell), line = Math.floor((event.clientY - box.top - ROW + $("banks").scrollTop) / ROW);
  if (bank < 0 || bank >= BANKS || line < 0 || event.clientY - box.top < ROW) return null;
  const word = wordAt(line, bank, swizzled);
  return word < memory.length ? word : null;
}

/** The variable that an address is in, and how far. */
function variableAt(address) {
  const known = Object.entries(data.variables).filter(([, start]) => start <= address).sort((a, b) => b[1] - a[1])[0];
  return known ? `${known[0]}${address > known[1] ? `+${hex(address - known[1])}` : ""}` : "";
}

function wordWrites(word) {
  return writes.filter((one) => (one.flight ? word >= one.first && word <= one.last : laneOf(one.access, word) !== null));
}

function inspectWord() {
  const word = state.word, write = written.by[word];
  const kind = wordKind();
  let by = "nobody has written it";
  if (write !== NOBODY) {
    const one = writes[write], step = one.flight ? one.flight.step : column["access.step"][one.access], place = placeOf(step);
    const warp = one.flight ? one.flight.warps[0] : column["access.warp"][one.access];
    const lane = one.flight ? "" : `, lane ${laneOf(one.access, word)}`;
    by = `${one.flight ? "copied" : "written"} by <button type="button" data-go="${step}">line ${place.line}</button>, ${nameOfWarp(warp)}${lane}`;
  }
  const own = wordWrites(word), before = own.filter(({ step }) => step < state.step).pop(), after = own.find(({ step }) => step > state.step);
  return `<span><b>${hex(addressOf(word))}</b> <span class="hint">${escape(variableAt(word * 4))}, bank ${word % BANKS}</span> <code>0x${bare(memory[word], 8)}</code> ` +
    `${kind === "hex" ? "" : `<span class="hint">${kind}</span> <code>${wordText(word, whole)}</code> `}<span class="hint">${by}</span></span>` +
    jumps(before ? before.step : null, after ? after.step : null, "write");
}
