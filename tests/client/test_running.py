"""`mulligan.run`: what it accepts, what it returns, what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import mulligan
from mulligan import Workflow
from mulligan.errors import InputInvalid, KeyUsed, LanguageError, RunFailed, RunNotFinished

GREET = """
name: greet
inputs: {name: {enum: [Ada, Grace]}, times: {type: integer, default: 1}}
steps: [{step: say, shell: "echo hello ${inputs.name}"}]
outputs: {said: "${steps.say.output}", times: "${inputs.times}"}
"""


def failing() -> Workflow:
    """Fails until the file `mended` is there."""
    flow = Workflow("release")
    flow.step("build", shell="echo compiling; echo no rule >&2; test -e mended")
    flow.step("ship", needs=["build"], shell="echo shipped")
    return flow.outputs(said="${steps.ship.output}")


def asking() -> Workflow:
    flow = Workflow("asking").step("ask", approve={"message": "Ship it?"})
    return flow.step("ship", needs=["ask"], shell="echo shipped")


# -- what is run -----------------------------------------------------------------------------------------------------


def test_a_file_is_run_to_its_end_and_the_run_has_its_outputs(folder: Path):
    Path("greet.yaml").write_text(GREET)

    run = mulligan.run("greet.yaml", name="Ada", times=3)

    assert (run.status, run.outputs) == ("completed", {"said": "hello Ada", "times": 3})
    assert (run.id, run.workflow, run.inputs, run.failures) == (1, "greet", {"name": "Ada", "times": 3}, [])


def test_a_loaded_file_a_builder_a_checked_workflow_and_a_flow_are_run(folder: Path):
    Path("greet.yaml").write_text(GREET)
    built = Workflow("built").step("say", shell="echo hello").outputs(said="${steps.say.output}")

    class Flow:
        def __mulligan_workflow__(self) -> Workflow:
            return built

    loaded = mulligan.load(Path("greet.yaml"))
    runs = [mulligan.run(loaded, name="Ada"), *(mulligan.run(one) for one in (built, built.check(), Flow()))]

    assert [run.outputs["said"] for run in runs] == ["hello Ada", "hello", "hello", "hello"]
    assert (loaded.name, loaded.steps, list(loaded.inputs)) == ("greet", ("say",), ["name", "times"])
    assert repr(loaded) == "<WorkflowFile 'greet' from 'greet.yaml': 1 step>"


def test_the_file_of_another_system_is_loaded(folder: Path):
    Path("jobs.yaml").write_text("name: jobs\njobs:\n  - name: say\n    command: echo hello\n")

    run = mulligan.run(mulligan.load("jobs.yaml", format="torc"))

    assert run.status == "completed"


@pytest.mark.parametrize("thing", [3, object(), ["a.yaml"], None, {"steps": []}])
def test_something_that_is_no_workflow_is_refused(thing: Any):
    with pytest.raises(InputInvalid, match="a workflow is expected, not") as refused:
        mulligan.run(thing)

    assert "mulligan.load" in refused.value.hint
    assert refused.value.__notes__ == [refused.value.hint]


def test_a_file_with_a_mistake_is_refused_with_its_line(folder: Path):
    Path("bad.yaml").write_text("steps: [{step: a, shel: ls}]")

    with pytest.raises(LanguageError, match=r"bad\.yaml:1:"):
        mulligan.load("bad.yaml")


def test_a_file_that_is_missing_is_refused(folder: Path):
    with pytest.raises(LanguageError, match=r"none\.yaml"):
        mulligan.run("none.yaml")


def test_nothing_is_created_if_the_workflow_or_its_inputs_are_refused(folder: Path):
    with pytest.raises(InputInvalid):
        mulligan.run(Workflow("a").input("x").step("s", shell="ls"))

    assert not (folder / ".mulligan").exists()


# -- inputs and options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({}, "input 'name' is missing", "give it as a keyword: name=…"),
        ({"nmae": "Ada"}, "workflow 'greet' has no input 'nmae'", "did you mean 'name'?"),
        ({"name": "ada"}, "input 'name' is 'ada', 'Ada' or 'Grace' is expected", "did you mean 'Ada'?"),
        ({"name": "Ada", "times": "many"}, "input 'times' is 'many', a whole number such as 3 is expected", ""),
        ({"name": "Ada", "inputs": {"name": "Ada"}}, "input 'name' is given twice", "as a keyword or in inputs"),
        ({"name": "Ada", "parallel": 0}, "parallel must be a whole number, at least 1, not 0", "inputs={'parallel': …"),
        ({"name": "Ada", "gpus": True}, "gpus must be a whole number, at least 0, not True", "inputs={'gpus': …"),
        ({"name": "Ada", "memory": 0}, "memory must be a size, not 0", "'4GiB', or in bytes"),
        ({"name": "Ada", "memory": "lots"}, "'lots' is not a size", "write it like"),
        ({"name": "Ada", "key": 3}, "key must be a text, not 3", "inputs={'key': …}"),
        # Otherwise `key=os.environ.get("DAY", "")` would do the work twice.
        ({"name": "Ada", "key": ""}, "key is empty", "leave it out to start a run without a key"),
        ({"name": "Ada", "labels": ["a"]}, "labels must be a mapping, not ['a']", "labels={'name': 'value'}"),
        ({"inputs": 3}, "inputs must be a mapping, not 3", "inputs={'name': 'value'}"),
        ({"name": "Ada", "labels": {"year": 2026}}, "label 'year': 2026 is not a text", "labels are texts"),
        ({"name": "Ada", "show": "yes"}, "show must be True, False or None, not 'yes'", "inputs={'show': …}"),
        ({"name": "Ada", "wait": "soon"}, "'soon' is not a duration", "write it like 30s"),
    ],
)
def test_a_wrong_input_or_option_is_refused_with_what_to_write(given: dict[str, Any], message: str, hint: str):
    Path("greet.yaml").write_text(GREET)

    with pytest.raises(InputInvalid) as refused:
        mulligan.run("greet.yaml", **given)

    assert message in refused.value.message
    assert hint in refused.value.hint
    # A traceback shows the notes below the message.
    assert [refused.value.hint] * bool(refused.value.hint) == getattr(refused.value, "__notes__", [])


def test_a_run_remembers_the_capacity_that_it_was_started_with():
    flow = Workflow("train").step("fit", shell="test -e mended", resources={"gpus": 3, "memory": "2TiB"})
    with pytest.raises(InputInvalid, match="asks for"):
        mulligan.run(flow, memory="1TiB", gpus=3)

    run = mulligan.run(flow, memory="2TiB", gpus=3)
    assert run.status == "failed"
    Path("mended").touch()

    # Another program finds the run and continues it: this machine has no such capacity.
    assert mulligan.open().get(run.id).retry().status == "completed"


def test_inputs_with_the_names_of_options_go_into_inputs():
    flow = Workflow("w").input("key").input("home").input("flow").step("s", shell="true")
    flow = flow.outputs(all="${inputs.key} ${inputs.home} ${inputs.flow}")

    run = mulligan.run(flow, inputs={"key": "a", "home": "b"}, flow="c", key="once", home="runs")

    assert run.outputs == {"all": "a b c"}
    assert Path("runs").is_dir()


def test_inputs_may_be_what_python_has_for_them():
    @dataclass
    class Order:
        number: int
        day: date

    flow = Workflow("w").input("order", "object").input("folder").input("many", "array").step("s", shell="true")

    run = mulligan.run(flow, order=Order(7, date(2026, 11, 16)), folder=Path("data"), many=(1, 2))

    assert run.inputs == {"order": {"number": 7, "day": "2026-11-16"}, "folder": "data", "many": [1, 2]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "input 'x' is of type 'object', which cannot be stored; give JSON values, a dataclass"),
        ({"a": [print]}, "input 'x'['a'][0] is of type"),
        ([float("nan")], "input 'x'[0] is nan, which is not JSON"),
        (2**80, "input 'x' cannot be stored as JSON"),
        ("\ud800", "input 'x' cannot be stored as JSON"),
    ],
)
def test_an_input_that_is_no_value_is_refused_with_its_place(value: object, message: str):
    with pytest.raises(InputInvalid) as refused:
        mulligan.run(Workflow("w").input("x", "any").step("s", shell="true"), x=value)

    assert message in refused.value.message


def test_labels_and_the_name_of_the_user_are_recorded():
    run = mulligan.run(Workflow("w").step("s", shell="true"), labels={"team": "data"}, by="Ada")

    assert run.labels == {"team": "data"}
    assert next(run.events())["fact"]["by"] == "Ada"


def test_only_changed_steps_run_if_that_is_asked_for():
    Path("in").write_text("1")
    flow = Workflow("w").step("s", shell="cat in > out", reads="./in", writes="./out")
    first = mulligan.run(flow)

    again = mulligan.run(flow, changed_only=True)
    forced = mulligan.run(flow, changed_only=True, force=["s"])

    assert (again.steps["s"].up_to_date_since, forced.steps["s"].up_to_date_since) == (first.id, None)


# -- how it ends -----------------------------------------------------------------------------------------------------


def test_a_run_that_fails_raises_nothing_and_says_why():
    run = mulligan.run(failing())

    (failure,) = run.failures
    assert (run.status, failure.step, failure.code, failure.exit_code) == ("failed", "build", "EXIT_NONZERO", 1)
    assert (failure.message, failure.is_handled, failure.failure.retryable) == ("no rule", False, True)
    assert repr(run.failures) == "[<FailedVisit of 'build': EXIT_NONZERO 1: no rule>]"
    assert repr(run).startswith("<Run 1 of 'release': failed in ")
    assert repr(run).endswith(", 'build' failed with EXIT_NONZERO 1: no rule>")


def test_a_program_that_wants_an_exception_gets_one():
    with pytest.raises(RunFailed, match="run 1 failed: 'build' failed with EXIT_NONZERO 1: no rule") as failed:
        mulligan.run(failing(), check=True)

    run = mulligan.open().get(failed.value.run_id)
    assert (failed.value.status, run.status) == ("failed", "failed")
    with pytest.raises(mulligan.RunFailed):
        run.raise_for_status()


def test_a_run_that_completed_passes_its_check():
    run = mulligan.run(Workflow("w").step("s", shell="true"), check=True)

    assert run.raise_for_status() is run


def test_a_run_that_waits_for_a_person_is_returned_and_continues_with_the_answer():
    run = mulligan.run(asking())
    (asked,) = run.pending

    assert (run.status, asked.step, asked.kind, asked.message) == ("waiting", "ask", "approval", "Ship it?")
    assert repr(run).endswith("'ask' waits for an approval>")
    with pytest.raises(RunNotFinished, match="run 1 is waiting: 'ask' waits for an approval"):
        run.raise_for_status()

    run.approve("ask", "looks good")

    assert (run.status, run.pending, run.steps["ship"].output) == ("completed", [], "shipped")


def test_a_refused_approval_makes_the_step_fail():
    run = mulligan.run(asking()).refuse("ask", "not today")

    assert (run.status, run.failures[0].code) == ("failed", "APPROVAL_REFUSED")


def test_a_parked_step_is_classified_and_the_run_goes_on():
    flow = Workflow("w").step("s", shell="test -e mended", triage=True)
    run = mulligan.run(flow)
    assert (run.status, run.steps["s"].status) == ("waiting", "pending_failed")
    Path("mended").touch()

    run.classify("s", "retry", "mended now", memory="64MiB", timeout="1m")

    assert (run.status, len(run.steps["s"].attempts)) == ("completed", 2)


def test_the_same_key_gives_the_same_run():
    flow = Workflow("w").input("day").step("s", shell="echo ${inputs.day} >> days")
    first = mulligan.run(flow, key="nightly", day="monday")

    again = mulligan.run(flow, key="nightly", day="monday")

    assert (again, again.status, Path("days").read_text()) == (first, "completed", "monday\n")
    with pytest.raises(KeyUsed, match="the key 'nightly' was used for run 1 with other inputs: 'day'"):
        mulligan.run(flow, key="nightly", day="tuesday")


def test_a_run_with_a_key_that_nobody_drives_is_continued():
    with mulligan.open() as home:
        started = home.start(failing(), key="k")
    Path("mended").touch()

    run = mulligan.run(failing(), key="k")

    assert (run, run.status) == (started, "completed")


# -- another round, another run --------------------------------------------------------------------------------------


def test_a_failed_run_is_retried_here_and_returned():
    run = mulligan.run(failing())
    Path("mended").touch()

    again = run.retry(reason="mended")

    assert again is run
    assert (run.status, run.round, run.outputs, run.failures) == ("completed", 2, {"said": "shipped"}, [])
    assert [attempt.status for attempt in run.steps["build"].attempts] == ["failed", "succeeded"]


@pytest.mark.parametrize(("keep_completed", "visits"), [(False, 2), (True, 1)])
def test_a_retry_runs_what_depends_on_a_failed_step_unless_it_is_kept(keep_completed: bool, visits: int):
    flow = Workflow("w").step("a", shell="test -e mended")
    flow.step("b", needs=[{"step": "a", "on": "always"}], shell="true").step("c", shell="true")
    run = mulligan.run(flow)
    Path("mended").touch()

    forked = run.fork("c", keep_completed=keep_completed)
    run.retry(keep_completed=keep_completed)

    assert (run.status, run.steps["b"].visits) == ("completed", visits)
    assert (forked.status, forked.steps["b"].visits) == ("completed", visits - 1)


def test_a_retry_continues_the_child_runs_and_from_start_runs_them_anew():
    Path("inner.yaml").write_text(
        "name: inner\nsteps:\n  - {step: a, shell: echo a >> trace}\n"
        "  - {step: b, needs: [a], shell: echo b >> trace; test -e mended}\n"
    )
    Path("outer.yaml").write_text("name: outer\nsteps: [{step: call, workflow: inner.yaml}]\n")
    run = mulligan.run("outer.yaml")

    mulligan.open().get(2).retry()
    Path("mended").touch()
    run.retry(from_start=True)

    assert (run.status, run.round) == ("completed", 3)
    assert Path("trace").read_text().split() == ["a", "b", "b", "a", "b"]


def test_a_retry_may_correct_the_workflow():
    run = mulligan.run(failing())
    corrected = Workflow("release").step("build", shell="echo compiling").step("ship", needs=["build"], shell="echo on")

    run.retry(flow=corrected)

    assert (run.status, run.steps["ship"].output) == ("completed", "on")


@pytest.mark.parametrize(
    ("step", "items", "message"),
    [
        ("", (), "items are those of a map step, and no step is named"),
        ("check", "check", "items must be numbers, not 'check'"),
    ],
)
def test_a_retry_of_items_needs_their_step_and_their_numbers(step: str, items: Any, message: str):
    flow = mulligan.Workflow("w").step("check", map={"over": [1, 2]}, do=["test ${item} != 2"])
    run = mulligan.run(flow)

    with pytest.raises(InputInvalid) as refused:
        run.retry(step, items=items)

    assert refused.value.message == message
    assert "items=" in refused.value.hint


def test_a_failed_attempt_and_a_failed_item_show_why():
    flow = mulligan.Workflow("w").step("check", map={"over": [1]}, do=["exit 3"])
    run = mulligan.run(flow)

    (item,) = run.steps["check"].items
    assert repr(item) == "<Item 0 of 'check': failed with EXIT_NONZERO>"
    assert repr(item.attempts[0]).startswith("<Attempt 1 at 'check[0].0': failed with EXIT_NONZERO in ")


def test_a_retry_may_be_left_to_workers():
    run = mulligan.run(failing())
    Path("mended").touch()

    run.retry(drive=False)

    assert (run.status, run.is_driven) == ("running", False)
    assert run.resume().status == "completed"


def test_a_fork_keeps_results_and_takes_other_inputs():
    flow = Workflow("w").input("n", "integer", default=1)
    flow.step("first", shell="echo one >> log; echo 1").step("second", needs=["first"], shell="echo ${inputs.n}")
    run = mulligan.run(flow)

    fork = run.fork("second", inputs={"n": 7})

    assert (fork.id, fork.status, fork.steps["second"].output) == (2, "completed", "7")
    assert (Path("log").read_text(), run.steps["second"].output) == ("one\n", "1")


def test_a_fork_goes_on_from_an_event():
    flow = Workflow("w")
    flow.step("first", shell="echo one >> log").step("second", needs=["first"], shell="test -e there")
    run = mulligan.run(flow, show=False)
    facts = {event["seq"]: (event["fact"]["type"], event["fact"].get("place")) for event in run.events()}
    started = next(seq for seq, fact in facts.items() if fact == ("attempt.started", "second"))
    Path("there").touch()

    fork = run.fork(at=started, reason="it is there now")

    assert (run.status, fork.status, Path("log").read_text()) == ("failed", "completed", "one\n")
    for wrong in ({}, {"at": started, "from_step": "first"}, {"at": started, "keep_completed": True}, {"reason": "x"}):
        with pytest.raises(mulligan.errors.InputInvalid):
            run.fork(**wrong)


def test_what_cannot_be_done_is_refused_with_what_to_do():
    run = mulligan.run(Workflow("w").step("build", shell="true"))

    with pytest.raises(mulligan.errors.NothingToRetry):
        run.retry()
    with pytest.raises(mulligan.errors.UnknownStep) as refused:
        run.retry("biuld")
    with pytest.raises(mulligan.errors.RunFinished):
        run.resume()

    assert refused.value.__notes__ == ["did you mean 'build'?"]
