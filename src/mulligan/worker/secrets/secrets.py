"""Look up the secrets of tasks, give them to their tasks only, and remember them so that they can be redacted."""

from __future__ import annotations

import hashlib
import os
import selectors
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from mulligan.core.effects.tasks import Task, fill_late_values
from mulligan.core.model.text.formatting import error_reason
from mulligan.core.model.workflow import Secret
from mulligan.language.expressions import as_text, check, evaluate
from mulligan.worker.secrets.redactor import Redactor
from mulligan.worker.secrets.secret_commands import LookupFailed, NotReady, SecretCommands
from mulligan.worker.slots.machine_trouble import trouble_of

# A shorter value would occur in ordinary words, and redacting it would reveal it.
VALUE_CHARS_MIN = 4
VALUE_BYTES_MAX = 16 * 1024
# One byte more than the limit, and a line end: a longer value is too long.
READ_BYTES_MAX = VALUE_BYTES_MAX + 3
# The number of top-level runs whose secrets are remembered.
ROOTS_MAX = 10_000


class SecretMissing(Exception):
    """A secret that the task reads is not available. The message says which and why; `code` is the failure's code."""

    def __init__(self, name: str, reason: str, code: str = "INPUT_INVALID") -> None:
        super().__init__(f"secret '{name}' is not available: {reason}")
        self.reason = reason
        self.code = code


class Source(msgspec.Struct, frozen=True):
    """Where a value comes from; for one that was computed from secrets, the run it was computed for."""

    folder: str
    secret: Secret | None = None


class Secrets:
    """The secrets of one worker's tasks. `on_change` is called when a command that looks one up has ended."""

    def __init__(
        self, environment: Mapping[str, str], selector: selectors.BaseSelector, on_change: Callable[[], None]
    ) -> None:
        self._environment = environment
        self._commands = SecretCommands(selector, environment, on_change)
        # All values that were ever found there, the current one last: an old value may still be in a file.
        self._values: dict[Source, dict[str, None]] = {}
        # Commands that were run only so that their secret can be redacted.
        self._commands_run: set[Source] = set()
        # By top-level run: child runs may print what other runs of the same tree have written.
        self._sources_by_root: dict[str, set[Source]] = {}
        self._scope_key = os.urandom(32)

    def resolve(self, task: Task) -> Task:
        """Return the task with its secrets filled in.

        Raise SecretMissing if one is not available, ExpressionFailed if an expression over one fails, NotReady while
        one is being looked up.
        """
        self._sources_of(task).update(_own_sources(task))
        self._find_all(task)
        if not task.late:
            return task
        values = {name: self._find_value(name, task.secrets[name], task.started_in) for name in _names_read(task)}
        return fill_late_values(
            task, {name: self._fill_template(parts, values, task) for name, parts in task.late.items()}
        )

    def find(self, task: Task, name: str) -> str:
        """Return one secret of a task that was resolved; SecretMissing or NotReady as for `resolve`."""
        return self._find_value(name, task.secrets[name], task.started_in)

    def redactor(self, task: Task) -> Redactor | None:
        """Return the redactor for the secrets that the task may know, from its own workflow or from a calling one."""
        if not self._sources_by_root:
            return None
        values = self.values(task)
        return _redactor(values) if values else None

    def values(self, task: Task) -> frozenset[str]:
        """Return the secrets that the task may know."""
        if not self._sources_by_root:
            return frozenset()
        # Add its own, in case its tree was forgotten because so many others came later.
        sources = self._sources_by_root.get(_root_run_of(task), set()).union(_own_sources(task))
        return frozenset(value for source in sources for value in self._values.get(source, ()))

    def scope(self, task: Task) -> str:
        """Name the top-level run of a task that was resolved, and exactly the secrets that it was given.

        Tasks of the same scope may share a process: none of them finds there what it was not given. The name tells
        nothing of a value.
        """
        sources = {name: Source(task.started_in, task.secrets[name]) for name in sorted(_names_read(task))}
        given = [(name, next(reversed(self._values[source]))) for name, source in sources.items()]
        return hashlib.blake2b(repr((_root_run_of(task), given)).encode(), key=self._scope_key).hexdigest()

    def run_due(self, now: float) -> float:
        """Do what is due; return when to call it again."""
        return self._commands.run_due(now)

    def close(self) -> None:
        self._commands.close()

    # -- values

    def _find_all(self, task: Task) -> None:
        """Look up every secret of the workflow: a step may print one that it was not given.

        All commands run at once. Those that the task does not read run only once; those that it reads run again.
        """
        is_waiting = False
        for name, secret in task.secrets.items():
            source = Source(task.started_in, secret)
            if source in self._commands_run:
                continue
            try:
                self._find_value(name, secret, task.started_in)
            except NotReady:
                is_waiting = True
                continue
            except SecretMissing:
                pass
            if secret.command is not None:
                self._commands_run.add(source)
        if is_waiting:
            raise NotReady

    def _find_value(self, name: str, secret: Secret, folder: str) -> str:
        try:
            value = decode_secret(self._read_source(secret, folder))
        except SecretUnusable as problem:
            raise SecretMissing(name, str(problem)) from None
        except LookupFailed as failed:
            raise SecretMissing(name, str(failed), failed.code) from None
        self._remember(Source(folder, secret), value)
        return value

    def _read_source(self, secret: Secret, folder: str) -> bytes:
        if secret.env is not None:
            return read_variable(secret.env, self._environment)
        if secret.file is not None:
            return read_secret_file(secret.file, folder)
        assert secret.command is not None
        return _strip_line_end(self._commands.run(folder or "/", secret.command, READ_BYTES_MAX))

    def _fill_template(self, parts: list[Any], values: Mapping[str, str], task: Task) -> Any:
        """Evaluate a template: a single expression keeps its type, anything else is text."""
        filled = [part if isinstance(part, str) else self._evaluate(part["secret"], values, task) for part in parts]
        return filled[0] if len(filled) == 1 else "".join(map(as_text, filled))

    def _evaluate(self, expression: str, values: Mapping[str, str], task: Task) -> Any:
        """Evaluate an expression. What is computed from a secret is a secret too."""
        value = evaluate(check(expression), {"secrets": values})
        for text in _strings_in(value):
            if len(text.strip()) >= VALUE_CHARS_MIN and text not in values.values():
                source = Source(_root_run_of(task))
                self._sources_of(task).add(source)
                self._remember(source, text)
        return value

    # -- remembering

    def _remember(self, source: Source, value: str) -> None:
        values = self._values.setdefault(source, {})
        values.pop(value, None)
        values[value] = None

    def _sources_of(self, task: Task) -> set[Source]:
        root = _root_run_of(task)
        if root not in self._sources_by_root and len(self._sources_by_root) >= ROOTS_MAX:
            oldest = next(iter(self._sources_by_root))
            del self._sources_by_root[oldest]
            self._values.pop(Source(oldest), None)
        return self._sources_by_root.setdefault(root, set())


