"""What a task gave, as an event can hold it: checked, and kept beside the log where it is large."""

from __future__ import annotations

import msgspec

from ..core.artifacts import ENDINGS, INLINE_BYTES_MAX, KEY, Format, holds_reference, reference
from ..core.classify import Outcome
from ..core.reports import TaskEnded
from ..core.tasks import Task
from ..errors import StoreRefused
from ..ports import Artifacts
from .folders import file_name

# As JSON nothing is more than seven times as large as packed, no character more than six bytes.
_SURELY_INLINE_BYTES = INLINE_BYTES_MAX // 7
_SURELY_INLINE_CHARS = INLINE_BYTES_MAX // 6
_KEY_PACKED = KEY.encode()

_TOO_LARGE = "it has a number of more than 64 bits, or is nested too deep"
_NO_TEXT = "it has half of a character in it"


class Results:
    """Every result comes by here, once. Without a place for artifacts all of them stay in the log."""

    def __init__(self, artifacts: Artifacts | None) -> None:
        self._artifacts = artifacts

    def kept(self, task: Task, ended: TaskEnded) -> TaskEnded:
        """The report with what no event can hold refused, and a large output as the reference to an artifact.

        StoreUnavailable where that is away: then it is to be asked again.
        """
        output = ended.output
        if type(output) is str:
            if len(output) <= _SURELY_INLINE_CHARS and not ended.outcome.reported:
                return ended
        elif output is None and not ended.outcome.reported:
            return ended
        try:
            return self._looked_at(task, ended)
        except StoreRefused as error:
            return _refused(ended, error.message)

    def _looked_at(self, task: Task, ended: TaskEnded) -> TaskEnded:
        """JSON knows numbers of any size; what keeps them knows 64 bits, as packed values do."""
        try:
            packed = msgspec.msgpack.encode((ended.output, ended.outcome.reported))
        except UnicodeEncodeError:
            return _invalid(ended, _NO_TEXT)
        except (OverflowError, RecursionError, TypeError, ValueError):
            return _invalid(ended, _TOO_LARGE)
        if self._artifacts is None or (len(packed) <= _SURELY_INLINE_BYTES and _KEY_PACKED not in packed):
            return ended
        data = msgspec.json.encode(ended.output)
        if len(data) <= INLINE_BYTES_MAX and not holds_reference(ended.output):
            return ended
        return self._set_aside(task, ended, data, self._artifacts)

    def _set_aside(self, task: Task, ended: TaskEnded, data: bytes, artifacts: Artifacts) -> TaskEnded:
        is_text = type(ended.output) is str
        format: Format = "text" if is_text else "json"
        kept = artifacts.keep(
            f"{folder_of(task)}/output{ENDINGS[format]}", ended.output.encode() if is_text else data, format
        )
        return msgspec.structs.replace(ended, output=reference(kept))


def folder_of(task: Task) -> str:
    """Where its artifacts are: another for each run, place (with its item), visit and attempt; none is ever shared."""
    return f"{task.run_id}/{file_name(task.place)}/{task.visit}/{task.attempt}"


def _invalid(ended: TaskEnded, problem: str) -> TaskEnded:
    if ended.outcome.reported:
        outcome = msgspec.structs.replace(ended.outcome, reported=(), report_error=f"cannot be kept: {problem}")
    else:
        outcome = msgspec.structs.replace(ended.outcome, output_error=f"its output cannot be kept: {problem}")
    return msgspec.structs.replace(ended, outcome=outcome, output=None)


def _refused(ended: TaskEnded, reason: str) -> TaskEnded:
    """There is no room for it, or no place: the attempt has failed, and another one may do."""
    message = f"its output cannot be kept: {reason}"
    outcome = Outcome(exit_code=None, code="EXCEPTION", message=message, is_stopped=ended.outcome.is_stopped)
    return msgspec.structs.replace(ended, outcome=outcome, output=None)
