"""A JSON value for people: as a tree, and a list of objects also as a table. Of large values the beginning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mulligan.dashboard.components.value_tree import value_tree
from mulligan.service.rendering.descriptions import describe_artifact
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.markup import Html, element, join_html

# How much is shown: rows and columns of a table, characters of a cell and of a text.
ROWS_MAX, COLUMNS_MAX, CELL_CHARS_MAX, LONG_TEXT_CHARS_MAX = 200, 16, 120, 20_000


def value_view(value: Any, *, name: str, raw: str) -> Html:
    """A value with a link to all of it. `name`: a word for ids, different for each value of a page."""
    whole = ui.note(element("a", "JSON", href=raw, download=f"{name}.json"))
    if isinstance(value, str):
        shown = ui.text_block(value[:LONG_TEXT_CHARS_MAX] or " ")
        return join_html([shown, ui.left_out(len(value) - LONG_TEXT_CHARS_MAX, "more characters"), whole])
    if isinstance(value, dict | list) and value and not describe_artifact(value):
        tree = value_tree(value, name=name)
        if not isinstance(value, list) or not _is_table(value):
            return join_html([tree, whole])
        return join_html([_choice(name, {"Table": _rows(value, name), "Tree": tree}), whole])
    return join_html([element("p", value_tree(value)), whole])


def _choice(name: str, views: dict[str, Html]) -> Html:
    """Several views, of which one is shown. Which one is the state of a radio button, so that no script is needed."""
    parts: list[Html] = []
    for index, title in enumerate(views):
        parts.append(element("input", type="radio", name=f"{name}-view", id=f"{name}-view-{index}", checked=index == 0))
        parts.append(element("label", title, for_=f"{name}-view-{index}"))
    parts += [element("div", view, class_="view") for view in views.values()]
    return element("div", *parts, class_="views")


def _is_table(value: list[Any]) -> bool:
    """Whether it is a list of objects with something in common."""
    if not all(isinstance(one, dict) and one for one in value[:ROWS_MAX]):
        return False
    columns = _columns(value[:ROWS_MAX])
    return len(columns) <= COLUMNS_MAX or any(all(name in one for one in value[:ROWS_MAX]) for name in columns)


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _rows(value: list[dict[str, Any]], name: str) -> Html:
    shown = value[:ROWS_MAX]
    columns = _columns(shown)[:COLUMNS_MAX]
    rows = (
        ui.row(f"{number:,}", *(_cell(one.get(column, "")) for column in columns)) for number, one in enumerate(shown)
    )
    listed = ui.table((ui.Column("", "n dim"), *columns), rows, label=name)
    return join_html([listed, ui.left_out(len(value) - len(shown), "more rows")])


def _cell(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return ui.cell(json.dumps(value), kind="n")
    text = value if isinstance(value, str) else describe_artifact(value) or json.dumps(value, ensure_ascii=False)
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"
