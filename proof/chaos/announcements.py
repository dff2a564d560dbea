"""A schedule and a target for notices, while the server that serves both is killed; and what must hold of them."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mulligan.core.model import events as e
from mulligan.ports import NoticeRecord
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.service import Service

SCHEDULE, EVERY_SECONDS = "ticks", 3
# No client asks for this number.
NUMBER = -1
FLOW = """
name: ticks
inputs: {n: {type: integer}}
notify: [{on: [completed, failed], to: ops}]
steps:
  - {step: tick, shell: '. $ACT'}
"""
# Of ten messages the target refuses one, and takes one without an answer.
REFUSED, UNANSWERED, OF = 1, 1, 10


class Target:
    """Takes notices, and sometimes does not, or does not say so."""

    def __init__(self, seed: int) -> None:
        self.received: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.is_calm = False
        self._chance = random.Random(f"target {seed}")
        target = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                target.take(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def config(self) -> str:
        return f'[targets.ops]\nwebhook = "http://127.0.0.1:{self._server.server_port}/hook"\n'

    def take(self, handler: Any) -> None:
        number = OF if self.is_calm else self._chance.randrange(OF)
        if number < REFUSED:
            self.counts["notices refused"] += 1
            handler.send_error(500)
            return
        self.received[handler.headers["webhook-id"]] += 1
        if number < REFUSED + UNANSWERED:
            self.counts["notices taken without an answer"] += 1
            handler.connection.close()
            return
        handler.send_response(204)
        handler.send_header("content-length", "0")
        handler.end_headers()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def put_schedule(service: Service) -> None:
    service.catalogue.publish(SCHEDULE, FLOW)
    form = ScheduleForm(workflow=SCHEDULE, every=EVERY_SECONDS, inputs={"n": NUMBER}, catch_up="all", overlap="allow")
    service.schedules.put(SCHEDULE, form)


def outbox(service: Service) -> list[NoticeRecord]:
    return service.reader.store.server_records.notices(limit=100_000)


def let_claims_end(service: Service) -> None:
    """As if the time were over for which a dead sender had claimed notices, or a target is left alone: minutes."""
    records = service.reader.store.server_records
    records.release_notices([one.id for one in records.notices(status="waiting", limit=100_000)])
    records.make_notices_due(service.now())


def check_instants(service: Service, run_ids: list[int]) -> Iterator[str]:
    """Each instant from the first to the last started one run."""
    started: Counter[str] = Counter()
    for run_id in run_ids:
        fact = service.reader.store.log(run_id, limit=1)[0].fact
        if isinstance(fact, e.RunStarted) and fact.labels.get("schedule") == SCHEDULE:
            started[fact.labels["schedule_instant"]] += 1
    yield from (f"instant {one} started {times} runs" for one, times in started.items() if times > 1)
    if not started:
        yield "the schedule has started nothing"
        return
    moments = sorted(datetime.fromisoformat(one) for one in started)
    expected = int((moments[-1] - moments[0]) / timedelta(seconds=EVERY_SECONDS)) + 1
    skipped = len(service.schedules.show(SCHEDULE).skips)
    if len(moments) + skipped < expected:
        until = moments[-1].astimezone(UTC)
        yield f"of {expected} instants until {until} {len(moments)} were started, {skipped} skipped"


def check_notices(service: Service, run_ids: list[int], target: Target) -> Iterator[str]:
    """Whatever ended is announced, and what counts as sent has arrived."""
    notices = outbox(service)
    for notice in notices:
        if notice.status != "sent":
            yield f"notice {notice.key} of run {notice.run_id} is {notice.status}: {notice.reason}"
        elif not target.received[notice.key]:
            yield f"notice {notice.key} of run {notice.run_id} counts as sent, and never arrived"
    unknown = target.received.keys() - {notice.key for notice in notices}
    if unknown:
        yield f"{len(unknown)} messages arrived that the outbox does not have"
    announced = {notice.run_id for notice in notices}
    for run_id in run_ids:
        kinds = {type(entry.fact) for entry in service.reader.store.log(run_id)}
        if kinds & {e.RunCompleted, e.RunFailed} and run_id not in announced:
            yield f"run {run_id} ended, and nobody was told"
