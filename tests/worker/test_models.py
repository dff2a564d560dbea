"""Models over HTTP: what is asked in each wire format, what is made of the answer, and every way it goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.model_answers import ended, said, stream
from tests.support.web import Answer, Web, as_json, reset, response, serving

from mulligan import StepError
from mulligan.core.model.agents.conversation import Message, ToolCall, ToolSpec
from mulligan.core.model.workflow import Secret
from mulligan.worker.models import find_kind
from mulligan.worker.models.request import ModelAnswer, ModelRequest
from mulligan.worker.models.settings import DEFAULT_URLS, Access, ModelKind, ModelSettings
from mulligan.worker.models.sse import events

KINDS: tuple[ModelKind, ...] = ("openai", "anthropic")
KEY = "sk-very-secret"
SCHEMA = {"type": "object", "required": ["verdict"]}
CONVERSATION = (
    Message("user", "look it up"),
    Message("assistant", "", (ToolCall("c1", "search", {"q": 1}), ToolCall("c2", "search", invalid="{q"))),
    Message("tool", "found", tool_call_id="c1"),
    Message("tool", "no such thing", tool_call_id="c2", is_error=True),
)
TOOL = ToolSpec("search", "Searches.", {"type": "object", "properties": {"q": {"type": "integer"}}})


@pytest.fixture(autouse=True)
def directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the terminal of the tests is set to, a loopback server is asked directly. A step has the other one."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("MULLIGAN_IDEMPOTENCY_KEY", "r-1:ask:1")


class Log:
    """The pieces that arrived, and what was spent so far."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.spent: dict[str, Any] = {}

    def write(self, text: str) -> None:
        self.pieces.append(text)

    def spend(self, usage: dict[str, Any], model: str) -> None:
        self.spent = {**usage, "model": model}


class Asked:
    """A call of a model on a stub server."""

    def __init__(self) -> None:
        self.log = Log()
        self.web: Web | None = None

    def ask(self, kind: ModelKind, *answers: Answer, **fields: Any) -> ModelAnswer:
        names = ("messages", "tools", "schema", "max_tokens", "system")
        request = {name: fields.pop(name) for name in names if name in fields}
        with serving(*answers) as self.web:
            settings = ModelSettings(kind, kind, **{"url": f"{self.web.url}/v1/", "key": Secret(env="KEY"), **fields})
            asked = ModelRequest(kind, "small", **{"messages": (Message("user", "hello"),), **request})
            return find_kind(kind).ask(asked, settings, Access(KEY), self.log)

    def fail(self, kind: ModelKind, *answers: Answer, **fields: Any) -> StepError:
        with pytest.raises(StepError) as caught:
            self.ask(kind, *answers, **fields)
        assert KEY not in caught.value.message
        return caught.value

    @property
    def body(self) -> dict[str, Any]:
        assert self.web is not None
        found: dict[str, Any] = json.loads(self.web.body())
        return found


@pytest.fixture
def model() -> Asked:
    return Asked()


# -- what is asked and answered --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_streamed_answer_arrives_in_pieces_and_is_counted(model: Asked, kind: ModelKind) -> None:
    answer = model.ask(kind, stream(*said(kind, "hel", "lo é"), *ended(kind)))

    assert model.log.pieces == ["hel", "lo é"]
    assert answer == ModelAnswer("hello é", (), {"input_tokens": 7, "output_tokens": 3}, "small-1", "end")
    assert model.log.spent == {"input_tokens": 7, "output_tokens": 3, "model": "small-1"}
    assert model.body["stream"] is True


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (
            "openai",
            {
                "model": "small-1",
                "choices": [{"index": 0, "message": {"content": "hello"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 3},
            },
        ),
        (
            "anthropic",
            {
                "model": "small-1",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hello"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 4, "cache_read_input_tokens": 3, "output_tokens": 3},
            },
        ),
    ],
)
def test_a_server_may_answer_in_one_piece(model: Asked, kind: ModelKind, body: Any) -> None:
    answer = model.ask(kind, as_json(json.dumps(body)), stream=False)

    assert answer == ModelAnswer("hello", (), {"input_tokens": 7, "output_tokens": 3}, "small-1", "end")
    assert "stream" not in model.body


