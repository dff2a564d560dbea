"""Rows of a turn: only those that changed, their tags, and the order of restoring."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.core.effects.snapshot import Row, _reader, changes, read_place, read_tally, restore, restore_brief
from mulligan.core.model import reports as r
from mulligan.core.model.workflow import Action, Backoff, Map, Workflow
from mulligan.core.state.state import ITEM, NOTHING_TRIED, Place, Run, State, Tally, UndoableVisit
from mulligan.core.turn import turn
from mulligan.errors import CodecError
from mulligan.testing.history import T0, History, command, edge, expression, handler, retry, step, workflow

LARGE = ("inputs", "outputs", "loops", "loops_taken", "held", "unstarted", "adjustments")


def rows_of(run: History, report: r.Report) -> list[Row]:
    """What a report's turn writes."""
    turn(run.state, report, run.evaluator)
    found = changes(run.state)
    run.state.commit()
    return found


def everything(run: History) -> list[Row]:
    """All places of a run as rows, and its own."""
    run.state.begin()
    for key in run.state.places:
        run.state.touch(key)
    found = changes(run.state)
    run.state.commit()
    return found


def large(rows: list[Row]) -> list[str]:
    return [kind for kind, *_ in rows if kind in LARGE]


def many_items(count: int) -> History:
    items = step("m", map=Map(over=expression("list")), do=(command("one", on_failure=handler()),))
    return History(workflow(items), {"list": list(range(count))}).start()


# -- what is written -------------------------------------------------------------------------------------------------


def test_of_what_is_large_a_turn_writes_what_it_has_changed_and_nothing_else() -> None:
    back = edge("a", when="more", backoff=Backoff(delay=60))
    flow = workflow(step("a", next=[back]), step("b"))
    run = History(flow, {"more": True})

    first = rows_of(run, r.RunRequested(T0, run_id=1, inputs={"x": 1}))
    looped = rows_of(run, r.TaskEnded(T0, "a", 1))
    other = rows_of(run, r.TaskEnded(T0, "b", 1))

    assert (large(first), large(looped), large(other)) == (["inputs"], ["loops", "loops_taken"], [])


def test_only_what_waits_for_a_person_is_marked() -> None:
    asking = step("ask", action=Action("approve", {"message": "?"}))
    waiting = step("w", action=Action("wait", {"seconds": 9}))
    run = History(workflow(step("a"), asking, waiting)).start().started("a")

    marked = {key: tag for kind, key, tag, _ in everything(run) if kind == "places"}

    assert marked == {"a": "", "ask": "approval", "w": "", "end": ""}


def test_what_was_asked_to_end_asks_nobody_any_more() -> None:
    asking = step("ask", action=Action("approve", {"message": "?"}))
    run = History(workflow(asking)).start()
    run["ask"].phase = "stopping"

    assert [tag for kind, key, tag, _ in everything(run) if key == "ask"] == [""]


def test_lists_tables_and_items_are_marked_with_nothing() -> None:
    state = State(workflow(step("a")))
    state.begin()

    state.append(state.undoables, UndoableVisit("a", 1))
    state.put(state.arcs, "a#0", "taken")
    state.put(state.tallies, "a:retry:0", Tally(tried=1))

    assert sorted(row[:3] for row in changes(state)) == [
        ("arcs", "a#0", ""),
        ("run", "", ""),
        ("tallies", "a:retry:0", ""),
        ("undoables", "0", ""),
    ]
    run = History(workflow(step("m", map=Map(over=expression("list")), do=(command(),))), {"list": [1]})
    rows = rows_of(run, r.RunRequested(T0, run_id=1))
    assert [row[:3] for row in rows if row[0] == "items"] == [("items", "m", "")]


# -- what comes back -------------------------------------------------------------------------------------------------


def test_steps_come_back_in_file_order_then_items_then_commands_as_they_were_entered() -> None:
    run = many_items(12)
    # The text of a key says nothing of the order: neither 10 and 2 nor what was entered last.
    run.fail("m[11].0").fail("m[2].0")
    rows = [*everything(run), *items_rows(run)]

    back = restore(run.state.workflow, [*reversed(rows), *items_rows(run)])

    commands = [f"m[{index}].0" for index in range(12)]
    assert list(back.places) == [
        *("m", "end"),
        *(f"m[{index}]" for index in range(12)),
        *commands,
        *("m[11].0.on_failure@1.0", "m[2].0.on_failure@1.0"),
    ]


def items_rows(run: History) -> list[Row]:
    found = run["m"].items
    assert found is not None
    return [("items", "m", "", msgspec.msgpack.encode((found.values, found.todo)))]


def test_steps_come_back_in_the_order_of_the_file_whoever_was_entered_first() -> None:
    run = History(workflow(step("b", needs=["a"]), step("a"), step("c"))).start().ok("c", "a")

    back = restore(run.state.workflow, everything(run))

    assert list(back.places) == ["b", "a", "c", "end"]


def test_places_that_never_failed_share_what_they_know_of_failures() -> None:
    run = History(workflow(step("a"), step("b", rules=retry(1)))).start().fail("b")

    back = restore(run.state.workflow, everything(run))

    assert back.places["a"].climb is NOTHING_TRIED
    assert back.places["b"].climb == run["b"].climb


