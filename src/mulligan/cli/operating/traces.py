"""`mulligan traces`: the spans of runs, to a collector of OpenTelemetry or as JSON."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

from mulligan.cli.output.terminal import complain, show, show_json
from mulligan.cli.words.options import LATEST, AsJson, HomeFolder, NewestRun, service_at
from mulligan.cli.words.parameters import Flag, Option
from mulligan.errors import StoreUnavailable
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.rendering.json_output import to_json


def traces(
    run: NewestRun = LATEST,
    endpoint: Annotated[str, Option("URL", "The collector (default: $OTEL_EXPORTER_OTLP_ENDPOINT).")] = "",
    follow: Annotated[bool, Flag("Send the spans of all runs from now on, as they end, until stopped.")] = False,
    logs: Annotated[bool, Flag("Send also what Python steps wrote with 'logging'.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Send the trace of a run to a collector of OpenTelemetry, or print its spans.

    A trace has a span for each round of the run, for each visit of a step and for each attempt, and includes the runs
    that it called. Ids are computed from the run, so sending a trace twice does no harm, and a program that a step
    starts finds its parent in $TRACEPARENT. With --logs, each record of a step belongs to the span of its attempt;
    records have no ids, so a second call sends them a second time.
    """
    with service_at(home) as service:
        if follow:
            exporter = service.telemetry.exporter(endpoint, with_records=logs)
            complain("sending traces; press Ctrl-C to stop")
            reported = ""
            while True:
                now = datetime.now(UTC)
                try:
                    due, reported = exporter.export_due(now), ""
                except StoreUnavailable as error:
                    if error.message != reported:
                        complain(f"{error.message}; trying again ({error.hint})")
                    due, reported = None, error.message
                time.sleep(5.0 if due is None else max(0.0, (due - now).total_seconds()))
        run_id = service.runs.find(run)
        if as_json:
            show_json([to_json(span) for span in service.telemetry.spans(run_id)])
            return
        count = service.telemetry.send_spans(run_id, endpoint)
        records = f" and {pluralize(service.telemetry.send_records(run_id, endpoint), 'record')}" if logs else ""
        show(f"sent {pluralize(count, 'span')}{records} of run {run_id}")
