"""Scripted agents: answers from a file, chosen by the place that asks and by its prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan import StepError
from mulligan.core.model.agents.conversation import Message, ToolCall
from mulligan.worker.models import scripted
from mulligan.worker.models.request import ModelAnswer, ModelRequest, Origin
from mulligan.worker.models.settings import Access, ModelSettings


class Log:
    """What was written and spent."""

    def __init__(self) -> None:
        self.text = ""
        self.spent: dict[str, Any] = {}

    def write(self, text: str) -> None:
        self.text += text

    def spend(self, usage: dict[str, Any], model: str) -> None:
        self.spent = {**usage, "model": model}


@pytest.fixture
def script(tmp_path: Path) -> Any:
    """Asks a script: its text, the prompt, and who asks."""

    def ask(text: str, prompt: str = "what now?", log: Log | None = None, **origin: Any) -> ModelAnswer:
        file = tmp_path / "script.yaml"
        file.write_text(text)
        who = Origin(**{"place": "ask", "step": "ask", **origin})
        request = ModelRequest("scripted", "", (Message("user", prompt),), origin=who)
        return scripted.ask(request, ModelSettings("scripted", "scripted", file=str(file)), Access(), log or Log())

    return ask


def test_the_first_entry_whose_conditions_hold_answers(script: Any) -> None:
    text = """
    - {when: 'disk (full|gone)', answer: make room}
    - {step: ask, attempt: 2, answer: again}
    - {place: 'ask.triager@1', answer: {verdict: retry}}
    - {turn: 2, answer: enough}
    - {visit: 3, answer: once more}
    - {answer: hello}
    """

    assert script(text, "the disk is full: disk full").text == "make room"
    assert script(text, attempt=2).text == "again"
    assert script(text, place="ask.triager@1").text == '{"verdict":"retry"}'
    assert script(text, turn=2).text == "enough"
    assert script(text, visit=3).text == "once more"
    assert script(text).text == "hello"


def test_an_answer_may_call_tools_and_report_what_it_used(script: Any) -> None:
    log = Log()

    answer = script(
        """
        - answer: I look it up.
          tool_calls: [{name: search, arguments: {query: disk}}, {name: stop, id: last}]
          tokens: {input: 7, output: 3}
          cost: 0.25
          model: small
        """,
        log=log,
    )

    assert answer.tool_calls == (ToolCall("call_0", "search", {"query": "disk"}), ToolCall("last", "stop"))
    assert answer.stop_reason == "tool_calls"
    assert log.text == "I look it up."
    assert log.spent == {"input_tokens": 7, "output_tokens": 3, "cost": "0.25", "model": "small"}


def test_an_entry_may_fail_as_a_service_does(script: Any) -> None:
    with pytest.raises(StepError) as caught:
        script("- error: {code: HTTP_429, message: slow down, retry_after: 4}")

    assert (caught.value.code, caught.value.message, caught.value.details) == (
        "HTTP_429",
        "slow down",
        {"retry_after": 4},
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {when: never, answer: x}", "has no answer for 'ask' (visit 1, attempt 1, turn 1)"),
        ("{}", "script.yaml:1:1: a list of answers is expected"),
        ("- {anser: x}", "script.yaml:1:4: 'anser' is not a key of answer 1"),
        ("- {when: '(', answer: x}", "script.yaml:1:10: 'when' is '('"),
        ("- {when: x}", "script.yaml:1:3: answer 1 has neither 'answer' nor 'tool_calls' nor 'error'"),
        ("- [", "script.yaml:2:1: did not find expected node content"),
    ],
)
def test_a_script_without_an_answer_or_with_a_mistake_is_refused(script: Any, text: str, said: str) -> None:
    with pytest.raises(StepError) as caught:
        script(text)

    assert caught.value.code == "INPUT_INVALID"
    assert caught.value.retryable is False
    assert said in caught.value.message
