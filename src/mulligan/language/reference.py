"""The reference of the language as Markdown, made from the tables of keys.

    python -m mulligan.language.reference          writes docs/reference/reference.md

A test compares the page with the tables, so that it is never out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mulligan.core.model.failure import ENGINE_CODES, RETRYABLE, SEVERITY
from mulligan.language.keys.plugins import find
from mulligan.language.keys.retry_keys import RULE
from mulligan.language.keys.value_schemas import (
    AnyOf,
    Choice,
    Deferred,
    Either,
    Json,
    Key,
    ListOf,
    MapOf,
    Nothing,
    OrMatrixValue,
    Record,
    Template,
    Value,
    ValueSchema,
)
from mulligan.language.keys.workflow_keys import COMMAND, WORKFLOW
from mulligan.language.text.suggestions import join_list
from mulligan.plugins import ACTIONS, BUILT_IN

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "reference.md"

HEAD = """\
# Reference

Every key of a workflow file and its values. This page is generated from the tables that read your file
(`python -m mulligan.language.reference`), so it is always up to date. [The language](language.md) explains the keys
with examples; `mulligan schema` prints the same as JSON Schema, for editors.

Keys that are not listed are refused, with a suggestion. At the top level of the file, keys that start with `x-` are
skipped: use them for YAML anchors. `${…}` marks texts that may contain [expressions](expressions.md).
"""
# Headings of records that differ from the name of the key.
TITLES = {
    "workflow": "The file",
    "step": "A step",
    "command": "A command",
    "workflow_action": "A workflow action",
    "matrix_zip": "A matrix with zip",
    "matrix_product": "A matrix with product",
    "policy": "A retry policy",
    "rule": "A rule",
    "need": "A need",
    "edge": "An edge",
    "handler": "A handler",
}
# Records whose keys other records share: one line replaces these keys there.
SHARED = (COMMAND, RULE)
# Texts without placeholders: a name, and code, whose values come from `args`.
WITHOUT_PLACEHOLDERS = frozenset({"step", "python"})
MARK = " `${…}`"
KINDS_OF_JSON = {"string": "a text", "number": "a number", "boolean": "true or false", "null": "nothing"}


def reference() -> str:
    """The whole page."""
    sections = (part for record in records(WORKFLOW) for part in _section(record))
    return "\n".join([HEAD, *sections, *_plugin_actions(), *_codes()])


def records(root: Record) -> tuple[Record, ...]:
    """`root` and every record below it, in breadth-first order."""
    found: dict[str, Record] = {root.name: root}
    waiting = [root]
    while waiting:
        keys = waiting.pop(0).keys.values()
        for record in (below for key in keys for below in _records_of(key.schema)):
            if record.name not in found:
                found[record.name] = record
                waiting.append(record)
    return tuple(found.values())


def _records_of(schema: ValueSchema) -> Iterator[Record]:
    """The records that `schema` accepts, without those inside them."""
    if isinstance(schema, Record):
        yield schema
    for inner in _parts(schema):
        yield from _records_of(inner)


def _parts(schema: ValueSchema) -> tuple[ValueSchema, ...]:
    if isinstance(schema, Deferred):
        return (schema.of(),)
    if isinstance(schema, ListOf | MapOf):
        return (schema.of,)
    if isinstance(schema, AnyOf):
        return schema.schemas
    return schema.forms if isinstance(schema, Either) else ()


def _title(record: Record) -> str:
    return TITLES.get(record.name, f"`{record.name}`")


def _link(record: Record) -> str:
    title = _title(record)
    anchor = title.lower().replace("`", "").replace(" ", "-")
    return f"[{title[0].lower()}{title[1:]}](#{anchor})"


def _section(record: Record) -> Iterator[str]:
    yield f"## {_title(record)}\n"
    if record.one_of:
        choices = (" with ".join(f"`{word}`" for word in group) for group in record.one_of)
        yield f"Exactly one of {join_list(choices)}.\n"
    borrowed = _shared_keys(record)
    yield from (f"{sentence}\n" for sentence in borrowed.values())
    yield "| key | value | |\n|---|---|---|"
    yield from (_row(word, key) for word, key in record.keys.items() if word not in set().union(*borrowed))
    yield ""


def _shared_keys(record: Record) -> dict[frozenset[str], str]:
    """The keys that belong to another record, and the sentence that replaces them."""
    found: dict[frozenset[str], str] = {}
    for lender in SHARED:
        same = [word for word, key in record.keys.items() if lender.keys.get(word) is key]
        if record is lender or len(same) < len(lender.keys) // 2:
            continue
        others = [word for word in lender.keys if word not in same and word not in record.keys]
        but = f" but {join_list((f'`{word}`' for word in others), 'and')}" if others else ""
        found[frozenset(same)] = f"It has all keys of {_link(lender)}{but}, and:"
    return found


def _row(word: str, key: Key) -> str:
    value = describe_schema(key.schema)
    if word in WITHOUT_PLACEHOLDERS:
        value = value.replace(MARK, "")
    about = "; ".join(filter(None, (_mark_code(key.about), "required" if key.is_required else "")))
    return f"| `{word}` | {value} | {about} |".replace("  |", " |")


def _mark_code(about: str) -> str:
    """Format braces and brackets as code."""
    marked = re.sub(r"\$?\{(?:[^{}]|\{[^{}]*\})*\}|\[[^]]*\]", lambda found: f"`{found[0]}`", about)
    return marked.replace(" | ", r" \| ")


def describe_schema(schema: ValueSchema) -> str:
    """The values that a schema accepts, in a few words."""
    if isinstance(schema, Deferred):
        return describe_schema(schema.of())
    if isinstance(schema, Record):
        return _link(schema)
    if isinstance(schema, Choice):
        return join_list(f"`{word}`" for word in (*schema.words, *(str(flag).lower() for flag in schema.flags)))
    if isinstance(schema, ListOf):
        return (
            f"{describe_schema(schema.of)}, or a list of them"
            if schema.or_one
            else f"a list: {describe_schema(schema.of)}"
        )
    if isinstance(schema, MapOf):
        return f"names, each with {describe_schema(schema.of)}"
    if isinstance(schema, Either | AnyOf):
        return join_list(dict.fromkeys(describe_schema(part) for part in _parts(schema)))
    return _describe_scalar(schema)


def _describe_scalar(schema: ValueSchema) -> str:
    if isinstance(schema, Template):
        is_more = schema.expected == "a text" and schema.types != ("string",)
        return (join_list(KINDS_OF_JSON[kind] for kind in schema.types) if is_more else schema.expected) + MARK
    if isinstance(schema, Json):
        return "any value"
    if isinstance(schema, OrMatrixValue):
        return f"{schema.expected}; with a matrix also `${{matrix.NAME}}`"
    if isinstance(schema, Value | Nothing):
        return schema.expected
    raise TypeError(f"no description for {type(schema).__name__}")


def _plugin_actions() -> Iterator[str]:
    """Our own plugins: actions that only translated files use."""
    for name in BUILT_IN[ACTIONS]:
        plugin = find(name)
        assert plugin is not None, f"'{name}' is in the table"
        action = plugin.definition
        yield f"## `{name}`\n"
        yield f"An action of files that `mulligan convert` wrote: {action.about}. Each key may hold `${{…}}`.\n"
        yield "| key | |\n|---|---|"
        yield from (f"| `{word}` | {_mark_code(about)} |" for word, about in action.keys.items())
        yield ""


def _codes() -> Iterator[str]:
    """The table of failure codes, for `codes:` in rules and edges."""
    yield "## Error codes\n"
    yield "The values of `codes` in rules and failure edges. A step may also report its own codes.\n"
    yield "| code | severity | retryable | |\n|---|---|---|---|"
    for code in SEVERITY:
        engines = "set only by the engine " if code in ENGINE_CODES else ""
        yield f"| `{code}` | {SEVERITY[code]} | {'yes' if RETRYABLE[code] else 'no'} | {engines}|"
    yield ""


def main() -> None:
    """Write the page."""
    PAGE.write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
