"""Traces at a collector: the spans of a run, whoever sends them and however often."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran, workflow

from mulligan.errors import StoreUnavailable
from mulligan.service.server.telemetry.telemetry import ENDPOINT_VARIABLES
from mulligan.service.service import Service, open_service

from .collector import collecting

NOW = datetime(2026, 11, 16, tzinfo=UTC)
CALLING = """
name: calling
steps:
  - step: noted
    shell: 'echo "$TRACEPARENT"; [ "$MULLIGAN_ATTEMPT" = 2 ]'
    retry: {max_retries: 1}
  - {step: coded, needs: [noted], python: "import os\\ndef main(): return os.environ['TRACEPARENT']"}
  - {step: called, needs: [coded], workflow: child.yaml}
"""
CHILD = """
name: child
steps:
  - {step: inner, shell: 'echo "$TRACEPARENT"'}
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_trace_has_every_attempt_and_the_called_run_under_the_ids_that_steps_were_given():
    workflow(CHILD, "child.yaml")
    assert ran(CALLING).code == 0

    with collecting() as collector:
        said = mulligan("traces", "1", "--endpoint", collector.url)
        again = mulligan("traces", "1", "--endpoint", collector.url)

    assert (said.code, said.out) == (0, f"sent {len(collector.spans)} spans of run 1\n")
    assert again.out == said.out
    assert collector.paths[0] == "/v1/traces"
    assert collector.resources[0]["service.name"] == "mulligan"
    traces = {span.trace_id.hex() for span in collector.spans.values()}
    assert len(traces) == 1
    # What a step found in its environment is the parent of what it starts, and that is the span of its attempt.
    shown = mulligan("show", "1", "--json").json
    for name in ("noted", "coded"):
        version, trace, span, flags = shown["steps"][name]["output"].split("-")
        assert (version, flags, {trace}) == ("00", "01", traces)
        assert collector.spans[span].name == f"attempt {name}"
    # The called run is below the attempt that called it.
    below = collector.named("run child")
    assert collector.spans[below.parent_span_id.hex()].name == "attempt called"
    assert collector.named("run calling").parent_span_id == b""


LOGGING = """
name: logging
steps:
  - step: loud
    python: |
      import logging, sys
      def main():
          print("2026-99-99T00:00:00.000Z WARNING odd: no such day", file=sys.stderr)
          logging.getLogger("shop.load").warning("slow\\nfor an hour")
          logging.getLogger("shop").debug("unseen")
          raise ValueError("broken")
    retry: 1
"""


def test_what_steps_log_belongs_to_the_spans_of_their_attempts():
    assert ran(LOGGING).code == 1

    with collecting() as collector:
        without = mulligan("traces", "1", "--endpoint", collector.url)
        assert collector.records == []
        said = mulligan("traces", "1", "--logs", "--endpoint", f"{collector.url}/v1/traces")

    assert without.out == f"sent {len(collector.spans)} spans of run 1\n"
    assert said.out == f"sent {len(collector.spans)} spans and 4 records of run 1\n"
    slow = [record for record in collector.records if record.body.string_value.startswith("slow\nfor an hour\n")]
    assert [(one.severity_text, one.severity_number) for one in slow] == [("WARNING", 13)] * 2
    assert [collector.spans[one.span_id.hex()].name for one in slow] == ["attempt loud"] * 2
    assert len({one.span_id for one in slow}) == 2
    assert {one.trace_id.hex() for one in slow} == {one.trace_id.hex() for one in collector.spans.values()}
    attributes = {one.key: one.value.string_value for one in slow[0].attributes}
    assert (attributes["mulligan.logger"], attributes["mulligan.place"]) == ("shop.load", "loud")


def test_records_are_exported_with_the_spans_they_belong_to_and_not_again():
    with collecting() as collector, open_service() as service:
        exporter = service.telemetry.exporter(collector.url, with_records=True)
        exporter.export_due(NOW)
        assert mulligan("run", workflow(LOGGING)).code == 1
        collector.status = 400
        with pytest.raises(StoreUnavailable):
            exporter.export_due(NOW)
        collector.status = 200
        exporter.export_due(NOW)
        exporter.export_due(NOW)

    assert len(collector.records) == 4


def test_what_cannot_be_sent_is_refused_in_words(monkeypatch: pytest.MonkeyPatch):
    ran("steps: [{step: a, shell: 'true'}]")

    unnamed = mulligan("traces")
    wrong = mulligan("traces", "--endpoint", "localhost:4318")
    with collecting() as collector:
        collector.status = 400
        refused = mulligan("traces", "--endpoint", collector.url)

    assert (unnamed.code, wrong.code, refused.code) == (2, 2, 1)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in unnamed.err
    assert "http://127.0.0.1:4318" in wrong.err
    assert refused.err.startswith("error[telemetry.collector_unavailable]: the collector of traces did not accept")
    assert "Traceback" not in refused.err


def test_spans_are_printed_as_json_without_a_collector():
    ran("steps: [{step: a, shell: 'true'}]")

    spans = mulligan("traces", "--json").json

    assert [span["name"] for span in spans] == ["attempt a", "step a", "step end", "run flow"]


def test_new_runs_are_exported_once_and_what_the_collector_refused_is_sent_again():
    ran("steps: [{step: old, shell: 'true'}]")
    with collecting() as collector, open_service() as service:
        exporter = service.telemetry.exporter(collector.url)
        exporter.export_due(NOW)
        assert collector.spans == {}

        mulligan("run", workflow("steps: [{step: new, shell: 'exit 3'}]"))
        collector.status = 400
        with pytest.raises(StoreUnavailable):
            exporter.export_due(NOW)
        collector.status = 200
        exporter.export_due(NOW)
        sent = len(collector.paths)
        exporter.export_due(NOW)

        assert {span.name for span in collector.spans.values()} == {"attempt new", "step new", "step end", "run flow"}
        assert len(collector.paths) == sent
        # Another process goes on where this one was: only the next round is sent.
        mulligan("retry", "2")
        mulligan("resume", "2")
        before = set(collector.spans)
        _another(service).telemetry.exporter(collector.url).export_due(NOW)

    added = [collector.spans[key].name for key in collector.spans if key not in before]
    assert sorted(added) == ["attempt new", "run flow", "step end", "step new"]


def _another(service: Service) -> Service:
    return service.as_user("someone")
