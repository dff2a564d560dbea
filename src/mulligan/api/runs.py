"""Runs: starting, listing, looking at them, changing them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mulligan.api.routing import Call, Query, Route
from mulligan.service import RunQuery, to_json


class RunsQuery(Query, frozen=True):
    """Which runs to list. A parameter that is given several times matches any of its values."""

    status: tuple[str, ...] = ()
    workflow: tuple[str, ...] = ()
    text: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50
    before: int | None = None


class RunsPage(msgspec.Struct, frozen=True):
    """Runs, the newest first."""

    runs: list[dict[str, Any]]
    next: int | None


def list_runs(call: Call) -> dict[str, Any]:
    asked: RunsQuery = call.query
    query = RunQuery(
        statuses=asked.status, workflows=asked.workflow, text=asked.text, limit=asked.limit, before=asked.before
    )
    page = call.service.list_runs(query)
    return {"runs": to_json(page.runs), "next": page.next}


ROUTES = (Route("GET", "runs", list_runs, "read", "List runs, the newest first.", query=RunsQuery, answer=RunsPage),)
