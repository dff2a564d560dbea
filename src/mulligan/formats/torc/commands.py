"""The script of a job's step, with the paths and values that it refers to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.formats.torc.jobs import DataItem, Job
from mulligan.formats.torc.matching import NameIndex
from mulligan.formats.translation import scalar
from mulligan.language.shell.shell_lexer import scan
from mulligan.language.shell.shell_placeholders import ROOTS, Names, ShellRefused
from mulligan.language.shell.shell_safety import QUOTED_DOCUMENT, SINGLE_QUOTES, Danger
from mulligan.language.text.nodes import Node, Scalar, Source

_LIKE_EXPRESSION = lazy_regex(rf"\$\{{[^}}]*\b(?:{'|'.join(sorted(ROOTS))})\b")
# Contexts in which the shell expands nothing.
_UNEXPANDED = (SINGLE_QUOTES, QUOTED_DOCUMENT)
_REFERENCE = lazy_regex(r"\$\{(files|user_data)\.(input|output)\.([^{}]*)\}")


# What reads or sets the data of a run in a command.
GETS_DATA = lazy_regex(r"\bmulligan\s+data\s+get\b|\bMULLIGAN_DATA\b")
SETS_DATA = lazy_regex(r"\bmulligan\s+data\s+set\b|\bMULLIGAN_DATA_SET\b")


def note_references(job: Job, files: NameIndex[DataItem], user_data: NameIndex[DataItem]) -> None:
    """Add what `${files.input.NAME}` and the like name to the job's inputs and outputs."""
    known = {"files": files, "user_data": user_data}
    for key, text in _texts_with_references(job):
        node = job.at(key)
        for what, way, name in _REFERENCE.findall(text):
            if not known[what].find(name, node):
                continue
            named = job.lists.setdefault(f"{way}_{what}", [])
            if name not in (text for text, _ in named):
                named.append((name, node if isinstance(node, Scalar) else scalar("", node)))


def fill_in_references(job: Job, files: NameIndex[DataItem], user_data: NameIndex[DataItem]) -> None:
    """Fill in what they name: a path; the value of user data, or an expression if a job writes that."""
    known = {"files": files.by_name, "user_data": user_data.by_name}

    def value_of(found: re.Match[str]) -> str:
        what, way, name = found.groups()
        item = known[what].get(name)
        if item is None:
            return found.group()
        item.is_in_command = True
        is_varying = what == "user_data" and way == "input" and item.writers
        return _expression(item) if is_varying else item.text

    for key, text in _texts_with_references(job):
        job.texts[key] = _REFERENCE.sub(value_of, text)


def _texts_with_references(job: Job) -> Iterator[tuple[str, str]]:
    for key in ("invocation_script", "command"):
        text = job.texts.get(key, "")
        if "${files." in text or "${user_data." in text:
            yield key, text


def _expression(item: DataItem) -> str:
    """The value of user data when the step starts."""
    return f"${{{_MARK}.{item.key}}}" if item.key.isidentifier() else f'${{{_MARK}["{item.key}"]}}'


# The data of a run, as expressions read it.
_MARK = "run.data"


def shell_text(job: Job) -> Scalar:
    """The step's `shell`; the file's own node if the text is unchanged."""
    node = job.at("command")
    command = job.texts.get("command", "")
    before = job.texts.get("invocation_script")
    return _node_for(escape_shell(_expand_in_quotes(f"{before} {command}" if before else command)), node)


def script_text(node: Node) -> Scalar:
    """The text of a recovery script; the file's own node if it is unchanged."""
    return _node_for(escape_shell(node.text if isinstance(node, Scalar) else ""), node)


def _node_for(text: str, node: Node) -> Scalar:
    return node if isinstance(node, Scalar) and node.value == text else scalar(text, node)


def escape_shell(text: str) -> str:
    """Escape quoted text that looks like an expression, so that it stays literal as in the shell."""
    if not _LIKE_EXPRESSION.search(text):
        return text
    for offset in _offsets(text, *_UNEXPANDED):
        text = f"{text[:offset]}${text[offset:]}"
    return text


def _offsets(text: str, *dangers: Danger) -> list[int]:
    """Where placeholders stand in such places, the last one first; none where the language will refuse the script."""
    try:
        spots = scan(text, Names(frozenset(), ROOTS)).sites
    except ShellRefused:
        return []
    return sorted((spot.placeholder.offset for spot in spots if spot.danger in dangers), reverse=True)


def _expand_in_quotes(text: str) -> str:
    """Let the data of a run be filled in within single quotes too, as Torc fills in everywhere: `'…'"${…}"'…'`."""
    if f"${{{_MARK}" not in text:
        return text
    for offset in _offsets(text, SINGLE_QUOTES):
        if text.startswith(f"${{{_MARK}", offset):
            end = text.index("}", offset) + 1
            text = f"{text[:offset]}'\"{text[offset:end]}\"'{text[end:]}"
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
