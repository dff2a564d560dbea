"""Groups, live: tried again as a whole, by what failed inside, also after the process that drives them was killed."""

from __future__ import annotations

from tests.support.runner import Live, wait_until

from mulligan.core.model import events as e

GROUP = """
name: nightly
steps:
  - step: publish
    group:
      order: sequential
      retry: {rules: [{exit_codes: [7], max_retries: 2}]}
      steps:
        - {step: stage, shell: echo stage >> trace, undo: {shell: echo unstage >> trace}}
        - {step: load, shell: 'echo load >> trace; LOAD'}
    next: [{to: mend, on: failure, exit_codes: [7, 9]}]
  - {step: tell, needs: [publish], shell: "echo ${steps.publish.output.load}"}
  - {step: mend, shell: "echo mended ${failure.exit_code} ${failure.message}"}
"""


def group(load: str) -> str:
    return GROUP.replace("LOAD", load)


def test_a_group_starts_again_from_its_first_step_and_undoes_what_a_failed_try_did(live: Live):
    ran = live.run(group("[ $(grep -c load trace) -ge 3 ] || exit 7; echo loaded"))

    assert (ran.status, ran.steps["publish"]["attempts"]) == ("completed", 3)
    assert live.lines("trace") == ["stage", "load", "unstage", "stage", "load", "unstage", "stage", "load"]
    assert ran.steps["publish"]["output"] == {"stage": "", "load": "loaded"}
    assert ran.steps["tell"]["output"] == "loaded"


def test_a_group_whose_tries_are_used_up_fails_as_its_last_failure_did(live_file: Live):
    ran = live_file.run(group("echo boom >&2; exit 7"))

    failed = ran.facts(e.AttemptFailed, place="publish")
    assert [(fact.failure.code, fact.failure.exit_code) for fact in failed] == [("EXIT_NONZERO", 7)] * 3
    assert [fact.failure.details["failed_step"] for fact in failed] == ["load"] * 3
    assert [cause.step for cause in failed[-1].failure.cause] == ["load"]
    assert (ran.status, ran.steps["mend"]["output"]) == ("completed", "mended 7 boom")


def test_a_failure_that_no_rule_of_the_group_names_is_not_tried_again(live_file: Live):
    ran = live_file.run(group("exit 9"))

    assert (ran.steps["publish"]["attempts"], ran.steps["mend"]["output"]) == (1, "mended 9 exit code 9")


def test_a_group_goes_on_where_it_was_when_its_process_was_killed(live: Live):
    text = group("touch up; test -e again || sleep 60; echo loaded")
    with live.process("run", live.write("flow.yaml", text)) as child:
        wait_until((live.folder / "up").exists)
        child.kill()
    live.write("again")

    ran = live.resume(1)

    assert (ran.status, ran.steps["publish"]["attempts"]) == ("completed", 1)
    assert live.lines("trace").count("stage") == 1
    assert ran.steps["tell"]["output"] == "loaded"


def test_a_cancel_reaches_the_steps_of_a_group(live_file: Live):
    def cancel(there: object) -> None:
        wait_until((live_file.folder / "up").exists)
        there.service.changes.cancel(1)  # type: ignore[attr-defined]

    ran = live_file.run(group("touch up; sleep 60"), meanwhile=cancel)

    assert (ran.status, ran.steps["publish"]["status"]) == ("cancelled", "cancelled")
    assert live_file.lines("trace") == ["stage", "load", "unstage"]


def test_a_group_is_not_tried_again_after_an_undo_that_failed(live_file: Live):
    ran = live_file.run("""
        name: booking
        steps:
          - step: trip
            group:
              retry: 2
              order: sequential
              steps:
                - {step: seat, shell: echo seat >> trace, undo: echo undo >> trace; exit 1}
                - {step: pay, shell: exit 3}
    """)

    assert live_file.lines("trace") == ["seat", "undo"]
    assert ran.status == "failed"
    assert ("retry", "undo_failed") in [(fact.rung, fact.reason) for fact in ran.facts(e.RungPassed)]
