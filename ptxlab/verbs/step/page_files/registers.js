// The 32 lanes by registers: those used last, each in a column that it keeps while it is in sight.

const WIDE = { pred: 3, f16: 7, bf16: 7, f32: 9, tf32: 9, f64: 10, e4m3: 5, e5m2: 5, s8: 4, u8: 3, u16: 5, s16: 6,
  u32: 10, s32: 11, u64: 20, s64: 20 };
/** How numbers that are no integers are written, and in how many characters at most: the fewer, the less room there is. */
const BREVITY = [[brief, 10], [briefer, 6], [briefest, 5], [least, 4]];
const CHARACTER_WIDTH = 6.65, LANE_WIDTH = 38, MOST_COLUMNS = 16;
let recent = null;

/** A register's name, with its function where that is not the kernel. */
const nameOf = (register) => {
  const { name, function: of } = data.registers[register];
  return of === data.kernel ? name : `${of}:${name}`;
};

const kindOf = (register) => {
  const { bits, ...info } = data.registers[register];
  if (bits === 1) return "pred";
  if (state.kind !== "auto" && (state.kind === "hex" || BITS[baseOf(state.kind)] <= bits)) return state.kind;
  return /^[us]64$/.test(info.holds) ? "hex" : info.holds;  // most are addresses
};

/** How many characters a column takes, of numbers so brief. */
function charactersOf(register, brevity) {
  const info = data.registers[register], bits = info.bits, base = baseOf(kindOf(register)), width = BITS[base];
  if (!width || width > bits) return Math.max(4, bits / 4);
  const several = Math.max(1, Math.floor(bits / width));
  return several * Math.min(WIDE[base], isFloat(base) ? BREVITY[brevity][1] : 20) + several - 1;
}

const widthOf = (register, brevity = recent.brevity) => (Math.max(charactersOf(register, brevity), data.registers[register].name.length) + 1.7) * CHARACTER_WIDTH;

/** The registers in the columns after all turns of the warp until now: numbers get briefer, and those not used for longest give way. */
function columnsNow(room) {
  const last = turnAfter(state.step) - 1;
  if (!recent || recent.warp !== state.warp || recent.room !== room || recent.kind !== state.kind || recent.turn > last) {
    recent = { warp: state.warp, room, kind: state.kind, turn: -1, brevity: 0, slots: [], used: new Map() };
  }
  while (recent.turn < last) {
    const { reads, writes } = placeOf(stepOfTurn(++recent.turn)), { slots, used } = recent;
    const others = reads.filter((register) => !writes.includes(register));  // not behind 64 accumulators
    const wanted = [...writes.slice(0, MOST_COLUMNS / 2), ...others, ...writes.slice(MOST_COLUMNS / 2)].slice(0, MOST_COLUMNS);
    wanted.forEach((register) => used.set(register, recent.turn));
    const total = (columns) => columns.reduce((sum, one) => sum + widthOf(one), 0);
    while (total(wanted) > room && recent.brevity + 1 < BREVITY.length) recent.brevity++;
    const spare = MOST_COLUMNS / 2 + others.length;  // of accumulators the first are enough
    while (total(wanted) > room && wanted.length > spare) wanted.pop();
    const missing = wanted.filter((register) => !slots.includes(register)).sort((a, b) => a - b);
    let left = room - total([...slots, ...missing]), place = slots.length;
    while (left < 0) {
      const oldest = slots.reduce((found, one) => (used.get(one) < used.get(found) ? one : found), slots[0]);
      if (oldest === undefined || used.get(oldest) === recent.turn) break;
      place = slots.indexOf(oldest);
      slots.splice(place, 1);
      left += widthOf(oldest);
    }
    slots.splice(place, 0, ...missing);
  }
  return recent.slots;
}

