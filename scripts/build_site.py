"""What scripts/site does once its packages are there."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import urllib.request
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from ptxlab.main import main as ptxlab
from ptxlab.verbs.lab.page import page
from scripts.pypi_readme import ROOT, relinked

SITE = ROOT / "site"
REPOSITORY = "https://github.com/ptxlab/ptxlab"

PYODIDE = "https://cdn.jsdelivr.net/pyodide/v314.0.7/full"
"""Where a release of Pyodide is, and the wheels that were made for it."""
CORE = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
NEEDED = ("numpy", "ml-dtypes", "rich")
"""What ptxlab needs to run PTX, as Pyodide calls it."""


def build(target: Path, pyodide: Path | None) -> None:
    """Build all of the site; a link that leads nowhere ends it."""
    from mkdocs.commands.build import build as build_pages
    from mkdocs.config import load_config

    logging.basicConfig(level=logging.WARNING)  # what MkDocs has to say of links
    with TemporaryDirectory() as made:
        documentation(Path(made))
        playground(Path(made, "playground"), pyodide)
        where = {"docs_dir": made, "site_dir": str(target)}
        build_pages(load_config(str(SITE / "mkdocs.yml"), strict=True, **where))


def documentation(pages: Path) -> None:
    """Write what MkDocs makes pages of: those of docs/, and the README as the first; and the atlas."""
    shutil.copytree(ROOT / "docs", pages, dirs_exist_ok=True)
    for file in pages.glob("*.md"):
        text = file.read_text(encoding="utf-8")
        file.write_text(relinked(text, partial(on_site, folder="docs")), encoding="utf-8")
    first = relinked((ROOT / "README.md").read_text(encoding="utf-8"), on_site)
    (pages / "index.md").write_text(first, encoding="utf-8")
    if ptxlab(["fragments", "--html", "-o", str(pages / "atlas.html")]):
        raise SystemExit("the atlas could not be drawn")


def on_site(link: str, folder: str = ".") -> str:
    """Return where the site has what a page in a ``folder`` of the project links to, or GitHub what it has not."""
    file, mark, part = link.partition("#")
    inside = (ROOT / folder / file).resolve().relative_to(ROOT).as_posix()
    if inside.startswith("docs/"):
        return inside.removeprefix("docs/") + mark + part
    return f"{REPOSITORY}/blob/main/{inside}{mark}{part}"


def playground(target: Path, given: Path | None) -> None:
    """Build the playground: the page of the lab, and Pyodide with what ptxlab needs, to answer it in the browser.

    Pyodide and the wheels are those ``given`` in a folder, without one those of its release.
    """
    from hatchling.build import build_wheel

    folder = target / "pyodide"
    folder.mkdir(parents=True)
    shutil.copy(SITE / "playground" / "worker.js", target)
    wheels = taken(given, folder) if given else fetched(folder)
    os.chdir(ROOT)
    wheels.append(build_wheel(str(folder)))
    (target / "wheels.json").write_text(json.dumps(wheels), encoding="utf-8")
    backend = (SITE / "playground" / "backend.js").read_text(encoding="utf-8")
    (target / "index.html").write_text(page(backend), encoding="utf-8")


def taken(given: Path, folder: Path) -> list[str]:
    """Copy Pyodide and wheels from a folder, and return the names of the wheels."""
    wheels = sorted(file.name for file in given.glob("*.whl"))
    for name in (*CORE, *wheels):
        shutil.copyfile(given / name, folder / name)
    return wheels


def fetched(folder: Path) -> list[str]:
    """Fetch Pyodide and the wheels that are needed, and return their names.

    A wheel is held to the hash that its release has of it.
    """
    for name in CORE:
        fetch(name, folder)
    packages = json.loads((folder / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]
    wheels = [packages[name] for name in NEEDED]
    for wheel in wheels:
        if sha256(fetch(wheel["file_name"], folder)).hexdigest() != wheel["sha256"]:
            raise SystemExit(f"{wheel['file_name']} is not what its release says")
    return [wheel["file_name"] for wheel in wheels]


def fetch(name: str, folder: Path) -> bytes:
    try:
        with urllib.request.urlopen(f"{PYODIDE}/{name}", timeout=120) as answer:
            content: bytes = answer.read()
    except OSError as error:
        hint = "--pyodide FOLDER takes the npm package pyodide, with wheels of numpy, ml_dtypes and rich"
        raise SystemExit(f"{PYODIDE}/{name}: {error}\nhint: {hint}") from None
    (folder / name).write_bytes(content)
    return content


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/site", description=__doc__)
    parser.add_argument("target", type=Path, help="the folder that is made, or made anew")
    parser.add_argument("--pyodide", type=Path, help="a folder that has Pyodide and the wheels")
    args = parser.parse_args()
    build(args.target.resolve(), args.pyodide and args.pyodide.resolve())


if __name__ == "__main__":
    main()
