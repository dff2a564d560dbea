"""Prodigy's step-level on_failure handlers, as people write them. The numbers are those of docs/project/origins.md."""

from __future__ import annotations

import pytest

from mulligan.core.model import events as e
from mulligan.core.model.workflow import Handler
from mulligan.testing.history import History

from .writing import commands, run_of, written


def handler_of(on_failure: str) -> Handler:
    """The handler of a step that is written with this `on_failure`."""
    found = written(f"steps: [{{step: a, shell: x, on_failure: {on_failure}}}]").steps[0].on_failure
    assert found is not None
    return found


def texts(handler: Handler) -> list[str]:
    return [(command.action.params.get("text") or command.action.params["prompt"]) for command in handler.commands]


# -- writing one -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_failure", "expected"),
    [
        ("make clean", ["make clean"]),  # one command
        ("[make clean, make]", ["make clean", "make"]),  # several
        ("{shell: make clean}", ["make clean"]),  # one action
        ("[{shell: make clean}, {agent: /fix}]", ["make clean", "/fix"]),  # a list of actions
        ("{strategy: recovery, commands: [{agent: /fix}, make]}", ["/fix", "make"]),  # in detail
    ],
)
def test_a_handler_is_a_command_a_list_or_a_mapping(on_failure: str, expected: list[str]) -> None:
    """P1: a single command, several commands, or the detailed form."""
    assert texts(handler_of(on_failure)) == expected


def test_a_handler_in_detail_says_strategy_timeout_and_capture() -> None:
    """P10: everything that FailureHandlerConfig has can be written."""
    found = handler_of("{commands: [x], strategy: fallback, timeout: 5m, capture: {url: output}}")

    assert (found.strategy, found.timeout, list(found.capture)) == ("fallback", 300.0, ["url"])
    assert handler_of("x").strategy == "recovery"


def test_a_workflow_without_handlers_loads_and_runs_as_ever() -> None:
    """P15: no handler, no cost and no change."""
    run = run_of("steps: [{step: a, shell: x}]").fail("a")

    assert run.status == "failed"
    assert run.facts(e.HandlerStarted, e.HandlerSucceeded, e.HandlerFailed, e.CommandEntered) == []


# -- what it knows ---------------------------------------------------------------------------------------------------


def test_the_commands_of_a_handler_read_the_error() -> None:
    """P5: error.message, error.exit_code, error.step and error.timestamp, of the attempt that failed."""
    run = run_of("""
        steps:
          - step: build
            shell: npm run build
            on_failure:
              - fix ${error.message} ${error.exit_code}
              - log ${error.step} ${error.timestamp} ${error.code} ${error.severity} ${error.attempt}
    """).fail("build", 7, stderr_tail="cannot find module")
    assert commands(run) == ["fix cannot find module 7"]

    run.ok("build.on_failure@1.0")

    assert commands(run) == ["log build 2026-01-01T00:00:00Z EXIT_NONZERO error 1"]


# -- what becomes of the step ----------------------------------------------------------------------------------------


def test_a_handler_runs_only_when_its_step_fails() -> None:
    """P2: the success path does not touch the handler."""
    run = run_of("steps: [{step: a, shell: x, on_failure: fix}]").ok("a")

    assert (run.status, run.facts(e.HandlerStarted), run.ended.degraded) == ("completed", [], False)


def test_a_handler_that_succeeds_marks_the_step_as_recovered_and_the_workflow_goes_on() -> None:
    """P6: recovery is seen in the step, in the counts, and in that what follows runs."""
    run = run_of("""
        steps:
          - {step: a, shell: x, on_failure: [fix, check]}
          - {step: b, shell: 'use ${steps.a.output}', needs: [a]}
    """).fail("a")

    run.ok("a.on_failure@1.0", output="mended").ok("a.on_failure@1.1", output="checked")

    assert (run["a"].status, run["a"].recovered_by, commands(run)) == ("completed", "recovery", ["use checked"])
    ended = run.ok("b").ended
    assert (run.status, ended.recovered_steps_count, ended.degraded) == ("completed", 1, True)


def test_a_handler_that_fails_marks_the_step_as_failed_with_both_failures() -> None:
    """P7: the step keeps its own failure, and that of its handler stands beside it."""
    run = run_of("steps: [{step: a, shell: x, on_failure: fix}, {step: b, shell: x, needs: [a]}]")

    run.fail("a", 7).fail("a.on_failure@1.0", 8)

    found = run["a"].failure
    assert (found.exit_code, found.handler_failure.code, found.handler_failure.cause[0].exit_code) == (
        7,
        "HANDLER_FAILED",
        8,
    )
    assert (run.status, run.statuses["b"]) == ("failed", "skipped")


