"""By what a step is known to later runs: what it reads, what the steps before it did, its definition, its artifacts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mulligan.core.deciding.agents.agent_context import AgentContext, PriorOutput
from mulligan.core.deciding.report_checks import check_report
from mulligan.core.effects.fingerprints import differences, fingerprint, parts_of
from mulligan.core.effects.reuse import Reuse, contents_of, forced_child_steps, reuse_of
from mulligan.core.effects.tasks import make_task
from mulligan.core.model import reports as r
from mulligan.core.model.artifacts import Artifact, make_reference
from mulligan.core.model.file_records import FileRecord, StaleFile, last_writers, stale_files
from mulligan.core.model.workflow import Action, Command, Map, Need
from mulligan.testing.history import T0, History, command, expression, handler, retry, step, workflow


def started(*steps: Any, uid: str = "u1", **fields: Any) -> History:
    return History(workflow(*steps)).start(changed_only=True, uid=uid, **fields)


def about(run: History, place: str = "b") -> Reuse:
    found = reuse_of(run.state, run[place])
    assert found is not None
    return found


def ended(run: History, place: str = "a", tag: str = "", **fields: Any) -> History:
    return run.report(r.TaskEnded(run.clock, place, run[place].attempt, fingerprint=tag, **fields))


# -- what the steps before it did ------------------------------------------------------------------------------------


def after(first: dict[str, Any] | None = None, uid: str = "u1", **end: Any) -> dict[str, str]:
    """What `b` knows of `a`, which ended so."""
    run = started(step("a", **(first or {})), step("b", needs=["a"]), uid=uid)
    return about(ended(run, **end)).after


def test_a_step_that_declares_nothing_is_known_by_what_the_steps_directly_before_it_did():
    run = started(step("z"), step("a", needs=["z"]), step("c"), step("b", needs=["c", "a"]))
    for name in ("z", "a", "c"):
        ended(run, name, f"tag of {name}")

    assert about(run).after == {"a": "tag of a", "c": "tag of c"}
    assert about(run).looks


@pytest.mark.parametrize("declared", [{"reads": ("f.txt",)}, {"cache": True}])
def test_a_step_that_declares_what_it_reads_is_not_known_by_the_steps_before_it(declared: dict[str, Any]):
    run = ended(started(step("a"), step("b", needs=["a"], **declared)))

    assert about(run).after == {}


def test_work_without_a_fingerprint_is_known_only_in_its_own_run():
    assert after() == {"a": "completed in u1"}
    assert after(uid="u2") == {"a": "completed in u2"}


def test_a_recovered_step_is_not_known_by_the_fingerprint_of_its_failed_work():
    recovered = {"on_failure": handler("true", strategy="fallback")}
    run = started(step("a", **recovered), step("b", needs=["a"])).fail("a").ok("a.on_failure@1.0")
    run.state.places["a"].fingerprint = "tag"

    assert about(run).after == {"a": "completed in u1"}


def test_a_skipped_step_did_nothing_in_every_run_and_a_failed_one_something_unknown():
    steps = step("a", when="go"), step("b", needs=[Need("a", on="always")])
    skipped, failed = (History(workflow(*steps), {"go": go}).start(changed_only=True, uid="u1") for go in (False, True))
    failed.fail("a")

    assert about(skipped).after == {"a": "skipped"}
    assert about(failed).after == {"a": "failed in u1"}


def test_a_step_that_waits_has_done_nothing_in_every_run():
    steps = step("a", next=["b"]), step("b", join="first"), step("z"), step("c", needs=["z"], next=["b"])

    run = ended(started(*steps), tag="tag")

    assert about(run).after == {"a": "tag", "c": "waiting"}


@pytest.mark.parametrize("writes", [(), ("f",)])
def test_work_that_was_not_accepted_is_known_only_in_its_own_run(writes: tuple[str, ...]):
    steps = step("a", writes=writes, validator=command("false")), step("b", needs=[Need("a", on="always")])
    files = tuple(FileRecord(name, name, "1") for name in writes)

    run = ended(started(*steps), tag="tag", files=files).fail("a.validator@1")

    assert about(run).after == {"a": "failed in u1"}


@pytest.mark.parametrize("kind", ["wait", "approve"])
def test_a_wait_or_an_approval_is_the_same_in_every_run(kind: str):
    run = started(step("a", action=Action(kind, {"seconds": 0})), step("b", needs=["a"]))
    run.approve("a") if kind == "approve" else run.wait(1)

    assert about(run).after == {"a": kind}


def test_an_approval_that_was_refused_is_known_only_in_its_own_run():
    asked = step("a", action=Action("approve", {})), step("b", needs=[Need("a", on="always")])

    assert about(started(*asked).approve("a", False)).after == {"a": "failed in u1"}


def test_what_wrote_its_files_is_known_by_their_contents_and_its_output():
    writes = {"writes": ("f", "g")}
    files = (FileRecord("f", "f", "1"), FileRecord("g", "g", "2"))
    changed = (FileRecord("f", "f", "1"), FileRecord("g", "g", "3"))

    first = after(writes, tag="one", output=7, files=files)

    assert first == after(writes, uid="u2", tag="another", output=7, files=files)
    assert first != after(writes, tag="one", output=8, files=files)
    assert first != after(writes, tag="one", output=7, files=changed)
    # Without a record of each file its fingerprint is all that is known.
    assert after(writes, tag="one", output=7, files=files[:1]) == {"a": "one"}


def test_a_map_is_known_by_its_items_if_all_of_them_are_known():
    def mapped(*tags: str, forgets: str = "") -> dict[str, str]:
        items = step("a", map=Map(over=expression("items")), do=(command("true"),))
        run = History(workflow(items, step("b", needs=["a"])), {"items": [*range(len(tags))]})
        run.start(changed_only=True, uid="u1")
        for index, tag in enumerate(tags):
            ended(run, f"a[{index}].0", tag)
        run.state.places.pop(forgets, None)
        return about(run).after

    assert mapped("x", "y", forgets="a[1]") == {"a": "completed in u1"}
    assert mapped("x", "y") == mapped("x", "y") != mapped("y", "x")
    assert mapped("x", "") == {"a": "completed in u1"}
    assert mapped() == {"a": "completed in u1"}


def test_a_map_that_was_not_accepted_is_known_only_in_its_own_run():
    items = step("a", map=Map(over=expression("items")), do=(command("true"),), validator=command("false"))
    run = History(workflow(items, step("b", needs=[Need("a", on="always")])), {"items": [1]})
    run.start(changed_only=True, uid="u1")

    ended(run, "a[0].0", "tag").fail("a.validator@1")

    assert about(run).after == {"a": "failed in u1"}


def test_the_data_of_the_run_counts_for_every_step():
    run = ended(started(step("a"), step("b", needs=["a"], cache=True)), data={"rows": 3})
    other = ended(started(step("a"), step("b", needs=["a"], cache=True)), data={"rows": 4})

    assert set(about(run).after) == {"run.data"}
    assert about(run).after != about(other).after


# -- what it reads, its key, its definition --------------------------------------------------------------------------


def test_the_files_that_a_step_reads_are_known_by_their_paths():
    run = History(workflow(step("a", reads=("mesh", "f.txt"), cache=True), files={"mesh": "out/mesh"})).start()
    run.state.places["a"].paths["file.f.txt"] = "day/f.txt"

    assert about(run, "a").reads == {"mesh": "out/mesh", "f.txt": "day/f.txt"}


def test_what_can_be_undone_is_another_definition_and_says_so():
    plain, undoable = (started(step("a", **fields)) for fields in ({}, {"undo": command("true")}))

    assert (about(plain, "a").has_undo, about(undoable, "a").has_undo) == (False, True)
    assert about(plain, "a").definition != about(undoable, "a").definition


@pytest.mark.parametrize(
    "fields",
    [
        {"action": Action("shell", {"text": "false"})},
        {"capture": "json"},
        {"validate": expression("yes")},
        {"validator": command("test -e x")},
        {"on_success": (command("touch x"),)},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_decides_about_a_result_is_part_of_the_definition(fields: dict[str, Any]):
    plain, other = started(step("a")), started(step("a", **fields))

    assert about(plain, "a").definition != about(other, "a").definition


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"do": (command("true"),)}, True),
        ({"do": (command("true"), command("false"))}, False),
        ({"do": (Command(action=Action("shell", {"text": "x"}), when=expression("yes")),)}, False),
        ({"do": (command("true"),), "writes": ("f",)}, False),
        ({"do": (command("true"),), "undo": command("true")}, False),
    ],
)
def test_items_are_reused_one_by_one_if_an_item_is_one_command(fields: dict[str, Any], expected: bool):
    run = History(workflow(step("m", map=Map(over=expression("items")), **fields)), {"items": [1], "yes": True})
    run.start(changed_only=True)

    assert (reuse_of(run.state, run["m[0].0"]) is not None) == expected


def items_of(do: Command, **fields: Any) -> History:
    mapped = step("m", map=Map(over=expression("items")), needs=["a"], do=(do,), **fields)
    return ended(History(workflow(step("a"), mapped), {"items": [1]}).start(uid="u1"))


@pytest.mark.parametrize(
    ("do", "fields"),
    [({}, {"reads": ("f",)}), ({"reads": ("f",)}, {}), ({"writes": ("f",)}, {})],
    ids=["the map reads", "the item reads", "the item writes"],
)
def test_an_item_with_files_is_recorded_for_later_runs_and_not_looked_for(do: dict[str, Any], fields: dict[str, Any]):
    assert reuse_of(items_of(command()).state, items_of(command())["m[0].0"]) is None
    assert not about(items_of(command(**do), **fields), "m[0].0").looks


def test_an_item_is_known_by_the_files_that_it_and_its_map_read_and_not_by_the_steps_before_it():
    by_both = about(items_of(command(reads=("f",)), reads=("g",)), "m[0].0")
    by_map, by_item = (
        about(items_of(command(reads=do), reads=reads), "m[0].0") for do, reads in (((), ("g",)), (("f",), ()))
    )

    assert by_both.reads == {"f": "f", "g": "g"}
    assert by_both.after == by_map.after == by_item.after == {}
    assert about(items_of(command(writes=("f",))), "m[0].0").after == {"a": "completed in u1"}


def test_the_handler_of_an_item_looks_for_nothing():
    do = command(on_failure=handler("clean", strategy="fallback"))
    run = History(workflow(step("m", map=Map(over=expression("items")), do=(do,))), {"items": [1]})
    run.start(changed_only=True).fail("m[0].0")

    (place,) = run.queued
    assert "on_failure" in place
    assert reuse_of(run.state, run[place]) is None


def test_a_later_visit_looks_for_nothing():
    run = started(step("a", cache=True)).fail("a").retry()

    assert (run["a"].visit, about(run, "a").looks) == (2, False)


# -- child runs ------------------------------------------------------------------------------------------------------


def test_a_child_run_of_a_forced_step_reuses_nothing_and_neither_does_a_group_that_is_tried_again():
    child = workflow(step("x"), step("fit[1]", sweep="fit"), step("fit[2]", sweep="fit"))
    plain = step("c", action=Action("workflow", {"file": "child.yaml"}), rules=retry(1))
    group = step("c", action=Action("workflow", {"file": "child.yaml", "group": True}), rules=retry(1))

    def forced(call: Any, tries: int = 0, visit: int = 1, **fields: Any) -> tuple[str, ...]:
        run = started(call, **fields)
        run.state.places["c"].visit = visit
        run.state.places["c"].climb = replace(run["c"].climb, tries=tries)
        return forced_child_steps(run.state, run["c"], child)

    assert forced(plain) == forced(group) == forced(plain, tries=1) == ()
    assert forced(plain, forced=("c",)) == forced(group, tries=1) == forced(group, visit=2) == ("x", "fit")


# -- artifacts -------------------------------------------------------------------------------------------------------


def reference(name: str = "1/a/output", sha256: str = "s", **fields: Any) -> dict[str, Any]:
    return make_reference(Artifact(name, 9, sha256, **fields))


def test_an_artifact_counts_by_its_content_its_format_and_its_type():
    known = [
        contents_of({"x": [one]})
        for one in (
            reference(),
            reference(sha256="t"),
            reference(format="text"),
            reference(format="parquet"),
            reference(format="parquet", type="pandas.DataFrame"),
        )
    ]

    assert contents_of({"x": [reference("2/b/output")]}) == known[0]
    assert all(one not in known[:index] for index, one in enumerate(known))
    assert contents_of({"x": 1}) == {"x": 1}


def test_a_fingerprint_counts_the_content_of_an_artifact_and_not_its_name():
    task = make_task(started(step("a")).state, "a")
    one, same, other = (
        replace(task, params={"stdin": reference(name, sha256)})
        for name, sha256 in (("1/a/o", "s"), ("2/a/o", "s"), ("1/a/o", "t"))
    )

    assert fingerprint(one, {}) == fingerprint(same, {}) != fingerprint(other, {})


@pytest.mark.parametrize(
    "field", ["params", "env", "cwd", "late", "bound", "workflow", "step", "home", "kind", "reuse.key", "reuse.after"]
)
def test_everything_that_goes_into_a_task_is_part_of_its_fingerprint(field: str):
    task = make_task(started(step("a")).state, "a")
    assert task.reuse is not None
    whose, _, name = field.rpartition(".")
    value = {"x": "y"} if isinstance(getattr(task.reuse if whose else task, name), dict) else "other"
    changed = replace(task, reuse=replace(task.reuse, **{name: value})) if whose else replace(task, **{name: value})

    assert fingerprint(task, {}) != fingerprint(changed, {})


@pytest.mark.parametrize("has_code", [True, False])
def test_the_text_of_a_pinned_script_is_no_part_of_a_fingerprint_that_has_its_code(has_code: bool):
    actions = [Action("python", {"call": "sales:load", "source": text}) for text in ("one", "two")]
    steps = [step("a", action=one, cache=True, cache_code=has_code) for one in actions]

    first, second = (fingerprint(make_task(started(one).state, "a"), {}, "same" if has_code else "") for one in steps)

    assert (first == second) == has_code


@pytest.mark.parametrize(
    ("changed", "code", "told"),
    [
        ({"params": {"args": {"n": 2, "m": 1}}}, {}, ["the argument 'n'"]),
        ({"params": {"args": {"m": 1}}}, {}, ["the argument 'n' (gone)"]),
        ({"params": {"args": {"n": 1, "m": 1}, "code": "x"}}, {}, ["its values"]),
        ({"env": {"DAY": "2"}}, {}, ["the variable 'DAY'"]),
        ({}, {"sales.py: load": "b"}, ["the code of sales.py: load"]),
        ({}, {"sales.py: load": "a", "sales.py: f": "a"}, ["the code of sales.py: f (new)"]),
        ({}, {"sales.py: load": "a"}, []),
    ],
)
def test_what_differs_between_two_results_has_a_name(changed: dict[str, Any], code: dict[str, str], told: list[str]):
    task = replace(make_task(started(step("a")).state, "a"), params={"args": {"n": 1, "m": 1}}, env={"DAY": "1"})
    before = parts_of(task, {"mesh": "1"}, {"sales.py: load": "a"})

    now = parts_of(replace(task, **changed), {"mesh": "1"}, code or {"sales.py: load": "a"})

    assert differences(now, before) == told
    assert differences(parts_of(task, {"mesh": "2"}, {"sales.py: load": "a"}), before) == ["the file 'mesh'"]


@pytest.mark.parametrize("files", [2, 5000])
def test_a_result_of_much_code_is_known_by_a_few_hashes_that_say_where_it_differs(files: int):
    task = make_task(started(step("a")).state, "a")
    code = {f"{'x' * 400}{n % files}.py: f{n}": "a" for n in range(10_000)}
    before, now = parts_of(task, {}, code), parts_of(task, {}, {**code, f"{'x' * 400}0.py: f0": "b"})

    assert differences(now, before) != []
    for made_of in (before, now):
        check_report(r.TaskEnded(T0, "a", 1, made_of=made_of))


def test_what_an_agent_is_told_of_earlier_steps_is_part_of_its_fingerprint():
    task = make_task(started(step("a")).state, "a")
    told = [AgentContext("a", outputs=(PriorOutput("z", 1, 1, 1, 2, T0, one),)) for one in ("x", "y")]

    assert len({fingerprint(replace(task, agent_context=one), {}) for one in (None, *told)}) == 3


def test_the_order_in_which_values_and_files_are_named_is_no_part_of_a_fingerprint():
    task = make_task(started(step("a")).state, "a")
    one, other = (
        fingerprint(replace(task, env=dict.fromkeys(names, "x")), dict.fromkeys(names, "0")) for names in ("ab", "ba")
    )

    assert one == other


def test_the_fingerprint_of_a_task_is_the_same_in_later_versions():
    """Results of earlier runs are found by it: a new version of ours must not lose them."""
    task = make_task(started(step("a")).state, "a")

    assert fingerprint(task, {"f": "0" * 64}) == "975cb1f7aef4cc81791e2317d36c69ea"
    read = replace(task, params={"stdin": reference(sha256="0" * 64)})
    assert fingerprint(read, {}) == "ca012411ffee81fbec1c331ee97c65d5"


# -- files -----------------------------------------------------------------------------------------------------------


def test_the_later_of_two_writers_counts_in_whichever_order_they_come():
    one, other = FileRecord("x", "f", "1"), FileRecord("y", "f", "2")

    assert [*last_writers([(3, "a", one), (7, "b", other)])] == [("b", other)]
    assert [*last_writers([(3, "a", one), (3, "b", other)])] == [("a", one)]


def test_a_stale_file_says_what_became_of_it():
    assert StaleFile("a", "f", "gone").text == "f is gone"
    assert StaleFile("a", "f", "changed").text == "f has changed"


def test_only_files_with_a_problem_are_stale():
    written = [("a", FileRecord("x", "f")), ("b", FileRecord("y", "g"))]

    assert stale_files(written, lambda record: "gone" if record.path == "f" else None) == (StaleFile("a", "f", "gone"),)


def test_a_record_leaves_out_what_it_does_not_know():
    assert msgspec.json.encode(FileRecord("x", "f")) == b'{"name":"x","path":"f"}'
    assert msgspec.json.encode(Reuse("d")) == b'{"definition":"d"}'


def test_what_a_stored_task_does_not_say_of_its_reuse_is_nothing():
    found = msgspec.json.decode(b'{"definition":"d"}', type=Reuse)

    assert (found.looks, found.reads, found.key, found.has_undo, found.after) == (False, {}, None, False, {})
