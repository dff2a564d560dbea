"""Helpers for the tests of the origins: a workflow as a file, and its run by the history builder."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError
from mulligan.language import load_text
from mulligan.language.expressions import Cel
from mulligan.language.shell.shell import environment_value
from mulligan.testing.history import History


def written(text: str) -> Workflow:
    return load_text(dedent(text), "w.yaml")


def run_of(text: str, **inputs: Any) -> History:
    """The run of a written workflow, started, with the real language and real expressions."""
    return History(written(text), evaluator=Cel()).start(inputs)


def refusal(text: str) -> str:
    """The whole of what is said about a workflow that must be refused."""
    try:
        written(text)
    except LanguageError as error:
        return error.render()
    raise AssertionError("it was accepted")


def commands(run: History) -> list[str]:
    """What is queued, as shell text, with the values that the attempts were given in place of the variables."""
    return [_said(run[key]) for key in run.queued]


def _said(place: Any) -> str:
    text: str = place.spec.action.params["text"]
    for name, value in place.bindings.items():
        text = text.replace(f'"${{{name}}}"', environment_value(name, value))
    return text


def story(run: History, *steps: str) -> list[str]:
    """What became of these steps and of the run, fact by fact: `step2 failed`, `end entered`, `run failed`."""
    told = []
    for fact in run.facts():
        noun, _, verb = fact.__struct_config__.tag.partition(".")
        if noun == "step" and fact.step in (*steps, "end"):
            told.append(f"{fact.step} {verb}")
        elif noun == "run" and verb in ("completed", "failed", "cancelled", "stopping"):
            told.append(f"run {verb}")
    return told
