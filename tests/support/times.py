"""What the tests cost: `make test-times` prints it by kinds and by folders, after the tests.

The time of a test is that of its process and of the children that it has waited for. What PostgreSQL does is not in it,
nor what it takes to collect the tests: the last line has all that was waited for.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

Kind = str
PROCESSES, POSTGRES, GENERATED, HERE = "real processes", "PostgreSQL", "generated examples", "in the test's process"
COST = "cost"


class Cost(NamedTuple):
    """Of one test."""

    nodeid: str
    kind: Kind
    cpu_seconds: float
    wall_seconds: float


class Times:
    """A plugin for each process of the tests: measures, and where the reports arrive, adds up."""

    def __init__(self, *, adds_up: bool) -> None:
        self.costs: list[Cost] = []
        self._adds_up = adds_up
        self._starts = 0
        self._begun_at = time.perf_counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        cpu, wall, starts, children = _cpu_seconds(), time.perf_counter(), self._starts, _children_seconds()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess.Popen, "__init__", self._counting(subprocess.Popen.__init__))
            item.stash[_BEFORE] = cpu, wall, starts, children
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report: Any = yield
        if call.when == "teardown":
            cpu, wall, starts, children = item.stash[_BEFORE]
            has_started = self._starts > starts or _children_seconds() > children
            cost = kind_of(item, has_started), _cpu_seconds() - cpu, time.perf_counter() - wall
            report.user_properties.append((COST, cost))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" and self._adds_up:
            self.costs.extend(Cost(report.nodeid, *cost) for name, cost in report.user_properties if name == COST)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("times")
        for line in tables(self.costs):
            terminalreporter.write_line(line)
        used, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - self._begun_at
        total = f"{used.ru_utime + used.ru_stime:.0f} s of processors, with collecting"
        terminalreporter.write_line(f"{len(self.costs)} tests in {wall:.0f} s: {total}")

    def _counting(self, start: Any) -> Any:
        def count(process: Any, *args: Any, **others: Any) -> None:
            self._starts += 1
            start(process, *args, **others)

        return count


_SERVERS = {"server_url", "schema_url", "store_schema_url"}
_BEFORE = pytest.StashKey[tuple[float, float, int, float]]()


def kind_of(item: pytest.Item, has_started: bool) -> Kind:
    """The dearest thing that a test does."""
    if has_started:
        return PROCESSES
    if item.get_closest_marker("on_postgres") or not _SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
        return POSTGRES
    return GENERATED if getattr(getattr(item, "obj", None), "is_hypothesis_test", False) else HERE


def tables(costs: list[Cost]) -> Iterator[str]:
    """By kinds, then by folders; the dearest first."""
    for title, key in (("kind", _kind), ("folder", _folder)):
        groups: dict[str, list[Cost]] = {}
        for cost in costs:
            groups.setdefault(key(cost), []).append(cost)
        total = sum(cost.cpu_seconds for cost in costs) or 1.0
        yield f"{title:<26} {'tests':>6} {'processors':>11} {'share':>6} {'a test':>8}"
        for name, group in sorted(groups.items(), key=lambda one: -sum(cost.cpu_seconds for cost in one[1])):
            cpu = sum(cost.cpu_seconds for cost in group)
            yield f"{name:<26} {len(group):>6} {cpu:>9.1f} s {cpu / total:>6.0%} {cpu / len(group) * 1000:>5.0f} ms"
        yield ""


def _kind(cost: Cost) -> str:
    return cost.kind


def _folder(cost: Cost) -> str:
    return "/".join(cost.nodeid.partition("::")[0].split("/")[:2])


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def _children_seconds() -> float:
    return sum(os.times()[2:4])
