"""`http` steps in whole runs: what the ladder makes of a server's answers."""

from __future__ import annotations

import pytest
from tests.support.runner import Live
from tests.support.web import as_json, reset, response, serving

from mulligan.core.model import events as e

FETCH = """
name: fetch
inputs: {server: string}
steps:
  - step: fetch
    http: {url: "${inputs.server}/items", params: {page: 1}}
    retry: {max_retries: 3, delay: 10ms, max_delay: 20ms}
  - step: count
    needs: [fetch]
    shell: echo ${size(steps.fetch.output.body)}
"""


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the terminal of the tests is set to, a server on this machine is asked directly."""
    monkeypatch.setenv("NO_PROXY", "*")


def test_a_server_that_is_unwell_is_asked_again_and_its_answer_flows_on(live_file: Live) -> None:
    with serving(reset, response(503), response(429, b"", "Retry-After: 1"), as_json("[1, 2, 3]")) as web:
        ran = live_file.run(FETCH, inputs={"server": web.url})

    assert ran.status == "completed"
    assert ran.steps["count"]["output"] == "3"
    assert [fact.failure.code for fact in ran.facts(e.AttemptFailed)] == ["CONNECTION", "HTTP_5XX", "HTTP_429"]
    # What the server asks for counts up to 'max_delay'.
    due, asked = ran.facts(e.RetryScheduled)[2].due, ran.entries(e.RetryScheduled)[2].at
    assert (due - asked).total_seconds() == 0.02


def test_a_request_that_is_wrong_is_not_sent_again(live_file: Live) -> None:
    with serving(response(404, b"no such page")) as web:
        ran = live_file.run(FETCH, inputs={"server": web.url})

        assert len(web.requests) == 1
    assert (ran.status, ran.steps["fetch"]["attempts"]) == ("failed", 1)
    assert ran.steps["fetch"]["failure"]["message"] == f"GET {web.url}/items: answered 404: no such page"
    details = ran.steps["fetch"]["failure"]["details"]
    assert (details["status"], details["url"]) == (404, f"{web.url}/items")


def test_every_attempt_of_a_visit_has_the_same_key(live_file: Live) -> None:
    text = """
    name: charge
    inputs: {server: string}
    steps:
      - {step: charge, http: {method: POST, url: "${inputs.server}", json: {cents: 900}}, retry: {delay: 1ms}}
    """
    with serving(response(500), response(500), response()) as web:
        ran = live_file.run(text, inputs={"server": web.url})

        keys = {web.headers(number)["idempotency-key"] for number in range(3)}
    assert (ran.status, len(keys)) == ("completed", 1)


def test_a_run_that_is_cancelled_ends_a_request_that_hangs(live_file: Live) -> None:
    with serving(lambda connection: connection.recv(1)) as web:
        ran = live_file.run(
            FETCH,
            inputs={"server": web.url},
            meanwhile=lambda there: (
                there.wait_until(lambda: web.requests),
                there.service.changes.cancel(there.run_id),
            )[-1],
        )

    assert (ran.status, ran.steps["fetch"]["status"]) == ("cancelled", "cancelled")
