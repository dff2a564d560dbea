"""Processes as /proc shows them, looked at in the moments in which it shows the least."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mulligan.worker import processes

LOOKS = 500


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[int]:
    """A process that does nothing but become another program."""
    script = tmp_path / "restless"
    script.write_text('#!/bin/sh\nexec "$0"\n')
    script.chmod(0o700)
    pid = os.posix_spawn(script, [str(script)], {"MARK": "restless"})
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_process_that_is_becoming_another_program_is_known_by_its_environment(restless: int) -> None:
    looks = [processes.environment_of(restless) for _ in range(LOOKS)]

    assert [look for look in looks if look.get(b"MARK") != b"restless"] == []


def test_a_process_that_was_given_no_environment_has_none_and_nobody_waits_for_it() -> None:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
    try:
        while b"sleep" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            pass
        assert processes.environment_of(pid) == {}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_process_that_is_dead_or_never_was_has_no_environment(restless: int) -> None:
    os.kill(restless, signal.SIGKILL)
    while processes.look_at(restless) is not None:
        pass

    assert processes.environment_of(restless) == processes.environment_of(1 << 30) == {}


def test_a_process_in_the_middle_of_becoming_another_program_is_killed(tmp_path: Path) -> None:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exec sleep 1000"], {"MARK": str(tmp_path)})
    try:
        assert processes.kill_marked(b"MARK", os.fsencode(tmp_path))
        assert processes.look_at(pid) is None
    finally:
        os.waitpid(pid, 0)
