"""Notices about workers whose machine fails their tasks, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.support.nightly import POSTGRES
from tests.support.store_files import write_empty_store

from mulligan.errors import InputInvalid
from mulligan.ports import WorkerRecord
from mulligan.service.home import DATABASE, Home
from mulligan.service.server.notices.messages import make_message
from mulligan.service.server.notices.notices import HookRule, read_rules
from mulligan.service.service import Service

pytestmark = pytest.mark.postgres

NOW = datetime(2026, 6, 1, tzinfo=UTC)
RULE = HookRule(on=("worker_trouble",), to=("ops", "pager"))


@pytest.fixture(params=["sqlite", POSTGRES])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """Two servers of one store, which has one worker."""
    url = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    if not url:
        write_empty_store(tmp_path / "home" / DATABASE)
    with Service(Home(tmp_path / "home", url), "ada") as one, Service(Home(tmp_path / "home", url), "bob") as other:
        one.reader.store.register(WorkerRecord("w1", "node7", 1))
        yield one, other


def titles(service: Service, target: str = "ops") -> list[str]:
    """What was announced to a target, the oldest first."""
    return [line.title for line in reversed(service.notices.page().notices) if line.target == target]


def test_a_trouble_and_its_end_are_announced_once_to_each_target_by_several_servers(
    services: tuple[Service, Service],
) -> None:
    store = services[0].reader.store
    services[0].notices.set_hooks([RULE])

    for trouble in ("the disk of '/data' is full", "", "the interpreter is broken"):
        store.set_trouble("w1", trouble)
        for service in (*services, *services):
            assert service.notices.announce_workers(NOW) == NOW + timedelta(seconds=10)

    expected = [
        "worker 'w1' on 'node7' takes no tasks: the disk of '/data' is full",
        "worker 'w1' on 'node7' takes tasks again",
        "worker 'w1' on 'node7' takes no tasks: the interpreter is broken",
    ]
    assert titles(services[0]) == titles(services[0], "pager") == expected


def test_a_worker_that_ends_in_trouble_is_announced_and_forgotten(services: tuple[Service, Service]) -> None:
    service = services[0]
    service.notices.set_hooks([RULE])
    service.reader.store.set_trouble("w1", "the disk is full")
    service.notices.announce_workers(NOW)

    service.reader.store.retire("w1")
    for one in (*services, *services):
        one.notices.announce_workers(NOW)

    assert titles(service)[1:] == ["worker 'w1' on 'node7' has ended; it took no tasks: the disk is full"]
    assert service.reader.store.server_records.documents("worker_trouble") == []


def test_a_server_that_died_after_the_notice_has_it_written_once(services: tuple[Service, Service]) -> None:
    one, other = services
    one.notices.set_hooks([RULE])
    one.reader.store.set_trouble("w1", "the disk is full")
    one.notices.announce_workers(NOW)
    # As if it had died before it could say that it has announced it.
    one.reader.store.server_records.delete_document("", "worker_trouble", "w1")

    other.notices.announce_workers(NOW)

    assert len(titles(one)) == 1


def test_nothing_is_written_without_a_rule(services: tuple[Service, Service]) -> None:
    service = services[0]
    service.notices.set_hooks([HookRule(on=("failed",), to=("ops",))])
    service.reader.store.set_trouble("w1", "the disk is full")

    service.notices.announce_workers(NOW)

    assert titles(service) == []
    assert service.reader.store.server_records.documents("worker_trouble") == []


def test_runs_get_the_other_events_of_a_rule(services: tuple[Service, Service]) -> None:
    service = services[0]

    service.notices.set_hooks([RULE, HookRule(on=("worker_trouble", "failed"), to=("ops",))])

    (rule,) = service.notices.rules_for_new_runs()
    assert (rule.on, rule.to) == (("failed",), ("ops",))


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(HookRule(on=("worker_trouble",), to=()), id="no target"),
        pytest.param(HookRule(on=("worker_trouble",), to=("../x",)), id="no name"),
        pytest.param(HookRule(on=("worker_trouble",), to=("ops",), late_after="1h"), id="late"),
    ],
)
def test_a_rule_about_workers_is_checked_as_others_are(services: tuple[Service, Service], rule: HookRule) -> None:
    with pytest.raises(InputInvalid):
        services[0].notices.set_hooks([rule])


def test_neither_a_project_nor_a_run_is_told_of_workers(services: tuple[Service, Service]) -> None:
    project = services[0].as_user("eve", project="team")

    with pytest.raises(InputInvalid, match="no"):
        project.notices.set_hooks([RULE])
    with pytest.raises(InputInvalid):
        read_rules([RULE])


def test_a_message_about_a_worker_is_an_event_of_its_own(services: tuple[Service, Service]) -> None:
    service = services[0]
    service.notices.set_hooks([RULE])
    service.reader.store.set_trouble("w1", "the disk is full")
    service.notices.announce_workers(NOW)

    (notice, _) = service.reader.store.server_records.notices()
    event = msgspec.json.decode(make_message(notice).event)

    assert (event["type"], event["data"]["commands"]) == ("mulligan.worker.trouble", ["mulligan workers"])
    assert "subject" not in event