def test_a_command_that_is_best_effort_lets_the_handler_go_on_and_does_not_count() -> None:
    """P19: without continue_on_error the first failure ends the handler; with it, unlike there, it recovers."""
    text = "steps: [{{step: a, shell: x, on_failure: [{{shell: one, continue_on_error: {}}}, two]}}]"

    strict = run_of(text.format("false")).fail("a").fail("a.on_failure@1.0")
    relaxed = run_of(text.format("true")).fail("a").fail("a.on_failure@1.0").ok("a.on_failure@1.1")

    assert (strict.statuses, "a.on_failure@1.1" in strict.state.places) == ({"a": "failed"}, False)
    assert relaxed["a"].recovered_by == "recovery"


def test_a_step_that_could_not_even_start_reaches_its_handler() -> None:
    """P22: Prodigy returns such an error past the handler; here every failure climbs the same ladder."""
    run = run_of("""
        steps:
          - {step: list, shell: x}
          - {step: a, needs: [list], shell: 'use ${steps.list.output[0]}', on_failure: 'fix ${error.code}'}
    """).ok("list", output=[])

    assert commands(run) == ["fix EXPRESSION_FAILED"]


def test_handler_failure_fatal_is_written_at_the_step_and_off_unless_said() -> None:
    """P8: whether a failed handler is fatal is a switch of the step."""
    quiet, fatal = (
        run_of(f"""
            steps:
              - {{step: a, shell: x, on_failure: fix, {switch} next: {{to: repair, on: failure}}}}
              - {{step: repair, shell: x}}
        """)
        .fail("a")
        .fail("a.on_failure@1.0")
        for switch in ("", "handler_failure_fatal: true,")
    )

    assert (quiet.queued, fatal.queued) == (["repair"], [])
    assert fatal["a"].failure.severity == "critical"


def test_on_success_is_there_for_symmetry() -> None:
    """P21: commands after a success, and none of them after a failure or a recovery."""
    text = "steps: [{step: a, shell: x, on_success: [celebrate], on_failure: fix}]"

    assert run_of(text).ok("a").queued == ["a.on_success@1.0"]
    assert run_of(text).fail("a").ok("a.on_failure@1.0").facts(e.CommandEntered)[0].role == "handler"


# -- nesting, retries, items, checks ---------------------------------------------------------------------------------


def test_a_handler_of_a_handler_recovers_it_and_with_it_the_step() -> None:
    """P4: handlers nest, each with the error it is for."""
    run = run_of("""
        steps:
          - step: a
            shell: x
            on_failure:
              - shell: fix ${error.exit_code}
                on_failure: {shell: 'mend the fix ${error.exit_code}'}
    """)

    assert commands(run.fail("a", 7)) == ["fix 7"]
    assert commands(run.fail("a.on_failure@1.0", 8)) == ["mend the fix 8"]
    run.ok("a.on_failure@1.0.on_failure@1.0")

    assert (run["a"].recovered_by, run.status) == ("recovery", "completed")


def test_retries_come_before_the_handler_and_the_handler_before_the_route() -> None:
    """P23: handlers are one rung of one ladder, between the rules and the edges."""
    run = run_of("""
        steps:
          - {step: a, shell: x, retry: 1, on_failure: fix, next: {to: repair, on: failure}}
          - {step: repair, shell: x}
    """)

    queued = [run.fail("a").queued, run.fail("a").queued, run.fail("a.on_failure@2.0").queued]

    assert queued == [["a"], ["a.on_failure@2.0"], ["repair"]]


MAPPED = """
    steps:
      - step: types
        map: {over: [one.py, two.py], as: item, on_item_failure: collect}
        do:
          - agent: /add-type-hints ${item}
          - shell: mypy --strict ${item}
            on_failure: {shell: 'fix-type-errors ${item} ${error.exit_code}'}
"""


def test_a_handler_of_a_map_runs_for_the_item_that_failed_and_for_no_other() -> None:
    """P25: MapReduce handlers are per item: the other items know nothing of it."""
    run = run_of(MAPPED).ok("types[0].0", "types[1].0").fail("types[1].1", 2)
    assert commands(run)[-1:] == ["fix-type-errors two.py 2"]

    run.ok("types[0].1", output="clean").ok("types[1].1.on_failure@2.0", output="mended")

    assert (run.status, run["types"].output["results"]) == ("completed", ["clean", "mended"])
    assert [fact.place for fact in run.facts(e.HandlerStarted)] == ["types[1].1"]


