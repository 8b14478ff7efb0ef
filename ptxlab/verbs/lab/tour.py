"""A tour of eight stops for somebody who has never seen an mma: a program each, a place to look at, and what is there."""

from __future__ import annotations

from typing import Any

_MMA = "ptx/mma_m16n8k16_bf16_f32.ptx"

STOPS: list[dict[str, Any]] = [
    {
        "title": "One instruction, 4,096 operations",
        "example": _MMA,
        "tab": "step",
        "at": "mma.sync",
        "text": [
            "Left is PTX, NVIDIA's assembly language. The marked line is an mma: the 32 threads of a warp multiply a 16 x 16 "
            "matrix A with a 16 x 8 matrix B together, and add the product to D, in one instruction of the tensor cores.",
            "Right is that instruction as it was executed, on an emulator that gives the bits of the hardware. Point at any "
            "word of the source to see what it means.",
        ],
    },
    {
        "title": "Who holds which element",
        "example": _MMA,
        "tab": "step",
        "at": "{d0, d1, d2, d3}, {a0",
        "text": [
            "No thread has a whole matrix. Each of the 32 lanes holds some elements in its registers, in a fixed pattern: "
            "the fragment. In the drawing of A each colour is a lane, and 6:a1 is register a1 of lane 6.",
            "Point at a1 in the source: it holds two numbers of 16 bits, which are neighbours in a row of A. Click an "
            "element of the matrix at the right to see it in the register that holds it.",
        ],
    },
    {
        "title": "From shared memory to fragments",
        "example": "ptx/ldmatrix.ptx",
        "tab": "step",
        "at": "ldmatrix.sync",
        "text": [
            "Matrices come through shared memory, which lies in 32 banks. ldmatrix reads 8 x 8 tiles of it: each lane "
            "names the address of a row, and each gets the elements that an mma wants of it.",
            "At the right, below the matrices, are the banks: what this instruction touched, and who wrote it. The arrow "
            "keys go from instruction to instruction.",
        ],
    },
    {
        "title": "When what happens",
        "example": "ptx/mbarrier.ptx",
        "tab": "trace",
        "text": [
            "Copies into shared memory go on by themselves, while warps do something else. A barrier in memory, the "
            "mbarrier, counts who has arrived and which bytes have landed; then its phase changes.",
            "The timeline has a lane for each warp, each copy and each barrier, in the order of the emulator. Click an "
            "event, and its line is marked in the source.",
        ],
    },
    {
        "title": "What if a wait is forgotten?",
        "example": "ptx/mbarrier.ptx",
        "tab": "check",
        "text": [
            "This program is right: nothing is found. Now take out a wait: put // before the line of the source that "
            "begins with mbarrier.try_wait and see the finding with both lines, or lower an address until it is out of bounds.",
            "What is found does not depend on luck: it is what the program does not order, on the paths that it takes.",
        ],
    },
    {
        "title": "From PTX to the machine",
        "example": "kernels/naive.cu",
        "tab": "code",
        "at": "sum(",
        "text": [
            "CUDA C becomes PTX, and PTX becomes SASS, the code of one GPU. Equal colours come from the same line; click "
            "one, and all three move there.",
            "Before each instruction of SASS stand its control bits: the hardware does not look for hazards, so the "
            "assembler says how long to wait, and for whom. Point at one to read them.",
        ],
    },
    {
        "title": "Where the memory goes",
        "example": "kernels/naive.cu",
        "tab": "profile",
        "text": [
            "A tensor core is fed by memory, and memory is read 32 bytes at a time. Here every thread walks along its own "
            "row: what is red is more than the same bytes need.",
            "The counts are exact, and those of a profiler on a GPU. Open kernels/coalescing.cu to see the same with two "
            "axes swapped.",
        ],
    },
    {
        "title": "How fast, on a GPU that is not here",
        "example": "ptx/gemm_m16n8k16_bf16_f32.ptx",
        "tab": "predict",
        "text": [
            "A model runs the machine code of each GPU clock by clock: how long the launch takes, what warps wait for, and at "
            "which line. Choose other GPUs, or make the launch larger under Launch.",
            "That is the lab. Change anything: everything follows. Link copies an address that has all of your work in it, "
            "Save makes one page that opens anywhere.",
        ],
    },
]  # fmt: skip
"""``at`` is a text in the line to look at; paragraphs of ``text`` are plain."""
