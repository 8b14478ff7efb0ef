"""How long rungs of the ladder would take on a GPU that is not here; nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from ptxlab.device.loading import load_assembled
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.gemm.algorithms import Algorithm, Rung
from ptxlab.gemm.problem import DeviceOperands, Problem, memory_type
from ptxlab.gemm.published import CUBLAS, Figure, published
from ptxlab.gemm.run import cutting
from ptxlab.gemm.scaled import SCALED
from ptxlab.gemm.side_by_side import RungJob, lacking
from ptxlab.gemm.tensor_maps import arguments
from ptxlab.gemm.tile import AS_IT_IS, Sizes
from ptxlab.gemm.tile_file import tile_for
from ptxlab.gemm.tiles import candidates, cuttable
from ptxlab.isa.gpus import Gpu
from ptxlab.machine.assembly import Assembly
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import of_launch
from ptxlab.workers import Progress, results


@dataclass(frozen=True, slots=True)
class PredictedRung:
    """A rung on a problem and a ``gpu``: its ``prediction``, or why there is none.

    ``tile`` is one it was cut to.
    """

    rung: Rung
    problem: Problem
    gpu: Gpu
    prediction: Prediction | None
    reason: str = ""
    tile: Sizes = field(default_factory=dict)

    @property
    def tflops(self) -> float | None:
        """TFLOP/s, None where nothing is predicted."""
        prediction = self.prediction
        return (
            self.problem.flops / prediction.seconds / 1e12
            if prediction and prediction.seconds
            else None
        )

    @property
    def published(self) -> tuple[Figure, ...]:
        """What others measured of kernels like this one, on this GPU, of this size and these types."""
        return self._published(self.rung.name)

    @property
    def cublas(self) -> Figure | None:
        """What others measured of cuBLAS there, None where ptxlab knows of nobody."""
        return next(iter(self._published(CUBLAS)), None)

    @property
    def of_cublas(self) -> float | None:
        """The part of cuBLAS's published rate that is predicted."""
        return self.tflops / self.cublas.tflops if self.tflops and self.cublas else None

    def _published(self, rung: str) -> tuple[Figure, ...]:
        p = self.problem
        square = p.m == p.n == p.k and p.layout == "nn" and p.epilogue == "none"
        return tuple(published(rung, self.gpu.name, p.m, (p.dtype, p.acc))) if square else ()


def predict_ladder(
    jobs: Sequence[RungJob], chip: Chip, clock: int | None, executor: Executor | None = None
) -> Iterator[PredictedRung]:
    """Yield each rung with its prediction in their order, made here or by an ``executor``."""
    return results(executor, partial(_attempted, chip, clock), jobs)


def predict_tiles(
    rung: Rung,
    problem: Problem,
    chip: Chip,
    clock: int | None,
    progress: Progress,
    executor: Executor | None,
) -> list[PredictedRung]:
    """Predict a rung with the tiles near its own and its others, and return the fastest first.

    Raises PtxlabError for what has no tile.
    """
    algorithm = cuttable(rung, problem)
    target = chip.gpu.target
    own = algorithm.tile_for(problem, target)
    tiles = candidates(algorithm, problem.dtype, own, together=1)
    jobs, predicted = [RungJob(algorithm, problem, tile) for tile in tiles], []
    for cut in predict_ladder(jobs, chip, clock, executor):
        predicted.append(cut)
        progress(len(predicted), len(jobs))
    return sorted(predicted, key=lambda rung: -(rung.tflops or 0))


def _attempted(chip: Chip, clock: int | None, job: RungJob) -> PredictedRung:
    rung, problem, sizes = job.rung, job.problem, job.sizes
    try:
        if not isinstance(rung, Algorithm):
            raise Unsupported(f"{rung.name} is no kernel of ptxlab's")
        prediction = predict_rung(problem, rung, chip, sizes, clock)
        return PredictedRung(rung, problem, chip.gpu, prediction, tile=sizes)
    except PtxlabError as error:
        reason = lacking(error) or error.message.splitlines()[0]
        return PredictedRung(rung, problem, chip.gpu, None, reason, sizes)


def predict_rung(
    problem: Problem,
    algorithm: Algorithm,
    chip: Chip,
    sizes: Sizes = AS_IT_IS,
    clock: int | None = None,
) -> Prediction:
    """Predict one launch of an algorithm, whose matrices are never written."""
    target = chip.gpu.target
    algorithm.require(problem.dtype, problem.acc, problem.layout, problem.epilogue)
    if not problem.m * problem.n:
        raise PtxlabError("an empty D takes no launch")
    with closing(open_device("emulator", arch=target.name)) as device, ExitStack() as stack:
        tile = tile_for(device, algorithm, problem, sizes)
        with cutting(algorithm, problem, tile, target) as (file, options, config):
            program, cubin = load_assembled(file, target, options)
        kernel = device.load(program).kernel(algorithm.entry)
        args = arguments(device, _blank(device, problem, stack), algorithm)
        return of_launch(Assembly(program, cubin), kernel, config, args, chip, clock)


def _blank(device: Device, problem: Problem, stack: ExitStack) -> DeviceOperands:
    """Return matrices of zeros, which take memory only where they are touched."""

    def zeros(shape: tuple[int, ...], dtype: str) -> Buffer:
        buffer: Buffer = stack.enter_context(device.zeros(shape, memory_type(dtype)))
        return buffer

    a_size, b_size, d_size = (
        rows * leading for (rows, _), leading in zip(problem.stored, problem.leading, strict=True)
    )
    d = zeros((d_size,), problem.acc)
    bias = zeros((problem.n,), "f32") if "bias" in problem.epilogue else None
    if problem.dtype not in SCALED:
        a, b = (zeros((size,), problem.dtype) for size in (a_size, b_size))
        return DeviceOperands(problem, a, b, d, bias)
    kind, extents = SCALED[problem.dtype], (problem.m, problem.n)
    a, b = (zeros(kind.packed_shape(extent, problem.k), "u8") for extent in extents)
    scales = tuple(zeros(kind.blocks_shape(extent, problem.k), "u8") for extent in extents)
    return DeviceOperands(problem, a, b, d, bias, scales)
