"""The tables of a run as rows: what a turn writes, and that the state can be restored from it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.nightly import examples

from mulligan.core.effects.snapshot import Row, changes, decision_tag, read_decision, read_place, restore
from mulligan.core.evolve.evolve_run import evolve
from mulligan.core.model import events as e
from mulligan.core.model import reports as r
from mulligan.core.model.codec import decode_log
from mulligan.core.model.failure import failure
from mulligan.core.model.outcome import Outcome
from mulligan.core.model.workflow import Action, Handler, Map, Need, Rule, Triage, Workflow, decode
from mulligan.core.state.state import FailureRecord, PastVisit, State, UndoableVisit
from mulligan.core.turn import fold, follow, turn
from mulligan.errors import CodecError
from mulligan.testing.history import (
    T0,
    Answers,
    History,
    command,
    edge,
    expression,
    handler,
    retry,
    step,
    workflow,
)
from proof.simulator.simulation import Simulation

GOLDEN = sorted((Path(__file__).parent.parent / "golden").glob("v*/*.log.jsonl"))
SEEDS = range(examples(8, 40))


class Table:
    """The rows of one run, as a store keeps them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}

    def write(self, rows: list[Row]) -> None:
        for row in rows:
            if row[3] is None:
                self.rows.pop(row[:2], None)
            else:
                self.rows[row[:2]] = row

    def read(self, definition: Workflow) -> State:
        return restore(definition, self.rows.values())


class Kept(History):
    """A history whose turns are written as rows; `written` are those of the last one."""

    def __init__(self, definition: Workflow, answers: Any = None) -> None:
        super().__init__(definition, answers)
        self.table = Table()
        self.written: list[Row] = []

    def report(self, report: r.Report) -> Kept:
        turn(self.state, report, self.evaluator)
        self.written = changes(self.state)
        self.table.write(self.written)
        self.state.rollback()
        super().report(report)
        return self

    def kinds(self) -> list[tuple[str, str]]:
        return sorted(row[:2] for row in self.written)

    def tags(self) -> dict[str, str]:
        return {row[1]: row[2] for row in self.table.rows.values() if row[0] == "places" and row[2]}

    def restored(self) -> State:
        return self.table.read(self.state.workflow)


def size(rows: list[Row]) -> int:
    return sum(len(kind) + len(key) + len(data or b"") for kind, key, _, data in rows)


def chain(length: int) -> Workflow:
    return workflow(*(step(f"s{i:04}", needs=[f"s{i - 1:04}"] if i else []) for i in range(length)))


def items_of(count: int, **fields: Any) -> Kept:
    policy = Map(over=expression("list"), max_parallel=4)
    flow = workflow(step("m", map=policy, do=(command("c"),), **fields))
    return Kept(flow, {"list": [{"name": f"package {i}"} for i in range(count)]}).start()


# -- what comes back -------------------------------------------------------------------------------------------------


class Doubting(Simulation):
    """A random history in which after every move the rows that the store keeps are held against the logs."""

    def look(self) -> None:
        super().look()
        self.world.checker.verify()


@pytest.mark.parametrize("seed", SEEDS)
def test_after_every_move_of_any_history_the_rows_in_the_store_hold_the_state(seed: int):
    history = Doubting(seed).run()

    assert history.state == fold(history.workflow, history.log)


@pytest.mark.parametrize("log", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.stem[:2]}")
def test_after_every_fact_of_an_old_log_the_rows_hold_the_state(log: Path):
    definition = decode((log.parent / log.name.replace(".log.jsonl", ".workflow.json")).read_bytes())
    state, table = State(definition), Table()

    for entry in decode_log(log.read_bytes()):
        state.begin()
        evolve(state, entry)
        table.write(changes(state))
        state.commit()

        assert restore(definition, table.rows.values(), state.graph) == state


def test_no_rows_are_a_run_that_has_not_started():
    definition = chain(2)

    assert restore(definition, []) == State(definition)


