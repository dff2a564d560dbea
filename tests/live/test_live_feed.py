"""The live feed: what clients get who watch runs, and who come back after their connection was cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.runner import ROOM, Live

from mulligan.core.model import events as e
from mulligan.core.state.state import State
from mulligan.engine.observers import NullObserver
from mulligan.errors import InputInvalid, StoreUnavailable, UnknownRun
from mulligan.language import load_text
from mulligan.service.home import DATABASE
from mulligan.service.rendering.json_output import to_json
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.runs.views.run_pages import StepQuery
from mulligan.service.server import live_feed as feeds
from mulligan.service.server.live_feed import LiveEvent, LiveFeed, Watch, parse_watches
from mulligan.service.service import Service

pytestmark = pytest.mark.postgres

FLOW = """
name: flow
steps:
  - {step: fetch, matrix: {n: 1..2}, shell: 'test ${matrix.n} != 2', continue_on_error: true}
  - step: check
    needs: [fetch]
    map: {over: "${[1, 2, 3]}", as: one, on_item_failure: collect, max_parallel: 1}
    do: [{shell: 'test ${one} != 3'}]
  - {step: flaky, needs: [check], shell: 'test $MULLIGAN_ATTEMPT = 2', retry: 1}
  - {step: last, needs: [flaky], shell: 'false', on_failure: [{shell: 'true'}]}
