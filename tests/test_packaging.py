from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import ptxlab

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def files_below(folder: str, *suffixes: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes
    }


def build(kind: str, folder: Path) -> Path:
    """Build from the working tree as ``pip`` would, but here and now: nothing is downloaded."""
    code = f"import sys, hatchling.build as b; print(b.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel")))


def test_the_wheel_holds_all_code_and_all_programs_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    code = files_below("ptxlab", ".py", ".typed", ".html", ".css", ".js", ".h")
    programs = files_below("ptx", ".ptx") | files_below("kernels", ".cu", ".cuh")
    code |= files_below("ptxlab/gemm", ".xz") | files_below("ptxlab/prediction", ".toml")
    assert len(programs) > 5
    page = f"ptxlab-{ptxlab.__version__}.data/data/share/man/man1/ptxlab.1"
    assert inside == code | {f"ptxlab/{name}" for name in programs} | {page}


def test_the_wheel_says_what_the_project_says(wheel: zipfile.ZipFile) -> None:
    folder = f"ptxlab-{ptxlab.__version__}.dist-info"
    metadata = email.message_from_bytes(wheel.read(f"{folder}/METADATA"))
    assert (metadata["Name"], metadata["Version"]) == ("ptxlab", ptxlab.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert b"Apache License" in wheel.read(f"{folder}/licenses/LICENSE")
    assert b"ptxlab = ptxlab.main:command" in wheel.read(f"{folder}/entry_points.txt")
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


def test_what_the_index_shows_links_to_files_of_this_version(wheel: zipfile.ZipFile) -> None:
    """PyPI has no files of the project beside the page."""
    folder = f"ptxlab-{ptxlab.__version__}.dist-info"
    metadata = email.message_from_bytes(wheel.read(f"{folder}/METADATA"))
    assert metadata["Description-Content-Type"] == "text/markdown"
    shown = wheel.read(f"{folder}/METADATA").decode().partition("\n\n")[2]
    repository = PROJECT["urls"]["Repository"]
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"", shown)
    own = [link for pair in links for link in pair if link.startswith(repository)]
    assert all("".join(pair).startswith("https://") for pair in links), links
    assert len(own) > 20
    for link in own:
        kind, tag, path = link.removeprefix(f"{repository}/").split("/", 2)
        assert (tag, (ROOT / path).exists()) == (f"v{ptxlab.__version__}", True), link
        assert kind == ("raw" if path.endswith((".svg", ".webp")) else "blob")


def test_what_is_in_the_wheel_works_without_the_checkout(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path / "site")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = ["run", "ptx/mma_m16n8k16_bf16_f32.ptx", "--device", "emulator"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ptxlab", *command],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "d  f32 16x8  changed" in done.stdout
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import ptxlab; print(ptxlab.__file__)"],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(tmp_path / "site"))


@pytest.mark.thorough
def test_the_source_archive_holds_what_building_and_testing_need(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "scripts/test"}
    needed |= files_below("ptxlab", ".py") | files_below("tests", ".py")
    needed |= files_below("ptx", ".ptx") | files_below("kernels", ".cu", ".cuh")
    assert needed <= names
    assert not any(name.startswith((".venv", ".git/")) for name in names)
