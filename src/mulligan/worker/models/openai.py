"""The wire format of chat completions, which many services and local servers speak."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.core.model.agents.conversation import Message, ToolSpec
from mulligan.worker.models.answer_parts import AnswerParts, Sink
from mulligan.worker.models.request import ModelAnswer, ModelRequest, StopReason
from mulligan.worker.models.settings import DEFAULT_URLS, Access, ModelSettings
from mulligan.worker.models.transport import Exchange, exchange

PATH = "/chat/completions"
_DONE = "[DONE]"
_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class _Function(msgspec.Struct):
    name: str | None = None
    # Text; some servers send the object itself.
    arguments: str | dict[str, Any] | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Part(msgspec.Struct):
    """A part of an answer that some services send as a list; other parts than text are ignored."""

    type: str = ""
    text: str | None = None


class _Said(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    """A piece of a stream, with `delta`, or the whole answer, with `message`."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    error: Any = None


def ask(request: ModelRequest, settings: ModelSettings, access: Access, sink: Sink) -> ModelAnswer:
    """Ask the model, and return its answer. Every failure is a StepError."""
    headers = {"authorization": f"Bearer {access.key}"} if access.key else {}
    parts = AnswerParts(sink, settings.max_answer)
    with exchange(settings, PATH, headers, request_body(request, settings)) as answer:
        if answer.is_stream:
            is_done = False
            for data in answer.events():
                if data.strip() == _DONE:
                    is_done = True
                    break
                _add(answer.decode(data, _Completion), parts, answer)
            if parts.stop_reason is None and (not is_done or parts.is_empty):
                raise answer.incomplete()
        else:
            whole = answer.body(_Completion)
            if not whole.choices and whole.error is None:
                raise answer.failure("OUTPUT_INVALID", "the answer has no 'choices'")
            _add(whole, parts, answer)
    return parts.finish()


def request_body(request: ModelRequest, settings: ModelSettings) -> dict[str, Any]:
    """Return the JSON of a request."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    body: dict[str, Any] = {"model": request.model, "messages": [*system, *map(_message, request.messages)]}
    if request.tools:
        body["tools"] = [{"type": "function", "function": _function(one)} for one in request.tools]
    if request.schema is not None and settings.schema == "native":
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": request.schema}}
    if request.max_tokens is not None:
        # The service has renamed the field, and its newer models refuse the old name. Others know only that.
        name = "max_completion_tokens" if settings.url == DEFAULT_URLS["openai"] else "max_tokens"
        body[name] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if settings.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _function(tool: ToolSpec) -> dict[str, Any]:
    schema = tool.schema or {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "parameters": schema}


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        # The format has no field for a call that failed.
        text = f"error: {message.text}" if message.is_error else message.text
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}
    if not message.tool_calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.invalid or msgspec.json.encode(call.arguments).decode(),
            },
        }
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": message.text or None, "tool_calls": calls}


def _add(piece: _Completion, parts: AnswerParts, answer: Exchange) -> None:
    if piece.error is not None:
        raise answer.error(piece.error)
    parts.model = piece.model or parts.model
    if piece.usage is not None:
        parts.spend(input_tokens=piece.usage.prompt_tokens, output_tokens=piece.usage.completion_tokens)
    for choice in piece.choices or ():
        if choice.index != 0:
            continue
        said = choice.delta or choice.message or _Said()
        content = said.content or ""
        pieces = [content] if isinstance(content, str) else [part.text for part in content if part.type == "text"]
        for text in (*pieces, said.refusal):
            if text:
                parts.add_text(text)
        if said.refusal:
            parts.stop_reason = "refusal"
        for call in said.tool_calls or ():
            given = call.function.arguments or ""
            arguments = given if isinstance(given, str) else msgspec.json.encode(given).decode()
            parts.add_call(call.index, call.id or "", call.function.name or "", arguments)
        if choice.finish_reason and parts.stop_reason is None:
            parts.stop_reason = _STOP_REASONS.get(choice.finish_reason, "end")
