"""The receipts of ``ptxlab.fragments.receipts`` written, and their dumps read again."""

from __future__ import annotations

import base64
import datetime
import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.fragments.probes import ProbeKernel
from ptxlab.fragments.receipts import FOLDER, Receipt, compact, digest, to_json
from ptxlab.matrix.form import Form
from ptxlab.toolchain.wheels import wheel_versions

COMPILERS = ("nvidia-nvjitlink", "nvidia-cuda-nvrtc", "cuda-python")


@dataclass(slots=True)
class Recorder:
    """Collects the dumps of probe kernels, and writes them as receipts."""

    given: dict[Form, list[str]] = field(default_factory=dict)
    promised: dict[Form, list[str]] = field(default_factory=dict)
    left_open: dict[Form, list[str]] = field(default_factory=dict)
    dumps: dict[str, Array] = field(default_factory=dict)

    def __call__(self, probe_kernel: ProbeKernel, records: Array) -> None:
        first = probe_kernel.unspecified
        self.given.setdefault(probe_kernel.form, []).append(digest(probe_kernel.given))
        self.promised.setdefault(probe_kernel.form, []).append(self._keep(records[..., first:]))
        if first:
            self.left_open.setdefault(probe_kernel.form, []).append(
                self._keep(records[..., :first])
            )

    def _keep(self, words: Array) -> str:
        name = digest(words)
        self.dumps[name] = compact(words)
        return name

    def write(
        self, device: Device, versions: Mapping[str, str], folder: Path = FOLDER
    ) -> list[Path]:
        """Write one receipt a family into ``folder`` and return the files.

        ``versions`` should name the driver; the compilers' versions are added. Raises PtxlabError for
        the emulator, which cannot prove the layouts it is built from.
        """
        if device.kind != "cuda":
            raise PtxlabError(f"a receipt needs a GPU, this is {device.name}")
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        gpu = "_".join(device.name.lower().split())
        paths = []
        for family in dict.fromkeys(form.family for form in self.promised):
            receipt = self._receipt(family, device, date, {**versions, **wheel_versions(COMPILERS)})
            paths.append(folder / f"fragments_{family.replace('.', '_')}_{gpu}.json")
            paths[-1].write_text(json.dumps(to_json(receipt), indent=1) + "\n", encoding="utf-8")
        return paths

    def _receipt(self, family: str, device: Device, date: str, versions: dict[str, str]) -> Receipt:
        given, promised, left_open = (
            {form.key: names for form, names in kept.items() if form.family == family}
            for kept in (self.given, self.promised, self.left_open)
        )
        named = (names for kept in (promised, left_open) for names in kept.values())
        dumps = {name: self.dumps[name] for names in named for name in names}
        raw = b"".join(words.tobytes() for words in dumps.values())
        data = base64.b85encode(lzma.compress(raw)).decode()
        shapes = {name: [8 * w.itemsize, *w.shape] for name, w in dumps.items()}
        return Receipt(
            family,
            device.name,
            device.target.name,
            date,
            versions,
            given,
            promised,
            left_open,
            shapes,
            data,
        )


def dumps(receipt: Receipt) -> dict[str, Array]:
    """Return all dumps, [probes, 32, words], by digest. Raises PtxlabError if one is not what it was."""
    raw = lzma.decompress(base64.b85decode(receipt.data))
    dumps = {}
    first = 0
    for name, (bits, *shape) in receipt.shapes.items():
        size = bits // 8 * int(np.prod(shape))
        words = np.frombuffer(raw[first : first + size], f"<u{bits // 8}").reshape(shape)
        if digest(words) != name:
            raise PtxlabError(f"a dump of {receipt.family} on {receipt.gpu} was changed: {name}")
        dumps[name] = words
        first += size
    return dumps
