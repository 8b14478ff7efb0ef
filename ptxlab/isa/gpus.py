"""GPUs by name, and what one clock of each can do at most: published peaks, not measurements.

Sources: NVIDIA's architecture papers and data sheets: T4 data sheet, A100 Tensor Core GPU Architecture (and its L2
cache bandwidth), H100 Tensor Core GPU Architecture, H200 data sheet, Ampere GA102, Ada and RTX
Blackwell and RTX Blackwell PRO GPU Architecture, HGX B200 specifications, Jetson AGX Orin technical brief, data sheets of
A10, A30, A40, RTX A4000, L4, L20 (NVIDIA L20 Tensor Core GPU), L40S, H100 PCIe and GH200, specifications of GeForce RTX 30, 40 and 50. Dense rates;
clocks are the highest the chip boosts to, so that nothing exceeds a peak. An SM of all of them issues
four instructions a clock, one for each of its schedulers: CUDA C++ Programming Guide, "Compute
Capabilities".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

from ptxlab.isa.power import GA100, GA102, GB100, GB202, GH100, GH200, L4, RTX_5090_CLOCK, Draw
from ptxlab.isa.targets import TARGETS, Target

ISSUED = 4
"""Instructions of warps that an SM issues in a clock."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU: ``sms`` SMs of a compute ``capability`` (major*10+minor), ``clock`` in MHz.

    ``fp32`` is FLOP a clock and SM by FFMA, ``tensor`` the same of tensor cores by type of A and B and
    type of sums; numbers that share scales are ``mxfp8`` and ``nvfp4``. ``mma_sync`` is the part of ``tensor`` that mma.sync reaches, which on some chips has not
    all of it. ``bandwidth`` of its ``memory`` is in GB/s, ``l2`` of its L2 cache in bytes a clock, None
    where NVIDIA does not say, and ``l2_mib`` is its size. ``l1`` are the bytes a clock of an SM's shared
    memory and L1 cache, which are one. ``power`` is its limit in W, and ``draw`` what an SM draws of it, None where nobody
    measured that.
    """

    name: str
    capability: int
    sms: int
    clock: int
    fp32: int
    tensor: dict[tuple[str, str], int]
    memory: str
    bandwidth: float
    l2: int | None = None
    l1: int = 128
    mma_sync: float = 1.0
    l2_mib: int = 0
    power: int = 0
    draw: Draw | None = None

    def clock_at(self, tensor: float, fma: float = 0.0) -> int:
        """Return the clock in MHz that its limit of power leaves while such parts of what tensor cores and FMA pipes have compute."""
        if not self.draw:
            return self.clock
        return round(min(self.clock, self.draw.clock(self.power / self.sms, tensor, fma)))

    def tflops(self, flop: float) -> float:
        return flop * self.sms * self.clock / 1e6

    @property
    def target(self) -> Target:
        """What code for it is compiled for: the target that is its own."""
        return max(
            (each for each in TARGETS.values() if each.capability == self.capability),
            key=lambda each: each.suffix,
        )

    @property
    def memory_bytes(self) -> float:
        """Bytes of memory for a clock and SM."""
        return self.bandwidth * 1e3 / (self.sms * self.clock)

    @property
    def l2_bytes(self) -> float | None:
        """Bytes of the L2 cache for a clock and SM, None where nobody says."""
        return None if self.l2 is None else self.l2 / self.sms


def _tensor(
    f16: int,
    *,
    f16_to_f16: int | None = None,
    s8: int | None = None,
    s4: int | None = None,
    fp8: int | None = None,
    fp8_to_f16: int | None = None,
    fp4: int | None = None,
) -> dict[tuple[str, str], int]:
    """Return what tensor cores do; ``fp8`` are the formats of up to 8 bits, ``fp4`` those with scales."""
    told = {
        ("bf16", "f32"): f16,
        ("f16", "f32"): f16,
        ("f16", "f16"): f16_to_f16 or f16,
        ("tf32", "f32"): f16 // 2,
        ("s8", "s32"): s8,
        ("s8", "f32"): s8,  # rounded once, at the end
        ("s4", "s32"): s4,
        ("e4m3", "f32"): fp8,
        ("e4m3", "f16"): fp8_to_f16 or fp8,
        ("e2m1", "f32"): fp4,
        ("mxfp8", "f32"): fp8 if fp4 else None,
        ("nvfp4", "f32"): fp4,
    }
    return {types: flop for types, flop in told.items() if flop}


_HOPPER_TENSOR = _tensor(4096)
_AMPERE_TENSOR = _tensor(512, f16_to_f16=1024, s8=2048, s4=4096)
_ADA_TENSOR = _tensor(512, f16_to_f16=1024, s8=2048, s4=4096, fp8=1024, fp8_to_f16=2048)
_ADA_L20_TENSOR = _tensor(512, s8=1024, fp8=1024)
_BLACKWELL_TENSOR = _tensor(512, f16_to_f16=1024, s8=2048, fp8=1024, fp8_to_f16=2048, fp4=4096)
_BLACKWELL_PRO_TENSOR = _tensor(1024, s8=2048, fp8=2048, fp4=4096)
_AMPERE_PRO_TENSOR = _tensor(1024, s8=2048, s4=4096)
_ADA_PRO_TENSOR = _tensor(1024, s8=2048, s4=4096, fp8=2048)
_GA100_TENSOR = _tensor(2048, s8=4096, s4=8192)
_TURING_TENSOR = {
    ("f16", "f32"): 1024,
    ("f16", "f16"): 1024,
    ("s8", "s32"): 2048,
    ("s4", "s32"): 4096,
}

# Of registers alone, 494 of 756 TFLOP/s on an H800: arXiv 2402.13499, the table of mma and wgmma.
_HOPPER_MMA_SYNC = 0.65
# ptxas leaves 8 cycles between two of m16n8k16, 2048 FLOP a clock and SM; 2030 measured on B300: ademeure/QuickRunCUDA.
_B200_MMA_SYNC = 0.25

_a100 = partial(Gpu, l2=5120, l2_mib=40, draw=GA100)
_geforce_30 = partial(Gpu, draw=GA102)
_ampere_pro = partial(Gpu, l2_mib=6, draw=GA102)
_hopper = partial(Gpu, mma_sync=_HOPPER_MMA_SYNC, l2_mib=50, draw=GH100)
_gb202 = partial(Gpu, draw=GB202)

GPUS: tuple[Gpu, ...] = (
    Gpu("T4", 75, 40, 1590, 128, _TURING_TENSOR, "GDDR6", 320, l1=64, l2_mib=4),
    _a100("A100 SXM", 80, 108, 1410, 128, _GA100_TENSOR, "HBM2e", 2039, power=400),
    _a100("A100 SXM 40GB", 80, 108, 1410, 128, _GA100_TENSOR, "HBM2", 1555, power=400),
    _a100("A100 PCIe 40GB", 80, 108, 1410, 128, _GA100_TENSOR, "HBM2", 1555, power=250),
    Gpu("A30", 80, 56, 1440, 128, _GA100_TENSOR, "HBM2", 933, l2_mib=24, power=165, draw=GA100),
    _geforce_30("RTX 3090", 86, 82, 1695, 256, _AMPERE_TENSOR, "GDDR6X", 936, l2_mib=6, power=350),
    _geforce_30("RTX 3080", 86, 68, 1710, 256, _AMPERE_TENSOR, "GDDR6X", 760, l2_mib=5, power=320),
    _geforce_30(
        "RTX 3070 Ti", 86, 48, 1770, 256, _AMPERE_TENSOR, "GDDR6X", 608, l2_mib=4, power=290
    ),
    _geforce_30("RTX 3070", 86, 46, 1725, 256, _AMPERE_TENSOR, "GDDR6", 448, l2_mib=4, power=220),
    _geforce_30(
        "RTX 3060 Ti", 86, 38, 1665, 256, _AMPERE_TENSOR, "GDDR6", 448, l2_mib=3, power=200
    ),
    _ampere_pro("RTX A6000", 86, 84, 1800, 256, _AMPERE_PRO_TENSOR, "GDDR6", 768, power=300),
    _ampere_pro("A40", 86, 84, 1740, 256, _AMPERE_PRO_TENSOR, "GDDR6", 696, power=300),
    _ampere_pro(
        "RTX A4000", 86, 48, 1560, 256, _AMPERE_PRO_TENSOR, "GDDR6", 448, l2_mib=4, power=140
    ),
    _ampere_pro("A10", 86, 72, 1695, 256, _AMPERE_PRO_TENSOR, "GDDR6", 600, power=150),
    Gpu("AGX Orin", 87, 16, 1300, 256, _tensor(2048), "LPDDR5", 204.8, l2_mib=4),
    Gpu("RTX 4090", 89, 128, 2520, 256, _ADA_TENSOR, "GDDR6X", 1008, l2_mib=72),
    Gpu("RTX 4080 SUPER", 89, 80, 2550, 256, _ADA_TENSOR, "GDDR6X", 736, l2_mib=64),
    Gpu("RTX 4080", 89, 76, 2505, 256, _ADA_TENSOR, "GDDR6X", 716.8, l2_mib=64),
    Gpu("RTX 4070 Ti SUPER", 89, 66, 2610, 256, _ADA_TENSOR, "GDDR6X", 672, l2_mib=48),
    Gpu("RTX 4070 Ti", 89, 60, 2610, 256, _ADA_TENSOR, "GDDR6X", 504, l2_mib=48),
    Gpu("RTX 4070 SUPER", 89, 56, 2475, 256, _ADA_TENSOR, "GDDR6X", 504, l2_mib=48),
    Gpu("RTX 4070", 89, 46, 2475, 256, _ADA_TENSOR, "GDDR6X", 504, l2_mib=36),
    Gpu("L40S", 89, 142, 2520, 256, _ADA_PRO_TENSOR, "GDDR6", 864, l2_mib=96),
    Gpu("L20", 89, 92, 2520, 256, _ADA_L20_TENSOR, "GDDR6", 864, l2_mib=96),
    Gpu("L4", 89, 58, 2040, 256, _ADA_PRO_TENSOR, "GDDR6", 300, l2_mib=48, power=72, draw=L4),
    _hopper("H200 SXM", 90, 132, 1980, 256, _HOPPER_TENSOR, "HBM3e", 4800, power=700),
    _hopper("H100 SXM", 90, 132, 1980, 256, _HOPPER_TENSOR, "HBM3", 3350, power=700),
    _hopper("H100 PCIe", 90, 114, 1755, 256, _HOPPER_TENSOR, "HBM2e", 2039, power=350),
    _hopper("GH200", 90, 132, 1980, 256, _HOPPER_TENSOR, "HBM3", 4000, power=900, draw=GH200),
    Gpu(
        "B200",
        100,
        148,
        1965,
        256,
        _tensor(8192, s8=16384, fp8=16384, fp4=32768),
        "HBM3e",
        7700,
        mma_sync=_B200_MMA_SYNC,
        l2_mib=126,
        power=1000,
        draw=GB100,
    ),
    _gb202(
        "RTX 5090",
        120,
        170,
        RTX_5090_CLOCK,
        256,
        _BLACKWELL_TENSOR,
        "GDDR7",
        1792,
        l2_mib=96,
        power=575,
    ),
    Gpu("RTX 5080", 120, 84, 2617, 256, _BLACKWELL_TENSOR, "GDDR7", 960, l2_mib=64),
    Gpu("RTX 5070 Ti", 120, 70, 2452, 256, _BLACKWELL_TENSOR, "GDDR7", 896, l2_mib=48),
    Gpu("RTX 5070", 120, 48, 2512, 256, _BLACKWELL_TENSOR, "GDDR7", 672, l2_mib=48),
    _gb202(
        "RTX PRO 6000",
        120,
        188,
        2617,
        256,
        _BLACKWELL_PRO_TENSOR,
        "GDDR7",
        1792,
        l2_mib=128,
        power=600,
    ),
    _gb202(
        "RTX PRO 6000 Max-Q",
        120,
        188,
        2280,
        256,
        _BLACKWELL_PRO_TENSOR,
        "GDDR7",
        1792,
        l2_mib=128,
        power=300,
    ),
)


_SMS = {103: 148, 110: 20, 121: 48}
"""SMs by capability where a GPU is none of ``GPUS``, of which too little else is known: as a B300, a Jetson AGX Thor and
a GB10 say it of themselves (ademeure/QuickRunCUDA; forums.developer.nvidia.com 356355; 6144 lanes of f32, 128 an SM)."""


def gpus_of(target: Target) -> tuple[Gpu, ...]:
    """Return the GPUs that are ``target``, the one that stands for all of them first."""
    return tuple(gpu for gpu in GPUS if gpu.capability == target.capability)


def spelled(name: str) -> str:
    """Return a GPU's name as it is asked for: ``rtx3090``."""
    return "".join(name.lower().replace("-", " ").split()).removesuffix("sxm")


def gpu_named(name: str) -> Gpu | None:
    """Return the GPU that is called ``name``, however spelled, which may leave out RTX; None where none is."""
    return _named().get(spelled(name))


@cache
def _named() -> dict[str, Gpu]:
    names = {spelled(gpu.name): gpu for gpu in GPUS}
    return {name.removeprefix("rtx"): gpu for name, gpu in names.items()} | names


def sms_of(target: Target) -> int | None:
    """Return how many SMs a GPU that is ``target`` has; None where nobody says."""
    return next((gpu.sms for gpu in gpus_of(target)), _SMS.get(target.capability))
