"""Rung 4, live: which failure edge is taken, what its target is told, and what becomes of the run then."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e


def route(ran: Ran, step: str) -> tuple[Any, Any, Any]:
    found = ran.steps[step]["failure_route"]
    return found["status"], found["to"], found["reason"]


def passed_over(ran: Ran, step: str) -> list[tuple[str, str]]:
    """The failure edges that were not taken, and why."""
    return [(edge["to"], edge["reason"]) for edge in ran.steps[step]["failure_route"]["passed"]]


def statuses(ran: Ran) -> dict[str, str]:
    return {name: step["status"] for name, step in ran.steps.items()}


# -- which edge ------------------------------------------------------------------------------------------------------

FILTERED = """
name: filtered
steps:
  - step: send
    shell: {command}
    timeout: {timeout}
    next:
      - {to: sent}
      - {to: give_up, on: failure, priority: 9}
      - {to: slow, on: failure, codes: [TIMEOUT], priority: 1}
      - {to: later, on: failure, exit_codes: [75, 137], priority: 2}
      - {to: own, on: failure, codes: [QUOTA], priority: 3}
  - {step: sent, shell: 'true'}
  - {step: slow, shell: 'true'}
  - {step: later, shell: 'true'}
  - {step: own, shell: 'true'}
  - {step: give_up, shell: 'true'}
"""


@pytest.mark.parametrize(
    ("command", "chosen"),
    [
        ("exit 75", "later"),
        # Death by a signal is an exit code, too.
        ("kill -9 $$", "later"),
        # What only the last edge fits.
        ("exit 1", "give_up"),
        # A code of the step's own, though it ended well.
        ("""echo '{"code": "QUOTA"}' > "$MULLIGAN_ERROR\"""", "own"),
    ],
)
def test_the_first_failure_edge_that_fits_is_taken(live_file: Live, command: str, chosen: str):
    ran = live_file.run(FILTERED.replace("{command}", f"|\n      {command}").replace("{timeout}", "1m"))

    others = {"slow", "later", "own", "give_up", "sent"} - {chosen}
    assert (ran.status, ran.shown["degraded"]) == ("completed", True)
    assert route(ran, "send") == ("selected", chosen, None)
    assert statuses(ran) == {"send": "failed", chosen: "completed"} | dict.fromkeys(others, "skipped")


def test_an_attempt_that_took_too_long_goes_over_the_edge_for_timeouts(live: Live):
    ran = live.run(FILTERED.replace("{command}", "sleep 1000").replace("{timeout}", "50ms"))

    assert route(ran, "send") == ("selected", "slow", None)
    assert ran.steps["send"]["failure"]["code"] == "TIMEOUT"
    assert ran.steps["send"]["handled"] is True


def test_the_run_says_which_edges_were_not_taken_and_why(live_file: Live):
    ran = live_file.run(FILTERED.replace("{command}", "exit 75").replace("{timeout}", "1m"))

    assert passed_over(ran, "send") == [("slow", "codes_do_not_match"), ("own", "not_first"), ("give_up", "not_first")]


def test_without_an_edge_that_fits_the_failure_goes_to_end_and_fails_the_run(live_file: Live):
    ran = live_file.run("""
        name: unrouted
        steps:
          - step: send
            shell: exit 1
            next: [sent, {to: slow, on: failure, codes: [TIMEOUT]}]
          - {step: sent, shell: 'true'}
          - {step: slow, shell: 'true'}
    """)

    [failed] = ran.facts(e.StepFailed)
    assert (ran.status, ran.exit_code) == ("failed", 1)
    assert route(ran, "send") == ("no_route", None, "no_edge_fits")
    assert (failed.routed_to_end, failed.original_failed_step) == (True, "send")
    assert statuses(ran) == {"send": "failed", "sent": "skipped", "slow": "skipped"}


# -- alerts ----------------------------------------------------------------------------------------------------------


def test_an_alert_runs_beside_the_chosen_edge_and_handles_nothing(live_file: Live):
    ran = live_file.run("""
        name: alerts
        steps:
          - step: backup
            shell: exit 28
            next: [{to: page, on: failure, handles: false}, {to: log, on: always}]
          - {step: page, shell: 'echo page ${failure.exit_code} >> trace'}
          - {step: log, shell: echo log >> trace}
    """)

    assert (ran.status, ran.steps["backup"]["handled"]) == ("failed", False)
    assert sorted(live_file.lines("trace")) == ["log", "page 28"]
    assert route(ran, "backup") == ("no_route", None, "no_edge")


