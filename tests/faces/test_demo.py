"""The demo breaks on every rung and ends well; what it prints is for a stranger."""

from __future__ import annotations

import re

import pytest

from mulligan.cli.demo import main


def test_the_demo_shows_every_rung_and_ends_well(capsys: pytest.CaptureFixture[str]):
    code = main()

    told = re.sub(r"^\d\d:\d\d:\d\d ", "", capsys.readouterr().out, flags=re.MULTILINE)
    assert code == 0
    for line in (
        r"fetch +rule 1 grants retry 1, in 0\.\ds, after its recovery script",
        r"build +recovered, by its recovery handler",
        r"check\[1\]\.0 +its recovery handler runs",
        r"simulate +parked for a person to decide; its default applies in 1\.0s",
        r"simulate +timeout says retry: nobody classified it in time",
        r"deploy +failed, EXIT_NONZERO 1: certificate expired; 'repair' takes over",
        r"deploy +goes again: 'repair' has completed",
        r"announce +failed, which it may, EXIT_NONZERO 7: no route to chat host",
        r"end +the run completed, not without help",
    ):
        assert re.search(f"^{line}$", told, flags=re.MULTILINE), line
    assert told.endswith("8 steps, 2 recovered, 1 handled, 0 open: the run completed, degraded.\n")