def test_an_openai_request_has_the_fields_of_its_wire_format(model: Asked) -> None:
    model.ask(
        "openai",
        stream(*said("openai", "x"), *ended("openai")),
        messages=CONVERSATION,
        tools=(TOOL,),
        schema=SCHEMA,
        max_tokens=50,
        system="Be brief.",
    )

    assert model.web is not None
    assert model.web.line() == "POST /v1/chat/completions HTTP/1.1"
    assert model.web.headers()["authorization"] == f"Bearer {KEY}"
    assert "idempotency-key" not in model.web.headers()
    function = {"name": "search", "description": "Searches.", "parameters": TOOL.schema}
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q":1}'}},
        {"id": "c2", "type": "function", "function": {"name": "search", "arguments": "{q"}},
    ]
    assert model.body == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "look it up"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
            {"role": "tool", "tool_call_id": "c2", "content": "error: no such thing"},
        ],
        "tools": [{"type": "function", "function": function}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
        "max_tokens": 50,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_an_anthropic_request_has_the_fields_of_its_wire_format(model: Asked) -> None:
    model.ask(
        "anthropic",
        stream(*said("anthropic", "x"), *ended("anthropic")),
        messages=CONVERSATION,
        tools=(TOOL,),
        schema=SCHEMA,
        system="Be brief.",
    )

    assert model.web is not None
    assert model.web.line() == "POST /v1/messages HTTP/1.1"
    assert (model.web.headers()["x-api-key"], model.web.headers()["anthropic-version"]) == (KEY, "2023-06-01")
    assert model.body == {
        "model": "small",
        "max_tokens": 8192,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look it up"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": 1}},
                    {"type": "tool_use", "id": "c2", "name": "search", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "found"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "no such thing", "is_error": True},
                ],
            },
        ],
        "tools": [{"name": "search", "description": "Searches.", "input_schema": TOOL.schema}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "stream": True,
    }


def test_the_service_of_openai_itself_knows_another_name_for_the_limit() -> None:
    module: Any = find_kind("openai")
    request = ModelRequest("openai", "small", (), max_tokens=5, schema=SCHEMA)

    body = module.request_body(request, ModelSettings("o", "openai", url=DEFAULT_URLS["openai"], schema="prompt"))

    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body
    # The prompt has it.
    assert "response_format" not in body


OPENAI_CALLS = [
    {
        "choices": [
            {"delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "search", "arguments": ""}}]}}
        ]
    },
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"q": '}}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}}]},
    {
        "choices": [
            {"delta": {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "stop", "arguments": "oops"}}]}}
        ]
    },
    *ended("openai", "tool_calls"),
]
ANTHROPIC_CALLS = [
    *said("anthropic")[:1],
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "c1", "name": "search", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"q": '}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "c2", "name": "stop", "input": {}},
    },
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "oops"}},
    *ended("anthropic", "tool_use"),
]


@pytest.mark.parametrize(("kind", "data"), [("openai", OPENAI_CALLS), ("anthropic", ANTHROPIC_CALLS)])
def test_calls_of_tools_are_put_together_from_their_pieces(model: Asked, kind: ModelKind, data: list[Any]) -> None:
    answer = model.ask(kind, stream(*data))

    assert answer.tool_calls == (ToolCall("c1", "search", {"q": 1}), ToolCall("c2", "stop", invalid="oops"))
    assert answer.stop_reason == "tool_calls"


def test_an_answer_in_parts_is_understood(model: Asked) -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]

    answer = model.ask("openai", as_json(json.dumps({"choices": [{"message": {"content": parts}}]})))

    assert answer.text == "hello"


def test_calls_without_numbers_and_with_objects_as_arguments_are_understood(model: Asked) -> None:
    calls = [{"id": "a", "function": {"name": "x", "arguments": {"q": 1}}}, {"function": {"name": "y"}}]
    message = {"message": {"content": None, "tool_calls": calls}, "finish_reason": "stop"}

    answer = model.ask("openai", as_json(json.dumps({"choices": [message]})))

    assert answer.tool_calls == (ToolCall("a", "x", {"q": 1}), ToolCall("call_1", "y"))
    assert answer.stop_reason == "tool_calls"


@pytest.mark.parametrize(
    ("kind", "reason", "stop_reason"),
    [
        ("openai", "length", "max_tokens"),
        ("openai", "content_filter", "refusal"),
        ("anthropic", "max_tokens", "max_tokens"),
        ("anthropic", "refusal", "refusal"),
    ],
)
def test_why_it_stopped_is_known(model: Asked, kind: ModelKind, reason: str, stop_reason: str) -> None:
    assert model.ask(kind, stream(*said(kind, "x"), *ended(kind, reason))).stop_reason == stop_reason


# -- what goes wrong -------------------------------------------------------------------------------------------------


