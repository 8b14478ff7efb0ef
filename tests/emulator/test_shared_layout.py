"""Where shared variables lie: as ptxas lays them out for a kernel and all it calls, and apart from each other."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import numpy as np
import pytest

import ptxlab
from ptxlab.device.protocol import Device
from ptxlab.toolchain import disassemble, link_ptx
from tests.together import thorough

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
TYPES = {"b8": 1, "b16": 2, "f32": 4, "u64": 8, "v4 .f32": 16}


@pytest.fixture
def device() -> Iterator[Device]:
    with ptxlab.open_device("emulator", arch="sm_80") as opened:
        yield opened


class Layout:
    """A module of random shared variables in kernels ``k0`` and ``k1`` and the functions that these call.

    Each stores the address of each variable it names at ``places[function, variable]`` of an array of
    words, which it is given the address of. No two variables have one size, as ptxas places those of
    one size and alignment in an order of its own.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.places: dict[tuple[str, str], int] = {}
        self.sizes: dict[str, int] = {}
        outer = [self.variable(f"m{i}") for i in range(4)]
        align = self.random.choice(["", ".align 8", ".align 16", ".align 256"])
        dynamic = f".extern .shared {align} .b8 dynamic[];"
        known = ["m0", "m1", "m2", "m3"]
        text = [HEAD, *outer[:3], dynamic]
        self.calls = {"k0": ["f0"], "k1": self.random.sample(["f0", "f1"], 2), "f1": ["f0"]}
        for name in ("f0", "f1"):
            text.append(f".func {name}(.reg .b64 p)\n{self.body(name, known[:3])}")
        text.append(outer[3])
        for name in ("k0", "k1"):
            load = ".reg .b64 p;\nld.param.u64 p, [q];\n"
            text.append(
                f".visible .entry {name}(.param .u64 q)\n{self.body(name, known, load, dynamic=True)}"
            )
        self.text = "\n".join(text)

    def variable(self, name: str) -> str:
        kind, count = self.random.choice(list(TYPES)), self.random.randint(1, 40)
        while TYPES[kind] * count in self.sizes.values():
            count += 1
        self.sizes[name] = TYPES[kind] * count
        align = self.random.choice(["", "", ".align 16", ".align 32", ".align 128"])
        return f".shared {align} .{kind} {name}[{count}];"

    def body(
        self, function: str, outer: list[str], start: str = "", *, dynamic: bool = False
    ) -> str:
        own = [f"{function}_{i}" for i in range(self.random.randint(1, 3))]
        lines = ["{", *(self.variable(name) for name in own), ".reg .b32 a;", start]
        for name in own + self.random.sample(outer, 2) + ["dynamic"] * dynamic:
            at = self.places[function, name] = len(self.places)
            lines += [f"mov.u32 a, {name};", f"st.global.u32 [p+{4 * at}], a;"]
        lines += [f"call {name}, (p);" for name in self.calls.get(function, ())]
        return "\n".join([*lines, "ret;", "}"])

    def text_of(self, functions: set[str]) -> str:
        """Return the module without the functions that are not among ``functions``."""
        text = self.text
        for name in {"k0", "k1", "f0", "f1"} - functions:
            text = re.sub(rf"\n[^\n]*(entry|func) {name}\(.*?\n}}", "", text, flags=re.S)
        return text

    def reached(self, kernel: str) -> set[str]:
        functions = {kernel}
        for name in self.calls.get(kernel, ()):
            functions |= self.reached(name)
        return functions


def stored_constants(sass: str, function: str) -> dict[int, int]:
    """Return the constants that machine code stores to global memory, by the offset of the store."""
    [section] = re.findall(rf"\.section\t\.text\.{function},.*?(?=\.section\t|\Z)", sass, re.S)
    registers: dict[str, int] = {}
    stored: dict[int, int] = {}
    for line in section.splitlines():
        if moved := re.search(r"MOV (U?R\d+), (0x[0-9a-f]+|U?R\d+) ;", line):
            name, value = moved.groups()
            registers[name] = int(value, 16) if value[0] == "0" else registers.get(value, -1)
        elif store := re.search(r"STG\.E \[R\d+\.64(?:\+(0x[0-9a-f]+))?\], (R\d+)", line):
            stored[int(store[1] or "0", 16)] = registers[store[2]]
    return stored


