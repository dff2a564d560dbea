"""A failure of the check, with the node of the tree and its place in the statement."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from mulligan_nl2sql.failures import Code, Position, QueryFailed, Stage


def refuse(code: Code, message: str, node: exp.Expr | None = None, **details: Any) -> QueryFailed:
    kind = "" if node is None else type(node).__name__
    return QueryFailed(code, message, stage=Stage.CHECK, node=kind, position=position_of(node), **details)


def position_of(node: exp.Expr | None) -> Position | None:
    """Where the node, or the first part of it that the parser located, stands in the statement."""
    if node is None:
        return None
    for part in node.walk(bfs=False):
        meta = part.meta
        if "start" in meta and "line" in meta:
            start, end = int(meta["start"]), int(meta["end"]) + 1
            # The parser counts the column of the last character.
            return Position(
                line=int(meta["line"]), column=max(1, int(meta["col"]) - (end - start) + 1), start=start, end=end
            )
    return None
