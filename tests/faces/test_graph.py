"""`mulligan graph`: which format goes where."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.commands import mulligan

RELEASE = """\
name: release
steps:
  - {step: build, shell: make}
  - {step: deploy, needs: [build], shell: ./deploy.sh, next: [{to: repair, on: failure, then: rerun}]}
  - {step: repair, shell: ./repair.sh}
"""
MERMAID = """\
---
title: "release"
---
flowchart TD
  s0["build<br/>shell"]
  s1["deploy<br/>shell"]
  s2["repair<br/>shell"]
  e0((("end")))
  s0 --> s1
  s1 <-.->|"failure · then rerun"| s2
  s1 --> e0
  linkStyle 1 stroke:#dc2626,color:#dc2626
  linkStyle 2 stroke:#d1d5db
"""
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("release.yaml").write_text(RELEASE, encoding="utf-8")


def test_mermaid_on_stdout_is_what_one_gets():
    result = mulligan("graph", "release.yaml")

    assert (result.code, result.out, result.err) == (0, MERMAID, "")


def test_the_format_follows_the_file_that_is_named():
    result = mulligan("graph", "release.yaml", "-o", "release.svg")

    assert (result.code, result.out, result.err) == (0, "", "wrote release.svg\n")
    assert Path("release.svg").read_text().startswith("<svg ")


def test_a_name_that_says_otherwise_than_the_format_asked_for_is_refused():
    result = mulligan("graph", "release.yaml", "--format", "mermaid", "-o", "release.svg")

    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error[usage]: --format is 'mermaid', but 'release.svg' ends in '.svg'\n  leave one of them out\n"
    )
    assert not Path("release.svg").exists()


@pytest.mark.parametrize("name", ["release.gif", "release.pdf"])
def test_a_name_that_is_no_picture_of_ours_is_refused(name: str):
    result = mulligan("graph", "release.yaml", "-o", name)

    assert result.code == 2
    assert result.err == (
        f"error[usage]: '{Path(name).suffix}' is not a format of a picture\n  use .svg, .png, or .mmd for Mermaid\n"
    )


@pytest.mark.parametrize("name", ["release.mmd", "release.md", "release"])
def test_mermaid_may_be_written_to_a_file_of_its_own(name: str):
    mulligan("graph", "release.yaml", "-o", name)

    assert Path(name).read_text() == MERMAID


def test_svg_can_go_to_stdout():
    result = mulligan("graph", "release.yaml", "-f", "svg")

    assert result.code == 0
    assert result.out.startswith("<svg ") and result.out.endswith("</svg>\n")


def test_json_has_the_nodes_and_the_links():
    result = mulligan("graph", "release.yaml", "--json")

    drawn = json.loads(result.out)
    assert [node["title"] for node in drawn["nodes"]] == ["build", "deploy", "repair", "end"]
    assert drawn["links"][1] == {
        "source": "s1",
        "target": "s2",
        "kind": "failure",
        "label": "failure · then rerun",
        "is_loop": False,
        "then": "rerun",
        "has_condition": False,
    }


def test_an_unknown_format_is_refused():
    result = mulligan("graph", "release.yaml", "--format", "gif")

    assert (result.code, result.out) == (2, "")
    assert (
        result.err
        == """\
error[usage]: 'gif' is neither a format of a picture nor a system
  pictures: mermaid, svg, png; systems: torc, noetl, alphred, prodigy, mulligan
"""
    )


def test_a_missing_file_is_refused():
    result = mulligan("graph", "missing.yaml")

    assert (result.code, result.out) == (2, "")
    assert result.err == "error[language.unreadable]: missing.yaml: there is no such file\n"


def test_a_refused_workflow_is_refused_here_too():
    Path("bad.yaml").write_text("name: bad\nsteps:\n  - {step: a, shell: x, needs: [b]}\n")

    result = mulligan("graph", "bad.yaml", "-o", "bad.svg")

    assert result.code == 2
    assert result.err.startswith("error[language.unknown_step]: bad.yaml:3:")
    assert not Path("bad.svg").exists()


def test_many_edges_come_with_a_word_of_warning():
    steps = "".join(f"  - {{step: s{number}, shell: x}}\n" for number in range(501))
    Path("many.yaml").write_text(f"name: many\nsteps:\n{steps}")

    result = mulligan("graph", "many.yaml", "--expand")

    assert result.code == 0
    assert mulligan("graph", "many.yaml").err == ""
    assert result.err == "more than 500 edges: Mermaid may refuse to draw them; use --format svg\n"


# PNG


@pytest.fixture
def _with_a_font() -> None:
    if "needs a font" in mulligan("graph", "release.yaml", "-f", "png").err:
        pytest.skip("this machine has no font")


@pytest.mark.usefixtures("_with_a_font")
def test_a_png_is_written_with_twice_the_pixels_of_the_drawing():
    mulligan("graph", "release.yaml", "-o", "release.svg")
    drawing = Path("release.svg").read_text()
    width, height = (int(re.search(rf'{side}="(\d+)"', drawing)[1]) for side in ("width", "height"))

    result = mulligan("graph", "release.yaml", "-o", "release.png")

    assert (result.code, result.out, result.err) == (0, "", "wrote release.png\n")
    assert png_size(Path("release.png").read_bytes()) == (2 * width, 2 * height)


@pytest.mark.usefixtures("_with_a_font")
def test_a_png_can_go_to_stdout():
    result = mulligan("graph", "release.yaml", "-f", "png")

    assert (result.code, result.err) == (0, "")
    assert os.fsencode(result.out).startswith(PNG)


@pytest.mark.usefixtures("_with_a_font")
def test_the_png_of_a_huge_drawing_stays_small_enough_to_open():
    steps = "".join(f"  - {{step: s{number}, shell: x}}\n" for number in range(100))
    Path("many.yaml").write_text(f"name: many\nsteps:\n{steps}")

    result = mulligan("graph", "many.yaml", "--expand", "-o", "many.png")

    assert result.code == 0
    assert 7990 <= max(png_size(Path("many.png").read_bytes())) <= 8000


def test_without_the_package_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)

    result = mulligan("graph", "release.yaml", "-o", "release.png")

    assert (result.code, result.err) == (
        2,
        "error[graph.no_renderer]: a PNG needs the package 'resvg-py', which is not installed\n"
        "  pip install 'mulligan[png]', or use --format svg\n",
    )
    assert not Path("release.png").exists()


def test_without_a_font_the_refusal_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "resvg_py", SimpleNamespace(svg_to_bytes=lambda **_: PNG))

    result = mulligan("graph", "release.yaml", "-o", "release.png")

    assert (result.code, result.err) == (
        2,
        "error[graph.no_renderer]: a PNG needs a font, and this machine has none\n"
        "  install one, such as the system package 'fonts-dejavu', or use --format svg\n",
    )


def png_size(data: bytes) -> tuple[int, int]:
    assert data.startswith(PNG)
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
