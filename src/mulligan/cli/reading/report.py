"""`mulligan report`: a run as one HTML page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from mulligan.cli.output.terminal import complain, show_bytes, show_result
from mulligan.cli.words.options import LATEST, AsJson, HomeFolder, NewestRun, service_at, where
from mulligan.cli.words.parameters import Option
from mulligan.service.authoring.named_files import write_file


def report(
    run: NewestRun = LATEST,
    out: Annotated[
        str | None,
        Option("FILE", "The file to write; '-' is stdout (default: mulligan-report-RUN.html).", "--out", "-o"),
    ] = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Write a report of a run in HTML: failures, graph, timeline, logs.

    The page is self-contained and can be sent to other people. An unfinished run is shown as it is now.
    With --json its content is printed as one JSON object.
    """
    with service_at(home) as service:
        run_id = service.runs.find(run)
        found = service.runs.report(run_id, datetime.now(UTC))
        if as_json:
            show_result(found)
            return
        file = Path(out or f"mulligan-report-{run_id}.html")
        folder = None if out == "-" else str(file.absolute().parent)
        html = service.runs.report_page(found, folder=folder, home_option=where(home))
        data = html.encode("utf-8", "replace")
    if out == "-":
        show_bytes(data)
        return
    # It contains outputs and logs, so only its owner may read it.
    write_file(file, data, is_private=True, follows=bool(out))
    complain(f"wrote {file}")
