"""The graph, live: which steps run, how often, and what is skipped. Every case of it is tried in the core."""

from __future__ import annotations

import pytest
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e


def statuses(ran: Ran) -> dict[str, str]:
    return {name: step["status"] for name, step in ran.steps.items()}


NEEDS = """
name: needs
steps:
  - {step: good, shell: 'true'}
  - {step: bad, shell: exit 1}
  - {step: off, when: 1 == 2, shell: 'true'}
  - {step: on_success, needs: [good, off], shell: 'true'}
  - {step: on_skip, needs: [good, {step: off, on: success_or_skipped}], shell: 'true'}
  - {step: on_skip_of_bad, needs: [{step: bad, on: success_or_skipped}], shell: 'true'}
  - {step: whatever, needs: [{step: bad, on: always}, {step: off, on: always}], shell: 'true'}
  - {step: after_whatever, needs: [whatever], shell: 'true'}
"""


def test_needs_are_conditions_and_one_that_cannot_be_met_skips(live_file: Live):
    ran = live_file.run(NEEDS)

    assert statuses(ran) == {
        "good": "completed",
        "bad": "failed",
        "off": "skipped",
        "on_success": "skipped",
        "on_skip": "completed",
        "on_skip_of_bad": "skipped",
        "whatever": "completed",
        "after_whatever": "completed",
    }
    assert ran.status == "failed"


EDGES = """
name: edges
steps:
  - step: all
    shell: echo 7
    capture: json
    next: [{to: high, when: output > 5}, {to: even, when: output % 2 == 0}, {to: odd, when: output % 2 == 1}]
  - step: first
    shell: echo 7
    capture: json
    take: first
    next: [{to: late, priority: 2}, {to: soon, when: output > 5, priority: 1}]
  - {step: nowhere, shell: 'true', next: [{to: never, when: output == 'x'}]}
  - {step: strict, shell: 'true', no_match: fail, next: [{to: never, when: output == 'x'}, {to: lost, on: failure}]}
  - {step: high, shell: 'true'}
  - {step: even, shell: 'true', next: [{to: behind_even, on: always}]}
  - {step: behind_even, shell: 'true'}
  - {step: odd, shell: 'true'}
  - {step: late, shell: 'true'}
  - {step: soon, shell: 'true'}
  - {step: never, shell: 'true'}
  - {step: lost, shell: 'echo ${failure.code}'}
"""


def test_edges_are_taken_by_their_conditions_and_those_of_a_skipped_step_die(live_file: Live):
    ran = live_file.run(EDGES)

    completed = {name for name, status in statuses(ran).items() if status == "completed"}
    assert completed == {"all", "first", "nowhere", "high", "odd", "soon", "lost"}
    assert {name for name, status in statuses(ran).items() if status == "failed"} == {"strict"}
    assert ran.steps["lost"]["output"] == "NO_ROUTE"
    assert (ran.status, ran.shown["degraded"]) == ("completed", True)
    assert "nowhere: completed; no condition of its edges was met" in ran.story


# `left` is quick, `right` waits until the step behind the first arrival has run.
JOINS = """
name: joins
steps:
  - {step: left, shell: 'true', next: [any, all, first, each]}
  - {step: right, shell: 'until test -e first; do sleep 0.01; done', next: [any, all, first, each]}
  - {step: off, when: 1 == 2, shell: 'true', next: [any, all]}
  - {step: any, shell: 'true'}
  - {step: all, join: all, shell: 'true'}
  - {step: first, join: first, shell: touch first}
  - {step: each, join: each, shell: 'echo "$MULLIGAN_VISIT" >> each'}
"""


def test_a_join_says_how_many_arrivals_a_step_waits_for(live_file: Live):
    ran = live_file.run(JOINS)

    assert {name: ran.steps[name]["visits"] for name in ("any", "all", "first", "each")} == {
        "any": 1,
        "all": 0,
        "first": 1,
        "each": 2,
    }
    assert ran.steps["all"]["status"] == "skipped"
    assert live_file.lines("each") == ["1", "2"]


ALLOWED = """
name: allowed
steps:
  - {step: may_fail, shell: 'echo half; exit 1', continue_on_error: true, next: after}
  - {step: after, shell: 'echo "[${steps.may_fail.output}]"'}
  - {step: needs_it, needs: [may_fail], shell: 'true'}
  - step: routed
    shell: exit 1
    continue_on_error: true
    next: [{to: not_taken}, {to: instead, on: failure}]
  - {step: not_taken, shell: 'true'}
  - {step: instead, shell: 'true'}
"""


def test_an_allowed_failure_leads_on_with_a_null_output_unless_a_failure_edge_was_chosen(live_file: Live):
    ran = live_file.run(ALLOWED)

    assert statuses(ran) == {
        "may_fail": "failed",
        "after": "completed",
        "needs_it": "completed",
        "routed": "failed",
        "not_taken": "skipped",
        "instead": "completed",
    }
    assert ran.steps["after"]["output"] == "[]"
    assert (ran.status, ran.shown["degraded"]) == ("completed", True)


@pytest.mark.parametrize(("mark", "entered"), [("", ["a", "b"]), (", start: true", ["b", "a", "b"])])
def test_a_closed_loop_starts_at_its_first_step_or_at_the_one_that_says_so(
    live_file: Live, mark: str, entered: list[str]
):
    ran = live_file.run(
        f"""
        name: closed
        steps:
          - {{step: a, shell: 'true', next: b}}
          - {{step: b{mark}, shell: 'true', next: [{{to: a, when: steps.a.visits == 0}}]}}
        """
    )

    assert [fact.step for fact in ran.facts(e.StepEntered) if fact.step != "end"] == entered
    assert ran.status == "completed"


def test_a_step_in_a_loop_reads_what_it_gave_the_time_before(live: Live):
    ran = live.run(
        """
        name: counting
        steps:
          - step: count
            python: |
              def main(before):
                  return [*(before or []), len(before or [])]
            args: {before: "${steps.count.output}"}
            next: [{to: count, when: size(output) < 3}]
        """
    )

    assert ran.steps["count"]["output"] == [0, 1, 2]
