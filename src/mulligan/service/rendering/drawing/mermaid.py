"""A workflow as a Mermaid flowchart, for documents and pull requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from mulligan.core.model.actions import Shape
from mulligan.core.model.workflow import Workflow
from mulligan.service.rendering.drawing.grouped_steps import choose_picture
from mulligan.service.rendering.drawing.picture import Link, Node, Picture

_BRACKETS: dict[Shape, tuple[str, str]] = {
    "action": ("[", "]"),
    "map": ("[/", "/]"),
    "workflow": ("[[", "]]"),
    "wait": ("([", "])"),
    "approve": ("{{", "}}"),
    "triage": ("[/", "\\]"),
    "group": ("((", "))"),
    "end": ("(((", ")))"),
}
# Every character with a meaning in Mermaid, its directives or HTML is written as a character code.
_SPECIAL = re.compile(r"[^\w \-.,:=+*/'()!?…·]")

_STATUS_STYLES = {
    "completed": "fill:#dcfce7,stroke:#16a34a,color:#14532d",
    "failed": "fill:#fee2e2,stroke:#dc2626,color:#7f1d1d",
    "running": "fill:#dbeafe,stroke:#2563eb,color:#1e3a8a",
    "backing_off": "fill:#fef3c7,stroke:#d97706,color:#78350f",
    "handling": "fill:#fef3c7,stroke:#d97706,color:#78350f",
    "pending_failed": "fill:#ffedd5,stroke:#ea580c,color:#7c2d12",
    "ready": "stroke:#2563eb",
    "skipped": "stroke-dasharray:4 3,color:#6b7280",
    "cancelled": "stroke-dasharray:4 3,color:#6b7280",
    "waiting": "color:#6b7280",
}


def draw_mermaid(workflow: Workflow, statuses: Mapping[str, str] | None = None, *, is_expanded: bool = False) -> str:
    """The workflow as Mermaid text, for any names. Similar steps are one node unless `is_expanded`."""
    drawn = choose_picture(workflow, statuses, is_expanded=is_expanded)
    return "\n".join(_lines(drawn)) + "\n"


def _lines(drawn: Picture) -> Iterator[str]:
    yield from ("---", f"title: {json.dumps(drawn.name)}", "---", "flowchart TD")
    yield from (f"  {_node(node)}" for node in drawn.nodes)
    yield from (f"  {_link(link)}" for link in drawn.links)
    yield from (f"  {line}" for line in _link_styles(drawn.links))
    yield from (f"  {line}" for line in _status_classes(drawn.nodes))


def _node(node: Node) -> str:
    opening, closing = _BRACKETS[node.shape]
    return f'{node.key}{opening}"{_text_rows(node)}"{closing}'


def _text_rows(node: Node) -> str:
    if node.shape == "group":
        return " "
    rows = (node.title, node.details, node.when, node.counts)
    return "<br/>".join(escape_text(row) for row in rows if row)


def _link(link: Link) -> str:
    label = f'|"{escape_text(link.label)}"|' if link.label else ""
    return f"{link.source} {_arrow(link)}{label} {link.target}"


def _arrow(link: Link) -> str:
    if link.kind == "failure":
        return "<-.->" if link.then == "rerun" else "-.->"
    return "==>" if link.is_loop else "-->"


def _link_styles(links: tuple[Link, ...]) -> Iterator[str]:
    """Mermaid refers to links by their number in the text."""
    for wanted, style in (("failure", "stroke:#dc2626,color:#dc2626"), ("leaf", "stroke:#d1d5db")):
        numbers = [str(number) for number, link in enumerate(links) if link.kind == wanted]
        if numbers:
            yield f"linkStyle {','.join(numbers)} {style}"


def _status_classes(nodes: tuple[Node, ...]) -> Iterator[str]:
    for status, style in _STATUS_STYLES.items():
        keys = [node.key for node in nodes if node.status == status]
        if keys:
            yield f"classDef {status} {style}"
            yield f"class {','.join(keys)} {status}"


def escape_text(text: str) -> str:
    """Escape `text` so that Mermaid shows it and does nothing else with it."""
    return _SPECIAL.sub(lambda match: f"#{ord(match.group())};", " ".join(text.split()))
