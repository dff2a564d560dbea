"""`mulligan graph`: which format goes where."""

from __future__ import annotations

import json
import os
import stat
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mulligan.cli.parser import app

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


def mulligan(*arguments: str, path: str = os.defpath) -> Result:
    return CliRunner(env={"PATH": path}).invoke(app, arguments, prog_name="mulligan")


def program(name: str, code: str) -> str:
    """A folder for PATH with one program in it, written in Python."""
    folder = Path("bin").absolute()
    folder.mkdir(exist_ok=True)
    script = folder / name
    script.write_text(f"#!{sys.executable}\nimport sys\n{code}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def test_mermaid_on_stdout_is_what_one_gets():
    result = mulligan("graph", "release.yaml")

    assert (result.exit_code, result.stdout, result.stderr) == (0, MERMAID, "")


def test_the_format_follows_the_file_that_is_named():
    result = mulligan("graph", "release.yaml", "-o", "release.svg")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "wrote release.svg\n")
    assert Path("release.svg").read_text().startswith("<svg ")


def test_a_name_that_says_otherwise_than_the_format_asked_for_is_refused():
    result = mulligan("graph", "release.yaml", "--format", "mermaid", "-o", "release.svg")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error[usage]: 'mermaid' was asked for, and 'release.svg' ends in '.svg'\n  leave one of them out\n"
    )
    assert not Path("release.svg").exists()


@pytest.mark.parametrize("name", ["release.gif", "release.pdf"])
def test_a_name_that_is_no_picture_of_ours_is_refused(name: str):
    result = mulligan("graph", "release.yaml", "-o", name)

    assert result.exit_code == 2
    assert result.stderr == (
        f"error[usage]: '{Path(name).suffix}' is no format of a picture\n"
        "  there are .svg, .png and, for Mermaid, .mmd\n"
    )


@pytest.mark.parametrize("name", ["release.mmd", "release.md", "release"])
def test_mermaid_may_be_written_to_a_file_of_its_own(name: str):
    mulligan("graph", "release.yaml", "-o", name)

    assert Path(name).read_text() == MERMAID


def test_svg_can_go_to_stdout():
    result = mulligan("graph", "release.yaml", "-f", "svg")

    assert result.exit_code == 0
    assert result.stdout.startswith("<svg ") and result.stdout.endswith("</svg>\n")


def test_json_has_the_nodes_and_the_links():
    result = mulligan("graph", "release.yaml", "--json")

    drawn = json.loads(result.stdout)
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

    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr
        == """\
error[usage]: 'gif' is neither a picture nor a system
  there are mermaid, svg, png; and for whose file it is torc, noetl, alphred, prodigy, mulligan
"""
    )


def test_a_missing_file_is_refused():
    result = mulligan("graph", "missing.yaml")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error[language.unreadable]: missing.yaml: there is no such file\n"


def test_a_refused_workflow_is_refused_here_too():
    Path("bad.yaml").write_text("name: bad\nsteps:\n  - {step: a, shell: x, needs: [b]}\n")

    result = mulligan("graph", "bad.yaml", "-o", "bad.svg")

    assert result.exit_code == 2
    assert result.stderr.startswith("error[language.unknown_step]: bad.yaml:3:")
    assert not Path("bad.svg").exists()


def test_many_edges_come_with_a_word_of_warning():
    steps = "".join(f"  - {{step: s{number}, shell: x}}\n" for number in range(501))
    Path("many.yaml").write_text(f"name: many\nsteps:\n{steps}")

    result = mulligan("graph", "many.yaml", "--expand")

    assert result.exit_code == 0
    assert mulligan("graph", "many.yaml").stderr == ""
    assert result.stderr == "more than 500 edges: Mermaid may refuse to draw them, --format svg does not\n"


# PNG

# An installed cairosvg would come to the rescue.
needs_no_cairosvg = pytest.mark.skipif(find_spec("cairosvg") is not None, reason="cairosvg is installed")


def test_a_png_comes_from_the_browser_on_the_path():
    code = "open([a for a in sys.argv if a.startswith('--screenshot=')][0][13:], 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n')"

    result = mulligan("graph", "release.yaml", "-o", "release.png", path=program("chromium", code))

    assert (result.exit_code, result.stderr) == (0, "wrote release.png\n")
    assert Path("release.png").read_bytes() == PNG


def test_where_one_renderer_does_not_work_the_next_one_is_asked():
    program("chromium", "sys.exit('no display')")
    code = "open([a for a in sys.argv if a.startswith('--output=')][0][9:], 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n')"

    result = mulligan("graph", "release.yaml", "-f", "png", path=program("rsvg-convert", code))

    assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, PNG, "")


@needs_no_cairosvg
def test_without_a_renderer_the_refusal_says_what_to_install():
    result = mulligan("graph", "release.yaml", "-o", "release.png", path="")

    assert result.exit_code == 2
    assert (
        result.stderr
        == """\
error[graph.no_renderer]: no program that turns an SVG into a PNG was found
  install chromium, rsvg-convert (librsvg) or the Python package cairosvg, or ask for --format svg
"""
    )
    assert not Path("release.png").exists()


@needs_no_cairosvg
def test_a_renderer_that_does_not_work_is_named():
    path = program("chromium", "sys.exit('no display')")

    result = mulligan("graph", "release.yaml", "-o", "release.png", path=path)

    assert result.exit_code == 2
    assert (
        result.stderr
        == """\
error[graph.no_renderer]: no program that turns an SVG into a PNG worked (chromium: exit code 1: no display)
  install chromium, rsvg-convert (librsvg) or the Python package cairosvg, or ask for --format svg
"""
    )


@needs_no_cairosvg
def test_a_renderer_that_leaves_no_picture_is_named():
    path = program("google-chrome", "")

    result = mulligan("graph", "release.yaml", "-o", "release.png", path=path)

    assert result.stderr.startswith(
        "error[graph.no_renderer]: no program that turns an SVG into a PNG worked (google-chrome: left no picture)\n"
    )
