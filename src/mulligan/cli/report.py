"""`mulligan report`: a run as one HTML page, to be read or to be sent to somebody."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from mulligan.cli.files import write_file
from mulligan.cli.options import LATEST, AsJson, HomeFolder, NewestRun, service_at, where
from mulligan.cli.parameters import Option
from mulligan.cli.terminal import complain, show_bytes, show_json
from mulligan.service import to_json


def report(
    run: NewestRun = LATEST,
    out: Annotated[
        str | None,
        Option(
            "--out", "-o", metavar="FILE", help="Write it there: else mulligan-report-RUN.html here; '-' is stdout."
        ),
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write a report of a run in HTML: failures, graph, timeline, logs.

    It needs nothing but itself, and can be sent to somebody. A run that still goes on is shown as it stands.
    With --json, what is in it as one JSON object.
    """
    with service_at(home) as service:
        run_id = service.find_run(run)
        found = service.report(run_id, datetime.now(UTC))
        if as_json:
            show_json(to_json(found))
            return
        file = Path(out or f"mulligan-report-{run_id}.html")
        folder = None if out == "-" else str(file.absolute().parent)
        html = service.report_page(found, folder=folder, home_option=where(home))
        data = html.encode("utf-8", "replace")
    if out == "-":
        show_bytes(data)
        return
    # It has outputs and logs in it: who may read it, its owner says.
    write_file(file, data, is_private=True, follows=bool(out))
    complain(f"wrote {file}")
