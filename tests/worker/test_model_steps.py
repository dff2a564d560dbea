"""Agents that are models, run by a real worker: their keys, what they used, and which provider is which."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.web import serving
from tests.support.work import Work

from mulligan import StepError
from mulligan.core.deciding.classify import classify
from mulligan.core.effects.tasks import Task
from mulligan.core.model.agents.conversation import Message
from mulligan.core.model.failure import Failure
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Budget, Secret
from mulligan.errors import InputInvalid
from mulligan.worker.actions.agent_output import Prices
from mulligan.worker.actions.agent_prompt import SCHEMA_NOTICE
from mulligan.worker.actions.agent_providers import find_model
from mulligan.worker.models import cassette
from mulligan.worker.models.asking import make_request
from mulligan.worker.models.request import ModelRequest, Origin
from mulligan.worker.models.settings import Access, ModelSettings
from mulligan.worker.programs import Programs

from .test_models import Log, ended, said, stream

# By day: none of these tests is about how a child starts.
pytestmark = pytest.mark.usefixtures("forked_children")

KEY = "sk-very-secret-key"
SCHEMA = {"type": "object", "required": ["verdict"], "properties": {"verdict": {"enum": ["yes", "no"]}}}


class Models:
    """A worker whose environment names models on a stub server."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith(("MULLIGAN_", "OPENAI_", "ANTHROPIC_"))]:
            monkeypatch.delenv(name)
        self.folder = folder
        self.set = monkeypatch.setenv
        self.set("NO_PROXY", "*")
        self._work: Work | None = None

    def describe(self, **providers: Any) -> None:
        """Before the first task: a worker's environment is that of its start."""
        (self.folder / "agents.yaml").write_text(json.dumps(providers))
        self.set("MULLIGAN_AGENTS", str(self.folder / "agents.yaml"))

    @property
    def work(self) -> Work:
        if self._work is None:
            self._work = Work(self.folder)
        return self._work

    def ask(self, provider: str, prompt: str = "mend it", **fields: Any) -> TaskEnded:
        params = {name: fields.pop(name) for name in ("answer", "model") if name in fields}
        return self.work.run(self.work.lease("agent", {"provider": provider, "prompt": prompt, **params}, **fields))

    def log(self, place: str) -> str:
        return "".join(path.read_text() for path in sorted((self.work.home / "runs/7/logs").glob(f"{place}#*")))

    def close(self) -> None:
        if self._work is not None:
            self._work.close()
            assert self._work.remaining() == []


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Models]:
    found = Models(tmp_path, monkeypatch)
    yield found
    found.close()


def failed(report: TaskEnded) -> Failure:
    found, _ = classify(report.outcome)
    assert found is not None
    return found


# -- in a worker -----------------------------------------------------------------------------------------------------


def test_a_model_answers_for_a_step_and_its_key_is_in_nothing_that_is_kept(models: Models) -> None:
    with serving(stream(*said("openai", "the key is ", KEY[:7], KEY[7:], "\ndecision: yes"), *ended("openai"))) as web:
        models.set("TEST_KEY", KEY)
        # Services add a date to the name of the model that was asked for.
        prices = {"small": {"input": 1, "output": 10}, "default": {"input": 9, "output": 9}}
        models.describe(
            box={"kind": "openai", "url": web.url, "model": "small", "key": {"env": "TEST_KEY"}, "prices": prices}
        )

        # The variables of a step cannot lead the key elsewhere.
        report = models.ask("box", place="ask", env={"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": ""})

        assert web.headers()["authorization"] == f"Bearer {KEY}"
    assert report.output == {
        "content": "the key is ***\ndecision: yes",
        "decision": "yes",
        "tokens": {"input": 7, "output": 3},
        "cost": "0.000037",
        "model": "small-1",
    }
    assert {name: report.usage[name] for name in ("tokens", "cost", "model")} == {
        "tokens": 10,
        "cost": "0.000037",
        "model": "small-1",
    }
    assert models.log("ask") == "the key is ***\ndecision: yes\n"


def test_what_a_failed_attempt_used_is_recorded_and_its_text_is_in_the_log(models: Models) -> None:
    with serving(stream(*said("anthropic", "half of an ans"))) as web:
        models.set("ANTHROPIC_BASE_URL", web.url)
        models.set("ANTHROPIC_API_KEY", KEY)

        report = models.ask("anthropic", place="ask", model="small")

    assert failed(report).code == "CONNECTION"
    assert failed(report).details["provider"] == "anthropic"
    assert report.usage["tokens"] == 8
    assert "half of an ans\n" in models.log("ask")


