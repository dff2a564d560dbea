"""Agents that are models, in whole runs: what the ladder makes of a bad service, and of answers that do not match."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.model_answers import ended, said, stream
from tests.support.runner import Live
from tests.support.web import as_json, response, serving

from mulligan.core.model import events as e

EXAMPLES = Path(__file__).parents[2] / "examples" / "agents"
KEY = "sk-the-key-of-this-test"
ASK = """
steps:
  - step: ask
    agent: {provider: openai, model: small, prompt: hello}
    retry: {codes: [HTTP_5XX, HTTP_429, CONNECTION, OUTPUT_INVALID], max_retries: 5, max_delay: 0s}
"""


def test_a_bad_service_is_asked_again_by_the_ladder_until_it_answers(
    live_file: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        response(500, b"oh no"),
        as_json('{"error": {"message": "slow down"}}', 429, "Retry-After: 7"),
        stream(*said("openai", "half")),
        stream("{not json"),
        stream(*said("openai", f"hello, {KEY}"), *ended("openai")),
    ]
    with serving(*answers) as web:
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.setenv("OPENAI_BASE_URL", web.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)

        ran = live_file.run(ASK)

        assert len(web.requests) == 5
    assert (ran.status, ran.steps["ask"]["output"]["content"]) == ("completed", "hello, ***")
    failures = [fact.failure for fact in ran.facts(e.AttemptFailed)]
    assert [failure.code for failure in failures] == ["HTTP_5XX", "HTTP_429", "CONNECTION", "OUTPUT_INVALID"]
    assert failures[1].details["retry_after"] == 7
    assert ran.steps["ask"]["spent"]["calls"] == 5
    # Whatever is stored of the run does not have the key.
    stored = [
        (Path(folder) / name).read_bytes() for folder, _, names in os.walk(live_file.home.folder) for name in names
    ]
    assert any(b"hello, ***" in data for data in stored)
    assert not any(KEY.encode() in data for data in stored)


def test_the_example_of_a_review_asks_again_for_an_answer_that_does_not_match(
    live_file: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULLIGAN_SCRIPTED_AGENT", str(EXAMPLES / "review-answers.yaml"))

    ran = live_file.run(EXAMPLES / "review.yaml")

    assert (ran.status, ran.shown["outputs"]) == ("completed", {"notes": "It is 20 % faster."})
    assert [fact.failure.code for fact in ran.facts(e.AttemptFailed)] == ["VALIDATION_FAILED"]
    assert ran.shown["spent"]["tokens"] == 2963