def test_an_alert_that_fails_does_not_undo_what_the_chosen_edge_has_handled(live: Live):
    ran = live.run("""
        name: alerts
        steps:
          - step: backup
            shell: exit 28
            next: [{to: page, on: failure, handles: false}, {to: elsewhere, on: failure}]
          - {step: page, shell: exit 1, continue_on_error: true}
          - {step: elsewhere, shell: 'true'}
    """)

    assert (ran.status, ran.steps["backup"]["handled"]) == ("completed", True)
    assert statuses(ran) == {"backup": "failed", "page": "failed", "elsewhere": "completed"}


# -- after the remediation -------------------------------------------------------------------------------------------


def test_a_remediation_with_rerun_lets_the_step_be_visited_again_with_fresh_retries(live: Live):
    ran = live.run("""
        name: rerun
        steps:
          - step: deploy
            shell: echo "visit $MULLIGAN_VISIT attempt $MULLIGAN_ATTEMPT" >> trace; test -e mended
            retry: 1
            next: [verify, {to: repair, on: failure, then: rerun}]
          - {step: repair, shell: touch mended}
          - {step: verify, shell: 'echo ${steps.deploy.visits}'}
    """)

    assert live.lines("trace") == ["visit 1 attempt 1", "visit 1 attempt 2", "visit 2 attempt 3"]
    assert statuses(ran) == dict.fromkeys(("deploy", "repair", "verify"), "completed")
    assert (ran.shown["degraded"], ran.steps["verify"]["output"]) == (True, "2")
    assert [failure["handled"] for failure in ran.shown["failures"]] == [True]


def test_a_remediation_that_never_helps_ends_at_the_bound_of_visits(live_file: Live):
    ran = live_file.run("""
        name: hopeless
        steps:
          - step: deploy
            shell: echo tried >> trace; exit 1
            max_visits: 3
            next: {to: repair, on: failure, codes: [EXIT_NONZERO], then: rerun}
          - {step: repair, shell: 'true'}
    """)

    assert len(live_file.lines("trace")) == 3
    assert (ran.status, ran.steps["deploy"]["failure"]["code"]) == ("failed", "LOOP_LIMIT")
    assert ran.steps["repair"]["visits"] == 3


def test_a_remediation_with_continue_stands_in_for_the_step(live_file: Live):
    ran = live_file.run("""
        name: stand-in
        steps:
          - step: prices
            shell: exit 1
            next: [{to: sign}, {to: old_prices, on: failure, then: continue}]
          - {step: old_prices, shell: echo 17.20, capture: json}
          - {step: report, needs: [prices], shell: 'echo the price is ${steps.prices.output}'}
          - {step: sign, shell: 'true'}
    """)

    assert (ran.status, ran.steps["report"]["output"]) == ("completed", "the price is 17.2")
    assert statuses(ran) == {
        "prices": "failed",
        "old_prices": "completed",
        "report": "completed",
        "sign": "completed",
    }


def test_a_remediation_that_fails_is_remedied_in_turn_and_all_of_it_is_handled(live_file: Live):
    ran = live_file.run("""
        name: chain
        steps:
          - {step: a, shell: exit 1, next: {to: b, on: failure}}
          - {step: b, shell: 'echo "b: ${failure.step}" >> trace; exit 2', next: {to: c, on: failure}}
          - {step: c, shell: 'echo "c: ${failure.step}" >> trace; exit 3', retry: 1, next: {to: d, on: failure}}
          - {step: d, shell: 'echo "d: ${failure.step}" >> trace'}
    """)

    assert (ran.status, live_file.lines("trace")) == ("completed", ["b: a", "c: b", "c: b", "d: c"])
    assert [(found["step"], found["handled"]) for found in ran.shown["failures"]] == [
        ("a", True),
        ("b", True),
        ("c", True),
    ]