def test_an_answer_that_does_not_match_its_schema_is_rejected_and_shown(models: Models) -> None:
    (models.folder / "script.yaml").write_text("- {answer: {verdict: maybe}}")
    models.set("MULLIGAN_SCRIPTED_AGENT", str(models.folder / "script.yaml"))
    models.set("MULLIGAN_AGENT_ROBOT", """cat; printf '{"verdict": "no"}' > "$MULLIGAN_OUTPUT"; echo""")
    models.set("MULLIGAN_AGENT_OTHER", """cat >&2; echo '```json'; echo '{"verdict": "no"}'; echo '```'""")

    rejected = failed(models.ask("scripted", answer={"schema": SCHEMA}))
    accepted = models.ask("other", place="cmd", answer={"schema": SCHEMA})
    by_command = failed(models.ask("robot", answer={"schema": SCHEMA}))

    message = 'its answer does not match the schema: answer.verdict is "maybe", and must be one of "yes", "no"'
    assert (rejected.code, rejected.message, rejected.retryable) == ("VALIDATION_FAILED", message, True)
    assert rejected.details == {"output": '{"verdict":"maybe"}'}
    assert accepted.output["json"] == {"verdict": "no"}
    # A command is given the schema as a part of its prompt.
    assert models.log("cmd").count(f"mend it\n\n{SCHEMA_NOTICE}\n{msgspec.json.encode(SCHEMA).decode()}") == 1
    assert by_command.code == "VALIDATION_FAILED"
    assert "its answer is not JSON" in by_command.message


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        ("openai", "agent 'openai' has no key: environment variable 'OPENAI_API_KEY' is not set where the worker runs"),
        ("box", "agent 'box' has no model: write 'model' in the step, or in the file that MULLIGAN_AGENTS names"),
        ("scripted", "agent 'scripted' is not available: MULLIGAN_SCRIPTED_AGENT is not set where the worker runs"),
        ("robot", "agent 'robot' is a command, which has neither 'tools' nor a 'session': name a provider of"),
    ],
)
def test_what_a_provider_lacks_is_said(models: Models, provider: str, message: str) -> None:
    models.set("MULLIGAN_AGENT_ROBOT", "cat")
    models.describe(box={"kind": "openai", "url": "http://127.0.0.1:1"})

    found = failed(models.ask(provider, conversation={"turn": 0} if provider == "robot" else {}))

    assert (found.code, found.retryable) == ("INPUT_INVALID", False)
    assert found.message.startswith(message)


# -- which provider is which -----------------------------------------------------------------------------------------


def test_a_variable_comes_before_the_file_and_the_file_before_what_is_built_in(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(
        "openai: {kind: openai, url: http://here/v1, read_timeout: 5s, max_tokens: 9,\n"
        "  prices: {default: {input: 1, output: 2}}}\n"
        "claude: {kind: anthropic, model: big, key: {file: /key}}\n"
        "robot: {command: cat}\n"
        "play: {kind: scripted, script: answers.yaml}\n"
        "tape: {kind: cassette, cassette: /tapes/a.jsonl, of: claude, record: true}\n"
    )
    programs = Programs({"MULLIGAN_AGENTS": str(file), "MULLIGAN_AGENT_ANTHROPIC": "cat"}, is_direct=True)

    assert find_model("openai", programs) == ModelSettings(
        "openai",
        "openai",
        url="http://here/v1",
        read_timeout=5.0,
        max_tokens=9,
        prices={"default": Prices(1, 2)},  # type: ignore[arg-type]
    )
    claude = ModelSettings(
        "claude", "anthropic", url="https://api.anthropic.com/v1", model="big", key=Secret(file="/key"), schema="prompt"
    )
    assert find_model("claude", programs) == claude
    assert find_model("robot", programs) is None
    assert find_model("anthropic", programs) is None
    assert find_model("play", programs) == ModelSettings(
        "play", "scripted", file=f"{tmp_path}/answers.yaml", schema="prompt"
    )
    assert find_model("tape", programs) == ModelSettings(
        "tape", "cassette", file="/tapes/a.jsonl", recorded=claude, schema="prompt"
    )
    assert find_model("unknown", programs) is None


def test_without_a_file_variables_say_where_models_are() -> None:
    environment = {
        "OPENAI_BASE_URL": "http://here/v1",
        "MULLIGAN_CASSETTE": "/tape",
        "MULLIGAN_CASSETTE_RECORD": "openai",
    }

    local = find_model("openai", Programs(environment, is_direct=True))
    tape = find_model("cassette", Programs(environment, is_direct=True))

    # An endpoint of one's own needs no key.
    assert local == ModelSettings("openai", "openai", url="http://here/v1")
    assert tape is not None
    assert tape.recorded == local
    official = find_model("openai", Programs({}, is_direct=True))
    assert official is not None
    assert official.key == Secret(env="OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: {kind: openay}", "1:11: 'kind' is 'openay'"),
        ("a: {kind: openai, command: x}", "1:19: an agent of kind 'openai' has no 'command'"),
        ("a: {url: x}", "1:5: an agent without 'kind' has no 'url'"),
        ("a: {kind: scripted}", "1:4: agent 'a' has no 'script'"),
        ("a: {kind: cassette, cassette: x, record: true}", "1:4: agent 'a' records, and has no 'of'"),
        ("a: {kind: openai, key: sk-123456}", "1:24: 'key' is written in plain text"),
        ("a: {kind: cassette, cassette: x, of: a, record: true}", "cassette 'a' cannot record 'a'"),
    ],
)
def test_a_wrong_description_of_a_model_is_refused_at_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "agents.yaml").write_text(text)

    with pytest.raises(InputInvalid) as caught:
        find_model("a", Programs({"MULLIGAN_AGENTS": str(tmp_path / "agents.yaml")}, is_direct=True))

    assert said in caught.value.message
    assert "sk-123456" not in caught.value.message


