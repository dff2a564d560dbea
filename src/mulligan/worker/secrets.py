"""Secrets: looked up where a task says that they are, handed to it alone, and remembered so that they can be hidden."""

from __future__ import annotations

import os
import selectors
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from mulligan.core.effects.tasks import Task, fill_late_values
from mulligan.core.model.formatting import error_reason
from mulligan.core.model.workflow import Secret
from mulligan.language.expressions import as_text, check, evaluate
from mulligan.worker.lookups import LookupFailed, Lookups, NotYet
from mulligan.worker.redactor import Redactor

# A shorter one would be found in every other word, and hiding it would tell what it is.
VALUE_CHARS_MIN = 4
VALUE_BYTES_MAX = 16 * 1024
# One more than that, and a line end: what is longer is too long.
READ_BYTES_MAX = VALUE_BYTES_MAX + 3
# Runs, with those that they have called, whose secrets are remembered.
TREES_MAX = 10_000


class SecretMissing(Exception):
    """A secret that the task reads cannot be had. The message says which and why; `code` is what the failure is."""

    def __init__(self, name: str, reason: str, code: str = "INPUT_INVALID") -> None:
        super().__init__(f"the secret '{name}' cannot be had: {reason}")
        self.code = code


class Source(NamedTuple):
    """Where a value was found; of one that was made of others, the run that it was made for."""

    folder: str
    secret: Secret | None = None


class Secrets:
    """The secrets of the tasks of one worker. `on_news` is called when one that took its time is known, or is not."""

    def __init__(
        self, environment: Mapping[str, str], selector: selectors.BaseSelector, on_news: Callable[[], None]
    ) -> None:
        self._environment = environment
        self._lookups = Lookups(selector, environment, on_news)
        # Every value that was ever found there: one that was changed since may still be in a file.
        self._values: dict[Source, dict[str, None]] = {}
        # Commands that were run for whoever might print what they gave.
        self._asked: set[Source] = set()
        # By the run at the top: what one run has written, those that it calls may print.
        self._trees: dict[str, set[Source]] = {}

    def given(self, task: Task) -> Task:
        """The task with its secrets in hand.

        SecretMissing where one cannot be had, ExpressionFailed where nothing can be made of it; NotYet while one is
        looked up.
        """
        self._tree(task).update(_own_sources(task))
        self._look_around(task)
        if not task.late:
            return task
        parts = [part["secret"] for parts in task.late.values() for part in parts if not isinstance(part, str)]
        read = {name: task.secrets[name] for name in task.secrets if _reads(parts, name)}
        values = {name: self._value(name, secret, task.home) for name, secret in read.items()}
        return fill_late_values(task, {name: self._made(parts, values, task) for name, parts in task.late.items()})

    def redactor(self, task: Task) -> Redactor | None:
        """What hides the secrets that the task may know, by its own workflow or by one that called it."""
        values = self.values(task)
        return _redactor(values) if values else None

    def values(self, task: Task) -> frozenset[str]:
        """The secrets that the task may know."""
        if not self._trees:
            return frozenset()
        # Its own are known, too, where so many others were begun since that its tree is forgotten.
        sources = self._trees.get(_root(task), set()).union(_own_sources(task))
        return frozenset(value for source in sources for value in self._values.get(source, ()))

    def keep_time(self, now: float) -> float:
        """Do what is due; when to do so next."""
        return self._lookups.keep_time(now)

    def close(self) -> None:
        self._lookups.close()

    # -- values

    def _look_around(self, task: Task) -> None:
        """A step may print what it was not given: every secret of its workflow is looked up before it runs.

        All commands are run at once, and only once for who does not read what they give; whoever does asks anew.
        """
        is_waiting = False
        for name, secret in task.secrets.items():
            source = Source(task.home, secret)
            if source in self._asked:
                continue
            try:
                self._value(name, secret, task.home)
            except NotYet:
                is_waiting = True
                continue
            except SecretMissing:
                pass
            if secret.command is not None:
                self._asked.add(source)
        if is_waiting:
            raise NotYet

    def _value(self, name: str, secret: Secret, folder: str) -> str:
        try:
            value = usable(self._found(secret, folder))
        except NotUsable as problem:
            raise SecretMissing(name, str(problem)) from None
        except LookupFailed as failed:
            raise SecretMissing(name, str(failed), failed.code) from None
        self._remember(Source(folder, secret), value)
        return value

    def _found(self, secret: Secret, folder: str) -> bytes:
        if secret.env is not None:
            return of_environment(secret.env, self._environment)
        if secret.file is not None:
            return of_file(secret.file, folder)
        assert secret.command is not None
        return _without_line_end(self._lookups.ask(folder or "/", secret.command, READ_BYTES_MAX))

    def _made(self, parts: list[Any], values: Mapping[str, str], task: Task) -> Any:
        """What a template comes to: of one expression its value with its type, else text."""
        found = [part if isinstance(part, str) else self._evaluated(part["secret"], values, task) for part in parts]
        return found[0] if len(found) == 1 else "".join(map(as_text, found))

    def _evaluated(self, source: str, values: Mapping[str, str], task: Task) -> Any:
        """What is made of a secret is one as well."""
        found = evaluate(check(source), {"secrets": values})
        for text in _texts_in(found):
            if len(text.strip()) >= VALUE_CHARS_MIN and text not in values.values():
                made = Source(_root(task))
                self._tree(task).add(made)
                self._remember(made, text)
        return found

    # -- memory

    def _remember(self, source: Source, value: str) -> None:
        self._values.setdefault(source, {})[value] = None

    def _tree(self, task: Task) -> set[Source]:
        root = _root(task)
        if root not in self._trees and len(self._trees) >= TREES_MAX:
            oldest = next(iter(self._trees))
            del self._trees[oldest]
            self._values.pop(Source(oldest), None)
        return self._trees.setdefault(root, set())


