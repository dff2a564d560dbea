"""What a model is asked and what it answers, the same for every provider."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mulligan.core.model.agents.conversation import Message, ToolCall, ToolSpec

# Why the model stopped: it has finished; it wants tools to be called; it reached `max_tokens`; it refused to answer.
StopReason = Literal["end", "tool_calls", "max_tokens", "refusal"]


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who asks: a place of a run. `turn` counts the answers that the conversation will have with this one."""

    place: str
    step: str
    visit: int = 1
    attempt: int = 1
    turn: int = 1


class ModelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question to a model. `schema` is the JSON Schema that its answer must have; None if any text will do."""

    provider: str
    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    schema: dict[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    origin: Origin | None = None


class ModelAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of a model. `usage` has `input_tokens`, `output_tokens`, `tokens` and `cost`, as far as known."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: dict[str, Any] = {}
    model: str = ""
    stop_reason: StopReason = "end"

    @property
    def message(self) -> Message:
        """The answer as the next message of the conversation."""
        return Message("assistant", self.text, self.tool_calls)
