"""What is under way beside the threads since Hopper: mbarriers, copies with tensor maps, products of a warpgroup.

What an instruction does is read off what ptxas makes of each form of PTX's.
"""

from __future__ import annotations

from functools import partial

from ptxlab.machine.lift.operations.memory import address
from ptxlab.machine.lift.rule import rules
from ptxlab.machine.lift.writer import FALSE, TRUE, Writer, is_true, is_zero, register
from ptxlab.machine.operands import Predicate, SassAddress, SassName, SassRegister

# ---- mbarriers ------------------------------------------------------------------------------

_MOST = 1 << 20
"""A barrier is stored as what is left of so many arrivals, in its lower word above the lowest bit."""

_COUNTED = {"A1T0": (True, False), "": (True, True), "A1TR": (True, True), "A0TR": (False, True)}
"""Whether an arrival counts one, and whether its register has bytes to expect."""


def _phase(w: Writer) -> None:
    """SYNCS."""
    m = w.modifiers
    at = address(w, next(o for o in w.i.operands if isinstance(o, SassAddress)), wide=False)
    if m.has("EXCH"):
        _begin(w, at)
    elif m.has("ARRIVE"):
        _arrive(w, at)
    elif m.has("PHASECHK"):
        _check(w, at)
    else:
        raise w.refused("what it does to an mbarrier is not modelled")


def _begin(w: Writer, at: str) -> None:
    w.modifiers.ignore("64")
    if not is_zero(w.i.operands[0]):
        raise w.refused("what was there before is not modelled")
    low = w.bare(w.i.operands[-1])
    count = w.made("sub.s32", str(_MOST), w.made("shr.u32", low, "1"))
    with w.once():
        w.emit(f"mbarrier.init.shared::cta.b64 {at}, {count}")


def _arrive(w: Writer, at: str) -> None:
    m = w.modifiers
    m.ignore("TRANS64")
    remote = m.has("RED")
    form = next((name for name in m.names if name in _COUNTED), "")
    m.ignore(form)
    counts, expects = _COUNTED[form]
    if not is_zero(w.i.operands[0]):
        raise w.refused("the state of an mbarrier is not modelled")
    space = "shared::cluster" if remote else "shared::cta"
    nbytes = w.bare(w.i.operands[-1])
    if counts and expects:
        w.emit(f"mbarrier.arrive.expect_tx.release.cta.{space}.b64 _, {at}, {nbytes}")
    elif counts:
        w.emit(f"mbarrier.arrive.release.cta.{space}.b64 _, {at}")
    else:
        w.emit(f"mbarrier.expect_tx.relaxed.cta.{space}.b64 {at}, {nbytes}")


def _check(w: Writer, at: str) -> None:
    m = w.modifiers
    m.ignore("TRANS64")
    name = "try_wait" if m.has("TRYWAIT") else "test_wait"
    parity = w.made("shr.u32", w.bare(w.i.operands[-1]), "31")
    outs = [o for o in w.i.operands if isinstance(o, Predicate)]
    held = w.made(f"mbarrier.{name}.parity.shared::cta.b64", at, parity, kind="q")
    for out in outs[:1]:
        w.tell(out, held)


_RANK_SHIFT = 24
"""Above these bits of a shared address is the number of its CTA in the cluster."""

# ---- copies with tensor maps ----------------------------------------------------------------


def _box(w: Writer, before: int) -> tuple[str, list[str], list[str]]:
    """Return the map, the words ``before`` the coordinates, and these."""
    near, other = (o for o in w.i.operands[:2] if isinstance(o, SassAddress))
    m = w.modifiers
    dimensions = m.choose({f"{n}D": n for n in range(1, 6)}, 0)
    if not dimensions or near.uniform is None or other.uniform is None:
        raise w.refused("this copy is not modelled")
    words = w.words(near.uniform, before + dimensions)
    return w.pair(other.uniform), words[:before], words[before:]


def _load_box(w: Writer) -> None:
    """UTMALDG: one lane has it done for the warp."""
    tensor, (to, barrier), coordinates = _box(w, 2)
    size = len(coordinates)
    name = f"cp.async.bulk.tensor.{size}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    text = f"[{to}], [{tensor}, {{{', '.join(coordinates)}}}], [{barrier}]"
    if w.modifiers.has("2CTA"):
        name += ".cta_group::2"
    if w.modifiers.has("MULTICAST"):
        ctas = w.made("shr.u32", w.bare(w.i.operands[2]), "16")
        mask = w.made("cvt.u16.u32", ctas, kind="h")
        name = name.replace("::bytes", "::bytes.multicast::cluster")
        text = f"{text}, {mask}"
    with w.once():
        w.emit(f"{name} {text}")


