"""Predict kernels that others published, and write docs/predict.md's summary and docs/published_times.md's tables.

python scripts/bench_predict.py --sources FOLDER [--only TEXT] [--anew] [--workers N]

FOLDER has clones of the repositories that benchmarks/published.toml names, each under its own name; none
of their code is part of ptxlab. What is not there is left out, by name. Each prediction is written to
benchmarks/predicted.json when it is made, so that who stops it goes on where it was; --anew makes all again. The pages are
remade when all are on record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import resource
import statistics
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab import PtxlabError
from ptxlab.cache import bypassed
from ptxlab.device.loading import load_assembled
from ptxlab.files import write_whole
from ptxlab.gemm.published import three_digits
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.assembly import Assembly
from ptxlab.numbers.types import TYPES as NUMBERS
from ptxlab.prediction.chip import find
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import of_launch
from ptxlab.prediction.unfilled import Shaped, UnfilledDevice

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "benchmarks" / "published.toml"
PREDICTED = ROOT / "benchmarks" / "predicted.json"
PAGE, EVERY_TIME = (ROOT / "docs" / name for name in ("predict.md", "published_times.md"))
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
HEAD = ("kernel", "of", "GPU", "size", "clock", "published", "predicted", "time", "bound")
TYPES = {
    "f32": "float32",
    "s32": "int32",
    "f16": "float16",
    "bf16": "float16",
    "s8": "uint8",
    "u8": "uint8",
}
"""What is as large: nobody asks for the values."""

PANEL = 64
"""Elements of a row of the panels that some tensor maps see a matrix as, where none are told."""

KINDS = {"f32": "products of f32", "f16": "products of narrower types"}
"""What kernels are by the type of their operands, where their row does not say otherwise."""

THIRD = "third"
"""What a row says of which a hash decides whether it is set aside."""

CODE = (".cu", ".cuh", ".h")
"""What is code among a repository's files."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What was predicted of a row: ``seconds``, the pipe it is bound by and the ``part`` of the time that is used, or why not.

    ``clock`` in MHz is the one that was told, or the one that its limit of power leaves.

    Of its making, when it was compiled, ``cpu`` are the seconds of a core; ``mib`` is what a process of its own held at most.
    """

    seconds: float = 0.0
    bound: str = ""
    part: float = 0.0
    clock: int = 0
    refused: str = ""
    cpu: float = 0.0
    mib: float = 0.0


def sizes(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row once for each of its sizes ``n``, with the ``seconds`` that were measured."""
    (unit,) = row.keys() & {"rates", "cycles", "times"}
    for size, told in row[unit].items():
        n = int(size)
        if unit == "rates":
            seconds = 2 * n**3 / told / 1e9
        else:
            seconds = told / (row["clock"] if unit == "cycles" else 1) / 1e6
        apart = row.get("held_out", [])
        held_out = set_aside(row, n) if apart == THIRD else apart is True or n in apart
        yield row | {"n": n, "seconds": seconds, "held_out": held_out}


def set_aside(row: dict[str, Any], n: int) -> bool:
    """Say whether a time is of the third that is looked at only when the model stands: its name's hash says so."""
    name = f"{row['repository']} {row['name']} {row['gpu']} {n}"
    return hashlib.blake2b(name.encode(), digest_size=8).digest()[0] % 3 == 0


def called(row: dict[str, Any]) -> str:
    """Return what a time is called on record."""
    counted = ", cycles" if "cycles" in row else ""
    return f"{row['repository']} {row['name']} {row['gpu']} {row['n']}{counted}"


def blocks(told: str, n: int) -> int:
    """Return how many blocks ``n/128`` or ``n*n/16384`` are."""
    whole, _, part = told.partition("/")
    return (n * n if whole == "n*n" else n) // int(part)


def predicted(row: dict[str, Any], sources: Path) -> tuple[Prediction, float]:
    """Predict a row, at its size, the fastest if it is one of several that its author tried; say how many seconds of a core that took."""
    tried = row.get("tried", [{}])
    return min(
        (_predicted(row | each, sources) for each in tried), key=lambda told: told[0].seconds
    )