@lru_cache(maxsize=64)
def _redactor(values: frozenset[str]) -> Redactor:
    return Redactor(values)


def _reads(sources: Collection[str], name: str) -> bool:
    return any(f"secrets.{name}" in check(source).reads for source in sources)


def _own_sources(task: Task) -> list[Source]:
    return [Source(task.home, secret) for secret in task.secrets.values()]


def _texts_in(value: Any) -> Iterator[str]:
    """Every text in a value of JSON, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        yield from _texts_in(list(value.values()))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner)


def _root(task: Task) -> str:
    """The run at the top: a child run is named after it."""
    return task.uid.partition(".")[0] or str(task.run_id)


def trouble_with(secret: Secret, folder: str, environment: Mapping[str, str]) -> str | None:
    """Why the secret cannot be had, as far as that can be seen without running anything; None where it can."""
    try:
        if secret.env is not None:
            usable(of_environment(secret.env, environment))
        elif secret.file is not None:
            usable(of_file(secret.file, folder))
    except NotUsable as problem:
        return str(problem)
    return None


# -- where they are


class NotUsable(Exception):
    """There is no such secret there; the message says why, and never what is there."""


def of_environment(name: str, environment: Mapping[str, str]) -> bytes:
    if name not in environment:
        raise NotUsable(f"the environment of the worker has no '{name}'")
    return environment[name].encode("utf-8", "surrogateescape")


def of_file(path: str, folder: str) -> bytes:
    """What is in the file, without its last line end. Relative to where `run` was called."""
    try:
        fd = os.open(os.path.join(folder, os.path.expanduser(path)), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NotUsable(f"'{path}' is no file")
            return _without_line_end(file.read(READ_BYTES_MAX))
    except FileNotFoundError:
        raise NotUsable(f"there is no file '{path}'") from None
    except (OSError, ValueError) as error:
        raise NotUsable(f"'{path}' cannot be read: {error_reason(error)}") from None


def _without_line_end(data: bytes) -> bytes:
    return data.removesuffix(b"\n").removesuffix(b"\r") if data.endswith(b"\n") else data


def usable(found: bytes) -> str:
    """The value; NotUsable where it could not be handed over, or not be hidden."""
    if len(found) > VALUE_BYTES_MAX:
        raise NotUsable(f"it has more than {VALUE_BYTES_MAX} bytes")
    if b"\0" in found:
        raise NotUsable("it has a NUL in it")
    try:
        value = found.decode()
    except UnicodeDecodeError:
        raise NotUsable("it is not UTF-8") from None
    if not value.strip():
        raise NotUsable("it is empty")
    if len(value.strip()) < VALUE_CHARS_MIN:
        raise NotUsable(f"it has fewer than {VALUE_CHARS_MIN} characters, and so short a value cannot be hidden")
    return value
