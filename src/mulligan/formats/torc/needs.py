"""Whom a step needs: few by their names, many as one group, which is one barrier however many wait at it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from mulligan.formats.torc.job import Job, Thing, Wait
from mulligan.formats.translation import made
from mulligan.language.nodes import Node
from mulligan.language.prefix_index import PrefixIndex

# More than these are named by what their names have in common.
FEW = 8
# What may follow the beginning that the names of a group share, from the plainest on.
_ENDINGS = (".*", "[0-9]+", "[0-9_]+", "[a-z]+", "[A-Za-z]+", "[A-Za-z0-9]+", "[A-Za-z0-9-]+")


class Groups:
    """Expressions that match the names of these steps and of no others."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = PrefixIndex(names)
        self._known: dict[tuple[Job, ...], str] = {}

    def expression(self, jobs: tuple[Job, ...]) -> str:
        """What matches the steps of these jobs, and nothing else."""
        return self.short(jobs) or "|".join(job.step for job in jobs)

    def short(self, jobs: tuple[Job, ...]) -> str:
        """What matches them by what their names have in common; empty where that is not theirs alone."""
        if jobs not in self._known:
            self._known[jobs] = self._found([job.step for job in jobs])
        return self._known[jobs]

    def _found(self, members: list[str]) -> str:
        """Names have no character that means anything in an expression."""
        shared = _shared(min(members), max(members))
        for start in filter(None, dict.fromkeys((shared.rstrip("0123456789"), shared))):
            alike = self._names.names_with_prefix(start)
            for ending in _ENDINGS:
                matched = alike if ending == ".*" else [name for name in alike if re.fullmatch(start + ending, name)]
                if len(matched) == len(members) and set(matched) == set(members):
                    return start + ending
        return ""


def _shared(one: str, other: str) -> str:
    """How both begin."""
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


class Links:
    """What the step of a job says of others: whom it needs, and which files it reads.

    A step that reads needs who writes, and succeeds. Where that is not meant, or would be too many, it says whom it
    needs, and names only the files that nobody writes, which must be there.
    """

    def __init__(self, job: Job, groups: Groups, writers: Writers) -> None:
        self._job = job
        self._groups = groups
        self._writers = writers
        self.reads: list[Thing] = []
        self._grouped: list[tuple[Thing, ...]] = []
        for things in job.inputs:
            is_many = len(things) > FEW or any(len(thing.writers) > FEW for thing in things)
            if job.is_cancelled_with_others and not is_many:
                self.reads += things
            else:
                self._group(things)
        self._group_many()
        self.reads = list(dict.fromkeys(self.reads))

    def _group(self, things: tuple[Thing, ...]) -> None:
        self._grouped.append(things)
        self.reads += [thing for thing in things if not thing.writers]

    def _group_many(self) -> None:
        """Many files that are named each are read as one group of writers, if that has a name of its own."""
        written = tuple(thing for thing in self.reads if thing.writers)
        if len(written) > FEW and self._groups.short(self._writers.of(written, self._job)):
            self.reads = [thing for thing in self.reads if not thing.writers]
            self._grouped.append(written)

    def needs(self) -> list[Any]:
        """The entries of the step's `needs`."""
        waits = [*self._job.waits, *self._implied()]
        single = {each: wait.at for wait in waits if len(wait.jobs) <= FEW for each in wait.jobs}
        many = {wait.jobs: wait.at for wait in waits if len(wait.jobs) > FEW}
        if len(single) > FEW and self._groups.short(named := tuple(single)):
            many[named] = next(iter(single.values()))
            single = {}
        on = None if self._job.is_cancelled_with_others else "always"
        grouped = [made({"match": self._groups.expression(jobs), "on": on}, at) for jobs, at in many.items()]
        return [*self._job.extra_needs, *_single(single, on), *grouped]

    def _implied(self) -> Iterator[Wait]:
        """Whom it waits for because of what it reads, as far as that is not said by its `reads`."""
        job = self._job
        for key, sets in (("input_files", self._grouped), ("input_user_data", job.user_data)):
            yield from (Wait(self._writers.of(things, job), job.at(key)) for things in sets)


def _single(jobs: dict[Job, Node], on: str | None) -> Iterator[Any]:
    for job, at in jobs.items():
        yield made(job.step if on is None else {"step": job.step, "on": on}, at)


class Writers:
    """Who writes what, asked once per set."""

    def __init__(self) -> None:
        self._known: dict[tuple[Thing, ...], tuple[Job, ...]] = {}

    def of(self, things: tuple[Thing, ...], reader: Job) -> tuple[Job, ...]:
        """The jobs that write these, without the reader."""
        if things not in self._known:
            self._known[things] = tuple(dict.fromkeys(job for thing in things for job in thing.writers))
        found = self._known[things]
        return tuple(job for job in found if job is not reader) if reader in found else found
