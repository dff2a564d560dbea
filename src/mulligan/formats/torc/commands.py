"""The script of a job's step, with the paths and values that it refers to."""

from __future__ import annotations

import re

from mulligan.core.model.lazy_regex import lazy_regex
from mulligan.formats.torc.jobs import DataItem, Job
from mulligan.formats.torc.matching import NameIndex
from mulligan.formats.translation import scalar
from mulligan.language.nodes import Node, Scalar, Source
from mulligan.language.shell_lexer import scan
from mulligan.language.shell_placeholders import ROOTS, Names, ShellRefused
from mulligan.language.shell_safety import QUOTED_DOCUMENT, SINGLE_QUOTES

_LIKE_EXPRESSION = lazy_regex(rf"\$\{{[^}}]*\b(?:{'|'.join(sorted(ROOTS))})\b")
# Contexts in which the shell expands nothing.
_UNEXPANDED = (SINGLE_QUOTES, QUOTED_DOCUMENT)
_REFERENCE = lazy_regex(r"\$\{(files|user_data)\.(input|output)\.([^{}]*)\}")


def fill_in_references(job: Job, files: NameIndex[DataItem], user_data: NameIndex[DataItem]) -> None:
    """Fill in `${files.input.NAME}` and the like, and add what they name to the job's inputs and outputs."""
    for key in ("invocation_script", "command"):
        text = job.texts.get(key, "")
        if "${files." in text or "${user_data." in text:
            job.texts[key] = _REFERENCE.sub(_ReferenceFiller(job, job.at(key), files, user_data), text)


class _ReferenceFiller:
    """Replaces each reference in one text."""

    def __init__(self, job: Job, node: Node, files: NameIndex[DataItem], user_data: NameIndex[DataItem]) -> None:
        self._job = job
        self._node = node
        self._known = {"files": files, "user_data": user_data}

    def __call__(self, found: re.Match[str]) -> str:
        what, way, name = found.groups()
        items = self._known[what].find(name, self._node)
        if not items:
            return found.group()
        named = self._job.lists.setdefault(f"{way}_{what}", [])
        if name not in (text for text, _ in named):
            named.append((name, self._node if isinstance(self._node, Scalar) else scalar("", self._node)))
        items[0].is_in_command = True
        return items[0].text


def shell_text(job: Job) -> Scalar:
    """The step's `shell`; the file's own node if the text is unchanged."""
    node = job.at("command")
    command = job.texts.get("command", "")
    before = job.texts.get("invocation_script")
    return _node_for(escape_shell(f"{before} {command}" if before else command), node)


def script_text(node: Node) -> Scalar:
    """The text of a recovery script; the file's own node if it is unchanged."""
    return _node_for(escape_shell(node.text if isinstance(node, Scalar) else ""), node)


def _node_for(text: str, node: Node) -> Scalar:
    return node if isinstance(node, Scalar) and node.value == text else scalar(text, node)


def escape_shell(text: str) -> str:
    """Escape quoted text that looks like an expression, so that it stays literal as in the shell."""
    if not _LIKE_EXPRESSION.search(text):
        return text
    try:
        spots = scan(text, Names(frozenset(), ROOTS)).sites
    except ShellRefused:
        return text  # the language reports why
    for offset in sorted((spot.placeholder.offset for spot in spots if spot.danger in _UNEXPANDED), reverse=True):
        text = f"{text[:offset]}${text[offset:]}"
    return text


def refuse_missing_values(jobs: NameIndex[Job], source: Source) -> None:
    """Refuse user data that a job reads if it has neither a value nor a writer."""
    noted: set[str] = set()
    for job in jobs.by_name.values():
        for items in job.user_data:
            for item in items:
                if item.is_empty and not item.writers and item.name not in noted:
                    noted.add(item.name)
                    message = f"job '{job.name}' reads user data '{item.name}', which has neither a value nor a writer"
                    hint = "add 'data: …', or let a job write it"
                    source.note(source.refuse("user_data", message, item.name_node, hint=hint))
