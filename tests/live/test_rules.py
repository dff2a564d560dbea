"""Rung 1, live: which rule grants a retry, how often, how soon, and with what."""

from __future__ import annotations

import pytest
from tests.support.runner import Live, Ran

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Adjusted

MIB = 1 << 20

# Each step fails in a way that several rules fit; the file's order is the reverse of what decides.
SPECIFIC = """
name: specific
retry_policies:
  all_kinds:
    rules:
      - {any: true, max_retries: 1}
      - {pattern: 'connection reset', max_retries: 1}
      - {exit_codes: [7, 8], max_retries: 1}
      - {codes: [QUOTA], max_retries: 1}
defaults: {retry: all_kinds}
steps:
  - step: by_code
    shell: |
      echo '{"code": "QUOTA", "message": "connection reset"}' > "$MULLIGAN_ERROR"
      [ $MULLIGAN_ATTEMPT -gt 1 ] || exit 7
      rm "$MULLIGAN_ERROR"
  - step: by_exit_code
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || { echo connection reset >&2; exit 8; }'
  - step: by_pattern
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || { echo the connection reset by peer >&2; exit 9; }'
  - step: by_nothing
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || exit 9'
  - step: own_rules
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || exit 8'
    retry: {rules: [{exit_codes: [8], max_retries: 1}, {exit_codes: [8], max_retries: 9}]}
"""


def rules_used(ran: Ran) -> dict[str, list[int]]:
    """The rules that granted retries, by step, in order."""
    found: dict[str, list[int]] = {}
    for fact in ran.facts(e.RetryScheduled):
        found.setdefault(fact.place, []).append(fact.rule)
    return found


def passed(ran: Ran, step: str, rung: str = "retry") -> list[str]:
    """Why the rung did not deal with the failures of a step."""
    return [fact.reason for fact in ran.facts(e.RungPassed, place=step, rung=rung)]


def delays(ran: Ran, step: str) -> list[float]:
    """How long each retry of a step was put off, in seconds."""
    return [(entry.fact.due - entry.at).total_seconds() for entry in ran.entries(e.RetryScheduled, place=step)]  # type: ignore[union-attr]


def test_the_more_specific_kind_of_rule_wins_whatever_the_order_in_the_file(live_file: Live):
    ran = live_file.run(SPECIFIC)

    assert (ran.status, ran.shown["degraded"]) == ("completed", False)
    assert rules_used(ran) == {
        "by_code": [3],
        "by_exit_code": [2],
        "by_pattern": [1],
        "by_nothing": [0],
        # Among equals the first.
        "own_rules": [0],
    }


BUDGETS = """
name: budgets
steps:
  # Exits with 7, 8, 7, 8: the second 8 is one more than its rule grants.
  - step: per_rule
    shell: 'echo "attempt $MULLIGAN_ATTEMPT" >&2; exit $(( 8 - MULLIGAN_ATTEMPT % 2 ))'
    retry: {rules: [{exit_codes: [7], max_retries: 2}, {exit_codes: [8], max_retries: 1}]}
  - step: together
    shell: exit $(( 8 - MULLIGAN_ATTEMPT % 2 ))
    retry: {max_attempts: 2, rules: [{exit_codes: [7], max_retries: 5}, {exit_codes: [8], max_retries: 5}]}
  # The attempts that its other rule granted count, too.
  - step: of_one_rule
    shell: exit $(( 8 - MULLIGAN_ATTEMPT % 2 ))
    retry: {rules: [{exit_codes: [7], max_retries: 5}, {exit_codes: [8], max_retries: 5, max_attempts: 4}]}
  - {step: by_default, shell: exit 1, retry: true}
  - {step: a_number, shell: exit 1, retry: 1}
  - {step: none, shell: exit 1, retry: 0}
  - {step: unmatched, shell: exit 1, retry: {rules: [{exit_codes: [2]}]}}
"""


