"""A job of Torc's on its way to be a step of ours, and what it reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from mulligan.formats.torc.expansion import Expanded
from mulligan.language.nodes import Mapping, Node, Scalar


class Thing:
    """A file or a piece of user data, with the jobs that write it. `text` is what stands for it in commands."""

    __slots__ = ("is_empty", "is_in_command", "key", "name", "name_node", "node", "text", "writers")

    def __init__(self, name: str, key: str, text: str, name_node: Scalar, node: Node) -> None:
        self.name = name
        self.key = key
        self.text = text
        self.name_node = name_node
        self.node = node
        # Of user data: it has no value yet.
        self.is_empty = False
        # Some command has its text in it.
        self.is_in_command = False
        self.writers: list[Job] = []


class Wait(NamedTuple):
    """Jobs that another one says it depends on. Many jobs share one tuple where they have the same expression."""

    jobs: tuple[Job, ...]
    at: Node


class Job:
    """One job of Torc's on its way to be a step of ours."""

    __slots__ = (
        "entries",
        "extra_needs",
        "form",
        "inputs",
        "lists",
        "name",
        "name_node",
        "number",
        "outputs",
        "step",
        "texts",
        "user_data",
        "waits",
    )

    def __init__(self, number: int, step: str, made: Expanded) -> None:
        # As Torc counts them, from 1 in the order of the file.
        self.number = number
        self.name = made.name
        # What its step is called.
        self.step = step
        self.name_node = made.name_node
        self.form = made.form
        self.texts = made.texts
        self.lists = made.lists
        self.waits: list[Wait] = []
        # Files and user data, as sets likewise.
        self.inputs: list[tuple[Thing, ...]] = []
        self.user_data: list[tuple[Thing, ...]] = []
        self.outputs: list[tuple[Thing, ...]] = []
        # Further entries of `needs` that its step gets, and of the step itself.
        self.extra_needs: list[Any] = []
        self.entries: dict[str, Any] = {}

    @property
    def node(self) -> Mapping:
        return self.form.node

    @property
    def is_cancelled_with_others(self) -> bool:
        """Whether it is not run when a job that it depends on has failed."""
        return self.form.get("cancel_on_blocking_job_failure") is not False

    def at(self, key: str) -> Node:
        """Where that is said of it, be it by an expression; its name where it is not."""
        node = self.form.node
        return node.get(key) or node.get(f"{key.removesuffix('s')}_regexes") or self.name_node

    def dependencies(self) -> Iterator[tuple[Job, ...]]:
        """Everybody it waits for, as sets that may overlap: said, or implied by what it reads."""
        yield from (wait.jobs for wait in self.waits)
        for things in (*self.inputs, *self.user_data):
            yield tuple(self.writers(things))

    def writers(self, things: Iterable[Thing]) -> Iterator[Job]:
        """Who writes these, but for the job itself."""
        return (job for job in dict.fromkeys(job for thing in things for job in thing.writers) if job is not self)
