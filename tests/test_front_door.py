"""What a visitor meets before the first command: figures, citation, workflows, forms for issues."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ptxlab.prediction.model import MODELLED
from scripts.build_site import REPOSITORY, on_site
from scripts.pypi_readme import relinked

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GITHUB = ROOT / ".github"
WORKFLOWS = {path.stem: path for path in (GITHUB / "workflows").glob("*.yml")}
FORMS = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


# ---- the README ----------------------------------------------------------------------------------


def test_it_says_how_to_get_it_from_where_the_project_is() -> None:
    assert f"`git clone {PROJECT['urls']['Repository']} && cd ptxlab`" in README
    assert "`pip install ptxlab`" in README
    for name in ("playground/", "atlas.html"):
        assert f"]({PROJECT['urls']['Homepage']}{name})" in README


def between_marks(name: str) -> list[str]:
    """Return the parts of a page that are made between its marks."""
    _, _, made = page(name).partition("<!-- table: begin -->")
    return made.partition("<!-- table: end")[0].split("\n\n")


def test_its_figures_are_those_of_the_pages_it_names() -> None:
    rows = dict(re.findall(r"^\| (bits|speed|time) \| (.*?) \|", README, re.M))

    counts = re.findall(r"^\| [^|]* \| (\d+), (\d+) \|", page("machine_code.md"), re.M)
    same, other = (sum(map(int, column)) for column in zip(*counts, strict=True))
    assert rows["bits"].startswith(f"{same} of {same + other} kernels")
    assert f"the {other} others" in rows["bits"]

    emulator = page("emulator.md")
    speeds = re.findall(r"^\| tensor_core f16.* (\d+) M/s", emulator, re.M)
    others = re.findall(r"^\| (?:Numba|tinygrad).* ([\d.]+) M/s", emulator, re.M)
    assert len(others) == 2
    (numpy,) = re.findall(r"^\| NumPy's.* (\d+) M/s", emulator, re.M)
    speed = int(rows["speed"].split()[0].replace(",", ""))
    assert str(speed) in re.findall(r"(\d+) M/s", emulator)
    assert speed <= int(speeds[0])
    assert round(int(numpy) / speed) == 3
    assert "a third" in rows["speed"]
    assert all(f" {other}" in rows["speed"] for other in others)

    times, gpus = re.findall(r"^(\d+) published times of kernels on (\d+) GPUs", rows["time"])[0]

    (times_of_all,) = (
        part for part in between_marks("published_times.md") if part.startswith("| kernel |")
    )
    measured = [line.split("|") for line in times_of_all.splitlines()][2:]
    assert (int(times), int(gpus)) == (len(measured), len({row[3] for row in measured}))
    (off, most) = re.findall(r"([\d.]+%) off on average, (\d+%) at most", rows["time"])[0]
    assert re.match(
        rf"{times} of \d+ published times, of {gpus} GPUs: the predicted one is {off} off on average, "
        rf"[\d.]+% in the middle, {most} at most\. ",
        between_marks("predict.md")[1],
    )
    assert f"{MODELLED:.0%}" == f"{float(off[:-1]) / 100:.0%}", (
        "what each prediction says of the model"
    )


def test_each_other_tool_is_named_with_a_page_of_its_own() -> None:
    table = README.partition("## Beside what there is")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 8
    assert all(re.match(r"\| \[[^]]+\]\(https://", row) for row in rows)


# ---- the site ------------------------------------------------------------------------------------


def test_the_site_has_every_page_of_the_documentation() -> None:
    site = read(ROOT / "site" / "mkdocs.yml")
    assert site["site_url"] == PROJECT["urls"]["Homepage"]
    assert site["site_description"] == PROJECT["description"]
    assert site["extra"]["social"][0]["link"] == PROJECT["urls"]["Repository"]
    linked = [
        page
        for entry in site["nav"]
        for part in entry.values()
        for page in (
            [part] if isinstance(part, str) else [name for group in part for name in group.values()]
        )
    ]
    pages = {file.name for file in (ROOT / "docs").glob("*.md")}
    made = {"index.md", "atlas.html", "playground/index.html"}
    assert sorted(linked) == sorted(pages | made)
    assert "search" in site["plugins"]
    assert site["theme"]["font"] is False, "nothing is fetched from elsewhere"


def test_links_lead_to_the_site_where_it_has_the_page() -> None:
    assert on_site("docs/step.md#keys") == "step.md#keys"
    assert on_site("fragments.md", "docs") == "fragments.md"
    assert on_site("../CONTRIBUTING.md", "docs") == f"{REPOSITORY}/blob/main/CONTRIBUTING.md"
    assert PROJECT["urls"]["Repository"] == REPOSITORY
    text = (
        'a [page](docs/step.md), <img src="docs/step.webp">, [all](https://x.org/y), [here](#part)'
    )
    moved = 'a [page](<docs/step.md>), <img src="<docs/step.webp>">, [all](https://x.org/y), [here](#part)'
    assert relinked(text, lambda link: f"<{link}>") == moved


# ---- citation ------------------------------------------------------------------------------------


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert (
        citation["title"]
        == f"ptxlab: {PROJECT['description'][0].lower()}{PROJECT['description'][1:]}"
    )
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    assert citation["url"] == PROJECT["urls"]["Homepage"]
    assert citation["keywords"] == PROJECT["keywords"]


# ---- workflows -----------------------------------------------------------------------------------


def steps(workflow: str) -> list[dict[str, Any]]:
    return [step for job in read(WORKFLOWS[workflow])["jobs"].values() for step in job["steps"]]


def test_all_pythons_are_tried_on_all_systems() -> None:
    pythons = [
        name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d", name)
    ]
    jobs = read(WORKFLOWS["tests"])["jobs"]
    matrices = [job["strategy"]["matrix"] for job in jobs.values() if "strategy" in job]
    assert [matrix["python"] for matrix in matrices] == [pythons, pythons]
    systems = " ".join(matrices[1]["system"])
    assert all(name in systems for name in ("arm", "macos", "windows"))
    assert any(step.get("run") == ".ci/run" for step in steps("tests"))


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_a_workflow_is_one(workflow: str) -> None:
    whole = read(WORKFLOWS[workflow])
    assert True in whole, "what starts it: YAML takes the word on for a truth value"
    assert whole["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        assert ("run" in step) != ("uses" in step)
        assert re.fullmatch(r"\./|[\w-]+/[\w-]+@(v\d+|release/v1)", step.get("uses", "a/b@v1"))
        for name in re.findall(
            r"(?<!\S)(?:\.ci|scripts|ptx|kernels|tests)/[\w./]+", step.get("run", "")
        ):
            assert (ROOT / name).exists(), name
            assert not name.startswith(("scripts", ".ci")) or os.access(ROOT / name, os.X_OK), name


def test_a_release_is_trusted_by_the_index_and_has_no_token() -> None:
    jobs = read(WORKFLOWS["release"])["jobs"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    assert publish["environment"]["name"] == "pypi"
    last = publish["steps"][-1]
    assert last["uses"] == "pypa/gh-action-pypi-publish@release/v1"
    assert "with" not in last
    text = WORKFLOWS["release"].read_text(encoding="utf-8")
    assert "secrets." not in text
    (check,) = (
        step["run"] for step in jobs["build"]["steps"] if "GITHUB_REF_NAME" in step.get("run", "")
    )
    pattern = re.findall(r'"(version = .*)" pyproject', check)[0].replace('\\"', '"')
    wanted = pattern.replace("${GITHUB_REF_NAME#v}", PROJECT["version"])
    assert wanted in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()


# ---- forms for issues ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_for_what_is_needed(form: Path) -> None:
    asked = read(form)
    assert {"name", "description", "body"} <= set(asked)
    ids = [field["id"] for field in asked["body"]]
    assert len(ids) == len(set(ids))
    for field in asked["body"]:
        assert field["type"] in ("input", "textarea", "dropdown", "checkboxes")
        assert field["attributes"]["label"]
    if form.stem != "idea":
        required = {field["id"] for field in asked["body"] if field.get("validations")}
        assert {"command", "doctor"} <= required
