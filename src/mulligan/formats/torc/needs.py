"""What a step needs: a few steps by name, many as one group, which costs one barrier."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from mulligan.formats.torc.jobs import DataItem, Dependency, Job
from mulligan.formats.translation import made
from mulligan.language.checks.prefix_index import PrefixIndex
from mulligan.language.text.nodes import Node

# More steps than this are needed as a group, by a pattern over their names.
NAMED_MAX = 8
# Patterns that may follow the shared prefix of a group, simplest first.
_ENDINGS = (".*", "[0-9]+", "[0-9_]+", "[a-z]+", "[A-Za-z]+", "[A-Za-z0-9]+", "[A-Za-z0-9-]+")


class StepPatterns:
    """Patterns that match the names of given steps and of no others."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = PrefixIndex(names)
        self._known: dict[tuple[Job, ...], str] = {}

    def needs(self, jobs: tuple[Job, ...], on: str | None, at: Node) -> list[Any]:
        """The entries of `needs` for these jobs."""
        if len(jobs) > NAMED_MAX:
            pattern = self.short_pattern(jobs) or "|".join(job.step for job in jobs)
            return [made({"match": pattern, "on": on}, at)]
        return [made({"step": job.step, "on": on} if on else job.step, at) for job in jobs]

    def short_pattern(self, jobs: tuple[Job, ...]) -> str:
        """A pattern of a shared prefix; "" if other steps would match it as well."""
        if jobs not in self._known:
            self._known[jobs] = self._found([job.step for job in jobs])
        return self._known[jobs]

    def _found(self, members: list[str]) -> str:
        """Find a short pattern. Step names have no characters that need escaping."""
        first, last = min(members), max(members)
        shared = "".join(
            one for one, other in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
        )
        for start in filter(None, dict.fromkeys((shared.rstrip("0123456789"), shared))):
            others = self._names.names_with_prefix(start)
            for ending in _ENDINGS:
                matched = others if ending == ".*" else [name for name in others if re.fullmatch(start + ending, name)]
                if len(matched) == len(members) and set(matched) == set(members):
                    return start + ending
        return ""


class StepLinks:
    """The `needs` and `reads` of a job's step.

    A step that reads a file needs the success of its writers. If the job runs after a failure as well, or there are too
    many writers, the step has explicit `needs` instead, and `reads` only the files that no job writes.
    """

    def __init__(self, job: Job, groups: StepPatterns, writers: Writers) -> None:
        self._job = job
        self._groups = groups
        self._writers = writers
        self.reads: list[DataItem] = []
        self._grouped_inputs: list[tuple[DataItem, ...]] = []
        for items in job.inputs:
            is_many = len(items) > NAMED_MAX or any(len(item.writers) > NAMED_MAX for item in items)
            if job.is_cancelled_on_failure and not is_many:
                self.reads += items
            else:
                self._grouped_inputs.append(items)
                self.reads += [item for item in items if not item.writers]
        # Replace many files by one group of writers, if a short pattern matches them.
        written = tuple(item for item in self.reads if item.writers)
        if len(written) > NAMED_MAX and groups.short_pattern(writers.of(written, job)):
            self.reads = [item for item in self.reads if not item.writers]
            self._grouped_inputs.append(written)
        self.reads = list(dict.fromkeys(self.reads))

    def needs(self) -> list[Any]:
        """The entries of the step's `needs`."""
        waits = [*self._job.declared, *self._implied()]
        single = {each: wait.at for wait in waits if len(wait.jobs) <= NAMED_MAX for each in wait.jobs}
        many = {wait.jobs: wait.at for wait in waits if len(wait.jobs) > NAMED_MAX}
        if len(single) > NAMED_MAX and self._groups.short_pattern(named := tuple(single)):
            many[named] = next(iter(single.values()))
            single = {}
        on = None if self._job.is_cancelled_on_failure else "always"
        asked = [*(((job,), at) for job, at in single.items()), *many.items()]
        return [*self._job.extra_needs, *(need for jobs, at in asked for need in self._groups.needs(jobs, on, at))]

    def _implied(self) -> Iterator[Dependency]:
        """The jobs that it waits for because of its inputs, unless its `reads` cover them."""
        job = self._job
        for key, sets in (("input_files", self._grouped_inputs), ("input_user_data", job.user_data)):
            yield from (Dependency(self._writers.of(items, job), job.at(key)) for items in sets)


class Writers:
    """The writers of each set of files, computed once per set."""

    def __init__(self) -> None:
        self._known: dict[tuple[DataItem, ...], tuple[Job, ...]] = {}

    def of(self, items: tuple[DataItem, ...], reader: Job) -> tuple[Job, ...]:
        """The jobs that write these, without the reader."""
        if items not in self._known:
            self._known[items] = tuple(dict.fromkeys(job for item in items for job in item.writers))
        found = self._known[items]
        return tuple(job for job in found if job is not reader) if reader in found else found