def test_a_budget_is_per_rule_and_max_attempts_bounds_all_rules_together(live_file: Live):
    ran = live_file.run(BUDGETS)

    assert {name: step["attempts"] for name, step in ran.steps.items()} == {
        "per_rule": 4,
        "together": 2,
        "of_one_rule": 4,
        "by_default": 4,
        "a_number": 2,
        "none": 1,
        "unmatched": 1,
    }
    assert passed(ran, "per_rule") == ["retries_exhausted"]
    assert passed(ran, "together") == ["attempts_exhausted"]
    assert passed(ran, "of_one_rule") == ["rule_attempts_exhausted"]
    assert passed(ran, "by_default") == ["retries_exhausted"]
    assert passed(ran, "unmatched") == ["no_rule"]
    assert ran.steps["per_rule"]["failure"]["message"] == "attempt 4"


FATAL = """
name: fatal
steps:
  - step: refused
    shell: |
      echo '{"code": "NO_SUCH_USER", "retryable": false, "message": "nobody"}' > "$MULLIGAN_ERROR"
      exit 3
    retry: {rules: [{any: true}, {exit_codes: [3]}, {pattern: nobody}]}
  - step: named
    shell: |
      [ $MULLIGAN_ATTEMPT -gt 1 ] || echo '{"code": "DISK", "severity": "critical"}' > "$MULLIGAN_ERROR"
    retry: {rules: [{codes: [DISK], max_retries: 1}]}
"""


def test_a_fatal_failure_is_retried_only_by_a_rule_that_names_its_code(live_file: Live):
    ran = live_file.run(FATAL)

    assert (ran.steps["refused"]["attempts"], passed(ran, "refused")) == (1, ["no_rule"])
    assert (ran.steps["named"]["status"], ran.steps["named"]["attempts"]) == ("completed", 2)


BACKOFF = """
name: backoff
steps:
  - step: growing
    shell: exit 1
    retry: {max_retries: 4, delay: 10ms, factor: 2, max_delay: 35ms}
  - step: spread
    shell: exit 1
    retry: {max_retries: 3, delay: 40ms, jitter: 0.5}
  - step: told
    shell: |
      echo '{"code": "BUSY", "details": {"retry_after": '"$([ $MULLIGAN_ATTEMPT = 1 ] && echo 0.05 || echo 60)"'}}' \\
        > "$MULLIGAN_ERROR"
    retry: {max_retries: 2, delay: 20ms, max_delay: 70ms}
"""


def test_the_delay_grows_up_to_its_maximum_is_spread_by_jitter_and_honours_retry_after(live: Live):
    ran = live.run(BACKOFF)

    assert delays(ran, "growing") == pytest.approx([0.01, 0.02, 0.035, 0.035])
    assert all(0.02 <= delay <= 0.06 for delay in delays(ran, "spread"))
    assert len(set(delays(ran, "spread"))) == 3
    # The second time it asks for a minute.
    assert delays(ran, "told") == pytest.approx([0.05, 0.07])


def test_no_attempt_starts_before_its_delay_is_over(live: Live):
    ran = live.run(BACKOFF)

    for name in ran.steps:
        starts = [entry.at for entry in ran.entries(e.AttemptStarted, place=name)]
        dues = [fact.due for fact in ran.facts(e.RetryScheduled, place=name)]
        assert all(start >= due for start, due in zip(starts[1:], dues, strict=True))


# `tail` keeps what has no line in it until there is no more: 100 MB, more than is asked for at each of the two.
HUNGRY = """
name: hungry
steps:
  - step: solve
    shell: '[ $MULLIGAN_ATTEMPT -gt 2 ] || { head -c 100000000 /dev/zero; sleep 60; } | tail -n 1'
    resources: {memory: 24MiB}
    retry: {rules: [{codes: [OUT_OF_MEMORY], max_retries: 2, adjust: {memory: x1.5, max_memory: 30MiB}}]}
"""


def test_more_memory_is_asked_for_after_out_of_memory_and_never_more_than_the_cap(live_file: Live):
    ran = live_file.run(HUNGRY)

    assert (ran.status, ran.steps["solve"]["attempts"]) == ("failed", 2)
    assert passed(ran, "solve") == ["max_memory_reached"]
    failures = [fact.failure for fact in ran.facts(e.AttemptFailed)]
    assert [failure.code for failure in failures] == ["OUT_OF_MEMORY", "OUT_OF_MEMORY"]
    assert all(failure.details["peak_memory"] >= 24 * MIB for failure in failures)
    assert [fact.adjusted and fact.adjusted.memory for fact in ran.facts(e.RetryScheduled)] == [30 * MIB]