# -- what is asked ---------------------------------------------------------------------------------------------------


def task(**fields: Any) -> Task:
    known = {"run_id": 7, "place": "ask", "attempt": 2, "kind": "model", "workflow": "w", "version": "v"}
    return Task(**{**known, "step": "ask", "visit": 1, "params": {"prompt": "hello"}, **fields})


def test_a_request_says_which_turn_of_which_attempt_it_is() -> None:
    calls = [{"id": "c", "name": "look", "arguments": {}}]
    turns = [{"answer": {"content": "", "tool_calls": calls}, "results": [{"output": "there"}]}]
    asked = task(place="ask.model@3.2", conversation={"turns": turns, "tools": []})

    request = make_request(asked, ModelSettings("s", "scripted"))

    assert [message.role for message in request.messages] == ["user", "assistant", "tool"]
    assert request.origin == Origin("ask.model@3.2", "ask", attempt=3, turn=2)


def test_an_answer_is_no_longer_than_the_budget_allows() -> None:
    settings = ModelSettings("s", "scripted", max_tokens=500)

    assert make_request(task(budget=Budget(tokens=100)), settings).max_tokens == 100
    assert make_request(task(budget=Budget(calls=1)), settings).max_tokens == 500
    assert make_request(task(), ModelSettings("s", "scripted")).max_tokens is None


# -- cassettes -------------------------------------------------------------------------------------------------------


def question(text: str, **fields: Any) -> ModelRequest:
    return ModelRequest("tape", "", (Message("user", text),), **fields)


def test_a_cassette_replays_what_it_recorded_and_holds_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    file = tmp_path / "tape.jsonl"
    text = "workflow_run_id: 1\ncreated_at: 2026-11-17\nthe password is hunter2"
    with serving(stream(*said("openai", f"hi, {KEY}"), *ended("openai"))) as web:
        real = ModelSettings("box", "openai", url=web.url, model="small")
        recording = ModelSettings("tape", "cassette", file=str(file), recorded=real)
        answer = cassette.ask(question(text), recording, Access(KEY, (KEY, "hunter2")), Log())
        body = json.loads(web.body())

    # The model is asked for real, with everything.
    assert body["model"] == "small"
    assert "hunter2" in body["messages"][0]["content"]
    assert answer.text == f"hi, {KEY}"
    assert KEY not in file.read_text()
    assert "hunter2" not in file.read_text()
    # Another run, another secret, another place: the same question.
    again = text.replace(": 1", ": 2").replace("-17", "-18").replace("hunter2", "swordfish")
    log = Log()
    replaying = ModelSettings("tape", "cassette", file=str(file))
    replayed = cassette.ask(question(again, origin=Origin("b", "b")), replaying, Access("", ("swordfish",)), log)
    assert (replayed.text, replayed.model, replayed.usage) == ("hi, ***", "small-1", answer.usage)
    assert log.pieces == ["hi, ***"]


def test_a_cassette_without_the_answer_says_how_to_record_it(tmp_path: Path) -> None:
    settings = ModelSettings("tape", "cassette", file=str(tmp_path / "tape.jsonl"))

    with pytest.raises(StepError) as caught:
        cassette.ask(question("hello", origin=Origin("ask", "ask")), settings, Access(), Log())

    assert (caught.value.code, caught.value.retryable) == ("INPUT_INVALID", False)
    assert "has no answer to this request of 'ask'" in caught.value.message
    assert "MULLIGAN_CASSETTE_RECORD=PROVIDER" in caught.value.message
    (tmp_path / "tape.jsonl").write_text("{}\n")
    with pytest.raises(StepError, match="cannot be used: line 1: "):
        cassette.ask(question("hello"), settings, Access(), Log())
