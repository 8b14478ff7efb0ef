"""What is under way beside the threads since Hopper: mbarriers, copies with tensor maps, clusters.

What an instruction does is read off what ptxas makes of each form of PTX's.
"""

from __future__ import annotations

from ptxlab.machine.lift.operations.memory import address
from ptxlab.machine.lift.rule import rules
from ptxlab.machine.lift.writer import TRUE, Writer, is_true, is_zero
from ptxlab.machine.operands import Predicate, SassAddress

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
    **rules("UCGABAR_ARV", _cluster_arrive),
    **rules("UCGABAR_WAIT", _cluster_wait),
    **rules("USETMAXREG", _registers),
    **rules("UTMACCTL UTMAPF", lambda w: w.modifiers.ignore(*w.modifiers.names)),
}
