"""Commands that print secrets: waited for without waiting, bounded in time, and asked anew after a while."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mulligan.worker.secrets.secret_commands import LookupFailed, NotReady, SecretCommands

PATIENCE_SECONDS = 30.0


class Asking:
    """Asks, and waits for news."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.now = 1000.0
        self.selector = selectors.DefaultSelector()
        self.lookups = SecretCommands(self.selector, dict(os.environ), self._hear, clock=lambda: self.now)
        self._found: list[bytes | LookupFailed] = []
        self._command = ""

    def _hear(self) -> None:
        try:
            self._found.append(self.ask(self._command))
        except LookupFailed as failed:
            self._found.append(failed)

    def ask(self, command: str) -> bytes:
        return self.lookups.run(self.folder, command, 100)

    def told(self, command: str, seconds: float = 0.0) -> bytes:
        """What is news of it, after so many seconds."""
        self._command, self._found = command, []
        with pytest.raises(NotReady):
            self.ask(command)
        self.now += seconds
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._found:
            assert time.monotonic() < until, "there was no news"
            for key, _ in self.selector.select(0.01):
                key.data()
            self.lookups.run_due(self.now)
        if isinstance(self._found[0], LookupFailed):
            raise self._found[0]
        return self._found[0]


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    yield from opened(tmp_path)


def opened(folder: Path) -> Iterator[Asking]:
    found = Asking(folder)
    yield found
    found.lookups.close()
    found.selector.close()


def test_what_a_command_printed_is_known_without_asking_it_again(asking: Asking) -> None:
    printed = asking.told("echo x >> count; echo found")

    assert (printed, asking.ask("echo x >> count; echo found")) == (b"found\n", b"found\n")
    assert Path(asking.folder, "count").read_text() == "x\n"


def test_a_command_is_asked_again_when_its_answer_is_five_minutes_old(asking: Asking) -> None:
    command = "echo x >> count; wc -l < count"

    first = asking.told(command)
    asking.now += 299.0
    second = asking.ask(command)
    asking.now += 1.0
    third = asking.told(command)

    assert (first, second, third) == (b"1\n", b"1\n", b"2\n")


def test_a_command_that_takes_too_long_is_killed_with_all_that_it_started(asking: Asking) -> None:
    os.mkfifo(Path(asking.folder, "alive"))
    reader = os.open(Path(asking.folder, "alive"), os.O_RDONLY | os.O_NONBLOCK)

    with pytest.raises(LookupFailed) as caught:
        asking.told("sleep 1000 > alive & sleep 1000 > alive", seconds=30.0)

    assert (str(caught.value), caught.value.code) == ("its command took longer than 30s", "TIMEOUT")
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # nobody has it open
    os.close(reader)


def test_what_a_command_leaves_in_the_background_is_not_waited_for(asking: Asking) -> None:
    assert asking.told("sleep 1000 & echo found") == b"found\n"


def test_a_command_that_closes_its_output_is_waited_for(asking: Asking) -> None:
    with pytest.raises(LookupFailed) as caught:
        asking.told("echo found; exec 1>&-; exit 3")

    assert str(caught.value) == "its command exited with code 3"


def test_a_folder_that_is_not_there_is_a_failure(asking: Asking) -> None:
    asking.folder += "/nowhere"

    with pytest.raises(LookupFailed) as caught:
        asking.told("echo found")

    assert str(caught.value) == "its command exited with code 1"


def test_a_folder_is_no_part_of_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "a; touch $(reboot) 'it"
    folder.mkdir()

    for asking in opened(folder):
        assert asking.told("pwd").decode().rstrip("\n") == str(folder)
        assert os.listdir(folder) == []


def test_what_still_runs_when_all_is_closed_is_killed(asking: Asking) -> None:
    with pytest.raises(NotReady):
        asking.ask("sleep 1000")
    pid = asking.lookups._running[asking.folder, "sleep 1000"]._pid

    asking.lookups.close()

    assert not os.path.exists(f"/proc/{pid}")


def test_no_descriptor_is_left_behind(asking: Asking) -> None:
    before = len(os.listdir("/proc/self/fd"))

    for number in range(3):
        asking.told(f"echo {number}")

    assert len(os.listdir("/proc/self/fd")) == before
