"""How the tests of the language read: a text in, the one thing they look at out."""

from __future__ import annotations

from textwrap import dedent, indent

from mulligan.core.model.workflow import Step, Template, Workflow
from mulligan.errors import LanguageError
from mulligan.language import load_text


def workflow(text: str) -> Workflow:
    return load_text(dedent(text), "w.yaml")


def step(text: str, top: str = "") -> Step:
    """The step `a` with these keys."""
    return steps(f"- step: a\n{indent(dedent(text).strip(), '  ')}\n", top)["a"]


def steps(text: str, top: str = "") -> dict[str, Step]:
    """The steps of a list, by name."""
    body = indent(dedent(text).strip(), "  ")
    found = load_text(f"{dedent(top)}\nsteps:\n{body}\n", "w.yaml")
    return {each.name: each for each in found.steps}


def refusal(text: str) -> str:
    """What is said about a text that must be refused: its sentences alone."""
    try:
        workflow(text)
    except LanguageError as error:
        return "\n".join(problem.message for problem in error.problems)
    raise AssertionError("it was accepted")


def sources(template: Template) -> list[str]:
    """A template's parts as written: text, and the source of each expression."""
    return [part if isinstance(part, str) else f"${{{part.source}}}" for part in template.parts]
