"""`GET stream`: what happens to runs, as server-sent events."""

from __future__ import annotations

from mulligan.api.http.routing import Call, Query, Route, Streamed
from mulligan.service.server.live_feed import parse_watches

MEDIA = "text/event-stream"
# Neither caches nor proxies may keep pieces back.
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class StreamQuery(Query, frozen=True):
    """What to watch: `runs`, `run:NUMBER` and `pending`, separated by commas.

    `run:7@42` asks for what has changed in run 7 after its event 42.
    """

    watch: str = "runs,pending"


async def stream(call: Call) -> Streamed:
    """Follow the list of runs, single runs, and what waits for a person."""
    wanted = parse_watches(call.query.watch, call.token.project)
    run_ids = [watch.run_id for watch in wanted if watch.kind == "run"]
    # In the name of the token: a run of another project is unknown.
    await call.read(lambda service: [service.runs.record(run_id) for run_id in run_ids])
    client = await call.hub.join(call.token, wanted, call.headers.get("last-event-id", ""))
    return Streamed(client, headers=HEADERS, media=MEDIA)


ROUTES = (
    Route(
        "GET",
        "stream",
        stream,
        "read",
        "Follow runs: events `runs`, `run`, `pending`, `reset`, `removed`, `end`; `Last-Event-ID` continues.",
        query=StreamQuery,
        media=MEDIA,
    ),
)