@lru_cache(maxsize=64)
def _redactor(values: frozenset[str]) -> Redactor:
    return Redactor(values)


def _names_read(task: Task) -> list[str]:
    """Return the names of the secrets that the task is given."""
    expressions = [part["secret"] for parts in task.late.values() for part in parts if not isinstance(part, str)]
    reads = {path for expression in expressions for path in check(expression).reads}
    return [name for name in task.secrets if f"secrets.{name}" in reads]


def _own_sources(task: Task) -> list[Source]:
    return [Source(task.started_in, secret) for secret in task.secrets.values()]


def _strings_in(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        yield from _strings_in(list(value.values()))
    elif isinstance(value, list):
        for inner in value:
            yield from _strings_in(inner)


def _root_run_of(task: Task) -> str:
    """Return the top-level run: child runs are named after it."""
    return task.uid.partition(".")[0] or str(task.run_id)


def problem_of(secret: Secret, folder: str, environment: Mapping[str, str]) -> str | None:
    """Return why the secret is not available, as far as that is known without running anything; None if it is."""
    try:
        if secret.env is not None:
            decode_secret(read_variable(secret.env, environment))
        elif secret.file is not None:
            decode_secret(read_secret_file(secret.file, folder))
    except SecretUnusable as problem:
        return str(problem)
    except OSError as error:
        return f"'{secret.file}' cannot be read: {error_reason(error)}"
    return None


# -- sources


class SecretUnusable(Exception):
    """There is no usable secret; the message says why, and never contains the value."""


def read_variable(name: str, environment: Mapping[str, str]) -> bytes:
    if name not in environment:
        raise SecretUnusable(f"environment variable '{name}' is not set where the worker runs")
    return environment[name].encode("utf-8", "surrogateescape")


def read_secret_file(path: str, folder: str) -> bytes:
    """Return the content of the file without its last line end. The path is relative to where `run` was called.

    Raises OSError if the machine refuses this to any task.
    """
    try:
        fd = os.open(os.path.join(folder, os.path.expanduser(path)), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise SecretUnusable(f"'{path}' is not a file")
            return _strip_line_end(file.read(READ_BYTES_MAX))
    except FileNotFoundError:
        raise SecretUnusable(f"there is no file '{path}'") from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and trouble_of(error.errno):
            raise
        raise SecretUnusable(f"'{path}' cannot be read: {error_reason(error)}") from None


def _strip_line_end(data: bytes) -> bytes:
    return data.removesuffix(b"\n").removesuffix(b"\r") if data.endswith(b"\n") else data


def decode_secret(data: bytes) -> str:
    """Return the value; raise SecretUnusable if it cannot be passed on, or not be redacted."""
    if len(data) > VALUE_BYTES_MAX:
        raise SecretUnusable(f"it is longer than {VALUE_BYTES_MAX} bytes")
    if b"\0" in data:
        raise SecretUnusable("it contains a NUL byte")
    try:
        value = data.decode()
    except UnicodeDecodeError:
        raise SecretUnusable("it is not UTF-8") from None
    if not value.strip():
        raise SecretUnusable("it is empty")
    if len(value.strip()) < VALUE_CHARS_MIN:
        raise SecretUnusable(f"it has fewer than {VALUE_CHARS_MIN} characters, too few to be redacted")
    return value
