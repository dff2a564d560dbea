"""Copies of the workflows of a question without one of their mechanisms, or with a step that misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from mulligan_nl2sql.workflows import ASK, SCAN

# The steps of both workflows by name, and the policies of retries.
Step = dict[str, Any]


class Documents:
    """`ask.yaml` and `scan.yaml` as data."""

    def __init__(self) -> None:
        self.by_file = {path.name: _with_texts_as_keys(yaml.safe_load(path.read_text())) for path in (ASK, SCAN)}

    def steps(self) -> Iterator[Step]:
        for document in self.by_file.values():
            yield from document["steps"]

    def step(self, name: str) -> Step:
        return next(step for step in self.steps() if step["step"] == name)

    def called(self, name: str) -> Step:
        """What calls the function of a step: of a map, its command."""
        step = self.step(name)
        return step["do"][0] if "do" in step else step  # type: ignore[no-any-return]

    def remove(self, name: str) -> None:
        for document in self.by_file.values():
            document["steps"] = [step for step in document["steps"] if step["step"] != name]


Change = Callable[[Documents], object]


def copy_of(folder: Path, *changes: Change) -> Path:
    """Copies of both workflows in `folder`, changed. Returns that of the question."""
    documents = Documents()
    for change in changes:
        change(documents)
    folder.mkdir(exist_ok=True)
    for name, document in documents.by_file.items():
        (folder / name).write_text(yaml.safe_dump(document, sort_keys=False))
    return folder / ASK.name


def _with_texts_as_keys(value: Any) -> Any:
    """This library reads the key `on` as true."""
    if isinstance(value, dict):
        return {"on" if key is True else key: _with_texts_as_keys(one) for key, one in value.items()}
    return [_with_texts_as_keys(one) for one in value] if isinstance(value, list) else value


def without(key: str, *names: str) -> Change:
    """Remove a key of steps."""

    def change(documents: Documents) -> None:
        for name in names:
            del documents.step(name)[key]

    return change


def _routes_of_failures(step: Step) -> list[Step]:
    edges = step.get("next")
    return [edge for edge in edges if edge.get("on") == "failure"] if isinstance(edges, list) else []


def without_repairs(documents: Documents) -> None:
    """No failure leads to a repair."""
    for step in documents.steps():
        if removed := _routes_of_failures(step):
            step["next"] = [edge for edge in step["next"] if edge not in removed]
            if not step["next"]:
                del step["next"]
    documents.remove("refine")
    documents.step("schema")["when"] = "inputs.index == null"
    for name in ("prompt", "plan"):
        del documents.step(name)["args"]["failed"]


def repairing(*codes: str) -> Change:
    """Failures with these codes lead to a repair, too."""

    def change(documents: Documents) -> None:
        for step in documents.steps():
            for edge in _routes_of_failures(step):
                edge["codes"] = [*edge["codes"], *map(str, codes)]

    return change


def calling(name: str, function: str, **keys: Any) -> Change:
    """The step calls another function."""

    def change(documents: Documents) -> None:
        documents.called(name).update(python={"call": function}, **keys)

    return change
