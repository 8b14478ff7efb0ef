"""Who goes on, where and when; and what lanes of a warp tell each other.

Lanes that part from each other meet again where the machine code says: BSSY notes who is together, BSYNC
waits for them.
"""

from __future__ import annotations

import re

from ptxlab.machine.control import INSTRUCTION_BYTES
from ptxlab.machine.lift.code import NAMED, PROVIDED, provided_directly
from ptxlab.machine.lift.rule import rules
from ptxlab.machine.lift.writer import FALSE, TRUE, Writer, is_zero, register
from ptxlab.machine.operands import Immediate, Operand, Predicate, SassName, SassRegister


def label(number: int) -> str:
    """Return the label of an instruction by its number."""
    return f"L{number}"


def _go(w: Writer, number: int | None) -> None:
    if number is None:
        raise w.refused("where it goes is not known")
    w.emit(f"bra {label(number)}")


def _branch(w: Writer) -> None:
    i, m = w.i, w.modifiers
    m.ignore("U", "CONV", "ANY", "INC", "DEC", "NOINC", "NODEC")
    condition = _condition(w)
    if condition == FALSE:
        return
    if m.has("DIV"):
        _if_apart(w)
        return
    if "ANY" in m.names:
        _if_any(w, condition)
        return
    if condition == TRUE:
        _go(w, i.target)
        return
    _if(w, condition, f"bra {label(i.target or 0)}")


def _if_apart(w: Writer) -> None:
    """BRA.DIV: go where lanes that are not all that a mask names wait for the others, and which those that are may go.

    The guard holds back who names other lanes than the first one, so that those who do not are fewer than all: then
    too the warp goes there as one.
    """
    guard = w.i.guard
    if guard is not None and not (guard.negated and guard.number in w.strangers):
        raise w.refused("what the guard means here is not modelled")
    w.unguarded(f"bra {label(w.i.target or 0)}")


def _condition(w: Writer) -> str:
    """Return the predicate that the operands of an instruction ask for, beside its guard."""
    condition = TRUE
    with w.for_all():
        for operand in w.i.operands:
            if isinstance(operand, Predicate):
                condition = w.both(condition, w.given(operand))
    return condition


def _unconditional(w: Writer) -> None:
    if _condition(w) != TRUE:
        raise w.refused("a condition beside the guard is not modelled")


def _if_any(w: Writer, condition: str) -> None:
    """Branch with all lanes that are here where a condition and the guard hold for any."""
    condition = _with_guard(w, condition)
    mask, taken = w.temporary("w"), w.temporary("q")
    w.unguarded(f"activemask.b32 {mask}")
    w.unguarded(f"vote.sync.any.pred {taken}, {w.source(condition)}, {mask}")
    w.unguarded(f"@{taken} bra {label(w.i.target or 0)}")


def _if(w: Writer, condition: str, line: str) -> None:
    """Emit what moves threads elsewhere, of which a condition must hold beside the guard."""
    w.unguarded(f"@{w.source(_with_guard(w, condition))} {line}")


def _with_guard(w: Writer, condition: str) -> str:
    """Return a condition and the guard as one predicate, which all threads have: who is held back too."""
    with w.for_all():
        return condition if w.i.guard is None else w.both(condition, w.given(w.i.guard))


def _call(w: Writer) -> None:
    """CALL: of a function, or of one that a register names, which may be the driver's."""
    w.modifiers.ignore("REL", "ABS", "NOINC")
    _unconditional(w)
    if w.i.target is not None:
        _go(w, w.i.target)
        return
    direct = provided_directly(w.i)
    if direct is not None:
        _provided(w, direct, TRUE)
        return
    low, base = _register(w), _function(w)
    for number in w.addresses.called:
        w.emit(f"@{_is(w, low, number - base)} bra {label(number)}")
    others = TRUE
    for name, address in w.addresses.provided.items():
        here = w.made("setp.eq.u32", low, str(address), kind="q")
        _provided(w, name, here)
        others = w.both(others, w.negation(here))
    _if(w, others, "trap")


def _register(w: Writer) -> str:
    """Return the lower word of the address that a register says."""
    source = w.i.operands[0]
    if not isinstance(source, SassRegister) or w.guarded:
        raise w.refused("where it goes is not known")
    return w.bare(source)


