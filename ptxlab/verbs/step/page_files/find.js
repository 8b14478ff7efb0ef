// Going to what is typed: a register, an address of shared memory, a line of the PTX, or a part of an instruction.

/** Go to the next (by = -1: last) write of a register or of an address, or execution of a line; say if there is one. */
function find(text, by) {
  const wanted = text.trim(), line = /^(?:line\s*)?(\d+)$/.exec(wanted);
  if (!wanted) return true;
  const register = data.registers.findIndex((one, number) => [nameOf(number), nameOf(number).replace("%", "")].includes(wanted));
  if (register >= 0) {
    choose({ register, word: null });
    return writeBy(by);
  }
  if (/^0x[0-9a-f]+$/i.test(wanted)) {
    const word = (Number(wanted) - data.sharedBase) >> 2;
    if (word < 0 || word >= memory.length) return false;
    choose({ word, register: null, lane: null });
    showLine(Math.floor(word / BANKS), Math.floor(word / BANKS));
    return writeBy(by);
  }
  return around(by, line ? (place) => place.line === Number(line[1]) : (place) => place.text.includes(wanted));
}

/** Go to the warp's next turn at a place that is wanted; behind the last to the first. */
function around(by, wanted) {
  const count = turnCount(), here = by > 0 ? turnAfter(state.step) : turnAfter(state.step - 1) - 1;
  for (let i = 0; i < count; i++) {
    const turn = (((here + by * i) % count) + count) % count;
    if (wanted(placeOf(stepOfTurn(turn)), turn)) { go(stepOfTurn(turn)); return true; }
  }
  return false;
}

$("find").addEventListener("keydown", (event) => {
  if (event.key === "Escape") { $("find").value = ""; $("find").blur(); }
  if (event.key === "Enter") $("find").setAttribute("aria-invalid", String(!find($("find").value, event.shiftKey ? -1 : 1)));
});
$("find").addEventListener("input", () => $("find").removeAttribute("aria-invalid"));
