"""The list of runs: why each failed, what it waits for, and which runs are chosen."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import mulligan, ran

from mulligan.cli.output.full_screen import Screen
from mulligan.core.deciding.workers.breaker import Guard, GuardedOutcome
from mulligan.core.effects.effects import SetTimer
from mulligan.core.effects.run_lists import unhandled_by_records
from mulligan.core.effects.tasks import Task
from mulligan.core.model import reports as r
from mulligan.core.model.events import Entry, RunPaused
from mulligan.core.model.failure import Failure
from mulligan.core.model.workflow import Breaker
from mulligan.core.state.state import FailureRecord
from mulligan.errors import InputInvalid
from mulligan.ports import Commit, NewRun, Offer, Turn, WorkerRecord
from mulligan.service.authoring.values import parse_time
from mulligan.service.home import find_home
from mulligan.service.runs.views.run_list import RunLine, RunQuery, run_page
from mulligan.service.service import Service
from mulligan.testing.clock import START, JumpingClock
from mulligan.testing.memory.memory_store import MemoryStore

HELLO = "name: hello\ninputs: {region: {default: east}}\nsteps:\n  - {step: greet, shell: 'echo ${inputs.region}'}\n"
HOUR = timedelta(hours=1)


class OneRun:
    """A store in memory with a run of 'nightly' that the worker 'w' holds."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self.clock = JumpingClock()
        self.store = MemoryStore(clock=self.clock, is_shared=is_shared)
        self.worker = WorkerRecord("w", "here", 4711)
        self.store.register(self.worker)
        self.others: dict[str, WorkerRecord] = {}
        self.turn = self.start()

    def start(self) -> Turn:
        new = NewRun(b"{}", "v1", "nightly", r.RunRequested(START, 0))
        (turn,) = self.store.create([new], "w")
        return turn

    def task(self, place: str, **fields: Any) -> Task:
        return Task(self.turn.run_id, place, 1, "shell", {}, "nightly", "v1", place, 1, **fields)

    def commit(self, facts: Sequence[Any] = (), status: str = "running", turn: Turn | None = None, **what: Any) -> None:
        after = self.store.run((turn or self.turn).run_id).seq
        entries = [Entry(after + 1 + index, START, 0, fact) for index, fact in enumerate(facts)]
        line: dict[str, Any] = {"status": status, "round": 1, "at": START, "rows": (), **what}
        self.store.commit([Commit(turn=turn or self.turn, after=after, entries=entries, **line)])

    def line(self, *, is_driven: bool = True) -> RunLine:
        alive = {**self.others, **({"w": self.worker} if is_driven else {})}
        return run_page(self.store, RunQuery(), alive.get, self.clock.now()).runs[-1]

    def waits(self, *, is_driven: bool = True) -> list[tuple[str, str]]:
        return [(wait.kind, wait.text) for wait in self.line(is_driven=is_driven).waiting_for]


# -- what is waited for ----------------------------------------------------------------------------------------------


def test_what_runs_is_named_by_the_oldest_and_counted():
    run = OneRun()
    run.commit(taken=[run.task("a"), run.task("b"), run.task("c")])

    assert run.waits() == [("task", "'a' and 2 more run")]
    assert run.line().waiting_for[0].worker == "w"


def test_what_nobody_has_taken_waits_for_a_worker():
    run = OneRun()
    run.commit(queued=[run.task("a")])

    assert run.waits() == [("worker", "'a' waits for a worker")]


def test_what_an_open_breaker_holds_up_waits_for_it_and_until_when():
    run = OneRun()
    guard = Guard("llm", Breaker(failures=1))
    run.commit(queued=[run.task("a", guard=guard)])
    (lease,) = run.store.lease("w", Offer(cpus=1, memory=0, gpus=0, labels=(), host="here", tasks_max=1))
    run.commit(
        ended=[lease.token],
        counted=[GuardedOutcome(lease.token, guard, "failure")],
        queued=[run.task("b", guard=guard)],
    )

    ((kind, text),) = run.waits()

    assert kind == "breaker"
    assert text.startswith("'b' waits: breaker 'llm' is open until ")