@pytest.mark.parametrize("kind", ["run", "places"])
def test_rows_of_an_older_release_get_the_defaults_of_what_it_did_not_know(kind: str) -> None:
    """All that has a default may be missing: lists and tables are made anew for each."""
    run = History(workflow(step("a"))).start()
    row = next(row for row in everything(run) if row[:2] in (("run", ""), ("places", "a")) and row[0] == kind)
    values = msgspec.msgpack.decode(row[3] or b"")
    shortest = next(n for n in range(len(values)) if _reads(run.state.workflow, row, values[:n]))

    back = restore(run.state.workflow, [shortened(row, values[:shortest])])

    assert shortest < len(values)
    assert back.places.keys() == ({"a"} if kind == "places" else set())
    found = back.places["a"] if kind == "places" else back.run
    fresh = Place("step", "ready", key="a", spec=found.spec) if isinstance(found, Place) else Run()
    had = {"key", "spec", *[name for name in fresh.__struct_fields__ if name not in ("key", "spec")][:shortest]}
    others = [name for name in fresh.__struct_fields__ if name not in had | set(LARGE)]
    assert others
    assert [getattr(found, name) for name in others] == [getattr(fresh, name) for name in others]


def shortened(row: Row, values: list[Any]) -> Row:
    return row[0], row[1], row[2], msgspec.msgpack.encode(values)


def _reads(flow: Workflow, row: Row, values: list[Any]) -> bool:
    try:
        restore(flow, [shortened(row, values)])
    except CodecError:
        return False
    return True


def test_a_row_that_went_is_not_there_whatever_it_held_before() -> None:
    taken = msgspec.msgpack.encode("taken")

    back = restore(
        workflow(step("a")), [("arcs", "a#0", "", taken), ("arcs", "a#1", "", taken), ("arcs", "a#0", "", None)]
    )

    assert back.arcs == {"a#1": "taken"}


# -- rows alone ------------------------------------------------------------------------------------------------------


def test_a_map_can_be_read_from_its_row_without_its_items() -> None:
    run = many_items(2)
    data = next(data for kind, key, _, data in everything(run) if (kind, key) == ("places", "m"))

    place = read_place("m", data or b"")

    assert (place.key, place.role, place.status, place.items) == ("m", "step", "running", None)


def test_a_tally_can_be_read_from_its_row() -> None:
    state = State(workflow(step("a")))
    state.begin()
    state.put(state.tallies, "a:retry:0", Tally(3, 2, 2, 1.5))

    assert read_tally(changes(state)[1][3] or b"") == Tally(3, 2, 2, 1.5)


@pytest.mark.parametrize(
    ("read", "data", "reason"),
    [
        (
            lambda data: read_place("a", data),
            b"\xc1",
            "MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)",
        ),
        (read_tally, b"\x01", "Expected `object`, got `int`"),
    ],
    ids=["bytes", "type"],
)
def test_a_row_alone_that_cannot_be_read_is_refused_with_the_reason(read: Any, data: bytes, reason: str) -> None:
    with pytest.raises(CodecError) as refused:
        read(data)

    assert refused.value.message == f"a row of the tables cannot be read: {reason}"


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    run = History(workflow(step("a"))).start()

    with pytest.raises(CodecError) as refused:
        restore(run.state.workflow, [("inputs", "", "", b"\x81\xa1x" + deep)])

    assert refused.value.message == "the tables of the run cannot be read: a value is nested too deep"


def test_each_value_that_is_not_there_is_read_as_its_default() -> None:
    # Made anew: the reader that other tests have used is kept.
    read = _reader.__wrapped__("places")
    fresh = Place("step", "ready", key="a", spec=ITEM)

    found = read(msgspec.msgpack.encode(["step", "ready"]))

    found.key = "a"
    assert found == fresh


def test_a_state_in_brief_has_all_but_the_items_that_have_ended() -> None:
    run = many_items(3).ok("m[1].0")
    rows = [*everything(run), *items_rows(run)]

    state, ended = restore_brief(run.state.workflow, rows)

    assert {key: status for key, (status, _) in ended.items()} == {"m[1]": "completed"}
    assert read_place("m[1]", ended["m[1]"][1]).status == "completed"
    assert state.places == {key: place for key, place in run.state.places.items() if key != "m[1]"}


def test_a_state_in_brief_decodes_a_step_only_if_it_is_asked_for() -> None:
    items = step("m", map=Map(over=expression("list")), do=(command("one", on_failure=handler()),))
    run = History(workflow(items, step("a")), {"list": [1, 2]}).start()
    damaged: Row = ("places", "a", "", msgspec.msgpack.encode(["step", "ready", 5]))

    state, _ = restore_brief(run.state.workflow, [*everything(run), *items_rows(run), damaged])

    assert state.status_of("a") == "ready" and "a" in state.places
    assert sorted(state.statuses()) == sorted(place.status for place in run.state.places.values())
    assert {place.key for place in state.others()} == {place.key for place in run.state.others()}
    assert state.places["m"] == run["m"] and state.places.get("no such step") is None
    with pytest.raises(CodecError, match="cannot be read"):
        state.places.get("a")
