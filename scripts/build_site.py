"""What scripts/site does once its packages are there."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
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

VERSION = "314.0.7"
PYODIDE = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full"
"""Where a release of Pyodide is, and the wheels that were made for it."""
NPM = ROOT / "node_modules" / "pyodide"
"""Where npm install pyodide puts it, without wheels."""
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

    Pyodide and wheels are those ``given`` in a folder, or of npm's package where that is installed here; what is missing
    there is fetched of its release.
    """
    from hatchling.build import build_wheel

    folder = target / "pyodide"
    folder.mkdir(parents=True)
    shutil.copy(SITE / "playground" / "worker.js", target)
    wheels = pyodide(given or NPM, folder)
    os.chdir(ROOT)
    wheels.append(build_wheel(str(folder)))
    (target / "wheels.json").write_text(json.dumps(wheels), encoding="utf-8")
    backend = (SITE / "playground" / "backend.js").read_text(encoding="utf-8")
    (target / "index.html").write_text(page(backend), encoding="utf-8")


def pyodide(near: Path, folder: Path) -> list[str]:
    """Bring Pyodide and the wheels that are needed into a folder, and return the names of the wheels.

    A wheel that is fetched is held to the hash that the release has of it.
    """
    for name in CORE:
        brought(name, near, folder)
    if wheels := sorted(file.name for file in near.glob("*.whl")):
        return [brought(name, near, folder).name for name in wheels]
    packages = json.loads((folder / "pyodide-lock.json").read_text(encoding="utf-8"))["packages"]
    for wheel in (packages[name] for name in NEEDED):
        content = brought(wheel["file_name"], near, folder).read_bytes()
        if sha256(content).hexdigest() != wheel["sha256"]:
            raise SystemExit(f"{wheel['file_name']} is not what its release says")
        wheels.append(wheel["file_name"])
    return wheels


def brought(name: str, near: Path, folder: Path) -> Path:
    """Copy a file from where it is, or else fetch it of the release, and say so."""
    here = folder / name
    if (near / name).is_file():
        shutil.copyfile(near / name, here)
        return here
    print(f"scripts/site: {near} has no {name}, it is fetched: {PYODIDE}/{name}", file=sys.stderr)
    try:
        with urllib.request.urlopen(f"{PYODIDE}/{name}", timeout=120) as answer:
            here.write_bytes(answer.read())
    except OSError as error:
        raise SystemExit(
            f"{PYODIDE}/{name}: {error}\n"
            f"hint: npm install pyodide@{VERSION} brings {', '.join(CORE)}, and --pyodide FOLDER takes a folder that has "
            f"these and wheels of {', '.join(NEEDED)}"
        ) from None
    return here


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/site", description=__doc__)
    parser.add_argument("target", type=Path, help="the folder that is made, or made anew")
    parser.add_argument(
        "--pyodide",
        type=Path,
        help="a folder that has Pyodide, and the wheels or not (default node_modules/pyodide)",
    )
    args = parser.parse_args()
    build(args.target.resolve(), args.pyodide and args.pyodide.resolve())


if __name__ == "__main__":
    main()
