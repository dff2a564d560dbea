"""The first page for people who write Python: each example makes the workflow of its YAML twin, to the byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mulligan.core.model.workflow import encode
from mulligan.language import load

PAGE = Path(__file__).parents[2] / "docs/start/python.md"
EXAMPLES = ("nightly", "sweep", "announce")
_FILE = re.compile(r"^```(?:python|yaml) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_makes_the_workflow_of_its_yaml_twin(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, text in _FILE.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / file).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    assert encode(load(f"{name}.py")) == encode(load(f"{name}.yaml"))


def test_every_workflow_of_the_page_has_its_twin() -> None:
    files = {file for file, _ in _FILE.findall(PAGE.read_text(encoding="utf-8"))}

    assert files == {
        *(f"{name}.{kind}" for name in EXAMPLES for kind in ("py", "yaml")),
        "orders.py",
        "script.py",
        "wrong.py",
    }