def test_of_rows_with_the_same_key_the_last_one_counts():
    run = Kept(chain(2)).start()
    early = list(run.written)

    run.ok("s0000")

    assert restore(run.state.workflow, [*early, *run.written]) == run.state


def test_places_of_every_kind_find_their_definition_again():
    script = Rule(exit_codes=(7,), max_retries=1, recovery_script=command("clean"))
    nested = Handler((command("fix", on_failure=handler("again")),))
    flow = workflow(
        step("scripted", rules=(script,)),
        step("handled", on_failure=nested),
        step("checked", validator=command("check"), on_success=(command("tell"),)),
        step("told", on_success=(command("first"), command("second"))),
        step("each", map=Map(over=expression("list")), do=(command("one"), command("two"))),
        step("listed", map=Map(lister=command("ls")), do=(command("one"),)),
    )
    run = Kept(flow, {"list": [1, 2]}).start()

    run.fail("scripted", exit_code=7).fail("handled").fail("handled.on_failure@1.0")
    run.ok("checked").ok("told").ok("told.on_success@1.0").ok("each[1].0")

    restored = run.restored()
    assert restored == run.state
    assert set(restored.places) >= {
        "scripted.script@1",
        "handled.on_failure@1.0.on_failure@1.0",
        "checked.validator@1",
        "told.on_success@1.1",
        "each[0].0",
        "each[1].1",
        "listed.lister@1",
    }
    assert all(place.spec is run[key].spec for key, place in restored.places.items() if place.role != "item")


def test_an_undo_finds_its_definition_and_its_output_again():
    flow = workflow(step("a", undo=command("unmake")), step("b", needs=["a"]))
    run = Kept(flow).start()

    run.ok("a", output={"made": 1}).fail("b")

    restored = run.restored()
    assert restored == run.state
    assert restored.places["a.undo@1"].spec is flow.steps[0].undo
    assert restored.undoables == [UndoableVisit("a", 1, {"made": 1})]


def test_what_no_value_of_a_run_may_lose_on_the_way():
    # Text of any script, numbers at the edges, empty and nested values, nothing at all.
    value = {"ü\n\0": ["", None, True, 2**63 - 1, -(2**63), 1.0, 0.1, {}, [], {"a": [[1]]}]}
    run = Kept(chain(2)).start({"given": value})

    run.ok("s0000", output=value)

    restored = run.restored()
    assert restored == run.state
    assert type(restored.places["s0000"].output["ü\n\0"][5]) is float
    assert restored.run.inputs == {"given": value}


def shortened(row: Row) -> Row:
    kind, key, tag, data = row
    return kind, key, tag, msgspec.msgpack.encode(msgspec.msgpack.decode(data or b"")[:-1])


def test_a_row_of_an_older_release_has_fewer_fields_and_is_read_with_their_defaults():
    run = Kept(chain(1)).start()
    shorter = [
        (kind, key, tag, msgspec.msgpack.encode(msgspec.msgpack.decode(data)[:-1]))
        if kind in ("run", "places")
        else row
        for row in run.written
        for kind, key, tag, data in [row]
        if data is not None
    ]

    assert restore(run.state.workflow, shorter) == run.state


# -- what is written -------------------------------------------------------------------------------------------------


def test_a_turn_writes_what_it_touched_and_the_run():
    run = Kept(chain(3)).start()

    run.ok("s0000")

    assert run.kinds() == [("places", "s0000"), ("places", "s0001"), ("run", "")]


def test_a_turn_that_refuses_a_report_writes_the_run_alone():
    run = Kept(chain(3)).start()

    run.report(r.TaskEnded(T0, "s0000", 9, output="late"))

    assert run.kinds() == [("run", "")]
    assert run.restored() == run.state


def test_a_turn_writes_as_much_in_a_long_chain_as_in_a_short_one():
    short, long = Kept(chain(10)).start(), Kept(chain(1000)).start()

    short.ok("s0000").ok("s0001")
    long.ok("s0000").ok("s0001")

    assert long.kinds() == short.kinds()
    # Counts of what is left are numbers: they may be some bytes longer.
    assert size(long.written) <= size(short.written) + 8