def _store_box(w: Writer) -> None:
    """UTMASTG."""
    tensor, [source], coordinates = _box(w, 1)
    name = f"cp.async.bulk.tensor.{len(coordinates)}d.global.shared::cta.tile.bulk_group"
    # The address may lack the number of the CTA in its cluster, which PTX has above the offset.
    rank = w.made("shl.b32", w.made("mov.u32", "%cluster_ctarank"), str(_RANK_SHIFT))
    inside = w.made("and.b32", source, str((1 << _RANK_SHIFT) - 1))
    source = w.made("or.b32", inside, rank)
    with w.once():
        w.emit(f"{name} [{tensor}, {{{', '.join(coordinates)}}}], [{source}]")


def _close_group(w: Writer) -> None:
    w.emit("cp.async.bulk.commit_group")


# ---- products of a warpgroup ----------------------------------------------------------------

_TYPES = {"F16": "f16", "BF16": "bf16", "TF32": "tf32", "F32": "f32"}


def _warpgroup(w: Writer) -> None:
    m = w.modifiers
    if m.has("ARRIVE"):
        w.emit("wgmma.fence.sync.aligned")
    elif m.has("DEPBAR"):
        m.ignore("LE")
        w.emit(f"wgmma.wait_group.sync.aligned {int(w.i.sass.operands[-1], 0)}")
    else:
        raise w.refused("what it does is not modelled")


def _product(factors: str, w: Writer) -> None:
    """HGMMA: descriptors of A and B follow each other, but where A is in registers."""
    i, m = w.i, w.modifiers
    shape = next(name for name in m.names if "x" in name)
    m.ignore(shape)
    _, n, k = map(int, shape.split("x"))
    types = [_TYPES[name] for name in m.names if name in _TYPES]
    m.ignore(*_TYPES)
    sums, *rest = types
    kind = rest[0] if rest else factors
    d, *operands = i.operands
    at = next(number for number, o in enumerate(operands) if isinstance(o, SassAddress))
    described, text = operands[at], i.sass.operands[at + 1]
    marks = set(text.rpartition("]")[2].split(".")[1:])
    if not isinstance(described, SassAddress) or described.uniform is None:
        raise w.refused("where its matrices are is not modelled")
    if marks - {"tnspA", "tnspB"}:
        raise w.refused("how its matrices lie is not modelled")
    count = n // 2 if sums == "f32" else n // 4
    closes = any(isinstance(o, SassName) and o.text.startswith("gsb") for o in operands)
    scaled = [o for o in operands if isinstance(o, Predicate)]
    adds = w.given(scaled[0]) if scaled else TRUE
    into = w.row(d, count)
    source = operands[at + 1]
    if isinstance(source, SassRegister) and not is_zero(source):
        if w.words(source, count) != into:
            raise w.refused("sums that are not where they were are not modelled")
    elif adds != FALSE:
        raise w.refused("sums that begin with nothing are told otherwise")
    parts = [f"{{{', '.join(into)}}}"]
    first = described.uniform.number
    if at:
        words = w.stored(w.words(operands[0], 4))
        parts.append(f"{{{', '.join(words)}}}")
    else:
        parts.append(_descriptor(w, first))
        first += 2
    parts += [_descriptor(w, first), w.straight(adds), "1", "1"]
    if kind in ("f16", "bf16"):
        parts += [str(int("tnspA" in marks))] if not at else []
        parts.append(str(int("tnspB" in marks)))
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{sums}.{kind}.{kind}"
    w.emit(f"{name} {', '.join(parts)}")
    if closes:
        w.emit("wgmma.commit_group.sync.aligned")


def _descriptor(w: Writer, number: int) -> str:
    low, high = (w.name(register(number + n)) for n in range(2))
    return w.made("mov.b64", f"{{{low}, {high}}}", kind="d")


# ---- clusters -------------------------------------------------------------------------------


def _cluster_arrive(w: Writer) -> None:
    w.emit("barrier.cluster.arrive.release.aligned")


def _cluster_wait(w: Writer) -> None:
    w.emit("barrier.cluster.wait.acquire.aligned")


def _registers(w: Writer) -> None:
    """USETMAXREG: registers that are asked for are there."""
    w.modifiers.ignore(*w.modifiers.names)
    for operand in w.i.operands:
        if isinstance(operand, Predicate) and not is_true(operand):
            w.tell(operand, TRUE)


RULES = {
    **rules("SYNCS", _phase),
    **rules("UTMALDG", _load_box),
    **rules("UTMASTG", _store_box),
    **rules("UTMACMDFLUSH", _close_group),
    **rules("WARPGROUP", _warpgroup),
    **rules("HGMMA", partial(_product, "f16")),
    **rules("UCGABAR_ARV", _cluster_arrive),
    **rules("UCGABAR_WAIT", _cluster_wait),
    **rules("USETMAXREG", _registers),
    **rules("UTMACCTL UTMAPF", lambda w: w.modifiers.ignore(*w.modifiers.names)),
}
