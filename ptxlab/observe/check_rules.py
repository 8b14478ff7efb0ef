"""What can be checked, and the names of the rules that findings break, as the help and the findings have them."""

from __future__ import annotations

RULES: dict[str, tuple[str, dict[str, str]]] = {
    "race": (
        "accesses that nothing orders: in shared memory of a CTA or cluster an error between warps, a warning "
        "within one, and where both write the same value information; in global memory between CTAs or warps",
        {
            "RAW|WAR|WAW": "a read after a write, a write after a read, a write after a write",
            "global RAW|global WAR|global WAW": "the same in global memory, with no fence and flag between",
            "twice": "two threads that cp.async to one place",
            "grid": "information: an access before griddepcontrol.wait",
        },
    ),
    "async": (
        "memory and registers that asynchronous work still has, and how it is handed over",
        {
            "RAW|WAR|WAW": "an access to what a bulk or tensor copy or wgmma reads or writes until it is waited for",
            "reads|overwrites|source": "the same for cp.async, and for what a bulk copy writes to global memory",
            "proxy": "work on what a thread accessed, with no fence.proxy.async between",
            "registers": "a register of wgmma touched before its wgmma.wait_group",
            "fence": "wgmma with no wgmma.fence after its registers were touched, or at first",
            "makes|unmakes": "an mbarrier used before its init is known, or while it is taken away",
            "object|again": "a plain access to an mbarrier; an init where there is one",
            "bytes|early": "bytes expected and copied that do not come out even; a phase that ends before its copies",
            "phase": "a phase that can end before a thread has seen the one before",
            "scope": "information: an arrival at another CTA's mbarrier of the scope of its own CTA",
            "not started|ended": "an access to a CTA of the cluster that may not have begun, or is over",
            "end": "a CTA, or kernel, that can end before such an access or before its own work (a warning for a bulk store)",
            "map release|map acquire": "a tensor map that was changed, without that fence.proxy.tensormap",
            "swizzle": "a warning: a tensor map fills what a wgmma descriptor of another swizzle reads",
        },
    ),
    "barrier": (
        "barriers and warp instructions that threads do not reach as they must",
        {
            "absent from warp|absent from CTA": "some have ended without coming to the barrier",
            "apart in warp|apart in CTA": "they come to it at two instructions",
            "divergent": "a part of a warp at an .aligned barrier.cluster, of a warpgroup at wgmma",
        },
    ),
    "deadlock": ("threads that wait for each other for ever", {}),
    "bounds": (
        "accesses outside every allocation, or to read-only memory",
        {
            "overrun": "from one variable in shared memory into another",
            "outside": "a warning: a tensor of which all boxes copied lie wholly outside it",
        },
    ),
    "alignment": (
        "addresses that are no multiple of the access, rows of ldmatrix among them",
        {"swizzle": "a warning: a tile that begins in the middle of the pattern of its swizzle"},
    ),
    "uninitialized": (
        "reads before the write, of registers (by their names), local and shared memory: an error where the value "
        "reaches a store, an address, a branch or a returned value, else information",
        {
            "shared": "of shared memory",
            "lane": "of a lane that takes no part in a shuffle",
        },
    ),
}
"""Of each kind of finding what it is about, and its rules: names apart by bars."""


def rules(kind: str) -> list[str]:
    """Return the names of the rules of a kind of finding, as ``Finding.rule`` has them."""
    return [name for names in RULES[kind][1] for name in names.split("|")]
