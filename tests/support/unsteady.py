"""Tests that fail only sometimes: found again, and never taken for passed.

With `--repeat-failed`, as in `make test`, each test that failed runs up to five times more, alone on a busy machine.
One that passes then is unsteady: what it printed both times is shown. One that fails twice alone, too, fails always, or
so often that whoever repeats it finds out at once: nobody waits for more. The run has failed in any case.

`python -m tests.support.unsteady`, which is `make steady`, runs the whole suite in twelve processes, three times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest

TIMES = 5
# Who fails so often alone, and never passed, fails always.
FAILURES_MAX = 2
# More than these have one cause, which is not chance.
TESTS_MAX = 10
# What `uptime` shows: how many processes want a processor at the same time.
LOAD = 12
_WITHOUT = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:anyio")
# It ends with whoever started it, even if that was killed.
_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(1_000_000))"


class Repeat(NamedTuple):
    """A test, run once more by itself."""

    is_passed: bool
    output: str


class Repeats(NamedTuple):
    """A test that failed: what it printed then, and when it was repeated."""

    nodeid: str
    output: str
    repeats: Sequence[Repeat]

    @property
    def is_unsteady(self) -> bool:
        return any(one.is_passed for one in self.repeats)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep the machine busy with so many processes."""
    with ExitStack() as stack:
        for _ in range(processes):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-S", "-c", _BUSY]))
            stack.callback(process.kill)
        yield


def run_alone(nodeid: str) -> Repeat:
    """Run one test in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "--tb=short", *_WITHOUT, nodeid]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return Repeat(done.returncode == 0, done.stdout + done.stderr)


def repeat_failed(
    failed: dict[str, str], run: Callable[[str], Repeat] = run_alone, load: int = LOAD
) -> Iterator[Repeats]:
    """Run each of these tests, by its id and with what it printed, up to five times on a busy machine."""
    with busy(load - 1):
        for nodeid, output in failed.items():
            yield Repeats(nodeid, output, list(repeats_of(nodeid, run)))


def repeats_of(nodeid: str, run: Callable[[str], Repeat]) -> Iterator[Repeat]:
    """Run one test until it is known whether it is unsteady: until it has passed, or failed as often as is enough.

    One that has passed runs on: how often it passes says how long to look for the cause.
    """
    has_passed = False
    for number in range(1, TIMES + 1):
        found = run(nodeid)
        yield found
        has_passed = has_passed or found.is_passed
        if number == FAILURES_MAX and not has_passed:
            return


def describe(found: Repeats) -> Iterator[str]:
    """What to print about a test that was repeated."""
    passed = sum(one.is_passed for one in found.repeats)
    if not found.is_unsteady:
        yield f"fails always: {found.nodeid}, alone {len(found.repeats)} of {len(found.repeats)} times"
        return
    yield f"unsteady: {found.nodeid}"
    yield f"  failed in this run; alone on a busy machine it passed {passed} of {len(found.repeats)} times"
    failed_alone = [one.output for one in found.repeats if not one.is_passed]
    yield "  when it failed:"
    yield from _indented(failed_alone[0] if failed_alone else found.output)
    yield "  when it passed:"
    yield from _indented(next(one.output for one in found.repeats if one.is_passed))


def _indented(text: str) -> Iterator[str]:
    for line in text.rstrip().splitlines():
        yield f"    {line}"


class RepeatFailed:
    """A plugin for the process that prints: repeats at the end what has failed."""

    def __init__(self, run: Callable[[str], Repeat] = run_alone, load: int = LOAD) -> None:
        self._run = run
        self._load = load

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reports = [*terminalreporter.stats.get("failed", []), *terminalreporter.stats.get("error", [])]
        failed = {report.nodeid: report.longreprtext for report in reports if "::" in report.nodeid}
        if not failed:
            return
        terminalreporter.section("failed tests, repeated")
        if len(failed) > TESTS_MAX:
            terminalreporter.write_line(f"{len(failed)} tests failed, too many for chance: none is repeated")
            return
        for found in repeat_failed(failed, self._run, self._load):
            for line in describe(found):
                terminalreporter.write_line(line)


# -- the whole suite -------------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """One run of the whole suite."""

    code: int
    seconds: float
    load: float


def run_round(arguments: Sequence[str], load: int) -> Round:
    """Run the suite in so many processes: each test has the others beside it."""
    processes = ["-n", str(load), "--maxprocesses", str(load)]
    begun_at = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "--repeat-failed", *processes, *arguments]
    code = subprocess.run(command, check=False).returncode
    return Round(code, time.monotonic() - begun_at, os.getloadavg()[1])


def main(words: Sequence[str] | None = None, run: Callable[[Sequence[str], int], Round] = run_round) -> int:
    parser = argparse.ArgumentParser(prog="make steady", description="Run the suite in many processes, several times.")
    parser.add_argument("--rounds", type=int, default=3, help="how often (default: 3)")
    parser.add_argument("--load", type=int, default=LOAD, help=f"how many processes (default: {LOAD})")
    parser.add_argument("arguments", nargs="*", help="arguments of pytest, such as folders (default: all tests)")
    options = parser.parse_args(words)
    rounds: list[Round] = []
    for number in range(1, options.rounds + 1):
        rounds.append(run(options.arguments, options.load))
        one = rounds[-1]
        result = "passed" if one.code == 0 else f"failed with exit code {one.code}"
        print(
            f"round {number} of {options.rounds}: {result} after {one.seconds:.0f} s, load {one.load:.1f}", flush=True
        )
    return 0 if rounds and not any(one.code for one in rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
