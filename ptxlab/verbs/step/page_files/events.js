// Going from step to step by key, slider and click; the address of the page; light and dark; the start.

function draw() {
  const turn = turnNow(), step = state.step, place = placeOf(step);
  drawNow(place, turn);
  drawCode(place);
  drawRegisters(place, turn);
  drawWaiting();
  drawMatrix();
  drawShared();
  drawTensor();
  drawChosen();
  $("slider").value = step;
  $("slider").setAttribute("aria-valuetext", `step ${step + 1} of ${END}`);
  $("count").textContent = `${number(step + 1)} of ${number(END)}`;
  for (const [id, by] of [["back", -1], ["on", 1]]) $(id).disabled = seek(by, () => true) === null;
  history.replaceState(null, "", hashOf());
  if (place) tellLab({ at: { line: place.line, sources: place.sources } });
}

/** The instruction at hand, with its registers to choose. */
function drawNow(place, turn) {
  if (!place) {
    const what = data.flights.some((one) => one.landed === state.step + 1 && one.work === "commit") ? "a commit arrives" : "a copy lands";
    $("now").innerHTML = `<code>${what}</code> <span class="hint">${landings(state.step).join("; ") || "of another CTA"}</span>`;
    return;
  }
  const names = new Map([...place.writes, ...place.reads].map((register) => [data.registers[register].name, register]));
  const text = escape(place.text).replace(/[%$A-Za-z_][\w$.]*/g, (word) => (names.has(word)
    ? `<button type="button" class="${place.writes.includes(names.get(word)) ? "written" : "read"}" data-register="${names.get(word)}">${word}</button>` : word));
  const lanes = turn === null ? 0 : lanesOfTurn(turn), count = bitsSet(lanes), others = warpsOf(state.step).filter((warp) => warp !== state.warp);
  const who = turn === null ? elsewhere(others)
    : `${count === LANES ? "all lanes" : count ? plural(count, "lane") : "no lane, its guard holds it back"}${others.length ? `, with ${others.length > 4 ? plural(others.length, "other warp") : `${others.length > 1 ? "warps" : "warp"} ${others.join(", ")}`}` : ""}`;
  $("now").innerHTML = `<code>${text}</code> <span class="hint">${who}</span>`;
}

/** Who has the step, where this warp has not, with a way to see it. */
function elsewhere(warps) {
  if (!warps.length) return "warps of another CTA alone";
  const seen = warps.find((warp) => data.warps.includes(warp));
  return `${warps.length > 1 ? "warps" : "warp"} ${warps.join(", ")} alone` +
    (seen === undefined ? "" : `<button type="button" class="see" data-warp="${seen}">see warp ${seen}</button>`);
}

/** What lands in a step, in words. */
function landings(step) {
  const landed = data.flights.filter((one) => one.landed === step + 1), lineOf = (one) => placeOf(one.step).line;
  const alike = (one) => landed.filter((other) => other.queue === "tensor_work" && one.queue === other.queue && lineOf(one) === lineOf(other));
  return landed.filter((one) => alike(one).indexOf(one) < 1).map((one) => {
    const to = one.writes.filter(({ cta }) => cta === data.rank).map(({ start, end }) => `${hex(data.sharedBase + start)} to ${hex(data.sharedBase + end - 1)}`);
    const several = alike(one).length, which = several > 1 ? `${several} times the ${one.work}` : several ? `the ${one.work}` : "that";
    return `${which} of <button type="button" class="see" data-go="${one.step}">line ${placeOf(one.step).line}</button>${one.nbytes ? `, ${plural(one.nbytes, "byte")}` : ""}${to.length ? `, ${to.join(", ")}` : ""}`;
  });
}

function go(step) {
  if (step === null || step === undefined || !END) return;
  move(Math.min(Math.max(0, step), END - 1));
  draw();
}

// ---- the address keeps the moment ----

function hashOf() {
  const parts = [`step=${state.step}`, `warp=${state.warp}`];
  if (state.kind !== "auto") parts.push(`as=${state.kind}`);
  if (state.register !== null) parts.push(`register=${nameOf(state.register)}`);
  if (state.lane !== null) parts.push(`lane=${state.lane}`);
  if (state.word !== null) parts.push(`address=${hex(addressOf(state.word))}`);
  return `#${parts.join("&")}`;
}

