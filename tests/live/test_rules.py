"""Rung 1, live: which rule grants a retry, how often, how soon, and with what."""

from __future__ import annotations

from mulligan.core import events as e

from .runner import Live

FLAKY = """
name: flaky
steps:
  - step: fetch
    shell: test -e fixed || { touch fixed; echo busy >&2; exit 11; }
    retry: {rules: [{exit_codes: [11], max_retries: 2}]}
"""


def test_a_retry_is_granted_by_the_rule_that_fits(live: Live):
    ran = live.run(FLAKY)

    assert (ran.status, ran.exit_code, ran.steps["fetch"]["attempts"]) == ("completed", 0, 2)
    assert [fact.number for fact in ran.facts(e.RetryScheduled, place="fetch")] == [1]
    assert live.logs(ran.run_id, "fetch") == [("", "")]