def test_the_first_turn_writes_the_inputs_and_no_other_does():
    run = Kept(chain(2)).start({"text": "x" * 50_000})
    first = run.written

    run.ok("s0000")

    assert [row[0] for row in first].count("inputs") == 1
    assert size(run.written) < 500
    assert run.restored() == run.state


def test_an_items_end_in_a_map_of_ten_thousand_writes_little():
    run = items_of(10_000)
    first = run.written

    run.ok("m[0].0", output="fine")

    assert size(first) > 200_000
    assert ("items", "m") not in run.kinds()
    assert size(run.written) < 2000
    assert run.restored() == run.state


def test_a_map_that_runs_its_failed_items_again_writes_its_list_anew():
    run = items_of(3, rules=(Rule(codes=("ITEMS_FAILED",), max_retries=1),))

    run.ok("m[0].0").ok("m[1].0").fail("m[2].0")

    assert ("items", "m") in run.kinds()
    assert run.restored() == run.state
    assert run["m"].items is not None and run["m"].items.todo == (2,)


def test_a_map_that_is_visited_again_loses_the_list_of_the_visit_before():
    flow = workflow(
        step("m", map=Map(lister=command("ls")), do=(command("c"),), next=[edge("again")]),
        step("again", next=[edge("m", when="more")]),
    )
    run = Kept(flow, {"more": True}).start()

    run.ok("m.lister@1", output=[1]).ok("m[0].0").ok("again")

    assert ("items", "m", "", None) in run.written
    assert run.restored() == run.state


def test_a_command_that_has_ended_is_a_row_that_goes():
    run = Kept(workflow(step("a", on_failure=handler()))).start().fail("a")

    run.ok("a.on_failure@1.0")

    assert ("places", "a.on_failure@1.0", "", None) in run.written
    assert run.restored() == run.state


def test_what_came_and_went_in_one_turn_is_a_row_that_goes():
    state = State(chain(1))
    state.begin()

    state.put(state.arcs, "a#0", "taken")
    state.drop(state.arcs, "a#0")

    assert changes(state)[1:] == [("arcs", "a#0", "", None)]


def test_thousands_of_loops_are_not_written_by_turns_that_leave_them_alone():
    steps = [step(f"l{i}", next=[edge(f"l{i}", when="more")]) for i in range(50)]
    run = Kept(workflow(*steps, step("a"), step("b", needs=["a"])), {"more": True}).start()
    # A loop waits for its time while its edge has a delay; here for a pause.
    run.pause()
    for one in steps:
        run.ok(one.name)

    run.ok("a")

    assert len(run.state.run.loops) == 50
    assert {kind for kind, _ in run.kinds()} == {"places", "run"}
    assert run.restored() == run.state


# -- lists -----------------------------------------------------------------------------------------------------------


def record(index: int, **fields: Any) -> FailureRecord:
    return FailureRecord(index, "a", 1, failure("TIMEOUT"), seq=index, at=T0, **fields)


def listed(state: State) -> list[tuple[str, str, bool]]:
    return sorted((kind, key, data is None) for kind, key, _, data in changes(state) if kind != "run")


def test_what_is_appended_is_one_row():
    state = State(chain(1))
    state.append(state.failures, record(0))
    state.begin()

    state.append(state.failures, record(1))

    assert listed(state) == [("failures", "1", False)]


def test_what_is_changed_in_a_list_is_that_row():
    state = State(chain(1))
    for index in range(3):
        state.append(state.failures, record(index))
    state.begin()

    state.set_at(state.failures, 1, record(1, is_closed=True))

    assert listed(state) == [("failures", "1", False)]


def test_what_is_taken_from_a_list_is_a_row_that_goes():
    state = State(chain(1))
    state.append(state.undoables, UndoableVisit("a", 1))
    state.append(state.undoables, UndoableVisit("b", 1))
    state.begin()

    state.take_last(state.undoables)

    assert listed(state) == [("undoables", "1", True)]