def _function(w: Writer) -> int:
    """Return the number of the instruction from which a register counts: of a function that is named, else 0."""
    named = NAMED.search(w.i.sass.operands[0])
    return w.addresses.functions.get(named["name"], 0) if named else 0


def _is(w: Writer, word: str, number: int) -> str:
    return w.made("setp.eq.u32", word, str(INSTRUCTION_BYTES * number), kind="q")


_ARGUMENTS, _RESULT = 4, 4
"""The registers in which a function is given its arguments, pairs at even ones, and in which its result is."""


def _provided(w: Writer, name: str, here: str) -> None:
    """Call what the driver provides, where the register names it."""
    taken, returned = PROVIDED[name]
    at, given = _ARGUMENTS, []
    for n, kind in enumerate(taken):
        at += at & 1 if kind == "u64" else 0
        words = [w.name(register(at + half)) for half in range(int(kind[1:]) // 32)]
        argument, kind = f"given{n}_{kind}", f"b{kind[1:]}"
        w.arguments[argument] = kind
        value = (
            words[0] if len(words) == 1 else w.made("mov.b64", f"{{{', '.join(words)}}}", kind="d")
        )
        w.emit(f"st.param.{kind} [{argument}], {value}")
        given.append(argument)
        at += len(words)
    past, result = f"past_{name}{w.i.number}", f"returned_{returned}"
    if here != TRUE:
        w.unguarded(f"@!{here} bra {past}")
    w.emit(f"call {f'({result}), ' * bool(returned)}{name}, ({', '.join(given)})")
    if returned:
        w.arguments[result] = returned
        words = [w.name(register(_RESULT + half)) for half in range(int(returned[1:]) // 32)]
        value = words[0] if len(words) == 1 else w.temporary("d")
        w.emit(f"ld.param.{returned} {value}, [{result}]")
        if len(words) > 1:
            w.emit(f"mov.b64 {{{', '.join(words)}}}, {value}")
    w.raw(f"{past}:")


_DISTANCE = re.compile(r"-?0x[0-9a-f]+")


def _indirect(w: Writer) -> None:
    """BRX: to one of several places, which a register tells from behind the instruction on."""
    i = w.i
    if not i.targets:
        raise w.refused("where it goes is not known")
    _unconditional(w)
    low, told = _register(w), _DISTANCE.search(i.sass.operands[0])
    distance = int(told[0], 0) if told else 0
    first = i.number - i.sass.address // INSTRUCTION_BYTES
    begins = i.sass.address + INSTRUCTION_BYTES + distance
    for number in i.targets:
        at = INSTRUCTION_BYTES * (number - first) - begins
        w.emit(f"@{w.made('setp.eq.u32', low, str(at & 0xFFFFFFFF), kind='q')} bra {label(number)}")
    w.emit("trap")


def _here(w: Writer) -> None:
    """LEPC: the address of itself, or that it names."""
    number = w.i.number if w.i.target is None else w.i.target
    low, high = w.row(w.i.operands[0], 2)
    w.emit(f"mov.b32 {low}, {INSTRUCTION_BYTES * number}")
    w.emit(f"mov.b32 {high}, 0")


def _return(w: Writer) -> None:
    """RET: to one of the places behind a call, which a register tells."""
    w.modifiers.ignore("REL", "ABS", "NODEC")
    low = _register(w)
    for number in w.addresses.returns.get(w.i.number, ()):
        w.emit(f"@{_is(w, low, number)} bra {label(number)}")
    w.emit("trap")


def _exit(w: Writer) -> None:
    w.modifiers.ignore("KEEPREFCOUNT", "PREEMPTED", "NO_ATEXIT")
    condition = _condition(w)
    if condition == FALSE:
        return
    if condition != TRUE:
        _if(w, condition, "exit")
        return
    w.emit("exit")


def _barrier(w: Writer, operand: Operand) -> str:
    """Return the register that has the mask of a convergence barrier."""
    if isinstance(operand, SassName) and operand.text.startswith("B"):
        return w.name(operand.text)
    raise w.refused("this barrier is not modelled")


def _note(w: Writer) -> None:
    """BSSY."""
    w.modifiers.ignore("RECONVERGENT", "RELIABLE")
    w.emit(f"activemask.b32 {_barrier(w, w.i.operands[0])}")


def _meet(w: Writer) -> None:
    """BSYNC: of those that BSSY noted who did not leave since."""
    w.modifiers.ignore("RECONVERGENT", "RELIABLE")
    _unconditional(w)
    barrier = next(o for o in w.i.operands if isinstance(o, SassName))
    w.emit(f"converge.sync {_barrier(w, barrier)}")


def _leave(w: Writer) -> None:
    """BREAK: a lane takes itself off its own mask, where those that wait look for it."""
    w.modifiers.ignore("RECONVERGENT", "RELIABLE")
    barrier = next(o for o in w.i.operands if isinstance(o, SassName))
    condition = _condition(w)
    if condition == TRUE:
        w.emit(f"mov.b32 {_barrier(w, barrier)}, 0")
    elif condition != FALSE:
        _if(w, condition, f"mov.b32 {_barrier(w, barrier)}, 0")


def _move_barrier(w: Writer) -> None:
    m = w.modifiers
    m.ignore("32", "PQUAD")
    to, source = w.i.operands[:2]
    clears = m.has("CLEAR")
    if isinstance(to, SassRegister):
        barrier = _barrier(w, source)
        w.emit(f"mov.b32 {w.dest(to)}, {barrier}")
        if clears:
            w.emit(f"mov.b32 {barrier}, 0")
    else:
        w.emit(f"mov.b32 {_barrier(w, to)}, {w.bare(source)}")


def _converge(w: Writer) -> None:
    """WARPSYNC."""
    m = w.modifiers
    m.ignore("EXCLUSIVE", "COLLECTIVE")
    if m.has("ALL"):
        w.emit("bar.warp.sync 0xffffffff")
        return
    w.emit(f"bar.warp.sync {w.word(w.i.operands[0])}")


def _nothing(w: Writer) -> None:
    w.modifiers.ignore(*w.modifiers.names)


def _break_point(w: Writer) -> None:
    if not w.modifiers.has("TRAP"):
        raise w.refused("what a debugger does is not modelled")
    w.emit("trap")


def _sleep(w: Writer) -> None:
    m = w.modifiers
    m.ignore("SYNCS", "WARP")
    operand = next((o for o in w.i.operands if isinstance(o, Immediate | SassRegister)), None)
    w.emit(f"nanosleep.u32 {w.word(operand) if operand is not None else 0}")


# ---- barriers of a CTA ----------------------------------------------------------------------


def _wait(w: Writer) -> None:
    m, i = w.modifiers, w.i
    m.ignore("DEFER_BLOCKING")
    words = [w.word(o) for o in i.operands if isinstance(o, Immediate | SassRegister)]
    if m.has("RED"):
        _join(w, words)
        return
    mode = "arrive" if m.has("ARV") else "sync"
    if mode == "sync" and not m.has("SYNC", "SYNCALL"):
        raise w.refused("this barrier is not modelled")
    w.emit(f"barrier.{mode} {', '.join(words)}")


_JOINED = "joined"
"""The register that has what the last barrier joined, until B2R asks for it."""


def _join(w: Writer, words: list[str]) -> None:
    """BAR.RED: how many threads a predicate holds for, or whether it does for any or all: 1 or 0."""
    given = next(o for o in w.i.operands if isinstance(o, Predicate))
    operation = w.modifiers.choose({"POPC": "popc", "AND": "and", "OR": "or"}, "")
    if not operation:
        raise w.refused("what it joins is not modelled")
    kind = "u32" if operation == "popc" else "pred"
    values = ", ".join([*words, w.source(w.given(given))])
    to = w.special_register(_JOINED)
    if kind == "u32":
        w.emit(f"barrier.red.{operation}.{kind} {to}, {values}")
    else:
        holds = w.made(f"barrier.red.{operation}.{kind}", values, kind="q")
        w.emit(f"selp.b32 {to}, 1, 0, {holds}")


def _joined(w: Writer) -> None:
    """B2R.RESULT: what the barrier before it joined, and whether that is something."""
    if not w.modifiers.has("RESULT"):
        raise w.refused("which barrier it asks for is not modelled")
    value = w.special_register(_JOINED)
    w.emit(f"mov.b32 {w.dest()}, {value}")
    for out in w.outs:
        w.tell(out, w.made("setp.ne.u32", value, "0", kind="q"))


# ---- lanes ----------------------------------------------------------------------------------


def _active(w: Writer) -> str:
    """Return the mask of the lanes that execute this."""
    mask = w.temporary("w")
    w.emit(f"activemask.b32 {mask}")
    return mask


def _shuffle(w: Writer) -> None:
    i, m = w.i, w.modifiers
    mode = m.choose({"IDX": "idx", "UP": "up", "DOWN": "down", "BFLY": "bfly"}, "")
    if not mode:
        raise w.refused("this shuffle is not modelled")
    mask = _active(w)
    a, lane, clamp = (w.word(source) for source in i.sources)
    to = w.dest() + "".join(f"|{w.out(out)}" for out in w.outs)
    w.emit(f"shfl.sync.{mode}.b32 {to}, {a}, {lane}, {clamp}, {mask}")


def _vote(w: Writer) -> None:
    """VOTE: which lanes a predicate holds for, and whether for any or all."""
    i, m = w.i, w.modifiers
    mode = m.choose({"ANY": "any", "ALL": "all", "EQ": "uni"}, "all")
    value = w.source(w.given(i.ins[-1])) if i.ins else w.name(TRUE)
    mask = _active(w)
    told = [w.made(f"vote.sync.{mode}.pred", value, mask, kind="q") for _ in w.outs]
    if i.dest is not None and not is_zero(i.dest):
        w.emit(f"vote.sync.ballot.b32 {w.dest()}, {value}, {mask}")
    for out, name in zip(w.outs, told, strict=True):
        w.tell(out, name)


def _match(w: Writer) -> None:
    i, m = w.i, w.modifiers
    mode = m.choose({"ANY": "any", "ALL": "all"}, "")
    kind = m.choose({"U64": "b64", "64": "b64"}, "b32")
    m.ignore("U32")
    mask = _active(w)
    value = w.pair(i.sources[0]) if kind == "b64" else w.word(i.sources[0])
    to = w.dest() + "".join(f"|{w.out(out)}" for out in w.outs)
    w.emit(f"match.{mode}.sync.{kind} {to}, {value}, {mask}")


_REDUCTIONS = {"SUM": "add", "MIN": "min", "MAX": "max", "OR": "or", "XOR": "xor", "AND": "and"}


def _reduce(w: Writer) -> None:
    i, m = w.i, w.modifiers
    operation = m.choose(_REDUCTIONS, "and")
    kind = m.choose({"S32": "s32", "F32": "f32"}, "u32")
    m.ignore("U32")
    if kind == "f32":
        operation += "".join(f".{n}" for n, k in (("abs", "ABS"), ("NaN", "NAN")) if m.has(k))
    if operation in ("and", "or", "xor"):
        kind = "b32"
    mask = _active(w)
    w.emit(f"redux.sync.{operation}.{kind} {w.dest()}, {w.word(i.sources[0])}, {mask}")


def _elect(w: Writer) -> None:
    mask = _active(w)
    chosen = w.out(w.outs[0]) if w.outs else w.temporary("q")
    w.emit(f"elect.sync {w.dest()}|{chosen}, {mask}")


RULES = {
    **rules("BRA", _branch),
    **rules("BRX BRXU", _indirect),
    **rules("LEPC", _here),
    **rules("CALL", _call),
    **rules("RET", _return),
    **rules("EXIT", _exit),
    **rules("BSSY", _note),
    **rules("BSYNC", _meet),
    **rules("BREAK", _leave),
    **rules("BMOV", _move_barrier),
    **rules("WARPSYNC", _converge),
    **rules("YIELD NOP ENDCOLLECTIVE", _nothing),
    **rules("BPT", _break_point),
    **rules("NANOSLEEP", _sleep),
    **rules("BAR", _wait),
    **rules("B2R", _joined),
    **rules("SHFL", _shuffle),
    **rules("VOTE VOTEU", _vote),
    **rules("MATCH", _match),
    **rules("REDUX CREDUX", _reduce),
    **rules("ELECT", _elect),
}
