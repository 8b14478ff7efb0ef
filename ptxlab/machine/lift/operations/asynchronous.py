"""What is under way beside the threads since Hopper: mbarriers, copies with tensor maps, clusters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from ptxlab.machine.lift.operations.bulk import operation_of
from ptxlab.machine.lift.operations.memory import address
from ptxlab.machine.lift.rule import rules
from ptxlab.machine.lift.writer import TRUE, Writer, is_true, is_zero
from ptxlab.machine.operands import Predicate, SassAddress

# ---- mbarriers ------------------------------------------------------------------------------

_MOST = 1 << 20
"""A barrier is stored as what is left of so many arrivals, in its lower word above the lowest bit."""

_ARRIVALS = {
    "A1T0": ("one", "none"),
    "A1TR": ("one", "told"),
    "": ("one", "told"),
    "ART0": ("told", "none"),
    "A0TR": ("none", "told"),
    "A0TX": ("none", "came"),
    "A0T1": ("none", "copies"),
}
"""How many arrivals one counts, and bytes that are expected, or that came; those of a register are told there."""


def _phase(w: Writer) -> None:
    """SYNCS."""
    m = w.modifiers
    named = next((o for o in w.i.operands if isinstance(o, SassAddress)), None)
    if named is None:  # IVALL: any of them may have been stored as words
        raise w.refused("an mbarrier of which each thread has a count of its own is not modelled")
    at = address(w, named, wide=False)
    if m.has("EXCH"):
        _begin(w, at)
    elif m.has("ARRIVE"):
        _arrive(w, at)
    elif m.has("PHASECHK"):
        _check(w, at)
    elif m.has("LD"):
        _layout(w, at)
    elif m.has("CCTL"):
        m.ignore("IV")
        w.emit(f"mbarrier.inval.shared::cta.b64 {at}")
    else:
        raise w.refused("what it does to an mbarrier is not modelled")


def _begin(w: Writer, at: str) -> None:
    w.modifiers.ignore("64")
    if not is_zero(w.i.operands[0]):
        raise w.refused("what was there before is not modelled")
    low = w.bare(w.i.operands[-1])
    count = w.made("sub.s32", str(_MOST), w.made("shr.u32", low, "1"))
    second = w.made("setp.ne.u32", w.made("and.b32", low, "1"), "0", kind="q")
    for layout, condition in (("", w.negation(second)), (".layout::v1", second)):
        with w.once(condition):
            w.emit(f"mbarrier.init{layout}.shared::cta.b64 {at}, {count}")


def _layout(w: Writer, at: str) -> None:
    """Load an mbarrier, of which the lowest bit tells its layout: of the others nobody asks."""
    w.modifiers.ignore("64")
    low, high = w.row(w.i.operands[0], 2)
    second = w.made("mbarrier.check_layout.layout::v1.shared::cta.b64", at, kind="q")
    w.emit(f"selp.b32 {low}, 1, 0, {second}")
    w.emit(f"mov.b32 {high}, 0")


def _arrive(w: Writer, at: str) -> None:
    m = w.modifiers
    # TMASK: lanes arrive together, and compute from a mask what each of them would have found. Here each arrives alone.
    m.ignore("TRANS64", "TMASK")
    form = next((name for name in m.names if name in _ARRIVALS), "")
    m.ignore(form)
    arrivals, nbytes = _ARRIVALS[form]
    space = "shared::cluster" if m.has("RED") else "shared::cta"
    told = w.bare(w.i.operands[-1])
    if nbytes == "copies":
        w.emit(f"cp.async.mbarrier.arrive.shared::cta.b64 {at}")
        return
    if arrivals == "none":
        name = "complete_tx" if nbytes == "came" else "expect_tx"
        w.emit(f"mbarrier.{name}.relaxed.cta.{space}.b64 {at}, {told}")
        return
    name = "arrive_drop" if m.has("OPTOUT") else "arrive"
    name += ".expect_tx" * (nbytes == "told")
    values = at if told == "0" and nbytes == "none" else f"{at}, {told}"
    form = f"mbarrier.{name}.release.cta.{space}.b64"
    if is_zero(w.i.operands[0]):
        w.emit(f"{form} _, {values}")
    else:
        _state(w, w.made(form, values, kind="d"))


_PARITY_AT, _MISSING_AT = 31, 11


def _state(w: Writer, state: str) -> None:
    """Write the state of an mbarrier as the machine has it: in the upper word its phase, and what is left of most arrivals."""
    low, high = w.row(w.i.operands[0], 2)
    pending = w.made("mbarrier.pending_count.b64", state)
    left = w.made("and.b32", w.made("sub.s32", str(_MOST), pending), str(_MOST - 1))
    parity = w.made("mbarrier.parity.b64", state)
    phase = w.made("shl.b32", parity, str(_PARITY_AT))
    w.emit(f"mad.lo.u32 {high}, {left}, {1 << _MISSING_AT}, {phase}")
    w.emit(f"mov.b32 {low}, 0")


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


def _box(w: Writer, before: int) -> tuple[str, list[str], str, list[str]]:
    """Return the number of dimensions, the words ``before`` the coordinates, the map, and these."""
    near, other = (o for o in w.i.operands[:2] if isinstance(o, SassAddress))
    m = w.modifiers
    dimensions = m.choose({f"{n}D": n for n in range(1, 6)}, 0)
    rows = _ROWS if m.has("GATHER4", "SCATTER4") else 0
    if not dimensions or near.uniform is None or other.uniform is None:
        raise w.refused("this copy is not modelled")
    words = w.words(near.uniform, before + dimensions + rows)
    return f"{dimensions}d", words[:before], w.pair(other.uniform), words[before:]


_ROWS = 3
"""How many more rows than one GATHER4 and SCATTER4 name."""

_LOADED = {
    "IM2COL": "im2col",
    "W": "im2col::w",
    "W128": "im2col::w::128",
    "GATHER4": "tile::gather4",
}
_OFFSETS = {("im2col", 3): (16,), ("im2col", 4): (8, 8), ("im2col", 5): (5, 5, 5)}
"""How wide each offset into a window of pixels is, by the dimensions of the tensor."""
_OFFSETS_OF_W = (11, 16)


def _load_box(w: Writer) -> None:
    """UTMALDG: one lane has it done for the warp. Below the CTAs that get it stand the offsets of IM2COL."""
    m = w.modifiers
    size, (to, barrier), tensor, coordinates = _box(w, 2)
    mode = m.choose(_LOADED, "tile")
    text = f"[{to}], [{tensor}, {{{', '.join(coordinates)}}}], [{barrier}]"
    name = f"cp.async.bulk.tensor.{size}.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes"
    # A descriptor is a hint of how to cache it.
    told = next((w.bare(o) for o in w.i.operands[2:] if not isinstance(o, SassAddress)), "0")
    if mode.startswith("im2col"):
        text += f", {{{', '.join(_offsets(w, told, _OFFSETS.get((mode, len(coordinates)), _OFFSETS_OF_W)))}}}"
    if m.has("MULTICAST"):
        mask = w.made("cvt.u16.u32", w.made("shr.u32", told, "16"), kind="h")
        name += ".multicast::cluster"
        text += f", {mask}"
    if m.has("2CTA"):
        name += ".cta_group::2"
    with w.once():
        w.emit(f"{name} {text}")


def _offsets(w: Writer, told: str, widths: tuple[int, ...]) -> Iterator[str]:
    """Yield the fields of a word, from the lowest bit on."""
    for at, bits in zip(accumulate(widths, initial=0), widths, strict=False):
        yield w.made("cvt.u16.u32", w.made("bfe.u32", told, str(at), str(bits)), kind="h")


def _store_box(w: Writer) -> None:
    """UTMASTG, and UTMAREDG, which reduces."""
    m = w.modifiers
    size, [source], tensor, coordinates = _box(w, 1)
    mode = m.choose({"IM2COL": "im2col_no_offs", "SCATTER4": "tile::scatter4"}, "tile")
    name = f"cp.async.bulk.tensor.{size}.global.shared::cta.{mode}.bulk_group"
    if w.i.sass.opcode == "UTMAREDG":
        operation = operation_of(w)
        name = (
            f"cp.reduce.async.bulk.tensor.{size}.global.shared::cta.{operation}.{mode}.bulk_group"
        )
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
    **rules("UTMASTG UTMAREDG", _store_box),
    **rules("UTMACMDFLUSH", _close_group),
    **rules("UCGABAR_ARV", _cluster_arrive),
    **rules("UCGABAR_WAIT", _cluster_wait),
    **rules("USETMAXREG", _registers),
    **rules("ACQBULK", lambda w: w.emit("griddepcontrol.wait")),
    **rules("PREEXIT", lambda w: w.emit("griddepcontrol.launch_dependents")),
    **rules("UTMACCTL UTMAPF UBLKPF", lambda w: w.modifiers.ignore(*w.modifiers.names)),
}
