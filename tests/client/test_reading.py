"""A run as a program reads it: steps, attempts, items, logs, the story, the report."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.support.commands import mulligan as command_line

import mulligan
from mulligan import Workflow
from mulligan.errors import MulliganError, UnknownStep


def flaky() -> Workflow:
    """Its first attempt fails, a handler repairs it, the second succeeds."""
    flow = Workflow("flaky")
    flow.step(
        "build",
        shell="echo out $MULLIGAN_ATTEMPT; echo err >&2; test -e mended",
        on_failure={"commands": ["touch mended"], "strategy": "recovery"},
        retry=1,
    )
    return flow


def mapped() -> Workflow:
    flow = Workflow("mapped")
    flow.step("list", shell="echo '[1, 2, 3]'", capture="json")
    flow.step(
        "check",
        needs=["list"],
        map={"over": "${steps.list.output}", "on_item_failure": "collect"},
        do=["echo item ${item}; test ${item} -ne 2"],
    )
    return flow


def test_the_attempts_of_a_step_have_what_they_wrote():
    flow = Workflow("w").step("build", shell="echo compiling; echo no rule >&2; exit 2", retry=1)

    run = mulligan.run(flow)
    first, second = run.steps["build"].attempts

    assert (first.number, first.status, first.stdout, first.stderr) == (1, "failed", "compiling\n", "no rule\n")
    assert (second.number, second.place, second.round, second.stderr) == (2, "build", 1, "no rule\n")
    assert first.failure is not None
    assert (first.failure.code, first.failure.exit_code, first.failure.message) == ("EXIT_NONZERO", 2, "no rule")
    assert first.started_at is not None and first.ended_at is not None and first.seconds is not None
    assert first.started_at <= first.ended_at
    assert repr(first).startswith("<Attempt 1 at 'build': failed with EXIT_NONZERO in ")


def test_a_step_has_its_status_its_output_and_what_recovered_it():
    run = mulligan.run(
        Workflow("w")
        .step("a", shell="echo '{\"n\": 3}'", capture="json")
        .step("b", shell="exit 3", on_failure={"commands": ["echo instead"], "strategy": "recovery"})
        .step("c", shell="true", when="steps.a.output.n > 5", needs=["a"])
        .end(shell="echo over")
    )
    a, b, c = (run.steps[name] for name in ("a", "b", "c"))

    assert (a.status, a.output, a.failure, a.visits) == ("completed", {"n": 3}, None, 1)
    assert (b.status, b.recovered_by, [one.status for one in b.handler_attempts]) == (
        "completed",
        "recovery",
        ["succeeded"],
    )
    assert b.failure is not None and b.failure.exit_code == 3
    assert (c.status, c.output, c.attempts) == ("skipped", None, [])
    assert (run.status, run.is_degraded) == ("completed", True)
    assert run.end is not None and run.end.status == "completed"
    assert repr(run.steps) == "<3 steps of run 1: a completed, b completed, c skipped>"


def test_the_items_of_a_map_step_are_read_one_by_one():
    run = mulligan.run(mapped())
    step = run.steps["check"]
    first, second, _ = step.items

    assert [(one.index, one.value, one.status) for one in step.items] == [
        (0, 1, "completed"),
        (1, 2, "failed"),
        (2, 3, "completed"),
    ]
    assert (first.output, first.attempts[0].stdout, first.failure) == ("item 1", "item 1\n", None)
    assert second.failure is not None and second.failure.exit_code == 1
    assert run.steps["list"].items == ()


def test_only_some_items_are_retried():
    run = mulligan.run(mapped())

    run.retry("check", items=(), drive=False)

    assert run.resume().round == 2
    assert [len(one.attempts) for one in run.steps["check"].items] == [1, 2, 1]


def test_a_step_that_is_not_there_is_refused_with_the_one_that_was_meant():
    flow = Workflow("w").step("build", shell="true")
    flow.step("sim_{n}", matrix={"n": [1, 2]}, shell="echo ${matrix.n}")
    run = mulligan.run(flow)

    with pytest.raises(KeyError) as unknown:
        run.steps["biuld"]
    with pytest.raises(KeyError) as matrix:
        run.steps["sim"]

    assert isinstance(unknown.value, UnknownStep)
    assert str(unknown.value) == "run 1 has no step 'biuld'; did you mean 'build'?"
    assert str(matrix.value) == "'sim' is a matrix of 2 steps; run.steps.matrix('sim') has them; one is 'sim_1'"
    assert [step.output for step in run.steps.matrix("sim")] == ["1", "2"]
    assert run.steps.get("biuld") is None
    assert ("build" in run.steps, "biuld" in run.steps, list(run.steps)) == (True, False, ["build", "sim_1", "sim_2"])


def test_a_large_output_is_read_whole():
    flow = Workflow("w").step("big", python="def main():\n    return 'x' * 2_000_000\n")
    flow.outputs(big="${steps.big.output}")

    run = mulligan.run(flow)

    assert (len(run.steps["big"].output), len(run.outputs["big"]), len(run.result("big"))) == (2_000_000,) * 3


def test_the_story_is_the_one_that_the_command_line_prints():
    run = mulligan.run(Workflow("w").step("build", shell="exit 2").step("ask", approve={"message": "Go?"}, next="end"))

    story = run.explain()

    printed = command_line("explain", run.id)
    assert (printed.out + printed.err).splitlines() == story.splitlines()
    assert repr(story) == str(story)
    assert "build" not in run.explain("ask")
    with pytest.raises(UnknownStep, match="'biuld' is not a step of run 1"):
        run.explain("biuld")


def test_the_report_is_a_page_for_its_owner():
    run = mulligan.run(Workflow("w").step("build", shell="exit 2"))

    path = run.report("run.html")

    assert path == Path("run.html")
    assert path.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(MulliganError, match="cannot be written"):
        run.report("no/such/folder/run.html")


def test_logs_are_read_line_by_line():
    run = mulligan.run(Workflow("w").step("a", shell="echo one; echo two").step("b", shell="echo three >&2"))

    assert [(one.place, one.stream, one.data) for one in run.logs("a")] == [("a", "stdout", b"one\ntwo\n")]
    assert {(one.place, one.data) for one in run.logs()} == {("a", b"one\ntwo\n"), ("b", b"three\n")}


def test_called_runs_are_children():
    Path("child.yaml").write_text("steps: [{step: inner, shell: 'echo in'}]")
    run = mulligan.run(Workflow("w").step("call", workflow=str(Path("child.yaml").absolute())))

    (child,) = run.children

    assert (child.workflow, child.parent, child.steps["inner"].output) == ("child", run, "in")
    assert run.parent is None


def test_attributes_are_never_out_of_date():
    with mulligan.open() as home:
        run = home.start(Workflow("w").input("n", "integer").step("s", shell="echo ${inputs.n}"), n=3)
        before = run.steps
        assert (run.status, run.inputs, before["s"].status, run.outputs) == ("running", {"n": 3}, "waiting", {})

        home.get(run.id).resume()

    assert (run.status, run.steps["s"].status, run.steps["s"].output) == ("completed", "completed", "3")
    # The steps show the moment at which they were asked for.
    assert before["s"].status == "waiting"
    # Nothing has happened since, so nothing is read again.
    assert run.steps is run.steps


def test_runs_are_equal_if_they_are_the_same_run():
    run = mulligan.run(Workflow("w").step("s", shell="true"))

    assert run == mulligan.open().get(1)
    assert len({run, mulligan.open().get("latest")}) == 1
    assert run != mulligan.run(Workflow("w").step("s", shell="true"))
    assert run != 1


def test_a_run_whose_home_is_gone_still_has_a_description(folder: Path):
    run = mulligan.run(Workflow("w").step("s", shell="true"))
    (folder / ".mulligan").rename(folder / "moved")

    assert repr(run) == f"<Run 1: there is no run 1: '{folder}/.mulligan' has none>"
