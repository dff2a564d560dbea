"""Metrics: what a worker counts, how it is written and served, and what the store shows."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.commands import mulligan, process, ran
from tests.support.runner import wait_until

from mulligan.core.model.workflow import Triage
from mulligan.engine.timings import Timings
from mulligan.service.server.telemetry import run_counts
from mulligan.service.server.telemetry.exposition import merged, render, worker_families
from mulligan.service.server.telemetry.run_counts import OTHER, RunCounts
from mulligan.service.service import open_service
from mulligan.testing.history import History, edge, handler, retry, step, workflow


def counted(*runs: History) -> RunCounts:
    """What a worker counted that wrote these runs."""
    counts = RunCounts()
    for run in runs:
        counts.committed(run.state, run.log)
    return counts


def test_runs_steps_and_attempts_are_counted_by_outcome():
    good = History(workflow(step("a", rules=retry(1)))).start().fail("a", 11).ok("a")
    bad = History(workflow(step("a"))).start().fail("a", is_timed_out=True)

    counts = counted(good, bad)

    assert counts.runs_ended == {("test", "completed"): 1, ("test", "failed"): 1}
    assert counts.runs_started == {"test": 2}
    assert counts.attempts_ended == {("failed", "EXIT_NONZERO"): 1, ("failed", "TIMEOUT"): 1, ("succeeded", ""): 1}
    assert (counts.steps_ended["completed"], counts.steps_ended["failed"]) == (3, 1)


def test_rungs_are_counted_when_they_are_tried_and_when_they_work():
    rescued = step("a", rules=retry(1), on_failure=handler(), next=[edge("fix", "failure")])
    run = History(workflow(rescued, step("fix"))).start().fail("a").fail("a").fail("a.on_failure@2.0").ok("fix")
    asked = History(workflow(step("a", triage=Triage()))).start().fail("a").classify("a", "retry").ok("a")

    counts = counted(run, asked)

    assert counts.rungs_tried == {"retry": 1, "handle": 1, "route": 1, "triage": 1}
    assert {rung: count for rung, count in counts.rungs_won.items() if count} == {"route": 1, "triage": 1}


def test_what_another_worker_counted_before_is_not_counted_again():
    run = History(workflow(step("a", rules=retry(2)))).start().fail("a")
    counts = RunCounts()
    counts.committed(run.state, run.log[-1:])
    seen = len(run.log)

    run.fail("a").ok("a")
    counts.committed(run.state, run.log[seen:])

    assert counts.rungs_tried == {"retry": 1}
    assert counts.rungs_won == {"retry": 1}


def test_names_that_users_choose_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_counts, "NAMES_MAX", 1)
    first = History(workflow(step("a"))).start().fail("a", 11)
    second = History(workflow(step("a"))).start().fail("a", is_timed_out=True)

    counts = counted(first, second)

    assert counts.attempts_ended == {("failed", "EXIT_NONZERO"): 1, ("failed", OTHER): 1}


def test_the_text_can_be_read_and_two_texts_are_one():
    timings = Timings()
    timings.turns.add(0.002)
    text = render(worker_families(RunCounts(), timings, tasks=3, runs=2))

    both = merged([text, text.replace(b"mulligan_worker_tasks 3.0", b"mulligan_other 1.0"), text])

    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    assert families["mulligan_worker_tasks"].samples[0].value == 3
    buckets = {s.labels["le"]: s.value for s in families["mulligan_turn_seconds"].samples if "le" in s.labels}
    assert (buckets["0.001"], buckets["0.0025"], buckets["+Inf"]) == (0, 1, 1)
    assert both.count(b"# TYPE mulligan_worker_tasks gauge") == 1


def test_a_worker_serves_its_metrics_and_writes_its_log_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    ran("steps: [{step: gate, approve: {message: go on?}}, {step: a, needs: [gate], shell: 'true'}]")
    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow")
    log = tmp_path / "log"

    with log.open("wb") as stderr, process("worker", "--metrics", "0", "--log-format", "json", stderr=stderr) as child:
        wait_until(lambda: "has ended" in log.read_text() or "run_id" in log.read_text())
        url = json.loads(log.read_text().splitlines()[0])["message"].removeprefix("metrics: ")
        wait_until(lambda: b'outcome="completed"' in urllib.request.urlopen(url).read())
        text = urllib.request.urlopen(url).read().decode()
        child.send_signal(signal.SIGTERM)

    assert child.returncode == 0
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["mulligan_runs_ended"].samples[0].labels == {"workflow": "flow", "outcome": "completed"}
    assert not any("run_id" in sample.labels for family in families.values() for sample in family.samples)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"time", "level", "message"} <= lines[-1].keys()
    assert any(line.get("run_id") == 1 and line["worker"] for line in lines)
    # Nobody serves it any more.
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)


def test_a_port_that_is_taken_or_none_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    wrong = mulligan("worker", "--metrics", "many")
    form = mulligan("worker", "--log-format", "xml")

    assert (wrong.code, wrong.err) == (
        2,
        "error[usage]: --metrics: 'many' is not a port\n  write it like 9100, or 0.0.0.0:9100\n",
    )
    assert (form.code, form.err) == (2, "error[usage]: --log-format: 'xml' is not a form of logs\n  use text or json\n")


def test_the_store_shows_its_runs_and_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    ran("steps: [{step: gate, approve: {message: go on?}}]")
    ran("steps: [{step: a, shell: 'true'}]")

    with open_service() as service:
        text = service.telemetry.store_metrics().decode()

    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["mulligan_runs", "completed"] == 1
    assert samples["mulligan_waiting_for_people", "approval"] == 1
    assert samples["mulligan_tasks", "queued"] == 0