def test_retries_and_waits_say_when_they_are_due_and_the_limit_of_a_task_says_nothing():
    run = OneRun()
    timers = [SetTimer("retry", START + HOUR, "a", 2), SetTimer("attempt", START + 2 * HOUR, "nap", 1)]
    run.commit(timers=[*timers, SetTimer("attempt", START, "b", 1), SetTimer("run", START)], taken=[run.task("b")])

    assert run.waits() == [
        ("retry", "'a' is tried again in 1h00m"),
        ("timer", "'nap' continues in 2h00m"),
        ("task", "'b' runs"),
    ]
    assert run.line().waiting_for[0].due == START + HOUR


def test_a_run_that_nobody_drives_says_so_and_what_it_had_under_way_is_not_running():
    run = OneRun()
    run.commit(taken=[run.task("a")])

    assert run.waits(is_driven=False) == [("driver", "nothing is running it")]


def test_a_run_that_nobody_drives_says_when_what_it_waits_for_is_due():
    run = OneRun()
    run.commit(timers=[SetTimer("attempt", START + 2 * HOUR, "sleep", 1)])

    assert run.waits(is_driven=False) == [("driver", "nothing is running it"), ("timer", "'sleep' is due in 2h00m")]


def test_on_a_shared_store_a_run_is_served_by_any_worker_and_says_what_it_waits_for():
    run = OneRun(is_shared=True)
    run.commit(queued=[run.task("a")])
    assert run.waits(is_driven=False) == [("driver", "nothing is running it")]

    run.others = {"v": WorkerRecord("v", "there", 4712, cpus=1.0)}
    run.store.register(run.others["v"])

    assert run.waits(is_driven=False) == [("worker", "'a' waits for a worker")]


def test_a_paused_run_says_who_paused_it_and_why_and_starts_nothing():
    run = OneRun()
    run.commit([RunPaused("ann", "disk swap")], "paused", reason="disk swap", queued=[run.task("a")])

    assert run.waits() == [("pause", "paused by ann: disk swap")]


def test_a_parked_step_is_told_with_its_failure(folder: Path):
    ran("name: parking\nsteps:\n  - {step: build, shell: 'echo cc failed >&2; exit 3', triage: true}\n")

    (run,) = mulligan("list", "--json").json

    assert run["waiting_for"][0]["kind"] == "triage"
    assert run["waiting_for"][0]["text"] == "'build' is parked, EXIT_NONZERO 3: cc failed"


def test_a_row_that_cannot_be_read_hides_no_run():
    run = OneRun()
    run.commit(rows=[("failures", "0", "", b"\xc1"), ("places", "a", "parked", b"\xc1")])

    assert run.line().failure is None
    assert run.waits()[0] == ("triage", "'a' is parked")


def test_the_next_page_goes_on_below_the_last_run_of_this_one():
    run = OneRun()
    others = [run.start().run_id for _ in range(3)]

    def page(before: int | None) -> tuple[list[int], int | None]:
        found = run_page(run.store, RunQuery(limit=2, before=before), lambda name: None, START)
        return [line.run_id for line in found.runs], found.next

    assert page(None) == ([others[2], others[1]], others[1])
    assert page(others[1]) == ([others[0], run.turn.run_id], None)


# -- why it failed ---------------------------------------------------------------------------------------------------


def failed(index: int, step: str, **fields: Any) -> FailureRecord:
    return FailureRecord(index, step, 1, Failure("EXIT_NONZERO", exit_code=1), seq=index + 1, at=START, **fields)


@pytest.mark.parametrize(
    ("records", "steps"),
    [
        ([failed(0, "a"), failed(1, "b")], ["a", "b"]),
        # A remediation that has no failure of its own has answered it.
        ([failed(0, "a", target="fix", target_visit=1), failed(1, "b")], ["b"]),
        # One that failed too has not.
        ([failed(0, "a", target="fix", target_visit=1), failed(1, "fix")], ["a", "fix"]),
        ([failed(0, "a", target="fix", target_visit=1), failed(1, "fix", is_allowed=True)], ["a"]),
        # Answered, as far as can be seen, and the run has failed all the same: it was skipped or cancelled.
        ([failed(0, "a", target="fix", target_visit=1)], ["a"]),
        ([failed(0, "a", is_closed=True), failed(1, "b", is_allowed=True), failed(2, "c", recovered_by="x")], []),
    ],
)
def test_a_run_fails_with_what_nothing_has_answered(records: list[FailureRecord], steps: list[str]):
    assert [record.step for record in unhandled_by_records(reversed(records))] == steps


