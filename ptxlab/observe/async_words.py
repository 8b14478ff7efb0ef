"""What is said of asynchronous work that races, and of mbarriers that are not ready."""

from __future__ import annotations

from ptxlab.emulator import Site
from ptxlab.observe.check_scene import CheckScene, Wording
from ptxlab.observe.ordering import AccessKind

Said = tuple[str, str, Wording]
"""A severity, a rule and the words."""

_WAITS = {
    "mbarrier": "wait for the phase of the mbarrier that hears of it (mbarrier.try_wait) in the same "
    "thread, or before a barrier of both; a relaxed wait needs a fence after it",
    "copies": "cp.async.bulk.wait_group.read by the thread that began it, then a barrier of both; a wait "
    "by another thread waits for nothing",
    "products": "wgmma.wait_group for its group, then, for threads of other warpgroups, a barrier or an "
    "arrival that they wait for",
}
_FENCE = (
    "fence.proxy.async.shared::cta between the two: in the thread that accessed it first, before the "
    "barrier that tells of it"
)
_BOTH = "a barrier or mbarrier that both meet at between the two orders them"


def race(
    scene: CheckScene,
    what: str,
    kinds: tuple[AccessKind, AccessKind],
    granule: int,
    pair: tuple[int, int],
    other: Site,
) -> Said:
    """Describe accesses in the order in which they were made, one of them by an engine.

    ``kinds`` and ``pair`` are of the later access, and of the ``other`` one before it.
    """
    (now, before), where = kinds, scene.shared(granule)
    does = "writes" if now.writes else "reads"
    did = "writes" if before.writes else "reads"
    who = f"this {_work(scene.site)}" if now.engine else scene.agent(pair[0])
    if not before.engine:
        had = "wrote" if before.writes else "read"
        message = f"{what}: {who} {does} {where}, which {scene.agent(pair[1])} {had}"
        return "error", what, (f"{message}, and nothing orders the two", _BOTH)
    engine = scene.engine(pair[1])
    assert engine is not None
    work = f"the {_work(other)} of line {other.line}"
    message = f"{what}: {who} {does} {where}, which {work} {did} until it is waited for"
    return "error", what, (message, _WAITS[engine[0]])


def unfenced(
    scene: CheckScene, kinds: tuple[AccessKind, AccessKind], granule: int, thread: int, other: Site
) -> Said:
    """Describe work by an engine on what a thread accessed before, with no fence of the proxies."""
    now, before = kinds
    does = "writes" if now.writes else "reads"
    had = "wrote" if before.writes else "read"
    message = (
        f"this {_work(scene.site)} {does} {scene.shared(granule)}, which {scene.agent(thread)} {had}, and no "
        "fence.proxy.async lies between the two"
    )
    severity = "error"
    if not before.writes:
        severity = "info"  # most programs leave it out there
    elif now.writes or other.instruction.opcode == "cp":
        severity = "warning"
    return severity, "proxy", (message, _FENCE)


def unready(scene: CheckScene, granule: int, thread: int, other: Site) -> Said:
    """Describe the use of an mbarrier of whose beginning or end a thread has not heard."""
    what = "makes" if "init" in other.instruction.modifiers else "unmakes"
    message = (
        f"{scene.agent(thread)} uses the mbarrier {scene.shared(granule)}, and nothing orders that with "
        f"line {other.line}, which {what} it"
    )
    hint = (
        "after mbarrier.init a barrier of the CTA; where another CTA uses it, barrier.cluster, with "
        "fence.mbarrier_init before an arrival that is relaxed"
    )
    return "error", what, (message, hint)


def _work(site: Site) -> str:
    if site.instruction.opcode == "wgmma":
        return "product"
    return "store" if site.instruction.opcode == "st" else "copy"
