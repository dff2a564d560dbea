"""Playbooks in tests: what becomes of one, what is said against one, and how one runs."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
from tests.support.commands import mulligan
from tests.support.nightly import IS_NIGHTLY

from mulligan.core.model.workflow import encode
from mulligan.formats import examine, translation
from mulligan.formats.noetl.workflow import translate
from mulligan.formats.noetl.yaml_1_1 import parse
from mulligan.language.text.nodes import Source, plain

NEWER = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: test}\n"
OLDER = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: test}\n"


def newer(text: str) -> str:
    """A playbook of the dialect with arcs."""
    return NEWER + dedent(text).lstrip()


def older(text: str) -> str:
    """A playbook of the dialect with cases."""
    return OLDER + dedent(text).lstrip()


def translated(text: str, *, is_included: bool = False) -> dict[str, Any]:
    """The workflow of ours that a playbook becomes, as plain data."""
    source = Source(text, "playbook.yaml")
    found: dict[str, Any] = plain(translate(parse(source), translation.Translation(source, is_included=is_included)))
    assert not source.problems
    return found


def steps(text: str) -> dict[str, dict[str, Any]]:
    """The steps that it becomes, by their names."""
    return {step.pop("step"): step for step in translated(text)["steps"]}


def written(text: str, name: str = "playbook.yaml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def refused(text: str) -> str:
    """All that is said against a playbook."""
    said = mulligan("validate", written(text))
    assert said.code == 2, said.err
    return said.err


def warned(text: str) -> str:
    """All that is said about a playbook that is taken."""
    said = mulligan("validate", written(text))
    assert said.code == 0, said.err
    return said.err


def ran(text: str, *words: object) -> dict[str, Any]:
    """How a playbook ran, as `--json` tells it. What it is converted to is the same workflow; at night it runs, too."""
    found = _ran(written(text), *words)
    converted = mulligan("convert", "playbook.yaml")
    assert converted.code == 0, converted.err
    file = written(converted.out, "converted.yaml")
    assert _read(file) == _read("playbook.yaml")
    if IS_NIGHTLY:
        again = _ran(file, *words)
        assert (again["status"], again["outputs"]) == (found["status"], found["outputs"])
    return found


def ran_once(text: str, *words: object) -> dict[str, Any]:
    """How a playbook ran, where what it is converted to shows nothing more."""
    return _ran(written(text), *words)


def _ran(file: str, *words: object) -> dict[str, Any]:
    said = mulligan("run", file, "--json", *words)
    assert said.code in (0, 1), said.err
    found: dict[str, Any] = said.json
    return found


def _read(file: str) -> bytes:
    return encode(msgspec.structs.replace(examine(Path(file)).workflow, origin=""))


def statuses(run: dict[str, Any]) -> dict[str, str]:
    """How each step ended, without those that were not reached."""
    return {name: step["status"] for name, step in run["steps"].items() if step["status"] != "skipped"}
