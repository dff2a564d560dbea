"""A sender that is killed with kill -9 between sending and settling, and a run that notifies without a server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.support.receiver import Receiver, receiving

from mulligan.history.notice_text import NoticeBody
from mulligan.ports import NoticeRecord
from mulligan.service.home import Home
from mulligan.service.service import Service

SENDS = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from mulligan.service.home import Home
from mulligan.service.service import Service
with Service(Home(Path(sys.argv[1]))) as service:
    while True:
        service.notices.send_due(datetime.now(UTC))
"""
FLOW = """
steps:
- step: deploy
  shell: 'echo no such host >&2; exit 3'
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def home(tmp_path: Path, receiver: Receiver) -> Home:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "server.toml").write_text(f'[targets.ops]\nwebhook = "{receiver.url}"\n')
    return Home(folder)


def assert_set(event: threading.Event) -> None:
    assert event.wait(30)


def put(service: Service, count: int) -> list[str]:
    now = datetime.now(UTC)
    body = msgspec.json.encode(NoticeBody(event="failed", title="run 1 of w failed", at=now, run_id=1))
    keys = [f"k{number:02}" for number in range(count)]
    records = service.reader.store.server_records
    records.put_notices([NoticeRecord(key=key, target="ops", body=body, created_at=now, due_at=now) for key in keys])
    return keys


def test_a_killed_sender_loses_nothing_and_what_is_sent_again_has_the_same_key(home: Home, receiver: Receiver) -> None:
    with Service(home) as service:
        keys = put(service, 8)
    sender = subprocess.Popen([sys.executable, "-c", SENDS, str(home.folder)])
    # It dies while the receiver has the third request, so that this one was sent and is not settled.
    receiver.hook = lambda: sender.kill() if len(receiver.requests) == 2 else None
    try:
        receiver.wait_for(3)
    finally:
        sender.kill()
        sender.wait()
    receiver.hook = lambda: None

    with Service(home) as service:
        before = {line.key for line in service.notices.page(status="sent").notices}
        assert "k02" not in before
        later = datetime.now(UTC) + timedelta(minutes=10)
        while (due := service.notices.send_due(later)) is not None:
            later = max(later, due)
        assert {line.status for line in service.notices.page().notices} == {"sent"}

    assert set(receiver.ids) == set(keys)
    assert receiver.ids.count("k02") == 2


def test_what_takes_longer_than_a_call_is_settled_by_the_next_one(home: Home, receiver: Receiver) -> None:
    may_end = threading.Event()
    receiver.hook = lambda: assert_set(may_end)
    with Service(home) as service:
        put(service, 1)
        now = datetime.now(UTC)
        due = service.notices.send_due(now)
        assert due is not None and due - now < timedelta(seconds=1)
        assert [line.status for line in service.notices.page().notices] == ["waiting"]

        may_end.set()
        while due is not None:
            due = service.notices.send_due(due)

        assert [line.status for line in service.notices.page().notices] == ["sent"]
    assert receiver.ids == ["k00"]


def test_what_was_sent_long_ago_is_removed(home: Home, receiver: Receiver) -> None:
    with Service(home) as service:
        put(service, 1)
        service.notices.send_all()
        assert [line.status for line in service.notices.page().notices] == ["sent"]

        service.notices.send_due(datetime.now(UTC) + timedelta(days=31))

        assert service.notices.page().notices == []


def test_a_run_notifies_without_a_server(home: Home, receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(FLOW)
    command = [sys.executable, "-m", "mulligan", "run", "w.yaml", "--home", str(home.folder)]

    ran = subprocess.run(
        [*command, "--notify", "ops", "--notify", "nobody=failed"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "MULLIGAN_BY": "ana"},
    )
    receiver.wait_for(1)

    assert ran.returncode == 1
    assert "note: target 'nobody' is not in the configuration" in ran.stderr
    (event,) = receiver.events
    assert event["type"] == "mulligan.run.failed"
    assert event["data"]["title"] == "run 1 of w failed: 'deploy' EXIT_NONZERO 3: no such host"
    assert event["data"]["commands"] == ["mulligan retry 1", "mulligan explain 1"]
    with Service(home) as service:
        statuses = {line.target: line.status for line in service.notices.page(run_id=1).notices}
    assert statuses["nobody"] == "waiting"