function readHash() {
  const asked = new URLSearchParams(location.hash.slice(1)), whole = (name, low, high, otherwise) => {
    const value = asked.has(name) ? Number(asked.get(name)) : NaN;
    return Number.isInteger(value) && value >= low && value <= high ? value : otherwise;
  };
  const kinds = [...$("kind").options].map((option) => option.value), warp = whole("warp", 0, data.ctaWarps - 1, data.warps[0]);
  const register = data.registers.findIndex((_, register) => nameOf(register) === asked.get("register"));
  Object.assign(state, {
    warp: data.warps.includes(warp) ? warp : data.warps[0], kind: kinds.includes(asked.get("as")) ? asked.get("as") : "auto",
    register: register < 0 ? null : register, lane: whole("lane", 0, LANES - 1, null),
  });
  const address = whole("address", data.sharedBase, addressOf(memory.length - 1), null);
  state.word = address === null ? null : (address - data.sharedBase) >> 2;
  $("warp").value = state.warp;
  $("kind").value = state.kind;
  go(whole("step", 0, END - 1, firstOfInterest()));
}

/** Where a page opens that was told no moment: at the first turn of the warp that moves matrices, else at its first. */
function firstOfInterest() {
  for (let turn = 0; turn < turnCount(); turn++) {
    if (hasFragments(placeOf(stepOfTurn(turn)), turn)) return stepOfTurn(turn);
  }
  return turnCount() ? stepOfTurn(0) : 0;
}

// ---- what is chosen ----

function choose(what) {
  Object.assign(state, what);
  draw();
}

document.addEventListener("click", (event) => {
  const { go: step, register, word, warp } = (event.target.closest("[data-go],[data-register],[data-word],[data-warp]") || { dataset: {} }).dataset;
  if (warp !== undefined) { seeWarp(Number(warp)); return; }
  if (step !== undefined) { go(Number(step)); return; }
  if (word !== undefined) { choose({ word: Number(word) === state.word ? null : Number(word), register: null, lane: null }); return; }
  const box = event.target.closest("#lanes,#operands,#now");
  if (!box) return;
  const cell = event.target.closest("td"), row = event.target.closest("[data-lane]");
  const named = register !== undefined ? register : cell ? cell.dataset.at : undefined;
  const lane = row ? Number(row.dataset.lane) : state.lane;
  if (named === undefined && !row) return;
  const same = named !== undefined && Number(named) === state.register && lane === state.lane;
  choose({ register: same ? null : named === undefined || named === "null" ? state.register : Number(named), lane: same ? null : lane, word: null });
});
const banks = $("banks");
banks.addEventListener("scroll", () => paintBanks());
banks.addEventListener("pointermove", (event) => {
  const word = wordUnder(event);
  if (word === hovered) return;
  hovered = word;
  banks.title = word === null ? "" : `${hex(addressOf(word))} ${variableAt(4 * word)}: ${wordText(word, whole)}`;
  paintBanks();
});
banks.addEventListener("pointerleave", () => { hovered = null; paintBanks(); });
banks.addEventListener("click", (event) => {
  const word = wordUnder(event);
  if (word !== null) choose({ word: word === state.word ? null : word, register: null, lane: null });
});
const tensorBox = $("cells");
let kept = null;
tensorBox.addEventListener("pointermove", (event) => {
  const cell = cellUnder(event);
  if (cell === pointed) return;
  pointed = cell === null ? kept : cell;
  drawCell();
  paintCells();
});
tensorBox.addEventListener("pointerleave", () => { pointed = kept; if (tensorShape) { drawCell(); paintCells(); } });
tensorBox.addEventListener("click", (event) => {
  const cell = cellUnder(event);
  kept = pointed = cell === kept ? null : cell;
  drawCell();
  paintCells();
});
$("through").addEventListener("click", () => { through = !through; draw(); });
$("values").addEventListener("click", () => { valued = !valued; draw(); });
$("operands").addEventListener("pointerover", (event) => {
  const cell = event.target.closest(".c");
  if (cell) $("operands").title = aboutElement(cell);
  lightFactors(cell);
});
$("operands").addEventListener("pointerleave", () => lightFactors(null));
$("operands").addEventListener("change", (event) => choose({ [event.target.name]: Number(event.target.value) }));
$("cuda").addEventListener("click", ({ target }) => { if (target.dataset.call !== undefined) choose({ call: Number(target.dataset.call) }); });
for (const id of ["cuda", "ptx", "sass"]) $(id).addEventListener("click", goToLine);

