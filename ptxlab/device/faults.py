"""The driver's errors in plain words, by code.

Source: CUDA Driver API, "Data types used by CUDA driver", CUresult.
"""

from __future__ import annotations

_CHECK = "ptxlab check FILE runs it on the emulator and names the line"

# code: what happened, what to do
_WORDS: dict[int, tuple[str, str | None]] = {
    1: ("the driver refuses these values", "look at grid, block, shared and cluster sizes"),
    2: ("the GPU has not that much memory left", "close buffers, or use a smaller problem"),
    200: ("it is no machine code this driver knows", "update the driver"),
    209: ("it is machine code for another GPU", "build it for this one: ptxlab loads .ptx and .cu"),
    500: ("there is no such kernel to call", "declare it .visible .entry"),
    701: ("its block needs more registers or memory than one SM has", "launch a smaller block"),
    702: ("it ran longer than the driver allows on a GPU with a display", None),
    710: ("an assertion in it failed", None),
    714: ("its call stack overflowed or was damaged", _CHECK),
    715: ("it met an illegal instruction", _CHECK),
    716: ("it read or wrote a misaligned address", _CHECK),
    717: ("it used an address of the wrong state space", _CHECK),
    718: ("it jumped outside its code", _CHECK),
    719: ("it stopped: a trap, or a fault in shared or local memory", _CHECK),
    700: ("it read or wrote outside every allocation", _CHECK),
}

STICKY = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721})
"""Errors after which the context is lost: until the process ends, each call repeats them."""


def explain(code: int, text: str) -> tuple[str, str | None]:
    """Return the message and hint for an error ``code`` whose own words are ``text``."""
    if code not in _WORDS:
        return text, None
    words, hint = _WORDS[code]
    return f"{words}: {text}", hint
