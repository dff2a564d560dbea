"""The logs of a shared store are read on every host; of what was not shipped, people are told where it ran."""

from __future__ import annotations

import socket

import pytest
from tests.support.commands import mulligan, ran

from mulligan.ports.server_records import LogKey
from mulligan.service.service import open_service

pytestmark = pytest.mark.usefixtures("folder")

FAILING = """
name: hello
steps:
  - {step: greet, shell: echo hello}
  - {step: deploy, shell: 'echo cannot deploy >&2; exit 3'}
"""
HELLO = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n  - {step: wait, wait: 1ms}\n"


def test_a_log_is_shown_wherever_it_is_asked_for(store_schema_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    ran(FAILING, "--home", "here")
    shown = (0, "hello\n", "-- run 1, 'greet', attempt 1\n")

    here = mulligan("logs", 1, "greet", "--home", "here")
    elsewhere = mulligan("logs", 1, "greet", "--home", "elsewhere")
    followed = mulligan("logs", 1, "greet", "-f", "--home", "elsewhere")
    whole = mulligan("logs", 1, "-f", "--home", "elsewhere")
    page = mulligan("report", 1, "--out", "-", "--home", "elsewhere")

    assert [tuple(said) for said in (here, elsewhere, followed)] == [shown] * 3
    assert whole.out == "greet | hello\n"
    assert "cannot deploy" in page.out
    assert (
        mulligan("logs", 1, "greet", "--json", "--home", "elsewhere").json
        == mulligan("logs", 1, "greet", "--json", "--home", "here").json
    )


def test_a_log_that_was_not_shipped_is_said_to_be_where_the_step_ran(
    store_schema_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    ran("name: quiet\nsteps:\n  - {step: greet, shell: 'true'}\n", "--home", "here")
    told = f"-- run 1, 'greet', attempt 1: it wrote nothing, or only {socket.gethostname()} has its log\n"

    said = mulligan("logs", 1, "greet", "--home", "elsewhere")
    followed = mulligan("logs", 1, "greet", "-f", "--home", "elsewhere")

    assert [tuple(said), tuple(followed)] == [(0, "", told)] * 2


def test_the_logs_of_a_removed_run_are_removed_from_the_store(store_schema_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    ran(HELLO, "--home", "here")
    key = LogKey(1, "greet", 1, "stdout")

    with open_service("here") as service:
        before = service.reader.store.server_records.log_size(key)
        mulligan("gc", "--keep", 0, "--home", "here")
        after = service.reader.store.server_records.log_size(key)

    assert (before, after) == ((6, True), None)


def test_a_home_with_its_own_database_ships_nothing():
    ran(HELLO)

    with open_service() as service:
        assert service.reader.store.server_records.logs_of(1) == []


def test_what_no_host_has_run_wrote_nothing(store_schema_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_STORE", store_schema_url)
    ran(HELLO, "--home", "here")

    said = mulligan("logs", 1, "wait", "--home", "here")

    assert tuple(said) == (0, "", "-- run 1, 'wait', attempt 1: it wrote nothing\n")
