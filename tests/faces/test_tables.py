"""Tables and figures for people: aligned, cut where a terminal ends, coloured only where that is wanted."""

from __future__ import annotations

import os
import pty
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.commands import SRC, mulligan, ran
from tests.support.pipes import read_terminal

from mulligan.cli.output.tables import age, cut, length
from mulligan.errors import InputInvalid
from mulligan.service.authoring.values import parse_duration, parse_size
from mulligan.service.rendering.formatting import format_size, pluralize

NOW = datetime(2026, 11, 15, 3, 12, tzinfo=UTC)
BROKEN = "name: a-workflow-of-some-length\nsteps:\n  - {step: fetch, shell: \"printf '%0120d' 7 >&2; exit 7\"}\n"


def test_columns_are_aligned_under_their_heads(folder: Path):
    ran("name: hello\nsteps:\n  - {step: greet, shell: 'true'}\n  - {step: a-longer-name, shell: 'true'}\n")

    _, head, *rows = mulligan("show", 1).out.splitlines()

    assert head.index("STATUS") == len("a-longer-name") + 2
    assert [row.index("completed") for row in rows] == [head.index("STATUS")] * 2


def on_a_terminal(*words: str, **environment: str) -> str:
    """What a command puts on a terminal of 80 columns."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, [sys.executable, "-m", "mulligan", *words], {**os.environ, **environment})
    said = read_terminal(terminal)
    os.waitpid(child, 0)
    return said.decode().replace("\r\n", "\n")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_terminal_gets_colour_and_lines_no_longer_than_it_is(folder: Path):
    ran(BROKEN)

    said = on_a_terminal("show", "1", PYTHONPATH=str(SRC), TERM="xterm", COLUMNS="80", NO_COLOR="")

    row = said.splitlines()[2]
    assert "\033[31mfailed\033[0m" in row
    assert len(row.replace("\033[31m", "").replace("\033[0m", "")) == 80
    assert row.endswith("…")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_narrow_terminal_wraps_before_the_last_column_tells_nothing(folder: Path):
    ran(BROKEN)

    said = on_a_terminal("show", "1", "--attempts", PYTHONPATH=str(SRC), TERM="xterm", COLUMNS="40", NO_COLOR="1")

    heads, row = said.splitlines()[1:3]
    assert heads.endswith("  HOW IT ENDED")
    assert row.endswith("…") and "  EXIT_NONZERO" in row


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_in_a_list_the_name_of_a_workflow_leaves_room_for_why_a_run_failed(folder: Path):
    ran(BROKEN)

    said = on_a_terminal("list", PYTHONPATH=str(SRC), TERM="xterm", COLUMNS="80", NO_COLOR="1")

    row = said.splitlines()[1]
    assert "  a-workflow-of-s…  'fetch' failed with EXIT_NONZERO 7" in row
    assert len(row) == 80
    assert "a-workflow-of-some-length" in mulligan("list").out


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_terminal_whose_owner_wants_no_colour_gets_none(folder: Path):
    ran(BROKEN)

    said = on_a_terminal("list", PYTHONPATH=str(SRC), TERM="xterm", COLUMNS="80", NO_COLOR="1")

    assert "\033" not in said


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0s"), (59, "59s"), (60, "1m"), (7_199, "1h"), (86_400 * 3, "3d"), (-5, "0s")]
)
def test_an_age_has_one_unit(seconds: int, told: str):
    assert age(NOW - timedelta(seconds=seconds), NOW) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.04, "0.0s"), (9.94, "9.9s"), (42.4, "42s"), (185, "3m05s"), (7_800, "2h10m")]
)
def test_a_length_is_as_fine_as_it_matters(seconds: float, told: str):
    assert length(seconds) == told


@pytest.mark.parametrize(
    ("amount", "told"), [(0, "0B"), (2048, "2KiB"), (8 << 20, "8MiB"), (3 << 30, "3.0GiB"), (5 << 40, "5120.0GiB")]
)
def test_memory_is_told_in_the_unit_people_use(amount: int, told: str):
    assert format_size(amount) == told


def test_a_text_is_cut_to_one_line():
    assert cut("two\nlines  here", 20) == "two lines here"
    assert cut("0123456789", 10) == "0123456789"
    assert cut("0123456789a", 10) == "012345678…"


def test_what_is_counted_has_its_number():
    assert (pluralize(1, "step"), pluralize(0, "step"), pluralize(100_000, "step")) == (
        "1 step",
        "0 steps",
        "100,000 steps",
    )


# What people give in words


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("1h30m", 5400.0), ("90", 90.0), ("0.5", 0.5), ("PT5M", 300.0)]
)
def test_a_duration_is_written_as_in_workflow_files(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "amount"), [("512MiB", 512 << 20), ("4GB", 4_000_000_000), ("1024B", 1024)])
def test_a_size_is_written_as_in_workflow_files(text: str, amount: int):
    assert parse_size(text) == amount


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 minutes", "1e400", "²"])
def test_what_is_no_duration_is_refused(text: str):
    with pytest.raises(InputInvalid) as refused:
        parse_duration(text)

    assert refused.value.render() == (
        f"error[input.invalid]: '{text}' is not a duration\n  write it like 30s, 5m or 1h30m"
    )


@pytest.mark.parametrize("text", ["", "lots", "-1", "0", "4 GBs", "²"])
def test_what_is_no_size_is_refused(text: str):
    with pytest.raises(InputInvalid) as refused:
        parse_size(text)

    assert refused.value.render() == f"error[input.invalid]: '{text}' is not a size\n  write it like 512MiB or 4GB"
