"""Whom a step needs: few by their names, many as one group, which is one barrier however many wait at it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from mulligan.formats.torc.job import Job, Thing, Wait
from mulligan.formats.translation import made
from mulligan.language.nodes import Node

# More than these are named by what their names have in common.
FEW = 8
# What may follow the beginning that the names of a group share, from the plainest on.
_ENDINGS = (".*", "[0-9]+", "[0-9_]+", "[a-z]+", "[A-Za-z]+", "[A-Za-z0-9]+", "[A-Za-z0-9-]+")


class Groups:
    """Expressions that match the names of these steps and of no others."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
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
        for start in dict.fromkeys((shared.rstrip("0123456789"), shared)):
            alike = self._alike(start)
            for ending in _ENDINGS if start else ():
                matched = alike if ending == ".*" else [name for name in alike if re.fullmatch(start + ending, name)]
                if len(matched) == len(members) and set(matched) == set(members):
                    return start + ending
        return ""

    def _alike(self, start: str) -> list[str]:
        """The names that begin so. No character of a name comes after `~`."""
        return self._names[bisect_left(self._names, start) : bisect_left(self._names, start + "~")]


def _shared(one: str, other: str) -> str:
    """How both begin."""
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def reads(job: Job) -> tuple[list[Thing], list[tuple[Thing, ...]]]:
    """The files that the step names as read, and those of which it needs the writers as a group.

    A step that reads needs who writes, and succeeds. Where that is not meant, or would be too many, it says whom it
    needs, and names only the files that nobody writes, which must be there.
    """
    named: list[Thing] = []
    grouped: list[tuple[Thing, ...]] = []
    for things in job.inputs:
        is_many = len(things) > FEW or any(len(thing.writers) > FEW for thing in things)
        if job.is_cancelled_with_others and not is_many:
            named += things
        else:
            named += [thing for thing in things if not thing.writers]
            grouped.append(things)
    return list(dict.fromkeys(named)), grouped


def needs(job: Job, groups: Groups, writers: Writers) -> list[Any]:
    """The entries of the step's `needs`."""
    waits = [*job.waits, *_implied(job, writers)]
    single = {each: wait.at for wait in waits if len(wait.jobs) <= FEW for each in wait.jobs}
    many = {wait.jobs: wait.at for wait in waits if len(wait.jobs) > FEW}
    if len(single) > FEW and groups.short(named := tuple(single)):
        many[named] = next(iter(single.values()))
        single = {}
    on = None if job.is_cancelled_with_others else "always"
    entries = [*job.extra_needs, *_single(single, on)]
    return entries + [made({"match": groups.expression(jobs), "on": on}, at) for jobs, at in many.items()]


def _implied(job: Job, writers: Writers) -> Iterator[Wait]:
    """Whom it waits for because of what it reads, as far as that is not said by its `reads`."""
    _, files = reads(job)
    yield from (Wait(writers.of(things, job), job.at("input_files")) for things in files)
    yield from (Wait(writers.of(things, job), job.at("input_user_data")) for things in job.user_data)


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