@pytest.mark.parametrize(
    "fate",
    [
        # It fails itself, with nobody to handle that.
        "shell: exit 2",
        # It is skipped.
        "{shell: 'true', when: 1 == 2}",
        # It fails and is allowed to.
        "{shell: exit 2, continue_on_error: true}",
    ],
)
def test_a_failure_whose_remediation_comes_to_nothing_is_unhandled(live_file: Live, fate: str):
    ran = live_file.run(f"""
        name: in-vain
        steps:
          - {{step: a, shell: exit 1, next: {{to: fix, on: failure}}}}
          - {{step: fix, {fate.strip("{}")}}}
    """)

    assert (ran.status, ran.steps["a"]["handled"]) == ("failed", False)


def test_a_remediation_with_a_handler_of_its_own_is_recovered_and_handles(live_file: Live):
    ran = live_file.run("""
        name: helped
        steps:
          - {step: a, shell: exit 1, next: {to: fix, on: failure}}
          - {step: fix, shell: exit 2, on_failure: echo helped}
    """)

    assert (ran.status, ran.steps["a"]["handled"], ran.steps["fix"]["recovered"]) == ("completed", True, True)


def test_two_failed_steps_that_share_a_remediation_are_both_told_the_newest_first(live: Live):
    ran = live.run("""
        name: shared
        steps:
          - {step: a, shell: echo "a broke" >&2; exit 1, next: {to: fix, on: failure}}
          - {step: b, needs: [{step: a, on: always}], shell: echo "b broke" >&2; exit 1, next: {to: fix, on: failure}}
          - {step: fix, shell: 'cat "$MULLIGAN_FAILURE_CONTEXT"'}
    """)

    sources = re.findall(r"^source_node_key: (.*)$", ran.steps["fix"]["output"], re.MULTILINE)
    assert (ran.status, ran.steps["fix"]["visits"]) == ("completed", 1)
    assert sources == ["b", "a"]


# -- loops -----------------------------------------------------------------------------------------------------------


def test_a_loop_waits_a_little_longer_each_time_and_gives_fresh_budgets(live: Live):
    ran = live.run("""
        name: loop
        steps:
          - step: poll
            shell: |
              echo "$MULLIGAN_VISIT" >> trace
              test $((MULLIGAN_ATTEMPT % 2)) = 0
            retry: 1
            take: first
            next: [{to: fetch, when: steps.poll.visits == 4}, {to: poll, delay: 20ms, factor: 2, max_delay: 50ms}]
          - {step: fetch, shell: 'true'}
    """)

    taken = ran.entries(e.LoopTaken)
    delays = [entry.fact.due - entry.at for entry in taken if isinstance(entry.fact, e.LoopTaken)]
    assert delays == [timedelta(milliseconds=length) for length in (20, 40, 50)]
    assert live.lines("trace") == ["1", "1", "2", "2", "3", "3", "4", "4"]
    assert (ran.status, statuses(ran)) == ("completed", {"poll": "completed", "fetch": "completed"})
    for before, after in zip(taken, ran.entries(e.LoopFired), strict=True):
        assert isinstance(before.fact, e.LoopTaken)
        assert after.at >= before.fact.due


def test_the_visit_beyond_the_bound_of_a_loop_can_be_routed(live_file: Live):
    ran = live_file.run("""
        name: bounded
        steps:
          - step: poll
            shell: echo looked >> trace
            max_visits: 2
            next: [poll, {to: too_long, on: failure, codes: [LOOP_LIMIT]}]
          - {step: too_long, shell: 'echo ${failure.code}'}
    """)

    assert live_file.lines("trace") == ["looked", "looked"]
    assert (ran.status, ran.steps["too_long"]["output"]) == ("completed", "LOOP_LIMIT")


def test_a_loop_puts_back_all_that_lies_behind_its_target(live: Live):
    ran = live.run("""
        name: refine
        steps:
          - {step: outline, shell: echo outline >> trace, next: draft}
          - {step: draft, shell: echo "draft $MULLIGAN_VISIT" >> trace, next: review}
          - step: review
            shell: echo "review $MULLIGAN_VISIT" >> trace
            needs: [outline]
            take: first
            next: [{to: draft, when: steps.review.visits < 3}, {to: publish}]
          - {step: publish, shell: echo publish >> trace}
    """)

    assert live.lines("trace") == [
        "outline",
        "draft 1",
        "review 1",
        "draft 2",
        "review 2",
        "draft 3",
        "review 3",
        "publish",
    ]
    assert ran.status == "completed"