def test_what_is_taken_and_appended_in_one_turn_is_what_stands_there_now():
    state, table = State(chain(1)), Table()
    state.begin()
    for name in "abc":
        state.append(state.undoables, UndoableVisit(name, 1))
    table.write(changes(state))
    state.begin()

    state.take_last(state.undoables)
    state.take_last(state.undoables)
    state.append(state.undoables, UndoableVisit("d", 1))

    assert listed(state) == [("undoables", "1", False), ("undoables", "2", True)]
    table.write(changes(state))
    assert table.read(state.workflow) == state


def test_more_than_ten_failures_come_back_in_their_order():
    state, table = State(chain(1)), Table()
    state.begin()

    for index in range(12):
        state.append(state.failures, record(index))
    table.write(changes(state))

    assert [one.index for one in table.read(state.workflow).failures] == list(range(12))


def test_keys_of_step_and_visit_do_not_collide():
    state, table = State(chain(1)), Table()
    pairs = [("a", 11), ("1:a", 1), ("a1", 1), ("", 1), (":", 1)]
    state.begin()

    for number, pair in enumerate(pairs):
        state.put(state.past, pair, PastVisit("failed", number))
        state.put(state.routed, pair, (number,))
    table.write(changes(state))

    assert table.read(state.workflow) == state


# -- people ----------------------------------------------------------------------------------------------------------


def test_a_parked_step_and_an_open_approval_are_tagged_until_somebody_has_answered():
    asking = step("ask", action=Action("approve", {"message": "?"}), validator=command("check"))
    run = Kept(workflow(asking, step("fix", triage=Triage()))).start()

    run.fail("fix")

    assert run.tags() == {"ask": "approval", "fix": "parked"}
    run.classify("fix", "retry").approve("ask")
    assert run["ask"].status == "running"
    assert run.tags() == {}


def test_every_decision_is_kept_under_its_step_and_under_its_error():
    run = Kept(workflow(step("fix", triage=Triage()))).start()

    run.fail("fix").classify("fix", "retry").fail("fix").classify("fix", "fail")

    rows = [row for row in run.table.rows.values() if row[0].startswith("decisions")]
    seqs = sorted(seq for _, seq in run.state.decisions)
    code, exit_code = run.state.decisions["fix", seqs[0]].code, run.state.decisions["fix", seqs[0]].exit_code
    ours = decision_tag(code, workflow=run.state.workflow.name, step="fix")
    assert sorted((kind, key, tag) for kind, key, tag, _ in rows) == sorted(
        row
        for seq in seqs
        for row in (
            ("decisions", f"{seq}:fix", ours),
            ("decisions_by_code", f"{seq}:fix", decision_tag(code, exit_code)),
        )
    )
    assert [read_decision(key, data)[1].verdict for kind, key, _, data in rows if kind == "decisions"] == [
        "retry",
        "fail",
    ]
    assert run.restored() == run.state


def test_rows_of_a_release_that_kept_no_decisions_can_be_read():
    run = Kept(workflow(step("fix", triage=Triage()))).start().fail("fix").classify("fix", "retry")

    older = [row for row in run.table.rows.values() if not row[0].startswith("decisions")]

    assert restore(run.state.workflow, older).decisions == {}


def test_an_approval_that_waits_for_a_pause_to_be_lifted_asks_nobody_yet():
    asking = step("ask", action=Action("approve", {"message": "?"}), needs=["a"])
    run = Kept(workflow(step("a"), asking)).start().pause()

    run.ok("a")

    assert run.tags() == {}
    run.resume()
    assert run.tags() == {"ask": "approval"}


# -- turns -----------------------------------------------------------------------------------------------------------


def test_a_turn_over_several_reports_is_written_once():
    state, table = State(chain(3)), Table()
    state.begin()

    for report in (r.RunRequested(T0, 1), r.TaskStarted(T0, "s0000", 1, "w", "h"), r.TaskEnded(T0, "s0000", 1)):
        list(follow(state, report, Answers()))
    written = changes(state)
    table.write(written)

    assert len({row[:2] for row in written}) == len(written)
    assert table.read(state.workflow) == state


