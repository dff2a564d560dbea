"""What a step calls while it runs: `mulligan.progress`, `log`, `attempt`, `idempotency_key`, `artifact`.

A step gets everything from its environment, so these work in its threads and processes too, in a program that a shell
step starts, and in any interpreter: standard library only. `artifacts` is loaded when a step keeps its first file.
"""

from __future__ import annotations

import atexit
import json.encoder
import os
import sys
import time

from mulligan.step_context.errors import NotInStep, is_program

# `typing` itself is not imported: a step that imports this should not wait for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any

    from mulligan.step_context.artifacts import ArtifactPath, new_artifact_path, register_artifact

__all__ = [
    "ArtifactPath",
    "NotInStep",
    "artifact",
    "attempt",
    "idempotency_key",
    "log",
    "new_artifact_path",
    "progress",
    "register_artifact",
]

# The file that has the progress of the attempt. The worker reads it: see `mulligan.worker.logs.progress_files`.
PROGRESS_FILE = "MULLIGAN_PROGRESS"
# A record has always this size, so that one system call replaces the one before it, whatever its length was.
RECORD_BYTES = 1024
# At most four bytes each, so that a record has space for them.
TEXT_CHARS_MAX = 200
NUMBER_MAX = 10**18
# So many records are written in so many seconds; further counts wait.
WRITES_MAX, WINDOW_SECONDS = 100, 0.1
NOT_OPEN = -1
# Outside of a step: how often a line is printed.
PRINT_SECONDS = 0.1

_LAZY = ("ArtifactPath", "new_artifact_path", "register_artifact")
_quote = json.encoder.encode_basestring


# -- progress --------------------------------------------------------------------------------------------------------


def progress(done: Any = None, total: Any = None, text: str = "") -> None:
    """Say how far the step is: `progress(3, 10)`, `progress(3, 10, "loading")`, `progress(0.3)`, `progress("loading")`.

    A float from 0 to 1 without `total` is a share. Each call replaces the last one; it is shown while the step runs,
    and kept with the attempt. Call it as often as you like. Outside of a step it prints; a program has no progress.
    """
    if _file.is_open and _file.may_wait(done, total, text):
        return
    record = progress_record(done, total, text)
    if not _file.is_open and not _file.open():
        _printed.show(record)
    else:
        _file.write(record)


def progress_record(done: Any, total: Any, text: str) -> str:
    """Return a progress as JSON; raise TypeError or ValueError with what to write instead."""
    if isinstance(done, str) and total is None and not text:
        done, text = None, done
    if not isinstance(text, str):
        raise TypeError(f"the text of a progress must be a string, not {type(text).__name__}")
    if not text.isprintable() or len(text) > TEXT_CHARS_MAX:
        text = "".join(char if char.isprintable() else " " for char in text[:TEXT_CHARS_MAX])
    shown = f',"text":{_quote(text)}' if text else ""
    if type(done) is int and type(total) is int and min(done, total) >= 0 and max(done, total) <= NUMBER_MAX:
        return f'{{"done":{done:d},"total":{total:d}{shown}}}'
    if done is None:
        if total is not None or not text:
            raise TypeError('a progress needs a number or a text: progress(3, 10), progress(0.3), progress("loading")')
        return f"{{{shown[1:]}}}"
    number = _number(done, "done")
    if total is not None:
        return f'{{"done":{number},"total":{_number(total, "total")}{shown}}}'
    if isinstance(number, float) and number <= 1:
        return f'{{"done":{number},"total":1{shown}}}'
    return f'{{"done":{number}{shown}}}'


def _number(value: Any, name: str) -> int | float:
    """Return a number of any library as one of Python's."""
    number: int | float
    if isinstance(value, (bool, str, bytes)):
        raise TypeError(f"'{name}' of a progress must be a number, not {type(value).__name__}: progress(3, 10)")
    try:
        number = int(value.__index__()) if hasattr(value, "__index__") else float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"'{name}' of a progress must be a number, not {type(value).__name__}: progress(3, 10)"
        ) from None
    if not 0 <= number <= NUMBER_MAX:
        raise ValueError(f"'{name}' of a progress must be a number from 0 to {NUMBER_MAX:.0e}, not {number:.6g}")
    return number


def yielded_progress(value: Any) -> None:
    """Take what a step yields as its progress; raise TypeError for anything else."""
    if isinstance(value, tuple) and 2 <= len(value) <= 3:
        progress(*value)
    elif value is None or isinstance(value, (bool, tuple, list, dict)):
        raise TypeError("it is not a progress")
    else:
        progress(value)


