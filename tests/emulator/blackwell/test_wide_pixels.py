"""Copies with im2col::w and im2col::w::128, and in a swizzle of 96 bytes, as programs ask for them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.errors import LaunchError, PtxlabError, ToolchainError, Unsupported
from ptxlab.tensormap.tensor_map import Im2col
from ptxlab.toolchain.nvjitlink import link_ptx
from tests.emulator.blackwell.test_packed_copies import TEXT
from tests.together import thorough

LOAD = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [buffer], [d1, {0, 0}], [bar];"
OF_PIXELS = (
    "cp.async.bulk.tensor.3d.shared::TO.global.MODE.mbarrier::complete_tx::bytes [buffer], [d1, {0, 2, 0}], [bar], "
    "{HALO, 1};"
)
IMAGES, WIDTH, CHANNELS = 40, 5, 16


def text(load: str, nbytes: int, target: str) -> str:
    made = TEXT.replace("TARGET", target).replace("BYTES", str(nbytes)).replace("STORE", "")
    return made.replace("buffer[2048]", "buffer[16384]").replace(LOAD, load)


def pixels(
    mode: str,
    halo: int,
    count: int,
    *,
    target: str = "sm_100a",
    to: str = "cta",
    wide: bool = True,
) -> Array:
    """Return the number of each pixel that a copy brings, one more than image * WIDTH + w, or 0 for zeros."""
    gpu = open_device("emulator", arch=target)
    given = np.zeros((IMAGES, WIDTH, CHANNELS), np.uint32)
    given[...] = np.arange(1, 1 + IMAGES * WIDTH).reshape(IMAGES, WIDTH, 1)
    source, out = gpu.upload(given), gpu.zeros(4096, "u32")
    window = Im2col((-1,), (0,), CHANNELS, 7, wide)
    mapped = gpu.tensor_map(source, im2col=window, swizzle="64B")
    load = OF_PIXELS.replace("TO", to).replace("MODE", mode).replace("HALO", str(halo))
    if mode == "im2col":
        load = load.replace(f"{{{halo}, 1}}", "{1}")
    program = text(load, 64 * count, target).replace(
        "mad.lo.u32 r1, r0, 4, r1;", "mad.lo.u32 r1, r0, 16, r1;"
    )
    gpu.load(program).kernel("k").launch(grid=1, block=4 * count, args=[out, mapped, mapped])
    return out.numpy()[: 4 * count].reshape(count, 4)[:, 0]


FOLLOWING = [
    WIDTH * image + w + 1 if w < WIDTH else 0 for image in range(IMAGES) for w in range(WIDTH + 1)
][3:]
"""The walk from w 2 + 1 on in a window of 0 to 5: the sixth pixel of a line lies outside."""


@pytest.mark.parametrize(
    ("target", "to"), [("sm_100a", "cta"), ("sm_120a", "cta"), ("sm_103a", "cluster")]
)
def test_a_line_goes_on_in_the_next_image(target: str, to: str) -> None:
    assert pixels("im2col::w", 2, 9, target=target, to=to).tolist() == FOLLOWING[:9]


def test_halos_of_128_pixels_lie_behind_all_of_them() -> None:
    halos = [FOLLOWING[32 * group + more] for more in range(2) for group in range(1, 5)]
    assert pixels("im2col::w::128", 2, 136).tolist() == FOLLOWING[:128] + halos


@pytest.mark.parametrize(
    "target",
    [
        "sm_90a",
        "sm_100a",
        "sm_120a",
        *thorough(["sm_103a", "sm_107a", "sm_110a", "sm_121a"]),
    ],
)
@pytest.mark.parametrize(
    ("mode", "to"),
    [
        ("im2col::w", "cta"),
        ("im2col::w", "cluster"),
        ("im2col::w::128", "cta"),
        *thorough([("im2col::w::128", "cluster")]),
    ],
)
def test_the_targets_that_have_them_are_those_of_ptxas(mode: str, to: str, target: str) -> None:
    load = OF_PIXELS.replace("TO", to).replace("MODE", mode).replace("HALO", "0")
    version = "9.4" if target == "sm_107a" else "9.1"
    program = text(load, 0, target).replace(".version 9.1", f".version {version}")
    gpu = open_device("emulator", arch=target)
    small = (mode, to) == ("im2col::w", "cta")
    if target not in ("sm_90a", *(() if small else ("sm_120a", "sm_121a"))):
        gpu.load(program).kernel("k")
        link_ptx(program, arch=target)
        return
    with pytest.raises(Unsupported, match=f"{mode}.* does not exist on {target}"):
        gpu.load(program).kernel("k")
    with pytest.raises(ToolchainError):
        link_ptx(program, arch=target)


def test_a_map_is_for_one_kind_of_pixels() -> None:
    with pytest.raises(LaunchError, match=r"map is one of im2col::w mode, not im2col\b"):
        pixels("im2col", 0, 7)
    with pytest.raises(LaunchError, match=r"map is one of im2col mode, not im2col::w"):
        pixels("im2col::w", 0, 7, wide=False)


REPLACED = """
    mov.u64 d2, 0;
    ld.param.u64 d1, [out];
    add.u64 d1, d1, 8192;
    tensormap.replace.tile.swizzle_mode.global.b1024.b32 [d1], 4;
    fence.proxy.tensormap::generic.acquire.gpu [d1], 128;
