"""Circuit breakers, live: real commands behind them, processes that die, runs that share one."""

from __future__ import annotations

import os
import signal
from datetime import UTC
from pathlib import Path

import pytest
from tests.support.runner import Live, Terminal, wait_until

from mulligan.core.model import events as e
from mulligan.ports import BreakerRecord
from mulligan.service.host.breakers import find_breaker_waits
from mulligan.service.service import Service

EXAMPLE = Path(__file__).parents[2] / "examples" / "breaker.yaml"

# It answers while a file is there, and notes who has asked.
ASK = 'echo "$MULLIGAN_ATTEMPT" >> asked; if [ -e up ]; then echo well; else exit 1; fi'


def asking(reset: str, command: str = ASK) -> str:
    return f"""
name: asking
breakers: {{llm: {{failures: 2, reset: {reset}}}}}
steps:
  - step: ask
    breaker: llm
    retry: {{max_retries: 9, delay: 0s}}
    shell: |
      {command}
"""


def breaker(service: Service) -> BreakerRecord | None:
    return next(iter(service.reader.store.breakers()), None) if service.home.is_there else None


def waits_behind_it(service: Service, tasks: int = 1) -> bool:
    found = breaker(service)
    return found is not None and found.status != "closed" and found.waiting == tasks


def test_the_example_does_what_it_says(live: Live):
    def come_back(there: Terminal) -> None:
        there.wait_until(lambda: waits_behind_it(there.service))
        (there.folder / "back").touch()

    # It is back when it has been asked twice, also where half a second is not enough for that.
    text = EXAMPLE.read_text().replace("wait: 500ms", "shell: 'until [ -e back ]; do sleep 0.01; done'")
    ran = live.run(text, meanwhile=come_back)

    assert (ran.status, ran.exit_code) == ("completed", 0)
    assert ran.steps["ask"]["output"]["results"] == [f"asked about {item}" for item in ("minutes", "notes", "mail")]
    # Two failures opened it; no retry was spent while it was open, but for probes that came too early.
    failed = ran.facts(e.AttemptFailed)
    assert {fact.place for fact in failed} == {"ask[0].0"} and 2 <= len(failed) <= 5
    assert breaker(live.service) == BreakerRecord("api", "closed")


def test_with_a_key_only_the_breaker_of_that_key_opens_and_is_closed_by_its_name(live: Live):
    ran = live.run(
        """
        name: scan
        breakers: {db: {failures: 2, reset: 1h, when_open: fail}}
        steps:
          - step: scan
            map:
              over: ["sqlite:///a", "sqlite:///a", "sqlite:///a", "sqlite:///b"]
              max_parallel: 1
              on_item_failure: collect
            breaker: {name: db, key: "${item}"}
            do: ["test ${item} = sqlite:///b"]
        """
    )

    failures = ran.steps["scan"]["output"]["failures"]
    assert [one["code"] for one in failures] == ["EXIT_NONZERO", "EXIT_NONZERO", "CIRCUIT_OPEN"]
    found = {one.name: (one.status, one.failures) for one in live.service.machine.list_breakers()}
    assert found == {"db[sqlite:///a]": ("open", 2), "db[sqlite:///b]": ("closed", 0)}
    assert live.service.machine.reset_breaker("db[sqlite:///a]").status == "open"
    assert {one.status for one in live.service.machine.list_breakers()} == {"closed"}


def test_who_will_not_wait_takes_another_way(live: Live):
    ran = live.run(
        """
name: cached
breakers: {llm: {failures: 1, reset: 1h, when_open: fail}}
steps:
  - {step: first, shell: exit 1, breaker: llm, continue_on_error: true}
  - step: ask
    needs: [{step: first, on: always}]
    shell: echo never
    breaker: llm
    retry: 3
    next: {to: cached, on: failure, codes: [CIRCUIT_OPEN], then: continue}
  - {step: cached, shell: 'echo "${failure.code}"'}
"""
    )

    assert (ran.status, ran.steps["cached"]["output"]) == ("completed", "CIRCUIT_OPEN")
    assert ran.facts(e.AttemptStarted, place="ask") == []
    failure = ran.steps["ask"]["failure"]
    found = breaker(live.service)
    assert found is not None and found.retry_at is not None
    assert failure["message"] == f"breaker 'llm' is open until {found.retry_at:%Y-%m-%d %H:%M:%S} UTC"
    assert failure["details"]["retry_at"] == found.retry_at.isoformat()


