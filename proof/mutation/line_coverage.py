"""Which tests run which lines: measured once per test file, kept, and looked up for every mutant."""

from __future__ import annotations

import ast
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

from .children import fork
from .mutants import DEFAULTS, Definition, Mutant, Unit
from .project import Project
from .trial import Verdicts, collect, silence


class Killer(NamedTuple):
    """A test that may kill: how long it takes, the lines of a unit that it runs (as bits from its first), and how
    much its file is about something else: how many tests it has; a tenth if it speaks of the very module."""

    test: str
    seconds: float
    lines: int
    distance: float

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


class LineCoverage:
    """What is known of the tests: for each unit, those that run any of it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.killers: dict[str, list[Killer]] = defaultdict(list)
        self.seconds: dict[str, float] = {}
        self.units: dict[str, str] = {}
        self.broken: list[str] = []
        self.imports: set[str] = set()
        self.speaks_of = {name: (project.root / name).read_text() for name in project.digests}
        for name in project.digests:
            self._read(json.loads(_kept(project, name).read_text()))

    def _read(self, file: dict[str, Any]) -> None:
        self.broken += file["broken"]
        self.imports.update(file["imports"])
        self.units.update(file["units"])
        for test, seconds, lines in file["tests"]:
            self.seconds[test] = seconds
            for key, mask in lines.items():
                self.killers[key].append(Killer(test, seconds, int(mask, 16), len(file["tests"])))

    def of(self, mutant: Mutant) -> list[Killer]:
        """The tests that meet a change."""
        killers = self._mentioned(mutant) if mutant.unit.is_fixed else self._run(mutant)
        module = f"{self.project.import_name(mutant.module)} import"
        near = {name for name, text in self.speaks_of.items() if module in text}
        return [_nearer(killer) if killer.file in near else killer for killer in killers]

    def _run(self, mutant: Mutant) -> list[Killer]:
        """The tests that run its lines; or any of its unit, if that has changed since they were measured."""
        key = f"{mutant.module}:{mutant.unit.name}"
        killers = self.killers.get(key, [])
        if self.units.get(key) != mutant.unit.digest:
            return killers
        met = sum(1 << (line - mutant.unit.first) for line in mutant.lines)
        return [killer for killer in killers if killer.lines & met]

    def _mentioned(self, mutant: Mutant) -> list[Killer]:
        """The tests that run a unit which names what is changed, or what is made of it, and those of files that name
        it themselves; all, if there is none."""
        found = {k.test: k for key in _mentions(self.project, mutant) for k in self.killers.get(key, ())}
        named = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in _names_of(mutant.unit)))
        files = {name for name, text in self.speaks_of.items() if named.search(text)}
        for test, seconds in self.seconds.items():
            if test.partition("::")[0] in files:
                found.setdefault(test, Killer(test, seconds, 0, 1))
        return list(found.values()) or [Killer(test, seconds, 0, 1) for test, seconds in self.seconds.items()]


def _nearer(killer: Killer) -> Killer:
    return killer._replace(distance=killer.distance / 10)


def _mentions(project: Project, mutant: Mutant) -> set[str]:
    if isinstance(mutant.unit.node, Definition):
        return {f"{mutant.module}:{mutant.unit.name.removesuffix(DEFAULTS)}"}
    names, found = set(_names_of(mutant.unit)), set[tuple[str, str, bool]]()
    everything = [(source, unit, _words(unit)) for source in project.sources.values() for unit in source.units]
    while True:
        new = {(s.module, u.name, u.is_fixed) for s, u, words in everything if words & names} - found
        if not new:
            return {f"{module}:{name}" for module, name, _ in found}
        found |= new
        names |= {name.rpartition(".")[2] for _, name, is_fixed in new if is_fixed}


def _names_of(unit: Unit) -> list[str]:
    return [name.strip() for name in unit.name.split(",")]


_WORDS: dict[int, set[str]] = {}


def _words(unit: Unit) -> set[str]:
    if id(unit.node) not in _WORDS:
        names = {node.id for node in ast.walk(unit.node) if isinstance(node, ast.Name)}
        _WORDS[id(unit.node)] = names | {node.attr for node in ast.walk(unit.node) if isinstance(node, ast.Attribute)}
    return _WORDS[id(unit.node)]


# -- measuring ------------------------------------------------------------------------------


def measure(project: Project, is_fresh: bool, say: Callable[[str], None]) -> None:
    """See to it that every test file has been measured as it is now."""
    stale = [name for name, digest in project.digests.items() if is_fresh or not _is_kept(project, name, digest)]
    if stale:
        say(f"measuring which lines {len(stale)} test files run")
        with fork(lambda _: _measure(project, stale)) as child:
            child.wait()
    missing = [name for name, digest in project.digests.items() if not _is_kept(project, name, digest)]
    if missing:
        raise RuntimeError(f"these could not be collected: {', '.join(missing)}")


def _measure(project: Project, files: list[str]) -> None:
    silence()
    collect([str(project.root / name) for name in files], _Measuring(project, files))


def _kept(project: Project, test_file: str) -> Path:
    return project.kept / "coverage" / f"{test_file.replace('/', '.')}.json"


def _is_kept(project: Project, test_file: str, digest: str) -> bool:
    path = _kept(project, test_file)
    return path.exists() and json.loads(path.read_text())["digest"] == digest


class _Measuring:
    """Runs every test twice: for its time in a process of its own, since some leave their parameters changed, and
    for its lines."""

    def __init__(self, project: Project, files: list[str]) -> None:
        self.project = project
        self.files = files
        self.sources = {str(source.path): source for source in project.sources.values()}

    def ask(self, session: pytest.Session) -> None:
        session.items[:] = [item for item in session.items if _is_asked(item)]
        with fork(lambda say: say(json.dumps(_times(session)))) as child:
            times = json.loads(child.hears.read())
        verdicts, before = Verdicts(session), set(sys.modules)
        lines = {item.nodeid: self._run(verdicts, item) for item in session.items}
        imports = sorted(set(sys.modules) - before)
        for name in self.files:
            self._keep(name, {t: times[t] for t in lines if t.startswith(f"{name}::")}, lines, imports)

    def _run(self, verdicts: Verdicts, item: pytest.Item) -> dict[str, str] | None:
        """The lines that a test runs; None if it fails."""
        tracer = _Tracer(self.sources)
        sys.settrace(tracer)
        try:
            passes = verdicts.passes(item)
        finally:
            sys.settrace(None)
        return dict(self._lines(tracer)) if passes else None

    def _keep(
        self, name: str, times: dict[str, float], lines: dict[str, dict[str, str] | None], imports: list[str]
    ) -> None:
        found = {
            "digest": self.project.digests[name],
            "units": {key: unit.digest for key, unit in self._units()},
            "tests": [(test, seconds, lines[test]) for test, seconds in times.items() if lines[test] is not None],
            "broken": [test for test in times if lines[test] is None],
            "imports": imports,
        }
        write(_kept(self.project, name), found)

    def _lines(self, tracer: _Tracer) -> Iterator[tuple[str, str]]:
        for filename, lines in tracer.lines.items():
            source = self.sources[filename]
            for unit in source.units:
                mask = sum(1 << (line - unit.first) for line in lines if unit.first <= line <= unit.last)
                if mask and isinstance(unit.node, Definition) and not unit.name.endswith(DEFAULTS):
                    yield f"{source.module}:{unit.name}", f"{mask:x}"

    def _units(self) -> Iterator[tuple[str, Unit]]:
        for source in self.sources.values():
            yield from ((f"{source.module}:{unit.name}", unit) for unit in source.units)


def _is_asked(item: pytest.Item) -> bool:
    """A database server for every mutant is too much to ask: whether a test names it, or one of its parameters does."""
    params = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    return "server_url" not in getattr(item, "fixturenames", ()) and "postgres" not in params


def _times(session: pytest.Session) -> dict[str, float]:
    """The seconds of processor time that each test takes."""
    verdicts, times = Verdicts(session), {}
    for item in session.items:
        began = time.process_time()
        verdicts.passes(item)
        times[item.nodeid] = round(time.process_time() - began, 4)
    return times


class _Tracer:
    """The lines that are run in some files."""

    def __init__(self, files: Iterable[str]) -> None:
        self.lines: dict[str, set[int]] = {name: set() for name in files}
        self.seen: dict[CodeType, Callable[..., Any] | None] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code not in self.seen:
            lines = self.lines.get(code.co_filename)
            self.seen[code] = None if lines is None else _adding_to(lines)
        return self.seen[code]


def _adding_to(lines: set[int]) -> Callable[..., Any]:
    add = lines.add

    def trace(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        add(frame.f_lineno)
        return trace

    return trace


def write(path: Path, content: Any) -> None:
    """Write a file whole or not at all: two runs may keep their results in one folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(f".{id(content)}.{time.monotonic_ns()}")
    beside.write_text(json.dumps(content))
    beside.replace(path)