@pytest.mark.parametrize(
    "seed", [1, 2, 3, *thorough((4, 5))]
)  # nvJitLink 13 aborts on the module of seed 0
def test_variables_lie_where_ptxas_puts_them(device: Device, seed: int) -> None:
    layout = Layout(seed)
    module = device.load(layout.text)
    for kernel in ("k0", "k1"):
        # In a module of its own: the place of a function's variables depends on who calls it.
        reached = layout.reached(kernel)
        sass = disassemble(link_ptx(layout.text_of(reached), arch="sm_80"), options=("-c",))
        out = device.zeros(len(layout.places), "u32")
        module.kernel(kernel).launch(1, 1, [out], shared=64)
        mine = out.numpy()
        seen = 0
        for function in reached:
            theirs = stored_constants(sass, function)
            for (where, name), at in layout.places.items():
                if where == function:
                    assert mine[at] == theirs[4 * at], (kernel, where, name)
                    seen += 1
        assert seen >= 6


SHARED_BY_CALLS = (
    HEAD
    + """
.extern .shared .align 4 .b8 dynamic[];
.func (.reg .b32 r) sum(.reg .b32 x)
{
    .shared .b32 kept[32];
    .reg .b32 a, t;
    mov.u32 t, %tid.x;
    mov.u32 a, kept;
    mad.lo.u32 a, t, 4, a;
    st.shared.u32 [a], x;
    bar.sync 0;
    xor.b32 t, t, 1;
    mov.u32 a, kept;
    mad.lo.u32 a, t, 4, a;
    ld.shared.u32 r, [a];
    ret;
}
.visible .entry k(.param .u64 p)
{
    .shared .b32 own[32];
    .reg .b32 a, b, c, d, t; .reg .b64 q, o;
    ld.param.u64 q, [p];
    mov.u32 t, %tid.x;
    mov.u32 a, own;
    mad.lo.u32 a, t, 4, a;
    st.shared.u32 [a], 100;
    mov.u32 b, dynamic;
    mad.lo.u32 b, t, 4, b;
    st.shared.u32 [b], 200;
    call (c), sum, (t);
    ld.shared.u32 d, [a];
    mad.lo.u32 c, d, 1000, c;
    ld.shared.u32 d, [b];
    mad.lo.u32 c, d, 1000000, c;
    mul.wide.u32 o, t, 4;
    add.u64 q, q, o;
    st.global.u32 [q], c;
    ret;
}
"""
)


def test_a_called_function_overwrites_nothing(device: Device) -> None:
    with device.zeros(32, "u32") as out:
        device.load(SHARED_BY_CALLS).kernel().launch(1, 32, [out], shared=128)
        lanes = np.arange(32, dtype=np.uint32)
        assert np.array_equal(out.numpy(), 200_000_000 + 100_000 + (lanes ^ 1))


def test_no_more_shared_memory_than_the_variables_take(device: Device) -> None:
    """One byte behind the static variables of the kernel and what it calls is out of bounds."""
    beyond = SHARED_BY_CALLS.replace("st.shared.u32 [b], 200", "st.shared.u32 [a+132], 200")
    with device.zeros(32, "u32") as out:
        beyond = beyond.replace("ld.shared.u32 d, [b];", "")
        within = beyond.replace("a+132", "a+128")
        device.load(within).kernel().launch(1, 32, [out])
        with pytest.raises(ptxlab.LaunchError, match="outside shared memory, which has 256 bytes"):
            device.load(beyond).kernel().launch(1, 32, [out])


@pytest.mark.parametrize("static", [1, 20, 48])
def test_dynamic_shared_memory_is_all_there_behind_its_alignment(
    device: Device, static: int
) -> None:
    """Behind the static variables it begins at a multiple of 16, and has as many bytes as were asked for."""
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 p)
{{
    .shared .b8 own[{static}];
    .reg .b32 a, b; .reg .b64 q;
    ld.param.u64 q, [p];
    mov.u32 a, own; st.shared.u8 [a+{static - 1}], 7;
    mov.u32 a, dynamic; st.shared.u32 [a+60], 5; ld.shared.u32 b, [a+60];
    st.global.u32 [q], b;
}}
"""
    with device.zeros(1, "u32") as out:
        device.load(text).kernel().launch(1, 1, [out], shared=64)
        assert out.numpy().tolist() == [5]
        with pytest.raises(ptxlab.LaunchError, match="outside shared memory"):
            device.load(text).kernel().launch(1, 1, [out], shared=60)