"""
ASKING = "name: asking\nsteps: [{step: gate, approve: {message: go?}}, {step: on, needs: [gate], shell: 'true'}]"


class Client:
    """Folds events into what a page would show. It is away while its connection is cut."""

    def __init__(self, service: Service, watch: Watch) -> None:
        self.service = service
        self.watch = watch
        self.position = ""
        self.steps: dict[str, Any] = {}
        self.resets = 0
        self.seqs: list[int] = []

    def get(self, events: Sequence[LiveEvent]) -> None:
        for event in events:
            data = json.loads(event.data)
            self.position = event.position
            if event.name == "reset":
                self.resets += 1
                page = self.service.runs.step_page(self.watch.run_id, StepQuery())
                self.steps = {line.name: to_json(line) for line in (*page.steps, *([page.end] if page.end else []))}
                continue
            assert not self.seqs or data["after"] == self.seqs[-1], "an event was lost or doubled"
            self.seqs.append(data["seq"])
            self.steps.update((line["name"], line) for line in data["steps"])


class Cutter(NullObserver):
    """After each commit a look, for one client who never leaves, and for one who is away at each point."""

    def __init__(self, service: Service, watch: Watch) -> None:
        self.service, self.watch = service, watch
        self.feed = LiveFeed()
        self.steady = Client(service, watch)
        self.steady.get(self.feed.join(service, watch, "")[1])
        self.away: Client | None = None
        self.back: list[Client] = []

    def committed(self, state: State, entries: Sequence[e.Entry], is_ordinary: bool = False) -> None:
        events = self.feed.poll(self.service, [self.watch])
        for client in (self.steady, *self.back):
            client.get(events)
        if self.away is not None:
            others, own = self.feed.join(self.service, self.watch, self.away.position)
            assert not others
            self.away.get(own)
            self.back.append(self.away)
        # The next one reads until now, and misses what comes.
        self.away = Client(self.service, self.watch)
        others, own = self.feed.join(self.service, self.watch, "")
        self.away.get(own)
        self.away.position = self.feed.position(self.watch)


def test_a_client_that_is_cut_at_any_point_of_a_run_gets_what_it_has_missed(live: Live) -> None:
    prepared = prepare(load_text(FLOW), {}, live.folder)
    run_id = live.service.changes.create(prepared)[0]
    watch = Watch("run", run_id)

    with Service(live.home) as watching:
        cutter = Cutter(watching, watch)
        with live.service.driving.driver(ROOM, cutter) as driver:
            driver.drive(run_id, 0.0)
        assert cutter.away is not None
        cutter.away.get(cutter.feed.join(watching, watch, cutter.away.position)[1])
        page = watching.runs.step_page(run_id, StepQuery())

    assert page.end is not None
    shown = {line.name: to_json(line) for line in (*page.steps, page.end)}
    assert len(cutter.back) >= 5
    for client in (cutter.steady, *cutter.back, cutter.away):
        assert client.steps == shown
        # Once to begin with; and at most once more, where the first turn made all steps new.
        assert client.resets <= 2
    assert [{name: step["status"] for name, step in shown.items()}[name] for name in ("flaky", "last")] == [
        "completed",
        "completed",
    ]


def names(events: Sequence[LiveEvent]) -> list[tuple[str, Any]]:
    return [(event.name, json.loads(event.data)) for event in events]


def test_the_list_and_what_waits_are_followed_and_come_back_by_their_positions(live: Live) -> None:
    lists = [Watch("runs"), Watch("pending")]
    feed = LiveFeed()
    with Service(live.home) as watching:
        begun = [feed.join(watching, watch, "")[1] for watch in lists]
        at_first = [feed.position(watch) for watch in lists]

        run_id = live.run(ASKING).run_id
        (runs, pending) = names(feed.poll(watching, lists))
        quiet = feed.poll(watching, lists)

        with Service(live.home) as other:
            other.changes.approve(run_id, "gate", is_approved=True, reason="fine")
        live.resume(run_id)
        (ended, answered) = names(feed.poll(watching, lists))
        missed = [names(feed.join(watching, watch, at)[1]) for watch, at in zip(lists, at_first, strict=True)]
        unknown = names(feed.join(watching, lists[0], "00000000-7")[1])

    assert [names(some)[0][0] for some in begun] == ["reset", "reset"]
    assert runs[0] == "runs"
    assert [(line["run_id"], line["asks"][0]["place"]) for line in runs[1]["runs"]] == [(run_id, "gate")]
    assert [(entry["run_id"], entry["step"], entry["message"]) for entry in pending[1]["entries"]] == [
        (run_id, "gate", "go?")
    ]
    assert pending[1]["entries"][0]["commands"][0] == f"mulligan approve {run_id} gate --reason TEXT"
    assert (quiet, pending[1]["total"]) == ([], 1)
    assert [(line["status"], line["asks"]) for line in ended[1]["runs"]] == [("completed", [])]
    assert (answered[1]["removed"], answered[1]["total"]) == ([{"run_id": run_id, "step": "gate"}], 0)
    assert missed == [[runs, ended], [pending, answered]]
    assert unknown == [("reset", {"watch": ["runs"], "reason": "unknown"})]


def test_a_home_without_runs_is_watched_until_it_has_one(live_file: Live) -> None:
    feed, watch = LiveFeed(), Watch("runs")
    (live_file.home.folder / DATABASE).unlink()
    with Service(live_file.home) as watching:
        feed.join(watching, watch, "")
        is_changed = feed.has_changes(watching)

        (run_id,) = live_file.service.changes.create(prepare(load_text(ASKING), {}, live_file.folder))

        assert (is_changed, feed.has_changes(watching)) == (False, True)
        ((name, data),) = names(feed.poll(watching, [watch]))
        assert (name, [line["run_id"] for line in data["runs"]]) == ("runs", [run_id])
        assert not feed.has_changes(watching)
        assert feed.poll(watching, [watch], is_changed=False) == []
        with pytest.raises(UnknownRun):
            feed.join(watching, Watch("run", 99), "")


def test_a_driver_that_died_changes_the_line_though_nothing_is_written(live_file: Live) -> None:
    moment, watch = [0.0], Watch("runs")
    feed = LiveFeed(lambda: moment[0])
    (run_id,) = live_file.service.changes.create(prepare(load_text(ASKING), {}, live_file.folder))
    with Service(live_file.home) as watching:
        with live_file.service.driving.driver(ROOM) as driver:
            driver.drive(run_id, 0.0)
            feed.join(watching, watch, "")
        moment[0] += feeds.RECHECK_SECONDS
        found = names(feed.poll(watching, [watch], is_changed=False))

    assert [line["driver"] for _, data in found for line in data["runs"]] == [None]


def test_too_many_changes_at_once_are_a_reset(live_file: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "ENTRIES_MAX", 2)
    watch, feed = Watch("runs"), LiveFeed()
    with Service(live_file.home) as watching:
        feed.join(watching, watch, "")
        live_file.service.changes.create(prepare(load_text(ASKING), {}, live_file.folder), times=3)

        assert names(feed.poll(watching, [watch])) == [("reset", {"watch": ["runs"], "reason": "many_changes"})]


@pytest.mark.parametrize("text", ["", "run", "run:x", "run:", "runs:7", "run:7@", "run:7@x", "steps", "run:-1"])
def test_what_cannot_be_watched_is_refused(text: str) -> None:
    with pytest.raises(InputInvalid):
        parse_watches(text)


def test_what_is_watched_is_written_in_a_line() -> None:
    found = parse_watches("runs, run:7, run:8@42,pending", "team")

    assert found == {
        Watch("runs", project="team"): "",
        Watch("run", 7): "",
        Watch("run", 8): "42",
        Watch("pending", project="team"): "",
    }
    with pytest.raises(InputInvalid):
        parse_watches(",".join(f"run:{number}" for number in range(feeds.WATCHES_MAX + 1)))


class Interrupted:
    """A service whose store goes away in the middle of a look: when it is asked who is alive, or what waits."""

    def __init__(self, service: Service, *, is_away: bool = True) -> None:
        self._service = service
        self.is_away = is_away

    @property
    def reader(self) -> Interrupted:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service if hasattr(type(self._service), name) else self._service.reader, name)

    def live_workers(self) -> Any:
        if self.is_away:
            raise StoreUnavailable("it is away")
        return self._service.reader.live_workers()


def test_what_was_found_when_the_store_went_away_is_told_by_the_next_look(live: Live) -> None:
    runs, pending = Watch("runs"), Watch("pending")
    service: Any = Interrupted(live.service, is_away=False)
    feed = LiveFeed()
    live.run("name: before\nsteps: [{step: one, shell: 'true'}]")
    feed.poll(service, [pending, runs])
    run_id = live.run(ASKING).run_id

    # The list of runs asks who is alive after it has compared what there is.
    service.is_away = True
    with pytest.raises(StoreUnavailable):
        feed.poll(service, [pending, runs])
    service.is_away = False
    events = feed.poll(service, [pending, runs])

    assert [event.name for event in events] == ["pending", "runs"]
    assert [json.loads(event.data)["runs"][0]["run_id"] for event in events[1:]] == [run_id]
