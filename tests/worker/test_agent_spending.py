"""What agents report of what they used: in the forms of known programs, and where a file of providers says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.support.work import Work

from mulligan.core.deciding.classify import classify
from mulligan.core.model.reports import TaskEnded
from mulligan.core.model.workflow import Budget
from mulligan.errors import InputInvalid
from mulligan.worker.actions.agent_output import CLAUDE, CODEX, Field, Form, Prices, read
from mulligan.worker.actions.agent_providers import Provider, provider
from mulligan.worker.programs import Programs

CLAUDE_RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "num_turns": 4,
    "result": "All mended.\ndecision: approved",
    "total_cost_usd": 0.1234567,
    "usage": {
        "input_tokens": 10,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 3000,
        "output_tokens": 40,
    },
    "modelUsage": {"opus": {"costUSD": 0.1}, "haiku": {"costUSD": 0.02}},
}
CODEX_LINES = [
    {"type": "thread.started", "thread_id": "t"},
    {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}},
    {"type": "turn.completed", "usage": {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 7}},
]
PRICES = {"default": Prices(Decimal(3), Decimal(15)), "small": Prices(Decimal("0.25"), Decimal("1.25"))}


# -- forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "printed",
    [
        json.dumps(CLAUDE_RESULT),
        json.dumps([{"type": "system"}, CLAUDE_RESULT]),
        'a warning\n{"type": "assistant", "usage": {"input_tokens": 7}}\n' + json.dumps(CLAUDE_RESULT),
    ],
    ids=["json", "verbose", "stream-json"],
)
def test_the_result_of_claude_code_is_read_with_all_that_it_used(printed: str) -> None:
    found = read(CLAUDE, printed, "", {})

    assert found is not None
    assert (found.content, found.error) == (CLAUDE_RESULT["result"], "")
    assert found.used == {
        "input_tokens": 3210,
        "output_tokens": 40,
        "tokens": 3250,
        "turns": 4,
        "model": "opus, haiku",
        "cost": "0.1234567",
    }


def test_the_events_of_codex_are_read_and_priced() -> None:
    found = read(CODEX, "\n".join(map(json.dumps, CODEX_LINES)), "small", PRICES)

    assert found is not None
    assert found.content == "Done."
    # 100 tokens at $0.25 and 7 at $1.25, for a million each.
    assert found.used == {
        "input_tokens": 100,
        "output_tokens": 7,
        "tokens": 107,
        "model": "small",
        "cost": "0.00003375",
    }


def test_a_model_without_prices_has_those_of_all_others() -> None:
    found = read(CODEX, "\n".join(map(json.dumps, CODEX_LINES)), "large", PRICES)

    assert found is not None
    assert found.used["cost"] == "0.000405"


def test_a_cost_that_is_reported_counts_and_not_the_price_list() -> None:
    found = read(CLAUDE, json.dumps(CLAUDE_RESULT), "", PRICES)

    assert found is not None
    assert found.used["cost"] == "0.1234567"


@pytest.mark.parametrize("printed", ["", "plain text", "{", "[1, 2]", '{"type": "other"}', "{}\n{}", "[" * 100_000])
def test_what_is_not_in_the_form_is_not_read(printed: str) -> None:
    assert read(CLAUDE, printed, "", {}) is None


def test_an_error_is_read_with_what_it_cost() -> None:
    found = read(CLAUDE, json.dumps({**CLAUDE_RESULT, "is_error": True, "result": "overloaded"}), "", {})

    assert found is not None
    assert found.error == "overloaded"
    assert found.used["cost"] == "0.1234567"


def test_figures_that_are_none_are_left_out() -> None:
    form = Form(content=Field("c"), tokens=(Field("n"), Field("choices.1.n")), cost=Field("usd"), calls=Field("calls"))

    found = read(form, '{"c": {"a": 1}, "n": "many", "choices": [0, {"n": 5}], "usd": "free", "calls": -1}', "", {})

    assert found is not None
    assert (found.content, found.used) == ('{"a":1}', {"tokens": 5})


# -- the file of providers -------------------------------------------------------------------------------------------


@pytest.fixture
def described(tmp_path: Path) -> Callable[[str, str], Provider]:
    def look_up(text: str, name: str) -> Provider:
        (tmp_path / "agents.yaml").write_text(text, encoding="utf-8")
        return provider(name, Programs({"MULLIGAN_AGENTS": str(tmp_path / "agents.yaml")}, is_direct=False))

    return look_up


def test_a_file_says_which_command_an_agent_is_and_where_its_figures_stand(described: Any) -> None:
    text = """
        robot:
          command: ./robot.sh
          output:
            content: answer.text
            tokens: {input: [usage.in, usage.cached], output: usage.out}
            cost: {path: usd, where: {type: bill}}
          prices: {default: {input: 3, output: 15.50}}
    """

    found = described(text, "robot")

    assert found == Provider(
        "./robot.sh",
        Form(
            content=Field("answer.text"),
            input_tokens=(Field("usage.in"), Field("usage.cached")),
            output_tokens=(Field("usage.out"),),
            cost=Field("usd", {"type": "bill"}),
        ),
        {"default": Prices(Decimal(3), Decimal("15.5"))},
    )


def test_a_file_may_name_a_form_that_is_known(described: Any) -> None:
    assert described("helper: {command: my-claude, output: claude}", "helper") == Provider("my-claude", CLAUDE)


def test_an_agent_that_the_file_does_not_name_has_nothing_from_it(described: Any) -> None:
    assert described("helper: {command: x}", "other") == Provider()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "agents.yaml:1:1: a mapping of agents is expected, each with 'command', 'output' or 'kind'"),
        ("a: {comand: x}", "agents.yaml:1:5: 'comand' is not a key of agent 'a'"),
        ("a: {output: {tokens: n}}", "agents.yaml:1:13: 'output' has no 'content'"),
        ("a: {prices: {default: {input: much, output: 1}}}", "agents.yaml:1:31: 'input' is 'much', an amount of"),
        ("a: {output: clod}", "agents.yaml:1:13: 'output' is 'clod'"),
        ("a: [", "agents.yaml:2:1: did not find expected node content"),
    ],
)
def test_a_bad_file_is_refused_at_its_place(described: Any, text: str, said: str) -> None:
    with pytest.raises(InputInvalid) as caught:
        described(text, "a")

    assert said in caught.value.message


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InputInvalid, match=r"the file '/nowhere/a\.yaml' of MULLIGAN_AGENTS cannot be read"):
        provider("a", Programs({"MULLIGAN_AGENTS": "/nowhere/a.yaml"}, is_direct=False))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "agents.yaml")

    with pytest.raises(InputInvalid, match=r"agents\.yaml' of MULLIGAN_AGENTS is not a regular file"):
        provider("a", Programs({"MULLIGAN_AGENTS": str(tmp_path / "agents.yaml")}, is_direct=False))


# -- through a worker ------------------------------------------------------------------------------------------------

Ask = Callable[..., TaskEnded]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    for name in [name for name in os.environ if name.startswith("MULLIGAN_")]:
        monkeypatch.delenv(name)
    opened: list[Work] = []

    def run(command: str, name: str = "test", agents: str = "", **fields: Any) -> TaskEnded:
        monkeypatch.setenv(f"MULLIGAN_AGENT_{name.upper()}", command)
        if agents:
            (tmp_path / "agents.yaml").write_text(agents, encoding="utf-8")
            monkeypatch.setenv("MULLIGAN_AGENTS", str(tmp_path / "agents.yaml"))
        work = Work(tmp_path)
        opened.append(work)
        return work.run(work.lease("agent", {"prompt": "mend it", "provider": name}, **fields))

    yield run
    for work in opened:
        work.close()


def spent(report: TaskEnded) -> dict[str, Any]:
    return {name: value for name, value in report.usage.items() if not name.endswith(("seconds", "memory", "_at"))}


def test_claude_reports_what_it_used_whichever_command_it_is(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(CLAUDE_RESULT), encoding="utf-8")

    report = ask(f"cat {tmp_path}/result.json", "claude")

    assert report.output == {
        "content": CLAUDE_RESULT["result"],
        "decision": "approved",
        "tokens": {"input": 3210, "output": 40},
        "cost": "0.1234567",
        "turns": 4,
        "model": "opus, haiku",
    }
    assert (report.usage["tokens"], report.usage["cost"]) == (3250, "0.1234567")


def test_claude_that_prints_text_is_taken_at_its_word(ask: Ask) -> None:
    assert ask("echo fine", "claude").output == {"content": "fine", "decision": None, "tokens": None}


def test_an_agent_that_says_it_has_failed_has_failed_and_has_spent(ask: Ask) -> None:
    text = json.dumps({**CLAUDE_RESULT, "is_error": True, "result": "overloaded"})

    report = ask(f"echo '{text}'", "claude")

    found, _ = classify(report.outcome)
    assert found is not None
    assert (found.code, found.message, report.output) == ("AGENT_FAILED", "overloaded", None)
    assert report.usage["cost"] == "0.1234567"


def test_an_agent_that_exits_with_its_error_says_why(ask: Ask) -> None:
    text = json.dumps({**CLAUDE_RESULT, "is_error": True, "result": "overloaded"})

    report = ask(f"echo '{text}'; exit 1", "claude")

    found, _ = classify(report.outcome)
    assert found is not None
    assert (found.code, found.exit_code, found.message) == ("EXIT_NONZERO", 1, "overloaded")
    assert report.usage["tokens"] == 3250


def test_what_a_file_of_providers_describes_is_read_and_priced(ask: Ask) -> None:
    agents = "test: {output: {content: say, tokens: {input: i, output: o}}, prices: {default: {input: 10, output: 50}}}"

    report = ask("""echo '{"say": "hi", "i": 1000, "o": 100}'""", agents=agents)

    assert report.output is not None
    assert report.output["content"] == "hi"
    assert report.usage["cost"] == "0.015"


def test_an_answer_that_is_not_where_the_file_says_is_none(ask: Ask) -> None:
    found, _ = classify(ask("echo hello", agents="test: {output: {content: say}}").outcome)

    assert found is not None
    assert (found.code, found.message) == (
        "OUTPUT_INVALID",
        "the answer of agent 'test' is not where MULLIGAN_AGENTS says",
    )


def test_an_agent_may_write_itself_what_it_cost(ask: Ask) -> None:
    said = '{"content": "x", "tokens": 12, "cost": 0.3, "calls": 2, "model": "m"}'

    report = ask(f"""echo '{said}' > "$MULLIGAN_OUTPUT\"""")

    assert {"tokens": 12, "cost": "0.3", "calls": 2, "model": "m"}.items() <= report.usage.items()


def test_an_agent_is_told_what_it_may_spend(ask: Ask) -> None:
    command = 'echo "$MULLIGAN_BUDGET_TOKENS $MULLIGAN_BUDGET_COST $MULLIGAN_BUDGET_CALLS"'

    report = ask(command, budget=Budget(tokens=60, cost=Decimal("0.750"), calls=4))

    assert report.output is not None
    assert report.output["content"] == "60 0.75 4"


def test_without_a_budget_the_variables_are_not_set(ask: Ask) -> None:
    report = ask('echo "${MULLIGAN_BUDGET_TOKENS-none}"')

    assert report.output is not None
    assert report.output["content"] == "none"