def test_a_failed_run_has_its_step_its_code_and_the_telling_line_as_fields(folder: Path):
    steps = "  - {step: a, shell: 'echo no route >&2; exit 7'}\n  - {step: b, shell: exit 3}\n"
    ran(f"name: two\nmax_parallel: 1\nsteps:\n{steps}")

    (run,) = mulligan("list", "--json").json

    wanted = {"step": "a", "code": "EXIT_NONZERO", "exit_code": 7, "signal": None, "count": 2}
    assert run["failure"] == {**wanted, "text": "EXIT_NONZERO 7: no route"}
    assert 0 <= run["seconds"] < 60
    assert "(and 1 more)" in mulligan("list").out


def test_a_failure_that_was_mended_is_not_why_a_run_failed(folder: Path):
    ran("""\
name: mended
steps:
  - {step: first, shell: test -e done, next: [{to: fix, on: failure, then: rerun}]}
  - {step: fix, shell: touch done}
  - {step: second, shell: exit 2}
""")

    (run,) = mulligan("list", "--json").json

    assert (run["failure"]["step"], run["failure"]["count"]) == ("second", 1)


# -- on a terminal ---------------------------------------------------------------------------------------------------


class _Terminal(io.StringIO):
    """A terminal that somebody leaves after the first picture."""

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        if "\033[J" in self.getvalue() and "\033[?1049l" not in self.getvalue():
            raise KeyboardInterrupt


def test_pictures_replace_each_other_until_ctrl_c_and_the_last_one_stays(folder: Path):
    ran(HELLO)
    service, terminal = Service(find_home()), _Terminal()

    Screen(terminal, lines=4).repeat(service, lambda: [f"line {number}" for number in range(6)], 2.0, 0.5)

    drawn, _, left = terminal.getvalue().partition("\033[?1049l")
    # One line less than there are, so that nothing is pushed up.
    assert drawn.count("\n") == 3
    assert "… 4 more lines" in drawn
    assert left == "".join(f"line {number}\n" for number in range(6))
    service.close()


# -- which runs ------------------------------------------------------------------------------------------------------


def chosen(*words: str) -> list[int]:
    return [run["run_id"] for run in mulligan("list", "--json", *words).json]


def test_runs_are_chosen_by_workflow_input_label_and_time(folder: Path):
    ran(HELLO, "-i", "region=east", "--label", "team=data")
    ran(HELLO, "-i", "region=west", "--label", "team=data", "--label", "tier=1")
    ran("name: other\nsteps:\n  - {step: a, shell: 'true'}\n")

    assert chosen("--workflow", "hello") == [2, 1]
    assert chosen("-i", "region=west") == [2]
    assert chosen("--label", "team=data", "--label", "tier=1") == [2]
    assert chosen("--since", "1h") == [3, 2, 1]
    assert chosen("--until", "1h") == []
    assert chosen("--since", "2020-01-01", "--workflow", "other") == [3]
    assert mulligan("list", "--json", "-n", "1", "--label", "tier=1").json[0]["labels"] == {"team": "data", "tier": "1"}


def test_a_status_may_stand_for_several(folder: Path):
    ran(HELLO)
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n")

    assert chosen("--status", "open") == [2]
    assert chosen("--status", "ended") == [1]
    assert chosen("--status", "failed,completed") == [1]


def test_the_labels_of_a_run_are_shown_with_it(folder: Path):
    ran(HELLO, "--label", "team=data")

    assert mulligan("show", "--json").json["labels"] == {"team": "data"}
    assert mulligan("show").out.splitlines()[0].endswith(" ago, team=data")


@pytest.mark.parametrize("words", [("--workflow", "\udcff"), ("-i", "region=\udcff"), ("--label", "\udcff=1")])
def test_what_is_no_text_matches_nothing(folder: Path, words: tuple[str, ...]):
    ran(HELLO)

    assert mulligan("list", *words).plain == (0, "", "no matching runs\n")


