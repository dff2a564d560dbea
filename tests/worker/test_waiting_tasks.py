"""Tasks that wait for another machine: many at once, in children that are started step by step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.work import Work

from mulligan.core.model.reports import TaskEnded, TaskInterrupted
from mulligan.ports import Lease

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

AT_ONCE = 3


class Meeting(ThreadingHTTPServer):
    """A server that answers nobody before so many requests are there."""

    daemon_threads = True

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def do_GET(self) -> None:
        self.server.barrier.wait(30)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    server = Meeting(AT_ONCE)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.barrier.abort()
    server.shutdown()
    thread.join()
    server.server_close()


def request(work: Work, url: str) -> Lease:
    return work.lease("http", {"url": url}, cpus=0.1, waits=True)


def test_more_tasks_wait_at_once_than_there_are_processors_and_their_children_end_afterwards(
    tmp_path: Path, meeting: Meeting
) -> None:
    work = Work(tmp_path, cpus=1)

    work.start(*(request(work, meeting.url) for _ in range(AT_ONCE)))
    ended = [report for report in work.reports(AT_ONCE) if isinstance(report, TaskEnded)]

    assert [report.output["status"] for report in ended] == [200] * AT_ONCE
    assert work.executor.offer().cpus == 1.0
    # One child for each processor stays warm.
    work.wait_for(lambda: len(work.executor._children._children) == 1)
    work.close()


def test_a_task_that_waits_for_a_child_can_be_stopped(tmp_path: Path, meeting: Meeting) -> None:
    work = Work(tmp_path, cpus=1, grace_seconds=0.0)
    leases = [request(work, meeting.url) for _ in range(3)]

    work.start(*leases)
    assert work.executor._called._awaiting_child
    work.executor.stop_all(0.0)
    reports = work.reports(3)

    assert all(isinstance(report, TaskInterrupted) for report in reports)
    assert not work.executor._called._awaiting_child
    work.close()


def test_a_task_that_waits_finds_a_whole_processor_in_its_environment(work: Work) -> None:
    assert work.run_shell("echo $MULLIGAN_CPUS", cpus=0.25, waits=True).output == "1"
