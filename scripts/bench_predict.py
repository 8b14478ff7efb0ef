"""Predict kernels that others published, and write docs/predict.md's table beside what they measured.

python scripts/bench_predict.py --sources FOLDER [--only TEXT]

FOLDER has clones of the repositories that benchmarks/published.toml names, each under its own name; none
of their code is part of ptxlab. What is not there is left out, by name.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import statistics
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab import PtxlabError
from ptxlab.device.loading import load_assembled
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.gemm.published import three_digits
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.prediction.chip import find
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import of_launch

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "benchmarks" / "published.toml"
PAGE = ROOT / "docs" / "predict.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
HEAD = ("kernel", "of", "GPU", "size", "clock", "published", "predicted", "time", "bound")
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.float16, "u8": np.uint8}
"""What is as large: the values do not matter."""

PANEL = 64
"""Elements of a row of the panels that some tensor maps see a matrix as, where none are told."""

THIRD = "third"
"""What a row says of which a hash decides whether it is set aside."""

CODE = (".cu", ".cuh", ".h")
"""What is code among a repository's files."""


def sizes(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row once for each of its sizes ``n``, with the ``seconds`` that were measured and its grid."""
    (unit,) = row.keys() & {"rates", "cycles", "times"}
    for size, told in row[unit].items():
        n = int(size)
        seconds = {
            "rates": 2 * n**3 / told / 1e9, "cycles": told / row["clock"] / 1e6, "times": told / 1e6
        }[unit]  # fmt: skip
        grid = [blocks(size, n) if isinstance(size, str) else size for size in row["grid"]]
        apart = row.get("held_out", [])
        held_out = set_aside(row, n) if apart == THIRD else apart is True or n in apart
        yield row | {"n": n, "seconds": seconds, "grid": grid, "held_out": held_out}


def set_aside(row: dict[str, Any], n: int) -> bool:
    """Say whether a time is of the third that is looked at only when the model stands: its name's hash says so."""
    name = f"{row['repository']} {row['name']} {row['gpu']} {n}"
    return hashlib.blake2b(name.encode(), digest_size=8).digest()[0] % 3 == 0


def blocks(told: str, n: int) -> int:
    """Return how many blocks ``n/128`` or ``n*n/16384`` are."""
    whole, _, part = told.partition("/")
    return (n * n if whole == "n*n" else n) // int(part)


def predicted(row: dict[str, Any], sources: Path) -> Prediction:
    """Compile a kernel for its GPU and predict it, at the size of the row."""
    folder = row["repository"].split("/")[1]
    repository = sources / (f"{folder}@{row['commit']}" if "commit" in row else folder)
    name, chip = row["kernel"], find(row["gpu"])
    with tempfile.TemporaryDirectory() as folder:
        file, include = _copied(row, repository, Path(folder))
        wrapper = Path(folder) / "wrapper.cu"
        wrapper.write_text(f'{row.get("before", "")}\n#include "{file}"\n')
        options = [*row.get("options", ()), *([f"--instance={name}"] if "<" in name else [])]
        options += [f"-I{include}"] if include else []
        target = chip.gpu.target
        program, cubin = load_assembled(wrapper, target, options)
        with closing(open_device("emulator", arch=target.name)) as device:
            # A template's arguments may be spelled otherwise there: where it is alone nobody has to say.
            chosen = device.load(program).kernel(name if len(program.entries) > 1 else None)
            config = LaunchConfig.of(row["grid"], row["block"], row.get("shared", 0))
            args, assembly = arguments(device, row), Assembly(program, cubin)
            return of_launch(assembly, chosen, config, args, chip, row["clock"])


def arguments(device: Device, row: dict[str, Any]) -> list[Any]:
    """Return the arguments of a row's kernel, at its size, with matrices on a device."""
    n = row["n"]
    types = {"A": "dtype", "B": "dtype", "C": "result"}
    words, maps = row["args"].split(), row.get("maps", {})
    used = {*words, *(tensor_map["of"] for tensor_map in maps.values())}
    held = {
        name: device.zeros(
            tuple(row.get("shapes", {}).get(name, (n, n))), TYPES[row.get(kind, "f32")]
        )
        for name, kind in types.items()
        if name in used
    }
    for name, told in maps.items():
        made = tensor_map(device, held[told["of"]], n, told)
        in_memory = told.get("in_memory")
        held[name] = device.upload(np.frombuffer(made.data, np.uint8)) if in_memory else made
    if "tiles" in row:
        held["tiles"] = device.upload(
            schedule([n // tile for tile in row["tiles"]], row["workers"])
        )
    return [held[word] if word in held else _number(word, n) for word in words]


def tensor_map(device: Device, matrix: Any, n: int, told: dict[str, Any]) -> Any:
    """Return a map of an n x n matrix: of its rows, or of panels, with ``rank`` dimensions."""
    box, rank, panel = told["box"], told.get("rank", 2), told.get("panel", PANEL)
    extra = rank - 3
    view: dict[str, Any] = {}
    if rank > 2:
        outer = [1] * extra
        view = {
            "shape": (*outer, n // panel, n, panel),
            "strides": (*[2 * n * n] * extra, 2 * panel, 2 * n, 2),
        }
        box = (*outer, box[1] // panel, box[0], panel)
    return device.tensor_map(
        matrix, tuple(box), dtype="bf16", swizzle=told.get("swizzle", "128B"), **view
    )


def schedule(tiles: list[int], workers: int, longest: int = 128) -> npt.NDArray[np.int32]:
    """Return the tiles of each worker, dealt out along a Hilbert curve: row << 16 | column, and -1 behind them."""
    rows, columns = tiles
    side = 1 << (max(tiles) - 1).bit_length()
    curve = (hilbert(side, step) for step in range(side * side))
    ordered = [row << 16 | column for row, column in curve if row < rows and column < columns]
    table = np.full((2 * workers, longest), -1, np.int32)
    for worker in range(workers):
        own = ordered[worker::workers]
        table[worker, : len(own)] = own
    return table


def hilbert(side: int, step: int) -> tuple[int, int]:
    """Return where a Hilbert curve through a square of ``side`` points is after so many steps."""
    x = y = 0
    size = 1
    while size < side:
        right = step // 2 & 1
        up = (step ^ right) & 1
        if not up:
            if right:
                x, y = size - 1 - x, size - 1 - y
            x, y = y, x
        x, y = x + size * right, y + size * up
        step //= 4
        size *= 2
    return x, y


def _number(word: str, n: int) -> Any:
    if word.endswith("h"):
        return np.float16(word[:-1]).tobytes()
    if word == "n":
        return n
    return int(word) if word.isdigit() else float(word)


def _copied(row: dict[str, Any], repository: Path, folder: Path) -> tuple[Path, Path | None]:
    """Return a kernel's file and its headers' folder, copies without the lines that match ``omit``."""
    file = repository / row["file"]
    include = repository / row["include"] if "include" in row else None
    if "omit" not in row:
        return file, include
    for source in (file, *(include or folder).iterdir()):
        if source.suffix in CODE:
            lines = source.read_text(encoding="utf-8").splitlines()
            left = (line for line in lines if not re.match(row["omit"], line))
            (folder / source.name).write_text("\n".join(left), encoding="utf-8")
    return folder / file.name, folder


def line(row: dict[str, Any], prediction: Prediction) -> tuple[tuple[str, ...], float]:
    """Return a row of the table, and how far off the predicted time is."""
    error = prediction.seconds / row["seconds"] - 1
    shape = row.get("shapes", {}).get("A")

    def told(seconds: float) -> str:
        """Return the rate of a product, the time of anything else."""
        rate = three_digits(2 * row["n"] ** 3 / seconds / 1e12)
        return f"{three_digits(seconds * 1e6)} us" if shape else f"{rate} TFLOP/s"

    clock = f"{row['clock']} MHz{', locked' if row.get('locked') else ''}"
    return (
        row["name"], row["repository"], prediction.gpu, " x ".join(map(str, shape or [row["n"]])), clock,
        told(row["seconds"]), told(prediction.seconds), f"{error:+.1%}",
        f"{prediction.bound_by} {prediction.used[prediction.bound_by]:.0%}",
    ), error  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--only", default="", help="rows whose name or repository has this in it")
    args = parser.parse_args()
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    rows, absent = [], []
    errors: dict[str, list[float]] = {"all": [], "locked": [], "held_out": []}
    for row in (kernel for told in published["kernel"] for kernel in sizes(told)):
        if args.only not in f"{row['repository']} {row['name']}":
            continue
        try:
            cells, error = line(row, predicted(row, args.sources.resolve()))
        except PtxlabError as problem:
            absent.append(f"- {row['name']} of {row['repository']}: {str(problem).splitlines()[0]}")
            print(absent[-1], flush=True)
            continue
        print("  ".join(cells), flush=True)
        rows.append(cells)
        for kind, those in errors.items():
            if kind == "all" or row.get(kind):
                those.append(abs(error))
    for row in published["left_out"]:
        absent.append(f"- {row['name']} of {row['repository']} ({row['rows']} rows): {row['why']}")
    if rows and not args.only:
        PAGE.write_text(
            page(PAGE.read_text(encoding="utf-8"), rows, errors, absent), encoding="utf-8"
        )


def page(
    text: str, rows: list[tuple[str, ...]], errors: dict[str, list[float]], absent: list[str]
) -> str:
    """Return the page with its table remade; ``errors`` are of all, of locked cards, of what was held out."""
    table = [" | ".join(("", *cells, "")).strip() for cells in (HEAD, ["---"] * len(HEAD), *rows)]
    summary = (
        f"{len(rows)} times: the predicted one is {spread(errors['all'])}. Of the {len(errors['locked'])} whose "
        f"clock was locked it is {spread(errors['locked'])}; of the {len(errors['held_out'])} that were looked at "
        f"only when the model stood, {spread(errors['held_out'])}."
    )
    missing = ["", *ranking(rows), *(["", "Left out:", "", *absent] if absent else [])]
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return before + "\n".join([BEGIN, "", summary, "", *table, *missing, "", END]) + after


def ranking(rows: list[tuple[str, ...]]) -> list[str]:
    """Return a table of how kernels of a repository on a GPU, at one size, are ranked, where there are four or more."""
    families: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for _, of, gpu, size, _, *times, _, _ in rows:
        families.setdefault((of, gpu, size), []).append((quantity(times[0]), quantity(times[1])))
    told = [
        (*family, str(len(pairs)), f"{kendall(pairs):.2f}")
        for family, pairs in families.items()
        if len(pairs) > 3
    ]
    head = ("of", "GPU", "size", "kernels", "tau")
    lines = [" | ".join(("", *cells, "")).strip() for cells in (head, ["---"] * len(head), *told)]
    mean = statistics.mean(float(each[-1]) for each in told)
    return [
        f"Kendall's tau of the predicted order of a family beside the published one, {mean:.2f} on average:",
        "",
        *lines,
    ]


def quantity(cell: str) -> float:
    """Return the number of ``16.2 TFLOP/s``, or of ``12 us``, which is the better the less it is."""
    number, unit = cell.split()
    return float(number) if unit == "TFLOP/s" else -float(number)


def kendall(pairs: list[tuple[float, float]]) -> float:
    """Return Kendall's tau-b of two orders: 1 where they are the same, -1 where one is the other reversed."""
    signs = [
        (np.sign(a - c), np.sign(b - d)) for at, (a, b) in enumerate(pairs) for c, d in pairs[:at]
    ]
    x, y = np.array(signs).T
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def spread(errors: list[float]) -> str:
    return (
        f"{statistics.mean(errors):.1%} off on average, {statistics.median(errors):.1%} in the middle, "
        f"{max(errors):.0%} at most"
    )


if __name__ == "__main__":
    main()