def test_a_limit_beyond_all_numbers_is_no_limit(folder: Path):
    ran(HELLO)

    assert chosen("-n", str(2**70)) == [1]


def test_a_fork_keeps_the_labels_of_its_run(folder: Path):
    ran(HELLO, "--label", "team=data")

    mulligan("fork", 1, "--from", "greet", "--no-follow")

    assert chosen("--label", "team=data") == [2, 1]


def test_labels_of_a_file_are_those_of_its_runs_unless_others_are_given(folder: Path):
    ran(f"{HELLO}labels: {{team: data, app.io/tier: 1}}\n", "--label", "team=web", "--label", "day=friday")

    labels = {"app.io/tier": "1", "day": "friday", "team": "web"}
    assert (
        mulligan("list", "--json", "--label", "app.io/tier=1").json[0]["labels"],
        chosen("--label", "team=data"),
    ) == (
        labels,
        [],
    )
    shown = mulligan("show", 1, "--json").json
    assert shown["labels"] == labels
    with Service(find_home()) as service:
        assert next(service.reader.events(1)).fact.labels == labels


def test_runs_are_chosen_by_who_started_them_by_words_and_by_the_code_of_their_failure(folder: Path, monkeypatch):
    ran(HELLO, "-i", "region=Far East")
    monkeypatch.setenv("MULLIGAN_BY", "ann")
    ran("name: broken\nsteps:\n  - {step: fetch, shell: 'echo no route >&2; exit 7'}\n")

    assert [run["started_by"] for run in mulligan("list", "--json", "--who", "ann").json] == ["ann"]
    assert (chosen("--who", "ann"), chosen("--who", "an")) == ([2], [])
    assert (chosen("--text", "east far"), chosen("--text", "ROUTE"), chosen("--text", "east route")) == ([1], [2], [])
    assert (chosen("--failure", "exit_nonzero"), chosen("--failure", "TIMEOUT")) == ([2], [])
    assert (chosen("-n", "1", "--after", "2"), chosen("--after", "1")) == ([1], [])
    with Service(find_home()) as service:
        assert (service.runs.count(RunQuery(text="route")), service.runs.count(RunQuery(), limit=1)) == (1, 1)
        assert service.runs.status_counts() == {"completed": 1, "failed": 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list", "--since", "yesterday"), "error[input.invalid]: 'yesterday' is not a time"),
        (("list", "--input", "region"), "error[usage]: 'region' is not a valid input"),
        (("list", "--label", "a=1", "--label", "a=2"), "error[usage]: label 'a' is given twice"),
        (("list", "--watch"), "error[usage]: --watch needs a terminal"),
        (("list", "--text", "?!"), "error[input.invalid]: '?!' has no letters or digits to search for"),
        (("list", "--after", "0"), "error[usage]: --after must be the number of a run, not 0"),
        (("list", "--watch", "--json"), "error[usage]: --watch and --json cannot be combined"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(folder: Path, words: tuple[str, ...], message: str):
    said = mulligan(*words)

    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[0] == message


@pytest.mark.parametrize("label", [f"{'x' * 64}=1", f"a={'x' * 201}", " =1", "a=b\nc"])
def test_a_label_that_nobody_could_find_again_is_refused_before_anything_runs(folder: Path, label: str):
    Path("flow.yaml").write_text(HELLO, encoding="utf-8")

    said = mulligan("run", "flow.yaml", "--label", label)

    assert said.code == 2
    assert not Path(".mulligan").exists()


def test_a_time_is_so_long_ago_or_a_date_that_is_local_unless_it_says_so():
    now = datetime(2026, 11, 16, 9, tzinfo=UTC)

    assert parse_time("90m", now) == now - timedelta(minutes=90)
    assert parse_time("2026-11-01", now) == datetime(2026, 11, 1).astimezone()
    assert parse_time("2026-11-01T08:00+02:00", now) == datetime(2026, 11, 1, 6, tzinfo=UTC)
    with pytest.raises(InputInvalid):
        parse_time("2026-13-01", now)
