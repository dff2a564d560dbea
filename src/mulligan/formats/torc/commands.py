"""Commands: the text of a job's step, with the paths and values that it names."""

from __future__ import annotations

import re

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.formats.torc.job import Job, Thing
from mulligan.formats.torc.matching import Known
from mulligan.formats.translation import scalar
from mulligan.language.nodes import Node, Scalar, Source
from mulligan.language.shell_lexer import scan
from mulligan.language.shell_placeholders import ROOTS, Names, ShellRefused
from mulligan.language.shell_safety import QUOTED_DOCUMENT, SINGLE_QUOTES

_LIKE_OURS = lazy_regex(rf"\$\{{[^}}]*\b(?:{'|'.join(sorted(ROOTS))})\b")
# Where the shell expands nothing.
_UNEXPANDED = (SINGLE_QUOTES, QUOTED_DOCUMENT)
_NAMED = lazy_regex(r"\$\{(files|user_data)\.(input|output)\.([^{}]*)\}")


def add_named(job: Job, files: Known[Thing], user_data: Known[Thing]) -> None:
    """Fill in the `${files.input.NAME}` of a job's texts, and let what they name join what it reads and writes."""
    for key in ("invocation_script", "command"):
        text = job.texts.get(key, "")
        if "${files." in text or "${user_data." in text:
            job.texts[key] = _NAMED.sub(_Filling(job, job.at(key), files, user_data), text)


class _Filling:
    """What stands for each `${…}` of Torc's in one text."""

    def __init__(self, job: Job, node: Node, files: Known[Thing], user_data: Known[Thing]) -> None:
        self._job = job
        self._node = node
        self._known = {"files": files, "user_data": user_data}

    def __call__(self, found: re.Match[str]) -> str:
        what, way, name = found.groups()
        things = self._known[what].named(name, self._node)
        if not things:
            return found.group()
        named = self._job.lists.setdefault(f"{way}_{what}", [])
        if name not in (text for text, _ in named):
            named.append((name, _as_scalar(self._node)))
        things[0].is_in_command = True
        return things[0].text


def _as_scalar(node: Node) -> Scalar:
    return node if isinstance(node, Scalar) else scalar("", node)


def shell_text(job: Job) -> Scalar:
    """The text of the step's `shell`; the very node of the file where nothing has changed in it."""
    node = job.at("command")
    command = job.texts.get("command", "")
    before = job.texts.get("invocation_script")
    return _at(literal_shell(f"{before} {command}" if before else command), node)


def script_text(node: Node) -> Scalar:
    """The text of a recovery script, likewise."""
    return _at(literal_shell(node.text if isinstance(node, Scalar) else ""), node)


def _at(text: str, node: Node) -> Scalar:
    return node if isinstance(node, Scalar) and node.value == text else scalar(text, node)


def literal_shell(text: str) -> str:
    """The text so that what looks like an expression of ours in quotes stays the text that it is to the shell."""
    if not _LIKE_OURS.search(text):
        return text
    try:
        spots = scan(text, Names(frozenset(), ROOTS)).sites
    except ShellRefused:
        return text  # the language says why
    for offset in sorted((spot.placeholder.offset for spot in spots if spot.danger in _UNEXPANDED), reverse=True):
        text = f"{text[:offset]}${text[offset:]}"
    return text


def refuse_valueless(jobs: Known[Job], source: Source) -> None:
    """User data that somebody reads has a value or a writer."""
    noted: set[str] = set()
    for job in jobs.things.values():
        for things in job.user_data:
            for thing in things:
                if thing.is_empty and not thing.writers and thing.name not in noted:
                    noted.add(thing.name)
                    message = f"job '{job.name}' reads user data '{thing.name}', which has no value and no writer"
                    hint = "add 'data: …', or let a job write it"
                    source.note(source.refuse("user_data", message, thing.name_node, hint=hint))