def test_agents_requests_and_queries_that_fail_open_theirs(live: Live, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_AGENT_DOWN", "echo asked >> asked; exit 1")
    monkeypatch.setenv("NO_PROXY", "*")

    ran = live.run(
        """
name: guarded
breakers:
  llm: {failures: 2, reset: 1h, when_open: fail}
  shop: {failures: 2, reset: 1h, when_open: fail}
  database: {failures: 2, reset: 1h, when_open: fail}
defaults: {retry: {max_retries: 9, delay: 0s}}
steps:
  - {step: ask, agent: {provider: down, prompt: What now?}, breaker: llm}
  - {step: fetch, http: {url: "http://127.0.0.1:1"}, breaker: shop}
  - {step: look, sql: {connection: "postgresql://127.0.0.1:1/none", query: select 1}, breaker: database}
"""
    )

    assert {name: (step["attempts"], step["failure"]["code"]) for name, step in ran.steps.items()} == dict.fromkeys(
        ("ask", "fetch", "look"), (3, "CIRCUIT_OPEN")
    )
    assert live.lines("asked") == ["asked", "asked"]
    assert {found.name: found.status for found in live.service.reader.store.breakers()} == dict.fromkeys(
        ("llm", "shop", "database"), "open"
    )


def test_it_is_open_after_a_restart_and_probed_when_its_time_has_come(live: Live):
    path = live.write("flow.yaml", asking("2s"))
    with live.process("run", path) as process:
        wait_until(lambda: waits_behind_it(live.service), "the breaker never opened")
        process.send_signal(signal.SIGKILL)
        process.wait()
    opened, asked = breaker(live.service), len(live.lines("asked"))
    assert opened is not None and opened.retry_at is not None
    (record,) = live.service.reader.runs()
    live.write("up")

    ran = live.resume(record.run_id)

    assert (ran.status, ran.steps["ask"]["output"]) == ("completed", "well")
    assert len(live.lines("asked")) == asked + 1
    probe = ran.entries(e.AttemptStarted, place="ask")[-1]
    # Of two clocks, where the store has its own.
    assert (probe.at.astimezone(UTC) - opened.retry_at).total_seconds() > -0.5
    assert breaker(live.service) == BreakerRecord("llm", "closed")


@pytest.mark.postgres
def test_two_runs_share_one_breaker_and_both_go_on_when_it_is_closed_by_hand(live: Live):
    path = live.write("flow.yaml", asking("1h"))

    def close_it(there: Terminal) -> None:
        there.wait_until(lambda: waits_behind_it(there.service, 2), "they never waited")
        said = find_breaker_waits(there.service.reader.store, there.service.reader.state(there.run_id))
        assert list(said) == ["ask"] and said["ask"].text.startswith("breaker 'llm' is open until ")
        (there.folder / "up").touch()
        assert there.service.machine.reset_breaker("llm").waiting == 2

    with live.process("run", path) as other:
        wait_until(lambda: waits_behind_it(live.service), "the breaker never opened")
        ran = live.run(path, meanwhile=close_it)
        out, err = other.communicate()

    assert (ran.status, other.returncode) == ("completed", 0), err + out
    # Two failures of the first run opened it, and nobody has asked since, until it was closed.
    assert sorted(live.lines("asked")) == ["1", "1", "2", "3"]


# The third attempt, which is the probe, tells who it is and never ends.
HANGING = '[ "$MULLIGAN_ATTEMPT" -lt 3 ] || { echo "$$" > probing; exec sleep 600; }; exit 1'


def test_a_probe_that_dies_with_its_process_is_followed_by_another(live: Live):
    first = live.write("first.yaml", asking("1s", HANGING))
    live.write("up")
    with live.process("run", first) as mortal:
        wait_until(lambda: live.lines("probing"), "nobody probed")

        def kill_it(there: Terminal) -> None:
            there.wait_until(lambda: waits_behind_it(there.service), "it never waited")
            mortal.kill()

        ran = live.run(asking("1s"), meanwhile=kill_it)

    assert (ran.status, ran.steps["ask"]["attempts"]) == ("completed", 1)
    assert breaker(live.service) == BreakerRecord("llm", "closed")
    wait_until(lambda: not is_alive(int(live.read("probing"))), "the probe outlived its holder")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_deadline_ends_the_wait_for_a_breaker(live: Live):
    ran = live.run(
        """
name: hurried
breakers: {llm: {failures: 1, reset: 1h}}
steps:
  - {step: ask, breaker: llm, shell: exit 1}
  - {step: again, needs: [{step: ask, on: always}], breaker: llm, deadline: 100ms, shell: touch asked}
"""
    )

    assert ran.status == "failed"
    assert ran.steps["again"]["failure"]["code"] == "TIMEOUT"
    assert ran.facts(e.AttemptStarted, place="again") == []
    found = breaker(live.service)
    assert found is not None and (found.status, found.waiting) == ("open", 0)