def _predicted(row: dict[str, Any], sources: Path) -> tuple[Prediction, float]:
    """Compile a kernel for its GPU and predict it."""
    folder = row["repository"].split("/")[1]
    repository = sources / (f"{folder}@{row['commit']}" if "commit" in row else folder)
    name, chip = row["kernel"], find(row["gpu"]).found(row.get("cold", False))
    if "power" in row:
        chip = chip.limited(row["power"])
    with tempfile.TemporaryDirectory() as folder:
        file, include = _copied(row, repository, Path(folder))
        wrapper = Path(folder) / "wrapper.cu"
        wrapper.write_text(f'{row.get("before", "")}\n#include "{file}"\n')
        options = [*row.get("options", ()), *([f"--instance={name}"] if "<" in name else [])]
        options += [f"-I{include}"] if include else []
        target = chip.gpu.target
        compiled_for = TARGETS[row["arch"]] if "arch" in row else target
        program, cubin = load_assembled(wrapper, compiled_for, options)
        if compiled_for.capability // 10 != target.capability // 10:  # as a driver does
            program, cubin = load_assembled(program, target)
        with closing(UnfilledDevice(target)) as device:
            # A template's arguments may be spelled otherwise there: where it is alone nobody has to say.
            chosen = device.load(program).kernel(name if len(program.entries) > 1 else None)
            grid = [
                blocks(size, row["n"]) if isinstance(size, str) else size for size in row["grid"]
            ]
            config = LaunchConfig.of(grid, row["block"], row.get("shared", 0))
            args, assembly = arguments(device, row), Assembly(program, cubin)
            begun = time.process_time()
            with bypassed():
                prediction = of_launch(assembly, chosen, config, args, chip, row.get("clock"))
            return prediction, time.process_time() - begun


