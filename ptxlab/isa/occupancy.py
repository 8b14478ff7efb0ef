"""How many CTAs of a kernel an SM holds at once, and which resource is the first to run out.

Limits of an SM: CUDA Programming Guide, "Compute Capabilities", the table of device and streaming
multiprocessor information. Units of allocation and the number of barriers: cuda_occupancy.h of the
CUDA toolkit, which has the CTAs and shared memory of sm_107 too; its warps are from libcu++'s
arch_traits.h. All targets here have 64 Ki registers in an SM, allocated to a warp 256 at a time from
one of four partitions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.isa.targets import WARP, Target

PARTITIONS = 4
PARTITION_REGISTERS = 16 * 1024
REGISTER_UNIT = 256
MOST_REGISTERS = 255


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one SM has: ``ctas`` and ``warps`` at once, ``shared`` KiB, and ``barriers`` for bar.sync.

    ``reserved`` bytes of shared memory go to the system in every CTA, behind its own or where they are
    ``first`` before it, and shared memory comes in units of ``shared_unit`` bytes. ``barriers`` is
    None where their number limits nothing. ``reserved_0`` is the place among those reserved that
    %reserved_smem_offset_0 names. Source of these two: what ptxas makes of the special registers.
    """

    ctas: int
    warps: int
    shared: int
    barriers: int | None = None
    reserved: int = 1024
    shared_unit: int = 128
    first: bool = False
    reserved_0: int = 0

    @property
    def shared_base(self) -> int:
        """The address in shared memory where a CTA's own begins."""
        return self.reserved if self.first else 0


MULTIPROCESSORS: dict[int, Multiprocessor] = {
    75: Multiprocessor(16, 32, 64, reserved=0, shared_unit=256),
    80: Multiprocessor(32, 64, 164),
    86: Multiprocessor(16, 48, 100),
    87: Multiprocessor(16, 48, 164),
    89: Multiprocessor(24, 48, 100),
    90: Multiprocessor(32, 64, 228, barriers=64, first=True),
    100: Multiprocessor(32, 64, 228, barriers=64, first=True, reserved_0=64),
    103: Multiprocessor(32, 64, 228, barriers=32, first=True, reserved_0=64),
    107: Multiprocessor(16, 32, 328, barriers=16, first=True, reserved_0=64),
    110: Multiprocessor(24, 48, 228, barriers=24, first=True, reserved_0=64),
    120: Multiprocessor(24, 48, 100, barriers=24, first=True, reserved_0=64),
    121: Multiprocessor(24, 48, 100, barriers=24, first=True, reserved_0=64),
}
"""By compute capability, as major*10+minor."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """``ctas`` of ``threads`` threads fit into an SM at once: ``warps`` of ``most_warps``.

    ``limits`` is how many CTAs each resource would allow; a launch with 0 fails.
    """

    threads: int
    ctas: int
    warps: int
    most_warps: int
    limits: dict[str, int]

    @property
    def limited_by(self) -> tuple[str, ...]:
        return tuple(name for name, limit in self.limits.items() if limit == self.ctas)


def occupancy(
    target: Target, threads: int, *, registers: int, shared: int = 0, barriers: int = 0
) -> Occupancy:
    """Return how many CTAs of ``threads`` threads an SM of ``target`` holds.

    ``registers`` are those of a thread, ``shared`` bytes and ``barriers`` those of a CTA, static
    and dynamic together.
    """
    sm = MULTIPROCESSORS[target.capability]
    warps = -(-threads // WARP)
    limits = {
        "CTAs": sm.ctas,
        "threads": sm.warps // warps,
        "registers": _by_registers(registers, warps),
        "shared memory": _by_shared(target, sm, shared),
    }
    if sm.barriers is not None and barriers:
        limits["barriers"] = sm.barriers // barriers
    ctas = min(limits.values())
    return Occupancy(threads, ctas, ctas * warps, sm.warps, limits)


def _by_registers(registers: int, warps: int) -> int:
    of_warp = _rounded_up(max(registers, 1) * WARP, REGISTER_UNIT)
    return PARTITION_REGISTERS // of_warp * PARTITIONS // warps


def most_registers(warps: int) -> int:
    """Return the most registers of a thread, a multiple of 8 or 255, with so many warps in an SM at once."""
    of_partition = -(-warps // PARTITIONS)
    return min(PARTITION_REGISTERS // (of_partition * WARP) // 8 * 8, MOST_REGISTERS)


def shared_of_each(target: Target, ctas: int) -> int:
    """Return how many bytes of shared memory, static and dynamic, each of so many CTAs in an SM may have."""
    sm = MULTIPROCESSORS[target.capability]
    return sm.shared * 1024 // ctas // sm.shared_unit * sm.shared_unit - sm.reserved


def _by_shared(target: Target, sm: Multiprocessor, shared: int) -> int:
    if shared > target.shared_bytes:
        return 0
    of_cta = _rounded_up(shared + sm.reserved, sm.shared_unit)
    return sm.shared * 1024 // of_cta if of_cta else sm.ctas


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
