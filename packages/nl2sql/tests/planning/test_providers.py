"""Planners that are models, or play one: what they are asked, what they answer, and how they fail."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan_nl2sql.planning.failures import PlannerFailed
from mulligan_nl2sql.planning.find_planner import find_planner
from mulligan_nl2sql.planning.planner import FailedSql, Plan, PlanRequest, Refusal, RefusalReason
from mulligan_nl2sql.planning.prompts import make_prompt, read_answer
from mulligan_nl2sql.planning.providers.cassette import CassettePlanner, digest_of
from mulligan_nl2sql.planning.providers.openai import OpenaiPlanner, OpenaiSettings, retry_after
from mulligan_nl2sql.planning.providers.scripted import ScriptedPlanner
from mulligan_nl2sql.schema import Schema

TODAY = date(2025, 11, 17)
QUESTION = "How many customers are there?"


@pytest.fixture
def request_(schema: Schema) -> PlanRequest:
    return PlanRequest(QUESTION, schema, TODAY)


class StubService(ThreadingHTTPServer):
    """Answers every request with the same bytes, and remembers what it was sent."""

    daemon_threads = True

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body, self.headers = status, body, headers
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: StubService

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append(json.loads(sent))
        self.server.keys.append(self.headers["authorization"])
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Any]:
    started: list[StubService] = []

    def start(status: int = 200, body: Any = b"", **headers: str) -> StubService:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        one = StubService(status, data, {name.replace("_", "-"): value for name, value in headers.items()})
        Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.shutdown()
        one.server_close()


def completion(content: str, **more: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"} | more
    return {"choices": [choice], "model": "m-1", "usage": {"prompt_tokens": 900, "completion_tokens": 100}}


def planner(url: str, **settings: Any) -> OpenaiPlanner:
    return OpenaiPlanner(OpenaiSettings(model="m", url=url, key="secret-key", **settings))


def failure(planner: Any, request: PlanRequest) -> PlannerFailed:
    with pytest.raises(PlannerFailed) as caught:
        planner.plan(request)
    return caught.value


# -- what a model is asked, and what it answers ----------------------------------------------------------------------


def test_a_prompt_has_the_schema_its_comments_and_values_and_what_failed_before(request_: PlanRequest) -> None:
    failed = FailedSql("select nme from customers", "SQL_COLUMN_UNKNOWN", "there is no column 'nme'")

    text = make_prompt(replace(request_, failed=(failed,)))

    assert "table customers -- clients" in text
    assert "price REAL -- list price, in euros" in text
    assert "values: 'Austria', 'France'" in text
    assert "(customer_id) refers to customers (id)" in text
    assert "Today is 2025-11-17" in text
    assert "SQL_COLUMN_UNKNOWN: there is no column 'nme'\nselect nme from customers" in text
    assert text.endswith(f"Question: {QUESTION}")


@pytest.mark.parametrize(
    "text",
    [
        '{"sql": "select 1"}',
        'Here it is:\n```json\n{"sql": "select 1"}\n```',
        "```sql\nselect 1;\n```",
        "select 1",
    ],
)
def test_sql_is_found_in_an_answer(text: str) -> None:
    found = read_answer(text, planner="p")

    assert isinstance(found, Plan)
    assert found.sql == "select 1"


def test_a_model_may_refuse() -> None:
    found = read_answer('{"refusal": "no such data", "words": ["weather"]}', planner="p")

    assert isinstance(found, Refusal)
    assert (found.reason, found.message, found.words) == (RefusalReason.DECLINED, "no such data", ("weather",))


@pytest.mark.parametrize(
    "text",
    ["", "I cannot do that", "{}", '{"sql": ""}', '{"sql": 5}', '{"sql": "select 1", "refusal": "no"}', "[" * 5000],
)
def test_an_answer_without_sql_is_a_failure(text: str) -> None:
    with pytest.raises(PlannerFailed) as caught:
        read_answer(text, planner="p")

    assert (caught.value.code, caught.value.retryable) == ("OUTPUT_INVALID", True)


# -- over HTTP -------------------------------------------------------------------------------------------------------


def test_a_model_is_asked_once_and_its_tokens_and_cost_are_reported(service: Any, request_: PlanRequest) -> None:
    stub = service(200, completion('{"sql": "select count(*) from customers"}'))

    found = planner(stub.url, prices=(3.0, 15.0)).plan(request_)

    assert isinstance(found, Plan)
    assert found.sql == "select count(*) from customers"
    assert (found.planner, found.model) == ("openai", "m-1")
    assert (found.usage.input_tokens, found.usage.output_tokens, found.usage.cost) == (900, 100, 0.0042)
    assert len(stub.bodies) == 1
    assert stub.keys == ["Bearer secret-key"]
    assert [message["role"] for message in stub.bodies[0]["messages"]] == ["system", "user"]
    assert stub.bodies[0]["max_tokens"] == 2000


@pytest.mark.parametrize(
    ("status", "code", "is_retryable"),
    [
        (500, "HTTP_5XX", True),
        (503, "HTTP_5XX", True),
        (529, "HTTP_5XX", True),
        (429, "HTTP_429", True),
        (400, "HTTP_4XX", False),
        (401, "HTTP_4XX", False),
        (404, "HTTP_4XX", False),
        (408, "HTTP_4XX", True),
    ],
)
def test_a_status_is_a_code(status: int, code: str, is_retryable: bool, service: Any, request_: PlanRequest) -> None:
    stub = service(status, {"error": {"message": "said the service"}})

    found = failure(planner(stub.url), request_)

    assert (found.code, found.retryable, found.details["status"]) == (code, is_retryable, status)
    assert "said the service" in found.message
    assert "secret-key" not in repr(found.report())
    assert len(stub.bodies) == 1


def test_retry_after_is_passed_on(service: Any, request_: PlanRequest) -> None:
    stub = service(429, b"", retry_after="7")

    assert failure(planner(stub.url), request_).details["retry_after"] == 7.0


def test_no_money_left_is_not_retried(service: Any, request_: PlanRequest) -> None:
    stub = service(429, {"error": {"message": "no", "code": "insufficient_quota"}})

    assert failure(planner(stub.url), request_).retryable is False


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("12", 12.0),
        ("0.5", 0.5),
        ("Mon, 17 Nov 2025 12:00:30 GMT", 30.0),
        ("Mon, 17 Nov 2025 11:00:00 GMT", 0.0),
        ("999999999", 86400.0),
        ("soon", None),
        ("", None),
        ("-5", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    assert retry_after(header, datetime(2025, 11, 17, 12, tzinfo=UTC)) == seconds


@pytest.mark.parametrize(
    "body",
    [
        b"<html>bad gateway</html>",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"content": "no idea"}}]}',
        b"[" * 100_000,
        b"\xff\xfe",
        json.dumps(completion('{"sql": "select', finish_reason="length")).encode(),
    ],
    ids=["html", "no choices", "no text", "no sql", "deep", "no utf-8", "cut off"],
)
def test_a_malformed_answer_is_a_failure_that_may_be_tried_again(
    body: bytes, service: Any, request_: PlanRequest
) -> None:
    found = failure(planner(service(200, body).url), request_)

    assert (found.code, found.retryable) == ("OUTPUT_INVALID", True)


def test_a_redirect_is_not_followed(service: Any, request_: PlanRequest) -> None:
    elsewhere = service(200, completion('{"sql": "select 1"}'))
    stub = service(307, b"", location=elsewhere.url)

    found = failure(planner(stub.url), request_)

    assert (found.code, found.retryable) == ("INPUT_INVALID", False)
    assert elsewhere.keys == []


def test_a_service_that_says_nothing_is_a_timeout(request_: PlanRequest) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = failure(planner(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", seconds=0.2), request_)

    assert (found.code, found.retryable) == ("TIMEOUT", True)


def test_a_service_that_sends_a_byte_now_and_then_is_a_timeout(request_: PlanRequest) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                try:
                    while True:
                        connection.sendall(b" ")
                except OSError:
                    pass

        thread = Thread(target=drip, daemon=True)
        thread.start()
        found = failure(planner(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", seconds=0.2), request_)
        thread.join(5)

    assert found.code in ("TIMEOUT", "OUTPUT_INVALID")


def test_a_service_that_is_not_there_is_a_connection_failure(request_: PlanRequest) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    found = failure(planner(f"http://127.0.0.1:{port}/v1"), request_)

    assert (found.code, found.retryable) == ("CONNECTION", True)


# -- from a file -----------------------------------------------------------------------------------------------------

SCRIPT = """
[[answers]]
question = "how many CUSTOMERS are there"
attempt = 2
sql = "select count(*) from customers"
usage = {input_tokens = 10, output_tokens = 5}

