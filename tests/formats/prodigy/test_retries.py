"""Prodigy's `retry`: every backoff exactly, and what is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from .reading import step

RETRIES: list[tuple[str, Any]] = [
    # three attempts, the delay doubled
    ("{}", {"max_retries": 2, "delays": ["1s", "2s"]}),
    ("{attempts: 1}", 0),
    ("{attempts: 4, backoff: fixed, initial_delay: 2s}", {"max_retries": 3, "delay": "2s"}),
    ("{attempts: 4, backoff: {linear: {increment: 5s}}}", {"max_retries": 3, "delays": ["1s", "6s", "11s"]}),
    ("{attempts: 3, backoff: linear, initial_delay: 2}", {"max_retries": 2, "delays": ["2s", "4s"]}),
    ("{attempts: 4, backoff: {exponential: {base: 3}}}", {"max_retries": 3, "delays": ["1s", "3s", "9s"]}),
    ("{attempts: 6, backoff: fibonacci}", {"max_retries": 5, "delays": ["1s", "1s", "2s", "3s", "5s"]}),
    ("{attempts: 4, backoff: {custom: {delays: [500ms, 1m]}}}", {"max_retries": 3, "delays": ["0.5s", "30s", "30s"]}),
    ("{attempts: 3, backoff: {fixed: }}", {"max_retries": 2, "delay": "1s"}),
    # the longest delay
    ("{attempts: 4, max_delay: 3s}", {"max_retries": 3, "delays": ["1s", "2s", "3s"]}),
    # theirs is spread to either side by half of the factor
    ("{attempts: 2, jitter: true}", {"max_retries": 1, "delay": "1s", "jitter": 0.15}),
    ("{attempts: 2, jitter: true, jitter_factor: 0.5}", {"max_retries": 1, "delay": "1s", "jitter": 0.25}),
    # delays of 1, 2, 4 and 8 seconds: three of them fit
    ("{attempts: 5, retry_budget: 8s}", {"max_retries": 3, "delays": ["1s", "2s", "4s"]}),
    ("{attempts: 5, retry_budget: 500ms}", 0),
    (
        "{attempts: 2, retry_on: [rate_limit, {pattern: 'disk (full|gone)'}]}",
        {
            "rules": [
                {
                    "pattern": "(?i)rate limit|too many requests|\\b429\\b",
                    "max_retries": 1,
                    "delay": "1s",
                },
                {"pattern": "disk (full|gone)", "max_retries": 1, "delay": "1s"},
            ],
            "max_attempts": 2,
        },
    ),
]


@pytest.mark.parametrize(("theirs", "ours"), RETRIES)
def test_a_retry_is_one_of_ours(theirs: str, ours: Any) -> None:
    assert step(f"- {{shell: x, retry: {theirs}}}")["retry"] == ours


def test_when_no_attempt_is_left_the_workflow_may_go_on() -> None:
    assert step("- {shell: x, retry: {on_failure: continue}}")["continue_on_error"] is True


def test_when_no_attempt_is_left_another_command_may_stand_in() -> None:
    found = step("- {shell: x, retry: {on_failure: {fallback: {command: echo y}}}}")

    assert found["on_failure"] == {"strategy": "fallback", "commands": [{"shell": "echo y"}]}
