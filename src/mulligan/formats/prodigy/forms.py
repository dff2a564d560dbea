"""Reading parts of a file: records, texts with a grammar, lists of steps, and titles for steps without a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.formats.prodigy.queries import GrammarError
from mulligan.formats.translation import made, mapping, renewed
from mulligan.language.keys.value_schemas import Fields, Record
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source

Read = TypeVar("Read")


def read_record(record: Record, node: Node, label: str, source: Source) -> Fields:
    """Read a mapping. Note everything that is wrong with it, then stop."""
    form = record.read(node, label, source)
    require_keys(form, *form.node.entries, *record.required, source=source)
    return form


def require_keys(form: Fields, *words: str, source: Source) -> None:
    """Stop if one of these keys was refused or is missing, which is noted already."""
    if not all(word in form for word in words):
        raise Refusal(source.problems[-1])


def parse_text(node: Scalar, read: Callable[[str], Read], source: Source, *, hint: str = "") -> Read:
    """Parse a text that has a grammar. Refuse a syntax error at its position in the file."""
    try:
        return read(node.text)
    except GrammarError as refused:
        raise source.refuse_in("prodigy", refused.message, node, refused.offset, refused.length, hint=hint) from None


# -- lists of steps --------------------------------------------------------------------------------------------------


# Keys that belong to the previous step if they are alone in a list entry.
_BELONG_TO_PREVIOUS = ("on_failure", "validate", "on_success", "step_validate")


def join_steps(steps: Sequence, source: Source, *, is_handlers: bool = False) -> list[Node]:
    """The steps of a list, each joined with the entries after it that belong to it."""
    found: list[Node] = []
    for step in steps.items:
        with source.noting:
            if isinstance(step, Mapping) and step.entries and all(word in _BELONG_TO_PREVIOUS for word in step.entries):
                _attach(step, found, source, is_handlers)
            else:
                found.append(step)
    return found


def _attach(step: Mapping, found: list[Node], source: Source, is_handlers: bool) -> None:
    word = next(iter(step.entries))
    if not found:
        message = f"'{word}' has no step before it that it could belong to"
        raise source.refuse("prodigy", message, step.key(word))
    if not is_step(found[-1]):
        return  # refused when it is read
    owner = as_mapping(found[-1], is_handlers=is_handlers)
    for word, entry in step.entries.items():
        if word in owner.entries:
            message = f"the previous step already has '{word}'"
            raise source.refuse("prodigy", message, entry[0])
    found[-1] = renewed({**owner.entries, **step.entries}, owner)


def is_prompt(node: Scalar) -> bool:
    """Whether a command is for Claude: it begins with a slash."""
    return node.text.lstrip().startswith("/")


def is_step(node: Node) -> bool:
    """Whether a node has the form of a step: a mapping, or a text."""
    return isinstance(node, Mapping) or (
        isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip() != ""
    )


def as_mapping(step: Node, *, is_handlers: bool = False) -> Mapping:
    """A text step as a mapping. In a handler it is a shell command, unless it begins with a slash."""
    if isinstance(step, Mapping):
        return step
    assert isinstance(step, Scalar)
    if is_handlers and not is_prompt(step):
        return mapping({"shell": step}, step)
    return mapping({"claude": made(with_slash(step.text), step)}, step)


def with_slash(words: str) -> str:
    """A Claude command with its leading slash."""
    return words if words.lstrip().startswith("/") else f"/{words.lstrip()}"


# -- titles of steps -------------------------------------------------------------------------------------------------


_TITLE_WORDS_MAX = 3
# `set -e`, `cd folder` and the like, before the first real command.
_PREAMBLE = lazy_regex(r"(?:\s*(?:set\s+[-+][^\n;&]*|cd\s+[^\n;&]+)\s*(?:&&|;|\n))*\s*")
_PROGRAM = lazy_regex(r"(?:[\w.-]*/)*(?P<name>[A-Za-z][\w-]*)(?:\.\w+)?(?![^\s;|&])")
# Further plain words: not an option, a variable or a quoted text.
_WORD = lazy_regex(r"[ \t]+(?P<name>[A-Za-z][\w-]*)(?![^\s;|&])")
_KEYWORDS = frozenset("if for while until case function exec eval export".split())


def prompt_title(prompt: str) -> str:
    """`review` for `/review …`; `claude` for free text."""
    word = prompt.split(maxsplit=1)[0] if prompt.strip() else ""
    return word.lstrip("/") if word.startswith("/") or " " not in prompt.strip() else "claude"


def script_title(script: str) -> str:
    """The program and its first words, `npm_run_build`; `shell` if the script does not begin with a plain program."""
    prepared = _PREAMBLE.match(script)
    offset = prepared.end() if prepared else 0
    found = _PROGRAM.match(script, offset)
    if found is None or found["name"] in _KEYWORDS:
        return "shell"
    words = [found["name"]]
    while len(words) < _TITLE_WORDS_MAX and (word := _WORD.match(script, found.end())):
        words.append(word["name"])
        found = word
    return "_".join(words)