[[answers]]
question = "how many customers are there"
error = {code = "HTTP_429", retry_after = 3}

[[answers]]
refusal = "I do not know"
words = ["weather"]
"""


def test_a_script_answers_by_question_and_attempt(tmp_path: Path, request_: PlanRequest) -> None:
    script = tmp_path / "script.toml"
    script.write_text(SCRIPT)
    scripted = ScriptedPlanner(script)

    first = failure(scripted, request_)
    second = scripted.plan(replace(request_, failed=(FailedSql("x", "SQL_SYNTAX", "no"),)))
    other = scripted.plan(replace(request_, question="what is the weather"))

    assert (first.code, first.retryable, first.details["retry_after"]) == ("HTTP_429", True, 3.0)
    assert isinstance(second, Plan)
    assert second.usage.input_tokens == 10
    assert isinstance(other, Refusal)
    assert other.words == ("weather",)


@pytest.mark.parametrize(
    "text", ["", "answers = 1", "[[answers]]", "[[answers]]\nsql = 'a'\nrefusal = 'b'", "[[answers]]\nsqll = 'a'", "[["]
)
def test_a_script_that_is_wrong_is_refused_when_it_is_read(text: str, tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text(text)

    with pytest.raises(PlannerFailed) as caught:
        ScriptedPlanner(script)

    assert (caught.value.code, caught.value.retryable) == ("INPUT_INVALID", False)
    assert "script.toml" in caught.value.message


def test_a_cassette_replays_without_asking_anybody(tmp_path: Path, service: Any, request_: PlanRequest) -> None:
    stub = service(200, completion('{"sql": "select count(*) from customers"}'))
    tape = tmp_path / "tape.jsonl"

    recorded = CassettePlanner(tape, planner(stub.url)).plan(request_)
    again = CassettePlanner(tape, planner(stub.url)).plan(request_)
    replayed = CassettePlanner(tape).plan(request_)

    assert recorded == again == replayed
    assert len(stub.bodies) == 1
    assert "secret-key" not in tape.read_text()


def test_a_cassette_knows_a_request_by_all_that_is_asked(tmp_path: Path, request_: PlanRequest) -> None:
    others = [
        replace(request_, question="How many orders are there?"),
        replace(request_, today=date(2025, 11, 18)),
        replace(request_, failed=(FailedSql("x", "SQL_SYNTAX", "no"),)),
        replace(request_, schema=replace(request_.schema, tables=request_.schema.tables[:3])),
    ]

    assert len({digest_of(one) for one in (request_, *others)}) == 5
    found = failure(CassettePlanner(tmp_path / "empty.jsonl"), request_)
    assert (found.code, found.retryable) == ("INPUT_INVALID", False)


def test_a_failure_is_not_recorded(tmp_path: Path, service: Any, request_: PlanRequest) -> None:
    stub, tape = service(500), tmp_path / "tape.jsonl"

    failure(CassettePlanner(tape, planner(stub.url)), request_)

    assert not tape.exists()


def test_a_line_that_a_crash_cut_off_is_asked_again(tmp_path: Path, service: Any, request_: PlanRequest) -> None:
    stub = service(200, completion('{"sql": "select 1"}'))
    tape = tmp_path / "tape.jsonl"
    CassettePlanner(tape, planner(stub.url)).plan(request_)
    tape.write_bytes(tape.read_bytes()[:-20])

    CassettePlanner(tape, planner(stub.url)).plan(request_)

    assert len(stub.bodies) == 2
    assert isinstance(CassettePlanner(tape).plan(request_), Plan)


def test_two_threads_record_whole_lines(tmp_path: Path, service: Any, request_: PlanRequest) -> None:
    stub = service(200, completion('{"sql": "select 1"}'))
    tape = tmp_path / "tape.jsonl"
    requests = [replace(request_, question=f"question {number}") for number in range(12)]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(CassettePlanner(tape, planner(stub.url)).plan, requests))

    assert all(isinstance(CassettePlanner(tape).plan(one), Plan) for one in requests)


# -- by name ---------------------------------------------------------------------------------------------------------


def test_planners_are_found_by_name(tmp_path: Path, request_: PlanRequest) -> None:
    script = tmp_path / "script.toml"
    script.write_text(SCRIPT)
    environ = {
        "NL2SQL_SCRIPT": str(script),
        "NL2SQL_CASSETTE": str(tmp_path / "tape.jsonl"),
        "NL2SQL_CASSETTE_OF": "rules",
    }

    assert find_planner("rules", {}).name == "rules"
    assert find_planner("scripted", environ).name == "scripted"
    assert isinstance(find_planner("cassette", environ).plan(request_), Plan)
    assert find_planner("openai", {"NL2SQL_MODEL": "m", "OPENAI_BASE_URL": "http://127.0.0.1:1"}).name == "openai"


@pytest.mark.parametrize(
    ("name", "environ", "said"),
    [
        ("rule", {}, "did you mean 'rules'"),
        ("oracle-of-delphi", {}, "known are rules, openai, scripted, cassette"),
        ("openai", {}, "NL2SQL_MODEL"),
        ("openai", {"NL2SQL_MODEL": "m"}, "OPENAI_API_KEY"),
        ("openai", {"NL2SQL_MODEL": "m", "OPENAI_BASE_URL": "not an address"}, "OPENAI_BASE_URL"),
        ("openai", {"NL2SQL_MODEL": "m", "OPENAI_BASE_URL": "ftp://example.org/v1"}, "OPENAI_BASE_URL"),
        ("openai", {"NL2SQL_MODEL": "m", "OPENAI_BASE_URL": "http://[broken/v1"}, "OPENAI_BASE_URL"),
        ("openai", {"NL2SQL_MODEL": "m", "OPENAI_API_KEY": "k", "NL2SQL_MODEL_TIMEOUT": "soon"}, "must be a positive"),
        ("openai", {"NL2SQL_MODEL": "m", "OPENAI_API_KEY": "k", "NL2SQL_MODEL_PRICES": "3"}, "must be 2 positive"),
        ("scripted", {}, "NL2SQL_SCRIPT"),
        ("scripted", {"NL2SQL_SCRIPT": "/nowhere/script.toml"}, "no such file"),
        ("cassette", {}, "NL2SQL_CASSETTE"),
        ("cassette", {"NL2SQL_CASSETTE": "t", "NL2SQL_CASSETTE_OF": "cassette"}, "NL2SQL_CASSETTE_OF"),
    ],
)
def test_a_planner_without_its_settings_says_what_is_missing(name: str, environ: dict[str, str], said: str) -> None:
    with pytest.raises(PlannerFailed) as caught:
        find_planner(name, environ)

    assert (caught.value.code, caught.value.retryable) == ("INPUT_INVALID", False)
    assert said in caught.value.message