def test_more_memory_is_half_as_much_again_as_the_larger_of_asked_and_used(live_file: Live):
    ran = live_file.run(HUNGRY.replace(", max_memory: 30MiB", "").replace("-gt 2", "-gt 1"))

    [failed], [retried] = ran.facts(e.AttemptFailed), ran.facts(e.RetryScheduled)
    used = max(24 * MIB, failed.failure.details["peak_memory"])
    assert retried.adjusted == Adjusted(memory=int(used * 1.5))
    assert ran.facts(e.AttemptScheduled, attempt=2)[0].adjusted == retried.adjusted


SLOW = """
name: slow
steps:
  - step: wait
    shell: '[ $MULLIGAN_ATTEMPT -gt 3 ] || sleep 30'
    timeout: 40ms
    resources: {cpus: 1}
    retry: {rules: [{codes: [TIMEOUT], adjust: {timeout: x2, max_timeout: 100ms, cpus: x2, max_cpus: 3}}]}
"""


def test_more_time_and_processors_are_given_after_a_timeout_up_to_their_caps(live_file: Live):
    ran = live_file.run(SLOW)

    given = [fact.adjusted for fact in ran.facts(e.RetryScheduled)]
    assert given == [
        Adjusted(cpus=2.0, timeout=0.08),
        Adjusted(cpus=3.0, timeout=0.1),
    ]
    assert [(fact.failure.code, fact.failure.exit_code) for fact in ran.facts(e.AttemptFailed)] == [
        ("TIMEOUT", None)
    ] * 3
    assert (ran.status, passed(ran, "wait")) == ("failed", ["max_timeout_reached"])


LATE = """
name: late
steps:
  - step: running
    shell: sleep 30
    deadline: 50ms
    retry: 3
  - step: between
    shell: exit 1
    deadline: 30s
    retry: {max_retries: 3, delay: 1m}
"""


def test_a_deadline_cuts_a_running_attempt_and_grants_no_retry_beyond_it(live: Live):
    ran = live.run(LATE)

    assert passed(ran, "running") == passed(ran, "between") == ["deadline_passed"]
    failure = ran.steps["running"]["failure"]
    assert (failure["code"], failure["exit_code"], failure["message"]) == (
        "TIMEOUT",
        None,
        "it took longer than its deadline",
    )
    assert ran.steps["between"]["failure"]["code"] == "EXIT_NONZERO"


KILLED = """
name: killed
steps:
  - step: killed
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || kill -9 $$'
    retry: {rules: [{exit_codes: [137], max_retries: 1}]}
  - step: terminated
    shell: '[ $MULLIGAN_ATTEMPT -gt 1 ] || kill -TERM $$'
    retry: {rules: [{codes: [SIGNALED], max_retries: 1}]}
"""


def test_death_by_a_signal_is_an_exit_code_and_a_signal(live_file: Live):
    ran = live_file.run(KILLED)

    failures = {fact.place: fact.failure for fact in ran.facts(e.AttemptFailed)}
    told = {name: (found.code, found.exit_code, found.signal, found.message) for name, found in failures.items()}
    assert told == {
        "killed": ("SIGNALED", 137, 9, "killed by signal 9"),
        "terminated": ("SIGNALED", 143, 15, "killed by signal 15"),
    }
    assert ran.status == "completed"


# What a step says of itself may be anything: it is a failure like any other, or nothing, and the run goes on.
NONSENSE = {
    "a_word": ('{"code": "BUSY", "details": {"retry_after": "soon"}}', "BUSY"),
    "in_the_past": ('{"code": "BUSY", "details": {"retry_after": -5}}', "BUSY"),
    "for_ever": ('{"code": "BUSY", "details": {"retry_after": 1e300}}', "BUSY"),
    "too_large": ('{"code": "BUSY", "details": {"retry_after": 1e400}}', "OUTPUT_INVALID"),
    "odd_types": ('{"code": ["BUSY"], "severity": "awful", "message": [1], "retryable": "no"}', "EXCEPTION"),
    "a_text": ('"busy"', "EXCEPTION"),
    "numbers": ("[1, [2], null]", "EXCEPTION"),
    "no_json": ("busy", "OUTPUT_INVALID"),
    "engines_own": ('{"code": "WORKER_LOST"}', "EXCEPTION"),
}