def arguments(device: UnfilledDevice, row: dict[str, Any]) -> list[Any]:
    """Return the arguments of a row's kernel, at its size, with matrices on a device."""
    n = row["n"]
    types = {"A": "dtype", "B": "dtype", "C": "result", "D": "result"}
    words, maps = row["args"].split(), row.get("maps", {})
    used = {*words, *(tensor_map["of"] for tensor_map in maps.values())}
    held = {
        name: device.upload(
            Shaped(row.get("shapes", {}).get(name, (n, n)), TYPES[row.get(kind, "f32")])
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
    passed = [
        held[word] if word in held else _number(word, n) for word in words if word not in "()"
    ]
    return [tuple(passed)] if "(" in words else passed


def tensor_map(device: UnfilledDevice, matrix: Any, n: int, told: dict[str, Any]) -> Any:
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
        matrix,
        tuple(box),
        dtype=told.get("dtype", "bf16"),
        swizzle=told.get("swizzle", "128B"),
        **view,
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
    number, _, kind = word.partition(":")
    if kind:
        return NUMBERS[kind].dtype.type(int(number))
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


def line(row: dict[str, Any], predicted: Predicted) -> tuple[str, ...]:
    """Return a row of the table."""
    shape = row.get("shapes", {}).get("A")

    def told(seconds: float) -> str:
        """Return the rate of a product, the time of anything else."""
        rate = three_digits(2 * row["n"] ** 3 / seconds / 1e12)
        return f"{three_digits(seconds * 1e6)} us" if shape else f"{rate} TFLOP/s"

    clock = f"{predicted.clock} MHz{', locked' if row.get('locked') else ''}"
    return (
        row["name"], row["repository"], find(row["gpu"]).gpu.name, " x ".join(map(str, shape or [row["n"]])), clock,
        told(row["seconds"]), told(predicted.seconds), f"{error(row, predicted):+.1%}",
        f"{predicted.bound} {predicted.part:.0%}",
    )  # fmt: skip


def error(row: dict[str, Any], predicted: Predicted) -> float:
    """Return by which part the predicted time is longer than the published one."""
    return float(predicted.seconds / row["seconds"] - 1)


def made(job: tuple[dict[str, Any], Path]) -> Predicted:
    """Predict a row from a folder with sources, and measure what that takes."""
    row, sources = job
    try:
        prediction, cpu = predicted(row, sources)
    except PtxlabError as problem:
        return Predicted(refused=re.sub(r"/\S*/", "", str(problem).splitlines()[0]))
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    most = prediction.bound_by
    return Predicted(
        prediction.seconds,
        most,
        prediction.used[most],
        prediction.clock_mhz,
        cpu=round(cpu, 1),
        mib=round(mib),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--only", default="", help="rows whose name on record has this in it")
    parser.add_argument("--anew", action="store_true", help="predict again what is on record")
    parser.add_argument("--workers", type=int, default=1, help="how many processes")
    args = parser.parse_args()
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    rows = {called(row): row for kernel in published["kernel"] for row in sizes(kernel)}
    record = read() if PREDICTED.exists() else {}
    record = {name: record[name] for name in rows if name in record}
    asked = [
        n for n in rows if args.only in n and (args.anew or n not in record or record[n].refused)
    ]
    jobs = [(rows[name], args.sources.resolve()) for name in asked]
    with ProcessPoolExecutor(args.workers, max_tasks_per_child=1) as workers:
        for name, told in zip(asked, workers.map(made, jobs), strict=True):
            record[name] = told
            write_whole(PREDICTED, written(record))
            print(told.refused or "  ".join(line(rows[name], told)), f"{told.cpu} s", flush=True)
    if len(record) == len(rows):
        told_of = [(rows[name], told) for name, told in record.items() if not told.refused]
        absent = [f"- {name}: {told.refused}" for name, told in record.items() if told.refused]
        absent += [
            f"- {row['name']} of {row['repository']} ({row['rows']:,} rows): {row['why']}"
            for row in published["left_out"]
        ]
        for page, body in (
            (PAGE, summary(told_of, len(rows))),
            (EVERY_TIME, every_time(told_of, absent)),
        ):
            page.write_text(remade(page.read_text(encoding="utf-8"), body), encoding="utf-8")


def read() -> dict[str, Predicted]:
    told = json.loads(PREDICTED.read_text(encoding="utf-8"))
    return {name: Predicted(**each) for name, each in told.items()}


def written(record: dict[str, Predicted]) -> bytes:
    """Return the record as text, a line for each time."""
    lines = (f"{json.dumps(name)}: {json.dumps(asdict(told))}" for name, told in record.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


Row = tuple[dict[str, Any], Predicted]


def remade(text: str, body: Iterable[Iterable[str]]) -> str:
    """Return a page with what is between its marks made again."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    told = "\n\n".join("\n".join(part) for part in body)
    return f"{before}{BEGIN}\n\n{told}\n\n{END}{after}"


def summary(rows: Sequence[Row], published: int) -> list[list[str]]:
    """Return how far off predictions are, of so many ``published`` times, by kind and by GPU, and in which order they are."""
    locked = [row for row in rows if row[0].get("locked")]
    held_out = [row for row in rows if row[0]["held_out"]]
    cpu = [told.cpu for _, told in rows]
    told_of = (
        f"{len(rows)} of {published} published times, of {len({row['gpu'] for row, _ in rows})} GPUs: the predicted "
        f"one is {spread(rows)}. Of the {len(locked)} whose clock was locked it is "
        f"{spread(locked)}; of the {len(held_out)} that were looked at only when the model stood, {spread(held_out)}. "
        f"Predicting one took {statistics.median(cpu):.1f} s of a core in the middle and {max(cpu):.0f} at most, when it was "
        f"compiled, and at most {max(told.mib for _, told in rows):.0f} MiB."
    )
    return [
        [told_of],
        grouped("kind", rows, lambda row: row.get("kind", KINDS.get(row.get("dtype", "f32"), KINDS["f16"]))),
        grouped("GPU", rows, lambda row: find(row["gpu"]).gpu.name),
        [order(families(rows))],
    ]  # fmt: skip


def every_time(rows: Sequence[Row], absent: Sequence[str]) -> list[list[str]]:
    """Return a table of all times, how the kernels of each family are ranked, and what is left out."""
    ranks = [
        (*family, str(len(pairs)), f"{kendall(pairs):.2f}")
        for family, pairs in families(rows).items()
    ]
    return [
        table(HEAD, [line(*row) for row in rows]),
        ["## The order of kernels", "", "Kendall's tau of the predicted order beside the published one, of four kernels or more:"],
        table(("of", "GPU", "size", "kernels", "tau"), ranks),
        ["## Left out", "", *absent],
    ]  # fmt: skip


def grouped(what: str, rows: Iterable[Row], key: Callable[[dict[str, Any]], str]) -> list[str]:
    """Return a table of how far off predictions are, by group."""
    groups: dict[str, list[Row]] = {}
    for row, told in rows:
        groups.setdefault(key(row), []).append((row, told))
    head = (
        what,
        "times",
        "off on average",
        "in the middle",
        "at most",
        "mean",
        "held out",
        "off on average",
    )
    cells = []
    for name, those in groups.items():
        errors = [error(*each) for each in those]
        sizes = [abs(each) for each in errors]
        held_out = [abs(error(*each)) for each in those if each[0]["held_out"]]
        cells.append((
            name, str(len(those)), f"{statistics.mean(sizes):.1%}", f"{statistics.median(sizes):.1%}", f"{max(sizes):.0%}",
            f"{statistics.mean(errors):+.1%}", str(len(held_out)), f"{statistics.mean(held_out):.1%}" if held_out else "",
        ))  # fmt: skip
    return table(head, cells)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


Pairs = list[tuple[float, float]]
"""Times of kernels, published and predicted."""


def families(rows: Iterable[Row]) -> dict[tuple[str, ...], Pairs]:
    """Return the times of kernels of a repository on a GPU, at one size, where there are four or more."""
    every: dict[tuple[str, ...], Pairs] = {}
    for row, told in rows:
        _, of, gpu, size, *_ = line(row, told)
        every.setdefault((of, gpu, size), []).append((row["seconds"], told.seconds))
    return {family: pairs for family, pairs in every.items() if len(pairs) > 3}


def order(ranked: Mapping[tuple[str, ...], Pairs]) -> str:
    """Say how often kernels of a family are predicted in the order in which they were measured."""
    mean = statistics.mean(kendall(pairs) for pairs in ranked.values())
    told_apart = [alike for pairs in ranked.values() for alike in orders(pairs, APART)]
    return (
        f"Kendall's tau of the predicted order of a family beside the published one is {mean:.2f} on average, of "
        f"{len(ranked)} families. Of the {len(told_apart):,} pairs in a family that were measured more than {APART:.0%} apart, "
        f"{statistics.mean(told_apart):.1%} are predicted in that order."
    )


APART = 0.02
"""How far apart two times are that somebody who measures them again finds in the same order."""


def orders(pairs: Pairs, apart: float) -> list[bool]:
    """Say of every two times that were published so far ``apart`` whether they are predicted in the same order."""
    return [
        (a - c) * (b - d) > 0
        for at, (a, b) in enumerate(pairs)
        for c, d in pairs[:at]
        if max(a, c) > (1 + apart) * min(a, c)
    ]


def kendall(pairs: Pairs) -> float:
    """Return Kendall's tau-b of two orders: 1 where they are the same, -1 where one is the other reversed, 0 where one has none."""
    signs = [
        (np.sign(a - c), np.sign(b - d)) for at, (a, b) in enumerate(pairs) for c, d in pairs[:at]
    ]
    x, y = np.array(signs).T
    told = np.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / told) if told else 0.0


def spread(rows: Iterable[Row]) -> str:
    errors = [abs(error(*row)) for row in rows]
    return (
        f"{statistics.mean(errors):.1%} off on average, {statistics.median(errors):.1%} in the middle, "
        f"{max(errors):.0%} at most"
    )


if __name__ == "__main__":
    main()