def refused(status: int, message: str, *headers: str, **fields: Any) -> bytes:
    return as_json(json.dumps({"error": {"message": message, **fields}}), status, *headers)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("answer", "code", "retryable", "details", "message"),
    [
        (refused(500, "oh no"), "HTTP_5XX", None, {"status": 500}, "answered 500: oh no"),
        (response(529, b"overloaded"), "HTTP_5XX", None, {"status": 529}, "answered 529: overloaded"),
        (
            refused(429, "slow down", "Retry-After: 17"),
            "HTTP_429",
            None,
            {"status": 429, "retry_after": 17.0},
            "answered 429: slow down",
        ),
        # Waiting does not help.
        (
            refused(429, "no money", code="insufficient_quota"),
            "HTTP_429",
            False,
            {"status": 429},
            "answered 429: no money",
        ),
        (
            refused(401, "bad key"),
            "HTTP_4XX",
            None,
            {"status": 401},
            "answered 401 (the key is from environment variable 'KEY'): bad key",
        ),
        (
            response(302, b"", "Location: http://127.0.0.1:1/other"),
            "INPUT_INVALID",
            False,
            {"status": 302},
            "answered 302, a redirect to http://127.0.0.1:1/other: write the final address as 'url'",
        ),
    ],
)
def test_a_refusal_of_the_service_is_a_failure_for_the_ladder(
    model: Asked,
    kind: ModelKind,
    answer: bytes,
    code: str,
    retryable: bool | None,
    details: dict[str, Any],
    message: str,
) -> None:
    error = model.fail(kind, answer)

    assert (error.code, error.retryable) == (code, retryable)
    assert error.message.partition(": ")[2] == message
    assert model.web is not None
    paths = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
    assert error.details == {"provider": kind, "url": f"{model.web.url}{paths[kind]}", **details}
    # Nothing went anywhere else.
    assert len(model.web.requests) == 1


Bad = Callable[[ModelKind], Answer]


BROKEN: dict[str, tuple[Bad, str, str]] = {
    "half a stream": (lambda kind: stream(*said(kind, "half")), "CONNECTION", "ended before the answer was complete"),
    "cut": (lambda kind: stream(*said(kind, "half"), cut=True), "CONNECTION", ""),
    "reset": (lambda kind: reset, "CONNECTION", ""),
    "no JSON": (lambda kind: stream("{not json"), "OUTPUT_INVALID", "the answer is not what"),
    "a list": (lambda kind: stream("[1, 2]"), "OUTPUT_INVALID", "the answer is not what"),
    "wrong types": (lambda kind: stream('{"type": 3, "choices": "x"}'), "OUTPUT_INVALID", "the answer is not what"),
    "nothing": (lambda kind: as_json("{}"), "OUTPUT_INVALID", "the answer has no 'c"),
    "an end alone": (
        lambda kind: stream("[DONE]" if kind == "openai" else '{"type": "ping"}'),
        "CONNECTION",
        "ended before the answer was complete",
    ),
    "a page": (lambda kind: as_json("<html>"), "OUTPUT_INVALID", "the answer is not what"),
    "bytes": (lambda kind: response(200, b"\xff\xfe"), "OUTPUT_INVALID", "the answer is not what"),
    "10 MB of events": (
        lambda kind: stream(*said(kind, *["x" * 100_000] * 105)),
        "OUTPUT_INVALID",
        "the answer has more than 1048576 characters, the limit ('max_answer')",
    ),
    "10 MB": (lambda kind: as_json(json.dumps("x" * 10_000_000)), "OUTPUT_INVALID", "the answer has more than"),
    "overloaded": (
        lambda kind: stream({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        "HTTP_5XX",
        "the service reports overloaded_error: Overloaded",
    ),
    "a status": (
        lambda kind: stream({"type": "error", "error": {"code": 429, "message": "slow down"}}),
        "HTTP_429",
        "the service reports 429: slow down",
    ),
    "an error": (
        lambda kind: stream({"type": "error", "error": {"type": "strange", "message": "No."}}),
        "AGENT_FAILED",
        "the service reports strange: No.",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("bad", "code", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_a_failure_with_a_code(
    model: Asked, kind: ModelKind, bad: Bad, code: str, message: str
) -> None:
    error = model.fail(kind, bad(kind))

    assert error.code == code
    assert error.retryable is None
    assert message in error.message
    assert len(error.message) < 1000


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_says_nothing_is_a_timeout(model: Asked, kind: ModelKind) -> None:
    web: list[Web] = []

    def hang(connection: Any) -> None:
        connection.sendall(stream(*said(kind, "so")))
        assert model.web is not None
        web.append(model.web)
        model.web.hang(connection)

    for limit in (0.05, 1, 30):
        error = model.fail(kind, hang, read_timeout=limit)
        if model.log.pieces:
            break  # On a busy machine it may take longer until the server has begun to answer.

    assert error.code == "TIMEOUT"
    assert error.details["limit"] == "read_timeout"
    # What arrived before is in the log, and what was counted is spent.
    assert model.log.pieces == ["so"]


def test_an_endpoint_without_a_key_gets_none(model: Asked) -> None:
    with serving(as_json('{"choices": [{"message": {"content": "x"}}]}')) as web:
        settings = ModelSettings("local", "openai", url=f"{web.url}/v1?version=2")
        find_kind("openai").ask(ModelRequest("local", "m", (Message("user", "x"),)), settings, Access(), model.log)

        assert "authorization" not in web.headers()
        assert web.line() == "POST /v1/chat/completions?version=2 HTTP/1.1"


def test_events_come_out_whole_however_their_bytes_are_cut() -> None:
    data = ": hi\r\ndata: é\ndata:  two\n\nevent: x\ndata: [1]\n\ndata: half".encode()

    for size in (1, 2, 3, 7, len(data)):
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        assert list(events(chunks, 1000)) == ["é\n two", "[1]"]