def test_an_item_whose_handler_fails_is_a_failed_item() -> None:
    """P25: the item has failed, the rest of the map goes on."""
    run = run_of(MAPPED).ok("types[0].0", "types[1].0", "types[0].1").fail("types[1].1", 2)

    run.fail("types[1].1.on_failure@2.0")

    assert {key: run["types"].output[key] for key in ("total", "succeeded", "failed")} == {
        "total": 2,
        "succeeded": 1,
        "failed": 1,
    }


def test_a_check_that_fails_is_handled_like_any_failure() -> None:
    """P13: validate: a result that is found wanting reaches on_failure."""
    run = run_of("""
        steps:
          - step: optimise
            shell: x
            validate: {shell: test-performance}
            on_failure: {strategy: cleanup, shell: 'roll-back ${error.code}'}
    """)

    run.ok("optimise").fail("optimise.validator@1")

    assert commands(run) == ["roll-back VALIDATION_FAILED"]
    assert run.ok("optimise.on_failure@1.0").status == "failed"


# -- the scenarios ---------------------------------------------------------------------------------------------------

SCENARIOS = """
    steps:
      - step: build
        shell: npm run build
        on_failure: [npm cache clean --force, npm install, npm run build]
      - step: types
        needs: [build]
        shell: tsc --noEmit
        on_failure: {strategy: recovery, rerun: 2, commands: [{agent: /fix-typescript-errors}]}
      - step: deploy
        needs: [types]
        shell: ./deploy.sh production
        on_failure: {strategy: fallback, commands: [./deploy.sh staging, notify-team]}
      - step: smoke
        needs: [deploy]
        shell: ./smoke.sh
        on_failure: {strategy: cleanup, shell: ./tear-down.sh}
"""


def scenario() -> History:
    return run_of(SCENARIOS)


def test_a_build_recovers_by_being_built_again_from_nothing() -> None:
    """P27: clean, install, build: the last command's output is the step's."""
    run = scenario().fail("build")

    run.ok("build.on_failure@1.0", "build.on_failure@1.1").ok("build.on_failure@1.2", output="bundle.js")

    assert (run["build"].output, run["build"].recovered_by, run.queued) == ("bundle.js", "recovery", ["types"])


def test_a_self_healing_step_is_run_again_after_each_repair() -> None:
    """P29: with rerun the step itself says whether the repair helped."""
    run = scenario().ok("build").fail("types").ok("types.on_failure@1.0").fail("types").ok("types.on_failure@2.0")
    assert run.queued == ["types"]

    run.ok("types", output="0 errors")

    assert (run["types"].output, run["types"].attempt, run["types"].recovered_by) == ("0 errors", 3, "rerun")


def test_a_deployment_falls_back_and_the_log_says_so() -> None:
    """P28: a fallback completes the step by other means; unlike in Prodigy it counts as recovered, by name."""
    run = scenario().ok("build", "types").fail("deploy")

    run.ok("deploy.on_failure@1.0", "deploy.on_failure@1.1")

    assert (run["deploy"].status, run["deploy"].recovered_by, run.queued) == ("completed", "fallback", ["smoke"])


def test_a_cleanup_runs_and_the_failure_stays_one() -> None:
    """P30: cleaning up recovers nothing."""
    run = scenario().ok("build", "types", "deploy").fail("smoke", 9).ok("smoke.on_failure@1.0")

    assert (run.status, run["smoke"].failure.exit_code, run["smoke"].failure.handler_failure) == ("failed", 9, None)


def test_a_named_handler_is_written_once_and_used_in_many_places() -> None:
    """P32: handlers are composed from parts."""
    workflow = written("""
        handlers:
          clean: {commands: [make clean, make], strategy: fallback}
        steps:
          - {step: a, shell: x, on_failure: {use: clean}}
          - {step: b, shell: x, on_failure: [{shell: y, on_failure: {use: clean}}]}
    """)

    first, second = (step.on_failure for step in workflow.steps)
    assert first is not None and second is not None
    assert second.commands[0].on_failure == first


def test_a_handler_may_take_days_unless_it_has_a_time_limit() -> None:
    """P33: long recoveries are tasks like any other; a timeout is for those that must not be."""
    text = "steps: [{{step: a, shell: x, on_failure: {{shell: wait-for-parts{}}}}}]"
    patient, limited = run_of(text.format("")).fail("a"), run_of(text.format(", timeout: 1h")).fail("a")

    patient.wait(3 * 86_400)
    limited.wait(3 * 86_400)

    assert (patient["a"].status, patient.queued) == ("handling", ["a.on_failure@1.0"])
    assert limited.facts(e.HandlerFailed)[0].failure.cause[0].code == "TIMEOUT"
