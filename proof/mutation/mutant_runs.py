"""Run every mutant in its own process, with tests until one of them fails.

Most changes are made in a function that is already there: a process that has imported and collected everything forks,
and the child puts other code into the function. What is made when a module is imported (tables, defaults, structs)
is changed in a child that has not imported it yet.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest

from .children import Child, Say, fork
from .line_coverage import Killer
from .mutants import Mutant, Source
from .project import Project
from .trial import collect, confine, first_to_fail, silence

_FILES_AT_FIRST = 2
# What asking any test costs, however little it does.
_OVERHEAD_SECONDS = 0.01
# A test that takes longer by this much waits for another test of each of the other files.
_TURN_SECONDS = 0.003


class MutantTask(NamedTuple):
    """A mutant, the tests that may kill it, and their time limit (in seconds of cpu time)."""

    mutant: Mutant
    killers: list[Killer]
    patience: float


class Result(NamedTuple):
    """The result of the n-th: killed (and by which test), timed_out or survived."""

    number: int
    status: str
    by: str = ""


def run_mutants(project: Project, tasks: Sequence[MutantTask], imports: Iterable[str] = ()) -> Iterator[Result]:
    """The results, as they come: first of the changes in functions, then of the others.

    `imports` are the modules that only the tests import: if each child had to, that would take most of its time.
    """
    numbered = list(enumerate(tasks))
    swift = [(n, q) for n, q in numbered if not q.mutant.unit.is_fixed and q.killers]
    if swift:
        with fork(lambda say: _Warm(project, swift, imports).run(say)) as child:
            for line in child.hears:
                yield Result(*json.loads(line))
            if child.wait() != 0:
                raise RuntimeError("the process that has collected the tests has ended before its time")
    yield from _cold(project, [(n, q) for n, q in numbered if q.mutant.unit.is_fixed or not q.killers])


class _Likeliest:
    """The order of tests: first those that killed nearby mutants, by the time they take; then the files in turn.

    Tests of one file look at one thing. A file of which nearly all tests meet the change is about it and has many
    turns; one of which a few happen to meet it has few. One set of parameters is much like another.
    """

    def __init__(self) -> None:
        self.kills: Counter[tuple[str, ...]] = Counter()

    def sorted(self, task: MutantTask) -> list[Killer]:
        meet, asked = Counter(killer.file for killer in task.killers), Counter[str]()
        turns = {}
        for killer in sorted(task.killers, key=lambda killer: killer.seconds):
            function = killer.test.partition("[")[0]
            turn = asked[killer.file] + killer.seconds / _TURN_SECONDS
            turns[killer.test] = turn * (1 + asked[function]) * killer.distance / meet[killer.file]
            asked[killer.file] += not asked[function]
            asked[function] += 1
        return sorted(task.killers, key=lambda k: (-self._worth(task.mutant, k), turns[k.test]))

    def _worth(self, mutant: Mutant, killer: Killer) -> float:
        near, far = (mutant.module, mutant.unit.name, killer.test), (mutant.module, killer.test)
        return (10 * self.kills[near] + self.kills[far]) / (killer.seconds + _OVERHEAD_SECONDS)

    def note(self, mutant: Mutant, test: str) -> None:
        self.kills[mutant.module, mutant.unit.name, test] += 1
        self.kills[mutant.module, test] += 1


def _ended(child: Child) -> tuple[str, str]:
    """Return the result of a mutant from the last line of its process and from how it ended."""
    said = child.hears.read().strip()
    status = child.wait()
    if said.startswith("killed "):
        return "killed", said.removeprefix("killed ")
    if said == "survived":
        return "survived", ""
    if said.startswith("nowhere"):
        raise RuntimeError(f"{said.removeprefix('nowhere ')}: has it been edited since the run began?")
    # Out of memory, or a crash of the interpreter: killed, though not by a test.
    return ("timed_out", "") if status in (-signal.SIGPROF, -signal.SIGALRM) else ("killed", "by its own weight")


# -- functions that are already there ------------------------------------------------------------------------------


class _Warm:
    """A process that has everything collected, and forks for every mutant."""

    def __init__(self, project: Project, numbered: list[tuple[int, MutantTask]], imports: Iterable[str]) -> None:
        self.project = project
        self.numbered = numbered
        self.imports = sorted(imports)
        self.likeliest = _Likeliest()
        self.say: Say = print

    def run(self, say: Say) -> None:
        self.say = say
        silence()
        files = sorted({killer.file for _, task in self.numbered for killer in task.killers})
        collect([str(self.project.root / name) for name in files], self)

    def ask(self, session: pytest.Session) -> None:
        items = {item.nodeid: item for item in session.items}
        for name in self.imports:
            # Some exist only while a test runs.
            with suppress(Exception):
                importlib.import_module(name)
        functions = _functions({str(source.path) for source in self.project.sources.values()})
        gc.collect()
        gc.freeze()
        for number, task in self.numbered:
            chosen = [(items[k.test], k.seconds) for k in self.likeliest.sorted(task) if k.test in items]
            source = self.project.sources[task.mutant.module]
            with fork(lambda say, q=task, s=source, c=chosen: _try(say, session, s, q, functions, c)) as child:  # type: ignore[misc]
                status, by = _ended(child)
            self.likeliest.note(task.mutant, by)
            self.say(json.dumps(Result(number, status, by)))


def _functions(files: set[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """The functions of some files by file, name and first line: wherever they were handed, they are these objects."""
    found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    # What a conftest.py has frozen is not among them.
    gc.unfreeze()
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename in files:
            found[_place(thing.__code__)].append(thing)
    return found


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _try(say: Say, session: pytest.Session, source: Source, task: MutantTask, functions: Any, chosen: Any) -> None:
    confine()
    if not install(source, task.mutant, functions):
        say(f"nowhere {source.module}.{task.mutant.unit.name}")
        return
    by = first_to_fail(session, chosen, task.patience)
    say(f"killed {by}" if by else "survived")


def install(source: Source, mutant: Mutant, functions: dict[tuple[str, str, int], list[FunctionType]]) -> bool:
    """Put the changed code into the functions that have the original; False if there are none."""
    for code in _codes(_changed(source, mutant)):
        if code.co_qualname == mutant.unit.name and code.co_firstlineno == mutant.unit.first:
            for function in functions[_place(code)]:
                function.__code__ = code
            return bool(functions[_place(code)])
    return False


def _changed(source: Source, mutant: Mutant) -> CodeType:
    mutant.swap(mutant.new)
    return compile(source.tree, str(source.path), "exec", dont_inherit=True)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


# -- what is made when a module is imported ------------------------------------------------------------------------


def _cold(project: Project, numbered: list[tuple[int, MutantTask]]) -> Iterator[Result]:
    likeliest = _Likeliest()
    for number, task in numbered:
        with fork(lambda say, q=task: _import_and_try(say, project, q, likeliest)) as child:  # type: ignore[misc]
            status, by = _ended(child)
        likeliest.note(task.mutant, by)
        yield Result(number, status, by)


def _import_and_try(say: Say, project: Project, task: MutantTask, likeliest: _Likeliest) -> None:
    silence()
    confine()
    source = project.sources[task.mutant.module]
    sys.meta_path.insert(0, _Changed(project.import_name(source.module), source, task.mutant))
    killers = likeliest.sorted(task)
    attempt = _Attempt(killers, task.patience)
    for files in _helpings(killers):
        if attempt.patience < 0:
            break
        attempt.by = None
        collect([str(project.root / name) for name in files], attempt)
        if attempt.by is None or attempt.by:
            # Where nothing could be collected, the change has shown itself when it was imported.
            say(f"killed {attempt.by or 'when it was imported'}")
            return
    say("survived")


def _helpings(killers: list[Killer]) -> Iterator[list[str]]:
    """The files of the killers, the likeliest first: a few, then more and more, since collecting them takes time."""
    names, size = list(dict.fromkeys(killer.file for killer in killers)), _FILES_AT_FIRST
    while names:
        yield names[:size]
        names, size = names[size:], size * 3


class _Attempt:
    """The tests of some files against a change that was there when they were imported."""

    def __init__(self, killers: list[Killer], patience: float) -> None:
        self.killers = killers
        self.patience = patience
        self.by: str | None = None

    def ask(self, session: pytest.Session) -> None:
        items = {item.nodeid: item for item in session.items}
        chosen = [(items[killer.test], killer.seconds) for killer in self.killers if killer.test in items]
        began = time.process_time()
        self.by = first_to_fail(session, chosen, self.patience)
        # Collecting is not asking: only that takes patience.
        self.patience -= time.process_time() - began


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with a change in it."""

    def __init__(self, name: str, source: Source, mutant: Mutant) -> None:
        self.name = name
        self.source = source
        self.mutant = mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.source.path, loader=self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(_changed(self.source, self.mutant), module.__dict__)
