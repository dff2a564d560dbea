"""Tests run inside this process, one by one, until the first that fails. A trial never outlives its limits."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterable
from typing import Any

import hypothesis
import pytest

# Our own loop asks the tests, in our own order: nothing is spread over processes, kept, or explained at length.
_OPTIONS = [
    *("-o", "addopts=", "--import-mode=importlib", "--assert=plain", "--tb=native", "-q"),
    *("-p", "no:cacheprovider", "-p", "no:xdist"),
]
_MEMORY_BYTES = 4 << 30
# The first test of a process may be the first that needs what is imported late: that takes a second by itself.
_SECONDS_AT_LEAST = 3.0
_TIMES_SLOWER = 5
_IDLE_SECONDS_MAX = 600


def collect(files: Iterable[str], loop: Any) -> int:
    """Collect the tests of some files and hand them to `loop.ask(session)` instead of running them."""
    return int(pytest.main([*_OPTIONS, *files], plugins=[_Loop(loop)]))


class _Loop:
    """The plugin that takes pytest's place once the tests are known."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop

    def pytest_collection(self) -> None:
        """Do not shrink a failing property from here on: one example is as good as another."""
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutation", hypothesis.settings(), phases=phases, database=None)
        hypothesis.settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.loop.ask(session)
        return True


class Verdicts:
    """Whether tests pass. Registers itself with the session, since only reports say so."""

    def __init__(self, session: pytest.Session) -> None:
        self.has_failed = False
        session.config.pluginmanager.register(self)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.has_failed = self.has_failed or report.failed

    def passes(self, item: pytest.Item, following: pytest.Item | None = None) -> bool:
        self.has_failed = False
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self.has_failed


def first_to_fail(session: pytest.Session, items: list[tuple[pytest.Item, float]], patience: float) -> str:
    """The first test that fails, by its name; empty if none does within `patience` seconds of processor time."""
    verdicts = Verdicts(session)
    following = [*items[1:], (None, 0.0)]
    began = time.process_time()
    for (item, seconds), (after, _) in zip(items, following, strict=True):
        if time.process_time() - began > patience:
            return ""
        if not _passes_in_time(verdicts, item, after, _SECONDS_AT_LEAST + _TIMES_SLOWER * seconds):
            return item.nodeid
    return ""


def _passes_in_time(verdicts: Verdicts, item: pytest.Item, following: pytest.Item | None, seconds: float) -> bool:
    """Whether a test passes. If it takes longer than that this process ends; what comes after it has its own time."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    passes = verdicts.passes(item, following)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return passes


def silence() -> None:
    """No word of this process is heard from now on, except through the pipes that it holds."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)


def confine() -> None:
    """This process ends if it burns, hoards or waits too much.

    The signals of the timers have no handlers: what a mutant does in an endless loop cannot catch them.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_IDLE_SECONDS_MAX)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
