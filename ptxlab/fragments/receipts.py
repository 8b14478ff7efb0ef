"""Receipts: what the probe kernels gave on real GPUs, kept in the repository to prove the layouts.

A receipt holds the dumps themselves and not a verdict: reading one compares them again with what the
layouts of today predict, by their digests, so a receipt cannot vouch for a table that has changed
since. There is a file a family and GPU. Dumps that several instructions share are in it once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.cache import cached, source
from ptxlab.errors import PtxlabError
from ptxlab.fragments.probes import probe_kernels
from ptxlab.matrix.catalog import forms
from ptxlab.matrix.form import Form

SCHEMA = "ptxlab.receipt.fragments/2"
FOLDER = Path(__file__).resolve().parents[2] / "tests" / "receipts"
ROOMS = ("isa", "numbers", "layouts", "matrix", "fragments")
"""The rooms whose source says what the layouts are and what probe kernels give."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The dumps of a family's instructions from one GPU; ``versions`` names driver and compilers.

    ``given`` has by instruction, for every probe kernel, the digest of what the warps were given, which the
    layouts decide as much as what comes of it, and ``promised`` that of the dump: of the words PTX says
    something about. ``left_open`` has those of the words it does not, where there are any. ``data`` are
    the dumps, compressed, in the order of ``shapes``, which has their digests.
    """

    family: str
    gpu: str
    arch: str
    date: str
    versions: dict[str, str]
    given: dict[str, list[str]]
    promised: dict[str, list[str]]
    left_open: dict[str, list[str]]
    shapes: dict[str, list[int]]
    data: str

    def proves(self, form: Form) -> bool:
        """Say whether by the layouts of today the same was given, and the dumps are as predicted."""
        if form.key not in self.promised:
            return False
        own = list(probe_kernels(form, target=self.arch))
        return self.given[form.key] == [
            digest(probe_kernel.given) for probe_kernel in own
        ] and self.promised[form.key] == [
            digest(probe_kernel.expected[..., probe_kernel.unspecified :]) for probe_kernel in own
        ]


def digest(words: Array) -> str:
    """Return the SHA-256 of a dump, with its shape."""
    least = compact(words)
    text = f"{8 * least.itemsize} {list(least.shape)}\n".encode()
    return hashlib.sha256(text + least.tobytes()).hexdigest()


def compact(words: Array) -> Array:
    """Return words in 32 bits each where that is enough for all."""
    narrow = np.asarray(words).astype("<u4")
    return narrow if (narrow == words).all() else np.asarray(words).astype("<u8")


def hardware(instruction: Form, folder: Path | None = None) -> str | None:
    """Return the GPU whose receipt in ``folder`` proves an instruction's layouts, or None.

    An installed ptxlab has no such folder; then nothing is known and the answer is None.
    """
    for receipt in read_all(folder or FOLDER):
        if receipt.proves(instruction):
            return receipt.gpu
    return None


def proven(folder: Path | None = None) -> dict[str, str]:
    """Return the GPU that proves an instruction's layouts by the instruction's key, for all.

    That takes seconds, so the answer is kept on disk until a receipt or a line of the tables changes.
    """
    receipts = read_all(folder or FOLDER)
    if not receipts:
        return {}
    key: list[str | bytes] = [source(*ROOMS), *(json.dumps(to_json(each)) for each in receipts)]
    answer: dict[str, str] = json.loads(cached("receipts", key, lambda: _proven(receipts)))
    return answer


def _proven(receipts: Iterable[Receipt]) -> bytes:
    proven: dict[str, str] = {}
    for receipt in receipts:
        for form in forms():
            if form.key in receipt.promised and receipt.proves(form):
                proven.setdefault(form.key, receipt.gpu)
    return json.dumps(proven).encode()


def read_all(folder: Path) -> tuple[Receipt, ...]:
    """Return the fragment receipts in ``folder``, in order of file names."""
    receipts = (json.loads(path.read_text()) for path in sorted(folder.glob("fragments_*.json")))
    return tuple(from_json(data) for data in receipts)


def to_json(receipt: Receipt) -> dict[str, Any]:
    return {"schema": SCHEMA, **asdict(receipt)}


def from_json(data: Mapping[str, Any]) -> Receipt:
    if data.get("schema") != SCHEMA:
        raise PtxlabError(f"not a fragment receipt: schema {data.get('schema')!r}")
    return Receipt(**{name: value for name, value in data.items() if name != "schema"})
