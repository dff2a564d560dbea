"""`GET stream`: what happens to runs, as server-sent events."""

from __future__ import annotations

from mulligan.api.http.routing import Call, Query, Routes, Streamed
from mulligan.service.server.live_feed import parse_watches

ROUTES = Routes()

MEDIA = "text/event-stream"
# Neither caches nor proxies may keep pieces back.
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class StreamQuery(Query, frozen=True):
    """What to watch: `runs`, `run:NUMBER` and `pending`, separated by commas.

    `run:7@42` asks for what has changed in run 7 after its event 42.
    """

    watch: str = "runs,pending"


@ROUTES.add("GET", "stream", "read", media=MEDIA)
async def stream(call: Call, query: StreamQuery) -> Streamed:
    """Follow runs: events `runs`, `run`, `pending`, `reset`, `removed`, `end`; `Last-Event-ID` continues."""
    wanted = parse_watches(query.watch, call.token.project)
    run_ids = [watch.run_id for watch in wanted if watch.kind == "run"]
    # In the name of the token: a run of another project is unknown.
    await call.read(lambda service: [service.runs.record(run_id) for run_id in run_ids])
    client = await call.hub.join(call.token, wanted, call.headers.get("last-event-id", ""))
    return Streamed(client, headers=HEADERS, media=MEDIA)