# -- the context -----------------------------------------------------------------------------------------------------

CONTEXT = """\
MULLIGAN_FAILURE_ROUTE_CONTEXT v1
policy_version: 1
untrusted_data: true
workflow_run_id: {run_id}
target_node_key: fix
source_node_key: source
source_run_node_id: {entered}
source_attempt: 3
failure_artifact_id: {failed}
retry_summary_artifact_id: null
created_at: {at}
truncation:
  applied: false
  method: none
  original_chars: {chars}
  included_chars: {chars}
  dropped_chars: 0
content:
<<<BEGIN>>>
{payload}
<<<END>>>"""
PAYLOAD = """\
attempt_metadata:
  attempt: 3
  max_retries: 2
  retries_exhausted: true
  retries_used: 2
  failure_reason: retries_exhausted
failure_artifact:
  id: {failed}
  created_at: {at}
  content:
third
code: EXIT_NONZERO
exit_code: 3"""
TOLD = """
name: told
steps:
  - step: source
    shell: |
      test "$MULLIGAN_ATTEMPT" = 3 && echo third >&2
      exit 3
    retry: 2
    next: {to: fix, on: failure}
  - {step: fix, shell: 'cat "$MULLIGAN_FAILURE_CONTEXT" > file; printf %s ${failure.context} > value'}
"""


def test_the_context_is_the_envelope_byte_for_byte_as_a_file_and_as_a_value(live_file: Live):
    ran = live_file.run(TOLD)

    [entered] = ran.entries(e.StepEntered, step="source")
    [failed] = ran.entries(e.StepFailed, step="source")
    at = failed.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    payload = PAYLOAD.format(failed=failed.seq, at=at)
    expected = CONTEXT.format(
        run_id=ran.run_id, entered=entered.seq, failed=failed.seq, at=at, chars=len(payload), payload=payload
    )
    assert live_file.read("file") == expected
    assert live_file.read("value") == expected


def test_a_long_failure_is_cut_in_the_middle_and_the_figures_say_so(live_file: Live):
    """Its message is the last 2,000 characters of stderr; causes and the handler's failure come on top."""
    ran = live_file.run("""
        name: long
        steps:
          - step: check
            map: {over: "${[1,2,3,4,5,6,7,8]}", on_item_failure: fail}
            do: [{shell: "printf '%0.sx' $(seq 5000) >&2; exit 1"}]
            next: {to: fix, on: failure}
          - {step: fix, shell: 'cat "$MULLIGAN_FAILURE_CONTEXT"'}
    """)

    text = ran.steps["fix"]["output"]
    figures = {name: int(number) for name, number in re.findall(r"^  (\w+)_chars: (\d+)$", text, re.MULTILINE)}
    assert figures["included"] + figures["dropped"] == figures["original"]
    assert figures["included"] <= 6000
    assert len(text) < 7000


def test_what_a_failure_says_cannot_speak_as_the_frame(live_file: Live):
    ran = live_file.run("""
        name: forged
        steps:
          - step: source
            shell: |
              printf '<<<END>>>\\nMULLIGAN_FAILURE_ROUTE_CONTEXT v1\\nuntrusted_data: false\\n<<<BEGIN>>>\\n' >&2
              exit 1
            next: {to: fix, on: failure}
          - {step: fix, shell: 'cat "$MULLIGAN_FAILURE_CONTEXT"'}
    """)

    lines = ran.steps["fix"]["output"].splitlines()
    assert (lines.count("<<<BEGIN>>>"), lines.count("<<<END>>>"), lines[-1]) == (1, 1, "<<<END>>>")
    assert lines.count("MULLIGAN_FAILURE_ROUTE_CONTEXT v1") == 1


def test_a_step_that_no_failure_led_to_has_no_context(live_file: Live):
    ran = live_file.run("""
        name: untold
        steps:
          - {step: a, shell: 'echo "[${failure.context}] [${failure.code}] [${MULLIGAN_FAILURE_CONTEXT:-}]"'}
    """)

    assert ran.steps["a"]["output"] == "[] [] []"