"""


def test_a_swizzle_of_96_bytes_is_made_by_a_program() -> None:
    """Rows of 96 bytes follow each other; on every second 128 bytes neighbours of 16 change places."""
    gpu = open_device("emulator", arch="sm_103a")
    given = np.arange(8 * 24, dtype=np.uint32).reshape(8, 24)
    source, out = gpu.upload(given), gpu.zeros(8192 + 128, "u8")
    mapped = gpu.tensor_map(source, (8, 24))
    gpu.write(out.address + 8192, np.frombuffer(mapped.data, np.uint8))
    program = text(REPLACED + LOAD, given.nbytes, "sm_103a")
    gpu.load(program).kernel("k").launch(grid=1, block=192, args=[out, mapped, mapped])
    units = out.numpy()[: given.nbytes].view(np.uint32).reshape(3, 2, 4, 2, 4)
    units[:, 1] = units[:, 1, :, ::-1]
    assert np.array_equal(units.reshape(8, 24), given)


def test_maps_that_the_driver_does_not_make() -> None:
    """Of 96 bytes it has no swizzle, and of im2col::w some alone; GPUs before Blackwell have none of im2col::w."""
    gpu = open_device("emulator", arch="sm_103a")
    source = gpu.zeros((8, 5, 16), "u32")
    with pytest.raises(PtxlabError, match="swizzle 96B is none of none, 32B, 64B, 128B"):
        gpu.tensor_map(source, (1, 5, 16), swizzle="96B")
    window = Im2col((0,), (0,), 16, 7, wide=True)
    with pytest.raises(
        PtxlabError, match="swizzle none does not go with im2col::w, which takes 64B"
    ):
        gpu.tensor_map(source, im2col=window)
    older = open_device("emulator", arch="sm_90a")
    with pytest.raises(PtxlabError, match="for im2col::w, is for sm_100 and newer"):
        older.tensor_map(older.zeros((8, 5, 16), "u32"), im2col=window, swizzle="64B")


STORED = "cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs::w.bulk_group [d2, {0, 1, 38}], [buffer];"


@pytest.mark.parametrize(("lower", "upper"), [(1, -1), (-1, 0)])
def test_pixels_of_a_line_are_stored_until_one_lies_outside(lower: int, upper: int) -> None:
    """From w 1 on in a window of 1 to 3, of the last two images: six of seven pixels."""
    gpu = open_device("emulator", arch="sm_107a")
    given = np.arange(1, 1 + 7 * CHANNELS, dtype=np.uint32).reshape(1, 7, CHANNELS)
    source, back, out = (
        gpu.upload(given),
        gpu.zeros((IMAGES, WIDTH, CHANNELS), "u32"),
        gpu.zeros(512, "u32"),
    )
    maps = [
        gpu.tensor_map(source, im2col=Im2col((0,), (0,), CHANNELS, 7, wide=True), swizzle="64B"),
        gpu.tensor_map(
            back, im2col=Im2col((lower,), (upper,), CHANNELS, 7, wide=True), swizzle="64B"
        ),
    ]
    load = (
        OF_PIXELS.replace("TO", "cta")
        .replace("MODE", "im2col::w")
        .replace("{0, 2, 0}", "{0, 0, 0}")
    )
    load = load.replace("{HALO, 1}", "{0, 0}")
    program = (
        TEXT.replace("TARGET", "sm_107a").replace("BYTES", str(given.nbytes)).replace("9.1", "9.4")
    )
    kernel = gpu.load(program.replace(LOAD, load).replace("STORE", STORED)).kernel("k")
    if lower < 0:
        with pytest.raises(
            LaunchError, match=r"corners -1 and 0 of a store .* stays in the tensor"
        ):
            kernel.launch(grid=1, block=512, args=[out, *maps])
        return
    kernel.launch(grid=1, block=512, args=[out, *maps])
    expected = np.zeros((IMAGES, WIDTH, CHANNELS), np.uint32)
    expected[38:, 1:4] = given[0, :6].reshape(2, 3, CHANNELS)
    assert np.array_equal(back.numpy(), expected)