class _Printed:
    """Progress outside of a step: a line on stderr, at most ten a second, and always a new text or the last step."""

    def __init__(self) -> None:
        self._text = ""
        self._next = 0.0

    def show(self, record: str) -> None:
        found = json.loads(record)
        text, done, total = found.get("text", ""), found.get("done"), found.get("total")
        now = time.monotonic()
        if now < self._next and text == self._text and (total is None or done < total):
            return
        self._text, self._next = text, now + PRINT_SECONDS
        count = "" if done is None else f"{done}" if total is None else f"{done}/{total}"
        print("progress:", *filter(None, (count, text)), file=sys.stderr)


_printed = _Printed()


class _ProgressFile:
    """The file that has the progress of this step. Of very many calls most are not written: only counts, never a text.

    A hundred writes in a tenth of a second are free, so that the last of a few quick calls is seen at once. What was
    not written is written by the next call that is, before a fork, and when the step or the process ends.
    """

    def __init__(self) -> None:
        self._fd = NOT_OPEN
        self._since, self._writes, self._text = 0.0, 0, ""
        self._waiting: tuple[int, int, str] | None = None

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def open(self) -> bool:
        """Open the file; return whether there is a step."""
        path = os.environ.get(PROGRESS_FILE)
        if path is None:
            if is_program():
                raise NotInStep("progress")
            return False
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True  # a step does not fail because its progress cannot be shown
        atexit.register(self.flush)
        return True

    def may_wait(self, done: Any, total: Any, text: str) -> bool:
        """Whether this need not be written now: a further count, after many others."""
        now = time.monotonic()
        if now - self._since >= WINDOW_SECONDS:
            self._since, self._writes = now, 0
        is_count = type(done) is int and type(total) is int and 0 <= done < total <= NUMBER_MAX
        if self._writes < WRITES_MAX or text != self._text or not is_count:
            self._writes += 1
            self._text = text
            return False
        self._waiting = (done, total, text)
        return True

    def write(self, record: str) -> None:
        self._waiting = None
        try:
            # One system call, at the beginning: so it replaces what any process of the step wrote before.
            os.pwrite(self._fd, record.encode().ljust(RECORD_BYTES, b"\n"), 0)
        except OSError:
            pass  # no descriptor, or no space: then it is not shown

    def flush(self) -> None:
        if self._waiting is not None:
            self.write(progress_record(*self._waiting))

    def close(self) -> None:
        self.flush()
        if self._fd >= 0:
            try:
                os.close(self._fd)
            except OSError:
                pass  # the step closed it
            atexit.unregister(self.flush)
        self.forget()

    def forget(self) -> None:
        self._fd, self._waiting = NOT_OPEN, None


_file = _ProgressFile()


def end_step() -> None:
    """Forget the step: the process may run another one."""
    _file.close()


# A forked process opens the file itself: it may close every descriptor that it did not open.
os.register_at_fork(before=_file.flush, after_in_child=_file.forget)


# -- log -------------------------------------------------------------------------------------------------------------


def log(text: object, **fields: object) -> None:
    """Write one line to the step's log (stderr): the time, the text, the fields as `name=value`."""
    now = time.time()
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    parts = [f"{at}.{int(now % 1 * 1000):03}Z", "\\n".join(str(text).splitlines())]
    parts += [f"{name}={_field(value)}" for name, value in fields.items()]
    # One write, so that lines of several threads and processes do not mix.
    sys.stderr.write(" ".join(parts) + "\n")


def _field(value: object) -> str:
    """A value of a field: a plain word as it is, anything else as JSON."""
    if isinstance(value, str) and value.isprintable() and value and not any(char in ' "=' for char in value):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return json.dumps(str(value), ensure_ascii=False)


# -- the attempt -----------------------------------------------------------------------------------------------------


def attempt() -> int:
    """Return the number of this attempt at the step, from 1 on. Raises NotInStep outside of a step."""
    found = os.environ.get("MULLIGAN_ATTEMPT")
    if not found:
        raise NotInStep("attempt")
    return int(found)


def idempotency_key() -> str:
    """Return a key that is the same for each attempt of this step in this visit, and different for anything else.

    Send it to services outside, so that they detect a repeated call. Raises NotInStep outside of a step.
    """
    found = os.environ.get("MULLIGAN_IDEMPOTENCY_KEY")
    if not found:
        raise NotInStep("idempotency_key")
    return found


def artifact(path: str | PathLike[str], name: str | None = None) -> ArtifactPath:
    """Keep a file that the step made: it is copied, hashed and listed with the attempt, also if the attempt fails.

    Returned as the output of the step, or in it, a later step gets the path of the stored file, which is read-only.
    Raises NotInStep outside of a step.
    """
    kept: ArtifactPath = _artifacts().keep_copy(path, name)
    return kept


def _artifacts() -> Any:
    return __import__("mulligan.step_context.artifacts", fromlist=["artifacts"])


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(_artifacts(), name)
    raise AttributeError(f"module 'mulligan.step_context' has no attribute '{name}'")
