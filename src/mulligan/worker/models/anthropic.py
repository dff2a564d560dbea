"""The wire format of Anthropic's messages."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.agents.conversation import Message
from mulligan.worker.models.answer_parts import AnswerParts, Sink
from mulligan.worker.models.request import ModelAnswer, ModelRequest, StopReason
from mulligan.worker.models.settings import Access, ModelSettings
from mulligan.worker.models.transport import Exchange, exchange

PATH = "/messages"
VERSION = "2023-06-01"
# The service requires a limit.
DEFAULT_MAX_TOKENS = 8192
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}
_INPUT_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _Block(msgspec.Struct):
    """A part of the answer: `text`, or `tool_use` with `id`, `name` and `input`. Other kinds are ignored."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: Any = None


class _Answer(msgspec.Struct):
    content: list[_Block] = []
    stop_reason: str | None = None
    usage: _Usage | None = None
    model: str = ""
    error: Any = None


class _Delta(msgspec.Struct):
    """What an event adds: `text_delta`, `input_json_delta`, or the reason why the model stopped."""

    type: str = ""
    text: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    message: _Answer | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Any = None


def ask(request: ModelRequest, settings: ModelSettings, access: Access, sink: Sink) -> ModelAnswer:
    """Ask the model, and return its answer. Every failure is a StepError."""
    headers = {"anthropic-version": VERSION, **({"x-api-key": access.key} if access.key else {})}
    parts = AnswerParts(sink, settings.max_answer)
    with exchange(settings, PATH, headers, request_body(request, settings)) as answer:
        if answer.is_stream:
            is_complete = False
            for data in answer.events():
                event = answer.decode(data, _Event)
                _add(event, parts, answer)
                if event.type == "message_stop":
                    is_complete = True
                    break
            if not is_complete:
                raise answer.incomplete()
        else:
            _add_whole(answer.body(_Answer), parts, answer)
            if parts.is_empty and parts.stop_reason is None:
                raise answer.failure("OUTPUT_INVALID", "the answer has no 'content'")
    return parts.finish()


def request_body(request: ModelRequest, settings: ModelSettings) -> dict[str, Any]:
    """Return the JSON of a request."""
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": _messages(request.messages),
    }
    if request.system:
        body["system"] = request.system
    if request.tools:
        body["tools"] = [
            {"name": one.name, "description": one.description, "input_schema": one.schema or {"type": "object"}}
            for one in request.tools
        ]
    if request.schema is not None and settings.schema == "native":
        body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if settings.stream:
        body["stream"] = True
    return body


def _messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Return the messages. Results of tools are said by the user, those of one answer in one message."""
    found: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if found and found[-1]["role"] == role:
            found[-1]["content"] += _blocks(message)
        else:
            found.append({"role": role, "content": _blocks(message)})
    # The service refuses a message without content.
    return [one for one in found if one["content"]]


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.text}
        return [{**result, "is_error": True} if message.is_error else result]
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in message.tool_calls
    ]
    return [*text, *calls]


def _add(event: _Event, parts: AnswerParts, answer: Exchange) -> None:
    if event.error is not None:
        raise answer.error(event.error)
    if event.message is not None:
        _add_whole(event.message, parts, answer)
    if event.content_block is not None:
        _add_block(event.index, event.content_block, parts, is_whole=False)
    if event.delta is not None:
        if event.delta.text:
            parts.add_text(event.delta.text)
        if event.delta.partial_json:
            parts.add_call(event.index, "", "", event.delta.partial_json)
        _stop(event.delta.stop_reason, parts)
    if event.usage is not None:
        _spend(event.usage, parts)


def _add_whole(whole: _Answer, parts: AnswerParts, answer: Exchange) -> None:
    if whole.error is not None:
        raise answer.error(whole.error)
    parts.model = whole.model or parts.model
    if whole.usage is not None:
        _spend(whole.usage, parts)
    for index, block in enumerate(whole.content):
        _add_block(index, block, parts, is_whole=True)
    _stop(whole.stop_reason, parts)


def _add_block(index: int, block: _Block, parts: AnswerParts, *, is_whole: bool) -> None:
    """Add a block. In a stream the input of a tool is empty at first, and follows in pieces."""
    if block.type == "text" and block.text:
        parts.add_text(block.text)
    elif block.type == "tool_use":
        arguments = msgspec.json.encode(block.input).decode() if is_whole or block.input else ""
        parts.add_call(index, block.id, block.name, arguments)


def _stop(reason: str | None, parts: AnswerParts) -> None:
    if reason:
        parts.stop_reason = _STOP_REASONS.get(reason, "end")


def _spend(usage: _Usage, parts: AnswerParts) -> None:
    read = [count for name in _INPUT_TOKENS if (count := getattr(usage, name)) is not None]
    parts.spend(input_tokens=sum(read) if read else None, output_tokens=usage.output_tokens)
