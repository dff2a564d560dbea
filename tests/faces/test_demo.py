"""The demo breaks on every rung and ends well; what it prints is for a stranger."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.commands import Said, mulligan, process

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a process makes its temporary folders."""
    monkeypatch.setenv("TMPDIR", str(folder / "temporary"))
    (folder / "temporary").mkdir()
    return folder / "temporary"


def in_a_process(*words: str) -> Said:
    child = process(*words)
    out, err = child.communicate(timeout=120)
    return Said(child.returncode, out.decode(), err.decode())


def test_the_demo_shows_every_rung_ends_well_and_leaves_nothing(temporary: Path):
    said = in_a_process("demo")

    told = re.sub(r"^\d\d:\d\d:\d\d . ", "", said.out, flags=re.MULTILINE)
    assert (said.code, said.err) == (0, "")
    for line in (
        r"fetch +retry 1 of 3 in 0\.\ds after its recovery script \(rule for exit codes 10, 11\)",
        r"build +recovered by its handler",
        r"check\[web\] +recovery handler started",
        r"simulate +parked for a decision; without one, it will be retried in 1\.0s",
        r"simulate +no decision in time, default applied: retry",
        r"deploy +failed with EXIT_NONZERO 1: certificate expired; "
        r"routed to 'repair'; 'deploy' will run again when it completes",
        r"deploy +will run again: 'repair' completed",
        r"announce +failed \(allowed\) with EXIT_NONZERO 7: no route to chat host",
    ):
        assert re.search(f"^{line}$", told, flags=re.MULTILINE), line
    assert told.endswith(
        "\n8 steps, 2 recovered, 1 handled, 0 open: the run completed (degraded).\n"
        "\nThe run was removed. To keep one and look around in it: mulligan demo --keep\n"
    )
    assert list(temporary.iterdir()) == []
    assert not Path(".mulligan").exists()


def test_what_broke_is_told_with_the_rung_that_dealt_with_it():
    _, _, summary = mulligan("demo").out.partition("What failed, and which rung of the ladder handled it\n\n")

    told, _, _ = summary.partition("\n\n")
    assert told.splitlines() == [
        "1 retry     fetch       EXIT_NONZERO 11: stale.lock is held by nobody",
        "                        retried, then completed",
        "2 handle    build       EXIT_NONZERO 2: make -j16 ran out of file handles",
        "                        recovered by its handler",
        "2 handle    check[web]  EXIT_NONZERO 1: web: 3 type errors",
        "                        completed on the rerun after its handler",
        "3 triage    simulate    EXIT_NONZERO 42: residual diverged at step 880",
        "                        no decision in time, default applied: retry, then completed",
        "4 route     deploy      EXIT_NONZERO 1: certificate expired",
        "                        routed to 'repair', which completed; then it ran again",
        "5 converge  announce    EXIT_NONZERO 7: no route to chat host",
        "                        allowed to fail",
    ]


def test_a_demo_that_is_kept_says_where_it_is_and_can_be_looked_at(temporary: Path):
    said = in_a_process("demo", "--keep")

    [kept] = temporary.iterdir()
    assert said.out.endswith(f"\nThe run was kept:\n  mulligan explain 1 --home {kept}/home\n  rm -r {kept}\n")
    assert mulligan("replay", 1, "--verify", "--home", kept / "home").code == 0
