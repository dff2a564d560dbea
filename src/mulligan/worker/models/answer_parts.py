"""Put an answer together from the pieces in which it arrives. Its size is limited."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from mulligan import StepError
from mulligan.core.model.agents.conversation import ToolCall
from mulligan.worker.models.request import ModelAnswer, StopReason

CALLS_MAX = 128


class Sink(Protocol):
    """Where pieces go as they arrive: the text to the log, the usage to where it survives a failure."""

    def write(self, text: str, /) -> None: ...

    def spend(self, usage: dict[str, Any], model: str, /) -> None: ...


class _Call(msgspec.Struct):
    """A call of a tool whose arguments are arriving."""

    id: str
    name: str
    arguments: str = ""


class AnswerParts:
    """An answer that is arriving."""

    def __init__(self, sink: Sink, chars_max: int) -> None:
        self._sink = sink
        self._chars_max = chars_max
        self._chars = 0
        self._text: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._usage: dict[str, Any] = {}
        self.model = ""
        # Why the model stopped; None until it says so.
        self.stop_reason: StopReason | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing has arrived."""
        return not self._text and not self._calls

    def add_text(self, text: str) -> None:
        self._count(text)
        self._text.append(text)
        self._sink.write(text)

    def add_call(self, index: int | None, call_id: str, name: str, arguments: str) -> None:
        """Add a call, or more of its arguments. Some servers number no calls and send each in one piece."""
        self._count(arguments + name + call_id)
        if index is None:
            index = len(self._calls)
        if index not in self._calls:
            if len(self._calls) >= CALLS_MAX:
                raise StepError("OUTPUT_INVALID", f"the model asks for more than {CALLS_MAX} calls of tools at once")
            self._calls[index] = _Call(call_id or f"call_{index}", name)
        self._calls[index].arguments += arguments

    def _count(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > self._chars_max:
            message = f"the answer has more than {self._chars_max} characters, the limit ('max_answer')"
            raise StepError("OUTPUT_INVALID", message)

    def spend(self, **tokens: int | None) -> None:
        """Record the tokens that are reported: the last report counts."""
        self._usage |= {name: count for name, count in tokens.items() if count is not None and count >= 0}
        self._sink.spend(self._usage, self.model)

    def finish(self) -> ModelAnswer:
        """Return the whole answer."""
        calls = tuple(_tool_call(self._calls[index]) for index in sorted(self._calls))
        stop_reason = self.stop_reason or "end"
        if calls and stop_reason == "end":
            stop_reason = "tool_calls"
        return ModelAnswer("".join(self._text), calls, self._usage, self.model, stop_reason)


def _tool_call(call: _Call) -> ToolCall:
    try:
        arguments = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCall(call.id, call.name, invalid=call.arguments)
    return ToolCall(call.id, call.name, arguments)
