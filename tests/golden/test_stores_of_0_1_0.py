"""Stores that Mulligan 0.1.0 wrote are opened, shown, continued, retried and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mulligan.ports import RunRecord
from mulligan.service import Service
from mulligan.service.home import Home

from ..faces.commands import mulligan
from .old_stores import restore_schema, unpack_home

# What each run says at its end when GATE is open. No other wrote anything else.
SAID = {
    "running": "loaded three rows of east, reported",
    "parked": "converged, published",
    "approval": "built, released",
    "backoff": "fetched",
    "failed": "loaded, reported",
    "completed": "visit 2",
    "partly": "summed",
    "parent": "east.example and west.example",
    "loop": "fetched after 4 visits",
    "paused": "first, second",
    "breaker": "answered",
    "artifacts": "4712",
    "cancelled": "second",
}
STATUSES = {
    **dict.fromkeys(("running", "backoff", "map", "parent", "loop", "breaker", "parked", "approval"), "running"),
    **{"completed": "completed", "partly": "completed", "paused": "paused", "cancelled": "cancelled"},
    **dict.fromkeys(("failed", "artifacts"), "failed"),
}


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in ("MULLIGAN_STORE", "MULLIGAN_SERVER", "MULLIGAN_TOKEN", "MULLIGAN_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MULLIGAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GATE", "open")
    # Nobody judges the dead for so long.
    monkeypatch.setenv("MULLIGAN_LEASE", "2s")
    monkeypatch.chdir(tmp_path)
    if request.param == "sqlite":
        return Home(unpack_home("v0.1.0", tmp_path / "home"))
    url = request.getfixturevalue("schema_url")
    restore_schema("v0.1.0", url)
    monkeypatch.setenv("MULLIGAN_STORE", url)
    return Home(tmp_path / "home", url)


@pytest.fixture
def service(home: Home) -> Iterator[Service]:
    service = Service(home)
    yield service
    service.close()


def by_name(service: Service) -> dict[str, int]:
    """The runs of `workflows/`, by their names."""
    # Examples of the release have some of the names, too, and the newest come first.
    run_ids = {record.workflow: record.run_id for record in reversed(every_run(service))}
    return {name: run_ids[name] for name in STATUSES}


def every_run(service: Service) -> list[RunRecord]:
    return service.reader.store.runs(limit=1000)


def test_every_run_is_listed_shown_explained_and_what_its_log_says(service: Service):
    records = every_run(service)

    for record in records:
        shown = service.show(record.run_id)
        assert shown["status"] == record.status
        assert all(found.line.text for found in service.story(record.run_id))
        result = service.replay(record.run_id)
        assert (result.ok, result.differing) == (True, ()), record.workflow
    assert {name: service.record(run_id).status for name, run_id in by_name(service).items()} == STATUSES
    assert len(records) > 80


def test_what_was_left_is_continued_retried_and_decided_to_its_end(service: Service):
    run_ids = by_name(service)
    decided = {
        "parked": ("classify", run_ids["parked"], "simulate", "retry", "--reason", "mesh repaired"),
        "approval": ("approve", run_ids["approval"], "ask", "--reason", "looks good"),
        "partly": ("items", run_ids["partly"], "each", "--retry"),
        **{name: ("retry", run_ids[name]) for name in ("failed", "artifacts", "cancelled")},
    }
    [breaker] = service.list_breakers()
    assert (breaker.name, breaker.status, breaker.failures) == ("llm", "open", 2)

    mulligan("breakers", "--reset", "llm")
    for name, words in decided.items():
        assert mulligan(*words, "--follow").code == 0, name
    for name in ("running", "backoff", "map", "parent", "loop", "breaker", "paused"):
        assert mulligan("resume", run_ids[name]).code == 0, name

    outputs = {name: mulligan("show", run_id, "--json").json["outputs"] for name, run_id in run_ids.items()}
    assert {name: outputs[name]["said"] for name in SAID} == SAID
    assert outputs["map"]["said"]["results"] == ["a12", "b12", "c12", "d12"]
    assert mulligan("show", run_ids["artifacts"], "--output", "numbers").json == [*map(str, range(1, 20001))]
    assert all(service.replay(record.run_id).ok for record in every_run(service))
