"""Two programs side by side, or one on two GPUs: what their kernels take and how long, and where their SASS differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

Asked = Callable[[str, Mapping[str, Any]], Any]
"""Returns what a verb says of a request, as plain data; None where it says nothing."""

_RESOURCES = ("registers", "spill_stores", "spill_loads", "stack", "shared", "barriers")
_OPCODES = 12


def compared(ask: Asked, first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``numbers`` of both, each with its name, and the ``lines`` of their machine code.

    A line is of both (" "), of the first alone ("-"), or of the second ("+").
    """
    both = first, second
    times = [ask("predict", request) for request in both]
    codes = [
        _kernel(ask("sass", _for(request, time)), time)
        for request, time in zip(both, times, strict=True)
    ]
    numbers = [*_times(*times), *_resources(*codes)]
    return {
        "numbers": [{"name": name, "a": a, "b": b, "unit": unit} for name, a, b, unit in numbers],
        "lines": list(_lines(*codes)),
    }


Number = tuple[str, Any, Any, str]


def _for(request: Mapping[str, Any], time: Any) -> Mapping[str, Any]:
    """Return a request for the target of the GPU whose time was predicted."""
    chosen = [] if time is None else ["--arch", time["arch"]]
    return {**request, "options": [*request.get("options", ()), *chosen]}


def _kernel(said: Any, time: Any) -> dict[str, Any]:
    """Return what ``ptxlab sass`` says of a kernel: the one whose time was predicted, or the first."""
    if not said:
        return {}
    kernels: list[dict[str, Any]] = said["programs"][0]["kernels"]
    named = (kernel for kernel in kernels if time and kernel["kernel"] == time["kernel"])
    return next(named, kernels[0])


def _times(a: Any, b: Any) -> Iterator[Number]:
    if not (a or b):
        return
    a, b = a or {}, b or {}
    yield "GPU", a.get("gpu"), b.get("gpu"), ""
    for name, unit in (("seconds", "s"), ("cycles", ""), ("bound_by", "")):
        yield name.replace("_", " "), a.get(name), b.get(name), unit
    stalls = {**a.get("stalls", {}), **b.get("stalls", {})}
    for reason in stalls:
        yield f"warps: {reason}", *(side.get("stalls", {}).get(reason, 0.0) for side in (a, b)), "%"


def _resources(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Number]:
    if not (a or b):
        return
    for name in _RESOURCES:
        yield name.replace("_", " "), a.get(name), b.get(name), ""
    yield "warps in an SM", _warps(a), _warps(b), ""
    yield "instructions", _length(a), _length(b), ""
    counts = [side.get("opcodes", {}) for side in (a, b)]
    names = sorted(
        {*counts[0], *counts[1]},
        key=lambda name: -abs(counts[0].get(name, 0) - counts[1].get(name, 0)),
    )
    for name in names[:_OPCODES]:
        yield f"  {name}", counts[0].get(name, 0), counts[1].get(name, 0), ""


def _warps(kernel: Mapping[str, Any]) -> int | None:
    fits = kernel.get("occupancy")
    return fits[0]["warps"] if fits else None


def _length(kernel: Mapping[str, Any]) -> int | None:
    return len(kernel["instructions"]) if kernel else None


def _lines(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    texts: list[list[str]] = [
        [each["text"] for each in side.get("instructions", ())] for side in (a, b)
    ]
    matcher = SequenceMatcher(None, texts[0], texts[1], autojunk=False)
    for tag, start, end, other, last in matcher.get_opcodes():
        if tag == "equal":
            yield from ({"mark": " ", "text": text} for text in texts[0][start:end])
            continue
        yield from ({"mark": "-", "text": text} for text in texts[0][start:end])
        yield from ({"mark": "+", "text": text} for text in texts[1][other:last])
