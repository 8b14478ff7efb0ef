"""What else people call the types of PTX: in CUDA C, PyTorch, NumPy, JAX and speech.

Nothing heavy is imported here, so that a verb's help answers at once.
"""

from __future__ import annotations

SYNONYMS: dict[str, str] = {
    synonym: name
    for name, synonyms in {
        "f16": "half fp16 float16 __half",
        "bf16": "bfloat16 bfloat __nv_bfloat16 nv_bfloat16",
        "f32": "float fp32 float32 single",
        "f64": "double fp64 float64",
        "tf32": "tfloat32 tensorfloat32",
        "e4m3": "fp8 float8 fp8_e4m3 fp8e4m3 e4m3fn float8_e4m3 float8_e4m3fn",
        "e5m2": "fp8_e5m2 fp8e5m2 float8_e5m2 bf8",
        "e3m2": "fp6 fp6_e3m2 float6_e3m2fn",
        "e2m3": "fp6_e2m3 float6_e2m3fn",
        "e2m1": "fp4 float4 fp4_e2m1 float4_e2m1fn",
        "f16x2": "half2 __half2",
        "bf16x2": "bfloat162 __nv_bfloat162",
        "s4": "int4",
        "u4": "uint4",
        "s8": "int8 int8_t i8 char",
        "u8": "uint8 uint8_t uchar",
        "s16": "int16 int16_t i16 short",
        "u16": "uint16 uint16_t ushort",
        "s32": "int int32 int32_t i32",
        "u32": "uint uint32 uint32_t unsigned",
        "s64": "int64 int64_t i64 long",
        "u64": "uint64 uint64_t ulong size_t",
        "b1": "int1 bit",
        "pred": "bool",
    }.items()
    for synonym in synonyms.split()
}
"""The names of PTX by those of others. Of 8 bits the usual format is e4m3, of 6 bits e3m2."""

ALL_CALLED: dict[str, tuple[str, ...]] = {
    **{synonym: (name,) for synonym, name in SYNONYMS.items()},
    "fp8": ("e4m3", "e5m2"),
    "float8": ("e4m3", "e5m2"),
    "fp6": ("e3m2", "e2m3"),
    "int8": ("s8", "u8"),
    "int4": ("s4", "u4"),
}
"""All types that a word may mean, for who searches and does not choose."""


def type_called(name: str) -> str:
    """Return what PTX calls a type, or several with dots between; what has no other name is itself."""
    return ".".join(SYNONYMS.get(part, part) for part in name.split("."))