def test_a_large_turn_is_written_in_pieces():
    state, table = State(chain(3)), Table()
    state.begin()

    for _ in follow(state, r.RunRequested(T0, 1), Answers()):
        table.write(changes(state))
        state.commit()
        state.begin()

    assert table.read(state.workflow) == state
    assert changes(state)[1:] == []


def test_what_a_group_is_waited_for_with_comes_back():
    flow = workflow(step("a"), step("b"), step("c", needs=[Need("ab", is_group=True)]), groups={"ab": ("a", "b")})
    run = Kept(flow).start()

    run.ok("a")

    assert ("barriers", "ab:success") in run.kinds()
    assert run.restored() == run.state


def test_a_run_in_every_kind_of_trouble_comes_back_whole():
    """Stopped, adjusted, warned, late: what the random histories seldom hold all at once."""
    flow = workflow(
        step("a", rules=retry(2, delay=5)),
        step("b", on_failure=Handler((command("sweep"),), strategy="cleanup", timeout=9)),
        timeout=60,
        cancel_grace=None,
    )
    run = Kept(flow).start()

    run.report(r.TaskEnded(T0, "a", 1, Outcome(9, reported=({"code": "SLOW", "severity": "warning", "message": "s"},))))
    run.started("b").fail("b").wait(3).cancel(reason="enough")

    assert run.restored() == run.state
    assert run.restored().run.stop == run.state.run.stop
    assert run.facts(e.RunStopping)[0].reason == "enough"
    assert run.restored().run.due == T0 + timedelta(seconds=60)


# -- rows that are no run's ------------------------------------------------------------------------------------------

DAMAGE: dict[str, tuple[Row, str]] = {
    # A page of the database was lost or overwritten.
    "bytes": (("places", "s0000", "", b"\xc1"), "MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)"),
    "type": (("arcs", "s0000#0", "", b"\x01"), "Expected `str`, got `int`"),
    # A release that is newer than this one wrote a table that this one does not know.
    "kind": (("dreams", "a", "", b"\x01"), "unknown name 'dreams'"),
    # A row is missing in the middle of a list.
    "gap": (("failures", "4", "", b"\x01"), "unknown name '0'"),
    "key": (("past", "a", "", b"\x01"), "invalid literal for int() with base 10: 'a'"),
}


@pytest.mark.parametrize(("row", "reason"), DAMAGE.values(), ids=DAMAGE)
def test_rows_that_cannot_be_read_are_refused_with_the_reason(row: Row, reason: str):
    run = Kept(chain(1)).start()

    with pytest.raises(CodecError) as refused:
        restore(run.state.workflow, [*run.written, row])

    assert refused.value.message == f"the tables of the run cannot be read: {reason}"


def test_rows_of_another_workflow_are_refused():
    run = Kept(workflow(step("other", on_failure=handler()))).start().fail("other")

    with pytest.raises(CodecError) as refused:
        restore(chain(1), run.table.rows.values())

    assert refused.value.message == "the tables of the run cannot be read: unknown name 'other'"


def test_a_command_whose_parent_is_gone_is_refused():
    run = Kept(workflow(step("a", on_failure=handler()))).start().fail("a")
    del run.table.rows["places", "a"]

    with pytest.raises(CodecError) as refused:
        run.restored()

    assert refused.value.message == "the tables of the run cannot be read: unknown name 'a'"


def test_a_place_can_be_read_from_its_row_without_the_run_around_it() -> None:
    run = History(workflow(step("a", triage=Triage()))).start().fail("a", 42)
    run.state.begin()
    run.state.touch("a")
    (data,) = (data for kind, key, _, data in changes(run.state) if (kind, key) == ("places", "a"))
    assert data is not None

    place = read_place("a", data)

    assert (place.key, place.status, place.failure, place.climb) == ("a", "pending_failed", *_failed(run))


def _failed(run: History) -> tuple[Any, Any]:
    return run["a"].failure, run["a"].climb