def test_nonsense_in_the_error_file_is_a_failure_and_its_retry_comes_in_time(live_file: Live):
    steps = [
        f"""
  - step: {name}
    stdin: '{text}'
    shell: cat > "$MULLIGAN_ERROR"
    retry: {{max_retries: 1, max_delay: 50ms}}"""
        for name, (text, _) in NONSENSE.items()
    ]

    ran = live_file.run("name: nonsense\nfail_fast: never\nsteps:" + "".join(steps))

    codes = {name: step["failure"]["code"] for name, step in ran.steps.items()}
    assert codes == {name: code for name, (_, code) in NONSENSE.items()}
    assert all(step["attempts"] == 2 for step in ran.steps.values())
    assert all(0 <= delay <= 0.05 for name in NONSENSE for delay in delays(ran, name))


EXCEPTIONS = """
name: exceptions
steps:
  - step: subclass
    python: |
      import os
      def main():
          if os.environ["MULLIGAN_ATTEMPT"] == "1":
              raise ConnectionResetError("by peer")
    retry: {exceptions: [builtins.ConnectionError], max_retries: 1}
  - step: offered
    python: |
      import json, os
      def main():
          if os.environ["MULLIGAN_ATTEMPT"] == "1":
              json.loads("")
    retry: {exceptions: [json.JSONDecodeError], max_retries: 1}
  - step: own_class
    python: |
      import os
      from mulligan import StepError
      class Refused(StepError): pass
      def main():
          if os.environ["MULLIGAN_ATTEMPT"] == "1":
              raise Refused("QUOTA", "no tokens left")
    retry: {exceptions: [__main__.Refused], max_retries: 1}
  - step: fatal
    python: |
      import os
      def main():
          if os.environ["MULLIGAN_ATTEMPT"] == "1":
              raise PermissionError("not mounted yet")
    retry: {rules: [{any: true}, {exceptions: [PermissionError], max_retries: 1}]}
  - step: of_an_item
    map: {over: [1]}
    do:
      - python: |
          import os
          def main():
              if os.environ["MULLIGAN_ATTEMPT"] == "1":
                  raise KeyError("n")
        retry: {exceptions: [LookupError], max_retries: 1}
  - step: of_a_handler
    shell: exit 1
    on_failure:
      - python: |
          import os
          from pathlib import Path
          def main(classes):
              if not Path("tried").exists():
                  Path("tried").touch()
                  raise TimeoutError("slow")
              return classes
        args: {classes: "${error.exceptions}"}
        retry: {exceptions: [TimeoutError], max_retries: 1}
"""


def test_a_rule_names_the_class_of_an_exception_wherever_python_code_runs(live: Live):
    ran = live.run(EXCEPTIONS)

    assert ran.status == "completed", ran.said
    used = {place.partition(".")[0]: rules for place, rules in rules_used(ran).items()}
    assert used == {
        "subclass": [0],
        "offered": [0],
        "own_class": [0],
        "fatal": [1],
        "of_an_item[0]": [0],
        "of_a_handler": [0],
    }
    codes = {fact.place: fact.failure.code for fact in ran.facts(e.AttemptFailed)}
    assert (codes["subclass"], codes["own_class"], codes["fatal"]) == ("CONNECTION", "QUOTA", "PERMISSION")


def test_a_rule_for_a_base_leaves_a_fatal_failure_alone_and_says_so(live_file: Live):
    ran = live_file.run(
        """
steps:
  - step: a
    python: |
      def main(): raise PermissionError("no")
    retry: {exceptions: [OSError, Exception]}
"""
    )

    assert (ran.status, ran.steps["a"]["attempts"]) == ("failed", 1)
    assert passed(ran, "a") == ["no_rule"]