function drawRegisters(place, turn) {
  const room = $("lanes").clientWidth - LANE_WIDTH, kept = columnsNow(room);
  const shown = state.register === null || kept.includes(state.register) ? kept : [state.register, ...kept];
  const active = turn === null ? 0 : lanesOfTurn(turn), changed = changedNow();
  const columns = shown.map((register) => {
    const info = data.registers[register], delta = changed.get(register), value = held.get(state.warp)[register];
    const role = place && turn !== null ? (place.writes.includes(register) ? "written" : place.reads.includes(register) ? "read" : "") : "";
    const kind = kindOf(register), label = kind === "hex" && state.kind === "auto" ? info.holds : kind;
    return { register, info, delta, value, role, kind, label, bits: info.bits };
  });
  const head = columns.map(({ register, info, role, label }) =>
    `<th class="${role}" style="width:${round(widthOf(register))}px"><button type="button" data-register="${register}" ` +
    `aria-pressed="${register === state.register}" title="${escape(info.name)} of ${escape(info.function)}, .${info.declared}">` +
    `${escape(info.name)}<small>${escape(label)}</small></button></th>`).join("");
  const exists = Math.min(LANES, data.threads - LANES * state.warp);
  const rows = range(exists).map((lane) => {
    const cells = columns.map(({ register, delta, value, kind, bits, role }) => {
      const fresh = delta && wordsOf(delta, lane).some(Boolean);
      const text = elements(kind, value ? wordsOf(value, lane) : Array(Math.ceil(bits / 32)).fill(0), bits, BREVITY[recent.brevity][0]).join(" ");
      return `<td class="${fresh ? "fresh" : role}" data-at="${register}">${text}</td>`;
    }).join("");
    const look = `${(active >>> lane) & 1 ? "" : "idle"}${lane === state.lane ? " at" : ""}`;
    return `<tr class="${look}" data-lane="${lane}"><th style="--lane:var(--l${lane})">${lane}</th>${cells}</tr>`;
  }).join("");
  const wide = columns.reduce((sum, { register }) => sum + widthOf(register), LANE_WIDTH);
  $("lanes").innerHTML = `<table style="width:${round(wide)}px"><thead><tr><th></th>${head}</tr></thead><tbody>${rows}</tbody></table>`;
  const written = $("lanes").querySelector("thead .written"), box = $("lanes");
  if (written && written.offsetLeft + written.offsetWidth > box.scrollLeft + box.clientWidth) box.scrollLeft = written.offsetLeft - LANE_WIDTH;
  else if (written && written.offsetLeft < box.scrollLeft + LANE_WIDTH) box.scrollLeft = written.offsetLeft - LANE_WIDTH;
}

/** What is chosen, in words: a register, in a lane if one is chosen, or else a word of shared memory. */
function drawChosen() {
  const box = $("chosen");
  if (state.register === null) {
    box.innerHTML = state.word === null
      ? '<span class="hint">Choose a register, a lane, an element of a matrix or a word of shared memory.</span>' : inspectWord();
    return;
  }
  const info = data.registers[state.register], bits = info.bits, before = seekWrite(-1, state.register), after = seekWrite(1, state.register);
  let text = `<b>${escape(nameOf(state.register))}</b> <span class="hint">.${info.declared}</span>`;
  if (state.lane !== null) {
    const words = wordsOf(valueAt(state.register, state.step), state.lane);
    const kinds = [...new Set([kindOf(state.register), info.holds])].filter((kind) => BITS[baseOf(kind)]);
    text += ` <span class="chip" style="--lane:var(--l${state.lane})">lane ${state.lane}</span> <code>0x${inHex(words, bits)}</code>` +
      kinds.map((kind) => ` <span class="hint">${kind}</span> <code>${elements(kind, words, bits, whole).join(" ")}</code>`).join("") + was(words, bits) + asDescriptor(words);
  }
  box.innerHTML = `<span>${text}</span>${jumps(before, after, "write")}`;
}

/** What a lane held before the step, where that has changed it. */
function was(words, bits) {
  const before = wordsOf(valueAt(state.register, state.step - 1), state.lane);
  return before.every((word, i) => word === words[i]) ? "" : ` <span class="hint">was</span> <code>0x${inHex(before, bits)}</code>`;
}

/** The fields of a matrix descriptor, where the register is one. */
function asDescriptor([low, high]) {
  const family = data.descriptors[state.register];
  if (!family) return "";
  const word = (BigInt(high) << 32n) | BigInt(low);
  return data.records[family].map(({ name, low: at, bits, unit, codes }) => {
    const stored = Number((word >> BigInt(at)) & ((1n << BigInt(bits)) - 1n));
    const value = codes ? Object.keys(codes).find((one) => codes[one] === stored) : unit > 1 ? hex(stored * unit) : stored;
    return ` <span class="hint">${name}</span> <code>${value}</code>`;
  }).join("");
}

/** Buttons to the step of a kind before and after. */
const jumps = (before, after, label, what = label) => `<span class="jumps">${[[before, `‹ ${label}`, "before"], [after, `${label} ›`, "after"]].map(([step, text, which]) =>
  `<button type="button" ${step === null ? "disabled" : `data-go="${step}"`} title="to the ${what} ${which}">${text}</button>`).join("")}</span>`;
