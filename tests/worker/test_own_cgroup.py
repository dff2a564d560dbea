"""The kernel's kills for want of memory, as both versions of control groups tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mulligan.worker.own_cgroup import OomKills, memory_limit


@pytest.mark.parametrize("lines", ["low 0\noom 9\noom_kill {}\n", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"])
def test_each_kill_is_taken_once(tmp_path: Path, lines: str) -> None:
    file = tmp_path / "events"
    file.write_text(lines.format(3))
    kills = OomKills(file)

    before = kills.take_new()
    file.write_text(lines.format(5))

    assert [before, *(kills.take_new() for _ in range(3))] == [False, True, True, False]


def test_kills_that_are_accounted_for_are_not_new(tmp_path: Path) -> None:
    file = tmp_path / "events"
    file.write_text("oom_kill 1\n")
    kills = OomKills(file)
    file.write_text("oom_kill 4\n")

    kills.settle()

    assert not kills.take_new()


@pytest.mark.parametrize("content", [None, "", "oom 1\n"])
def test_where_nothing_is_told_there_never_was_one(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "events").write_text(content)

    assert not OomKills(tmp_path / "events").take_new()


def test_the_group_of_this_process_can_be_asked() -> None:
    assert not OomKills().take_new()


def test_what_the_group_of_this_process_may_have_is_a_size_or_nothing() -> None:
    found = memory_limit()

    assert found is None or found > 0
