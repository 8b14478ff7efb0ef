"""The families of instructions that the emulator refuses, and why.

A key is the dotted beginning of their names. Anything else it does not know is refused as well, only
without a reason.
"""

from __future__ import annotations

from functools import lru_cache

_LATER = "asynchronous tensor cores and their memory are not emulated"
_BULK = "bulk copies and the tensor memory accelerator are not emulated"
_CLUSTER = "thread block clusters are not emulated: a launch has none"
_TEXTURE = "textures and surfaces are not emulated"
_STACK = "the stack of a thread cannot be moved; a .local array stands still"
_POLICY = "there is no cache to steer"
_LAUNCH = "a launch has nothing to wait for: launches run one after the other"

REFUSED: dict[str, str] = {
    "wgmma": _LATER,
    "tcgen05": _LATER,
    "setmaxnreg": "registers are not counted",
    "mbarrier": "barriers in shared memory are not emulated",
    "cp.async.bulk": _BULK,
    "cp.reduce.async.bulk": _BULK,
    "cp.async.mbarrier": "barriers in shared memory are not emulated",
    "prefetch.tensormap": _BULK,
    "tensormap": _BULK,
    "fence.proxy": "there is one way to memory only, and no asynchronous proxy",
    "fence.mbarrier_init": "barriers in shared memory are not emulated",
    "barrier.cluster": _CLUSTER,
    "mapa": _CLUSTER,
    "getctarank": _CLUSTER,
    "clusterlaunchcontrol": _CLUSTER,
    "st.async": _CLUSTER,
    "red.async": _CLUSTER,
    "st.bulk": _BULK,
    "multimem": "one GPU is emulated, and no memory of several",
    "griddepcontrol": _LAUNCH,
    "tex": _TEXTURE,
    "tld4": _TEXTURE,
    "txq": _TEXTURE,
    "suld": _TEXTURE,
    "sust": _TEXTURE,
    "sured": _TEXTURE,
    "suq": _TEXTURE,
    "istypep": _TEXTURE,
    "alloca": _STACK,
    "stacksave": _STACK,
    "stackrestore": _STACK,
    "createpolicy": _POLICY,
    "applypriority": _POLICY,
    "discard": _POLICY,
}


def refuse(name: str, why: str) -> None:
    """Refuse the instructions whose name begins so: some forms of an opcode that has others."""
    REFUSED[name] = why


@lru_cache(maxsize=4096)
def reason(name: str) -> str | None:
    """Return why an instruction is refused, by the longest beginning of its name that is known."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        found = REFUSED.get(".".join(parts[:count]))
        if found is not None:
            return found
    return None