// ---- from step to step ----

const turnBy = (by) => () => go(seek(by, () => true));
/** Go to the next write of what is chosen; say if there is one. */
function writeBy(by) {
  const steps = state.word === null ? [] : wordWrites(state.word).map(({ step }) => step).filter((step) => (by > 0 ? step > state.step : step < state.step));
  const step = state.register !== null ? seekWrite(by, state.register) : by > 0 ? steps[0] : steps[steps.length - 1];
  go(step);
  return step !== null && step !== undefined;
}
function seeWarp(warp) {
  $("warp").value = warp;
  choose({ warp });
}
const warpBy = (by) => seeWarp(data.warps[(data.warps.indexOf(state.warp) + by + data.warps.length) % data.warps.length]);
const matrixBy = (by) => go(seek(by, hasFragments));
const help = () => $("help").setAttribute("aria-expanded", document.body.classList.toggle("helping"));
const ACTS = {
  "?": help,
  ArrowRight: turnBy(1), ArrowLeft: turnBy(-1), ".": () => go(state.step + 1), ",": () => go(state.step - 1),
  "]": () => writeBy(1), "[": () => writeBy(-1), m: () => matrixBy(1), M: () => matrixBy(-1),
  w: () => warpBy(1), W: () => warpBy(-1), "/": () => $("find").focus(),
  Home: () => go(0), End: () => go(END - 1),
  Escape: () => { if (document.body.classList.contains("helping")) help(); else choose({ register: null, lane: null, word: null }); },
};
document.addEventListener("keydown", (event) => {
  const typing = event.target.tagName === "SELECT" || event.target === $("find");
  if (!ACTS[event.key] || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  ACTS[event.key]();
});
$("back").addEventListener("click", turnBy(-1));
$("on").addEventListener("click", turnBy(1));
$("slider").addEventListener("input", () => go(Number($("slider").value)));
$("warp").addEventListener("change", () => choose({ warp: Number($("warp").value) }));
$("kind").addEventListener("change", () => choose({ kind: $("kind").value }));
$("help").addEventListener("click", help);
$("link").addEventListener("click", () => copyFrom($("link"), location.href));
addEventListener("hashchange", readHash);
let width = innerWidth;
addEventListener("resize", () => { if (data && innerWidth && innerWidth !== width) { width = innerWidth; draw(); } });

// ---- inside the lab ----

/** Go to the next time that a line is executed, or the first one; it is of the PTX where no file is named. */
function goToPlace(line, file) {
  const wanted = (place) => (file ? place.sources.some(([path, at]) => shortPath(path) === file && at === line) : place.line === line);
  const now = placeOf(state.step);
  if (!(now && wanted(now))) goToNext(wanted);
}

/** What a register holds after the step, in the lane that is chosen or the first one. */
function heldNow(name) {
  const register = data.registers.findIndex((one) => one.name === name);
  if (register < 0) return null;
  const lane = state.lane || 0, { bits } = data.registers[register], words = wordsOf(valueAt(register, state.step), lane), kind = kindOf(register);
  return `0x${inHex(words, bits)}${BITS[baseOf(kind)] ? `, as ${kind} ${elements(kind, words, bits, whole).join(" ")}` : ""} in lane ${lane} of warp ${state.warp} after step ${state.step + 1}`;
}

redraws.push(() => {
  if (data && data.sharedBytes) paintBanks();
  if (data && tensorShape) paintCells();
});

async function begin() {
  await unpack();
  prepare();
  prepareShared();
  prepareTensor();
  buildCode();
  $("slider").max = END - 1;
  $("warp").innerHTML = data.warps.map((warp) => `<option value="${warp}">warp ${warp}</option>`).join("");
  document.body.classList.remove("unpacking");
  readHash();
  joinLab({ goTo: goToPlace, tell: draw, held: heldNow, dress });
}
begin().catch((error) => {
  $("now").textContent = `This page needs a browser of 2023 or later, which can inflate what it holds: ${error.message}`;
});
