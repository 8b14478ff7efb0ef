// The launch at a moment: after step ``state.step`` of all, as warp ``state.warp`` sees it.

const state = { step: 0, warp: 0, kind: "auto", register: null, lane: null, word: null, first: 0, matrix: 0, call: 0 };
const NONE = 0xffffffff;
let END = 0;
/** By step, where the entries of tables begin: those of step s are from[name][s] to from[name][s + 1]. */
const from = {};
/** By warp: its turns, as numbers of entries; by register the entries that change it; what lanes hold. */
let turns, changes, held;
let wordsFrom, runsFrom, addressesFrom;
let memory, cells, cellsFrom, applied;

function prepare() {
  END = column.executed.length;
  for (const name of ["turn", "change", "shared", "cells", "access"]) from[name] = starts(column[`${name}.step`]);
  turns = new Map(data.warps.map((warp) => [warp, []]));
  column["turn.warp"].forEach((warp, entry) => turns.get(warp).push(entry));
  changes = new Map(data.warps.map((warp) => [warp, new Map()]));
  held = new Map(data.warps.map((warp) => [warp, data.registers.map(() => null)]));
  wordsFrom = sums(column["change.register"], (register) => LANES * data.registers[register].words);
  runsFrom = sums(column["shared.count"], (count) => count);
  addressesFrom = sums(column["access.lanes"], bitsSet);
  column["change.register"].forEach((register, entry) => {
    const own = changes.get(column["change.warp"][entry]);
    if (!own.has(register)) own.set(register, []);
    own.get(register).push(entry);
  });
  memory = new Uint32Array(Math.ceil(data.sharedBytes / 4));
  cellsFrom = sums(column["cells.count"], (count) => count);
  cells = new Uint32Array(data.allocations.length ? TENSOR_LANES * TENSOR_COLUMNS : 0);
  applied = { change: 0, shared: 0, cells: 0 };
}

function starts(steps) {
  const found = new Uint32Array(END + 1);
  let entry = 0;
  for (let step = 0; step <= END; step++) {
    while (entry < steps.length && steps[entry] < step) entry++;
    found[step] = entry;
  }
  return found;
}

function sums(counts, size) {
  const found = new Uint32Array(counts.length + 1);
  counts.forEach((count, i) => { found[i + 1] = found[i] + size(count); });
  return found;
}

function bitsSet(mask) {
  let count = 0;
  for (let left = mask; left; left = (left & (left - 1)) >>> 0) count++;
  return count;
}

/** What was xor what is, of an entry, goes both ways. */
function applyChange(entry) {
  const register = column["change.register"][entry], own = held.get(column["change.warp"][entry]);
  const words = own[register] || (own[register] = new Uint32Array(LANES * data.registers[register].words));
  for (let i = 0, at = wordsFrom[entry]; i < words.length; i++, at++) words[i] ^= column["change.words"][at];
}

const applyShared = (entry) => changeRun(memory, entry);

function applyCells(entry) {
  const first = column["cells.first"][entry];
  for (let i = 0, at = cellsFrom[entry]; at < cellsFrom[entry + 1]; i++, at++) cells[first + i] ^= column["cells.words"][at];
}

function changeRun(words, entry) {
  const first = column["shared.first"][entry];
  for (let i = 0, at = runsFrom[entry]; at < runsFrom[entry + 1]; i++, at++) words[first + i] ^= column["shared.words"][at];
}

/** Bring registers and memory to what they are after a step. */
function move(step) {
  for (const [name, apply] of [["change", applyChange], ["shared", applyShared], ["cells", applyCells]]) {
    const target = from[name][step + 1];
    while (applied[name] < target) apply(applied[name]++);
    while (applied[name] > target) apply(--applied[name]);
  }
  state.step = step;
}

/** The words of a register of the warp after any step: [word][lane] in a row. */
function valueAt(register, step) {
  const now = held.get(state.warp)[register];
  const found = now ? now.slice() : new Uint32Array(LANES * data.registers[register].words);
  const [low, high] = [from.change[Math.min(step, state.step) + 1], from.change[Math.max(step, state.step) + 1]];
  for (const entry of changes.get(state.warp).get(register) || []) {
    if (entry < low || entry >= high) continue;
    for (let i = 0, at = wordsFrom[entry]; i < found.length; i++, at++) found[i] ^= column["change.words"][at];
  }
  return found;
}

const wordsOf = (value, lane) => range(value.length / LANES).map((word) => value[word * LANES + lane]);

// ---- turns ----

const placeOf = (step) => (column.executed[step] === NONE ? null : data.places[column.executed[step]]);
const warpsOf = (step) => data.together[column.who[step]].filter((warp) => ofCta(warp)).map((warp) => warp % data.ctaWarps);
const ofCta = (warp) => Math.floor(warp / data.ctaWarps) === data.rank;

/** The number of the first turn of the warp that is after a step. */
function turnAfter(step) {
  const own = turns.get(state.warp);
  let low = 0, high = own.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column["turn.step"][own[middle]] <= step) low = middle + 1;
    else high = middle;
  }
  return low;
}

const turnCount = () => turns.get(state.warp).length;
const stepOfTurn = (turn) => column["turn.step"][turns.get(state.warp)[turn]];
const lanesOfTurn = (turn) => column["turn.lanes"][turns.get(state.warp)[turn]];

/** The warp's turn in the step, or null: others have it. */
function turnNow() {
  const turn = turnAfter(state.step) - 1;
  return turn >= 0 && stepOfTurn(turn) === state.step ? turn : null;
}

/** The step of the warp's next turn (before, for by = -1) at a place that is wanted; null for none. */
function seek(by, wanted) {
  let turn = by > 0 ? turnAfter(state.step) : turnAfter(state.step - 1) - 1;
  for (; turn >= 0 && turn < turnCount(); turn += by) {
    if (wanted(placeOf(stepOfTurn(turn)), turn)) return stepOfTurn(turn);
  }
  return null;
}

/** The step of the next write of a register of the warp, by an instruction or by what lands. */
function seekWrite(by, register) {
  const byTurn = seek(by, (place, turn) => place.writes.includes(register) && lanesOfTurn(turn) !== 0);
  const steps = (changes.get(state.warp).get(register) || []).map((entry) => column["change.step"][entry])
    .filter((step) => (by > 0 ? step > state.step : step < state.step));
  const landed = steps.length ? (by > 0 ? steps[0] : steps[steps.length - 1]) : null;
  const found = [byTurn, landed].filter((step) => step !== null);
  return found.length ? (by > 0 ? Math.min(...found) : Math.max(...found)) : null;
}

/** By register what the step has changed in the warp: old xor new. */
function changedNow() {
  const found = new Map();
  for (let entry = from.change[state.step]; entry < from.change[state.step + 1]; entry++) {
    if (column["change.warp"][entry] !== state.warp) continue;
    const register = column["change.register"][entry];
    const delta = column["change.words"].slice(wordsFrom[entry], wordsFrom[entry + 1]), before = found.get(register);
    found.set(register, before ? delta.map((word, i) => word ^ before[i]) : delta);
  }
  return found;
}
