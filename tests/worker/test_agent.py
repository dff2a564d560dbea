"""Agents: what they are asked and told, byte for byte, and what becomes of what they answer."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.work import Work

from mulligan.core.deciding.agents.agent_context import AgentContext, PriorOutput
from mulligan.core.deciding.classify import classify
from mulligan.core.model.failure import Failure, failure
from mulligan.core.model.failure_context import FailedSource, own_context
from mulligan.core.model.reports import TaskEnded
from mulligan.ports import Lease
from mulligan.worker.actions.agent import tokens
from mulligan.worker.actions.agent_answer import decision
from mulligan.worker.actions.agent_prompt import CONTEXT_NOTICE
from mulligan.worker.actions.default_agents import SKIP_PERMISSIONS

pytestmark = pytest.mark.usefixtures("forked_children")

AT = datetime(2026, 11, 15, tzinfo=UTC)
FAILED = FailedSource("build", 1, 2, 1, 1, "retries_exhausted", failure("EXIT_NONZERO", "disk full"), 4, 9, AT)
TOLD = AgentContext("fix", failed=(FAILED,), outputs=(PriorOutput("plan", 1, 1, 2, 3, AT, {"steps": 3}),))


class Agents:
    """Hands whose environment names agents."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._set = monkeypatch.setenv
        self._work: Work | None = None

    def names(self, variable: str, command: str) -> None:
        """Before the first task: a worker's environment is that of its start."""
        self._set(variable, command)

    @property
    def work(self) -> Work:
        if self._work is None:
            self._work = Work(self.folder)
        return self._work

    def lease(self, prompt: Any = "mend it", provider: str | None = "test", **fields: Any) -> Lease:
        params = {
            name: fields.pop(name) for name in ("model", "context", "answer", "skip_permissions") if name in fields
        }
        if provider is not None:
            params["provider"] = provider
        failed = fields.pop("failure_context", "")
        return self.work.lease("agent", {"prompt": prompt, **params}, context=failed, **fields)

    def run(self, command: str, prompt: Any = "mend it", **fields: Any) -> TaskEnded:
        self.names("MULLIGAN_AGENT_TEST", command)
        return self.work.run(self.lease(prompt, **fields))

    def side_files(self) -> dict[str, int]:
        """What is left of the side files, with their sizes."""
        folder = self.work.home / "workers" / self.work.name
        return {path.suffix[1:]: path.stat().st_size for path in folder.iterdir() if path.is_file()}

    def close(self) -> None:
        if self._work is not None:
            self._work.close()
            assert self._work.remaining() == []


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agents]:
    for name in [name for name in os.environ if name.startswith("MULLIGAN_")]:
        monkeypatch.delenv(name)
    found = Agents(tmp_path, monkeypatch)
    yield found
    found.close()


def failed(report: TaskEnded) -> Failure:
    found, _ = classify(report.outcome)
    assert found is not None
    return found


def content(report: TaskEnded) -> str:
    assert classify(report.outcome)[0] is None, report.outcome
    said: str = report.output["content"]
    return said


# -- what it is asked and told ---------------------------------------------------------------------------------------


def test_without_a_context_the_prompt_alone_is_on_its_standard_input(agents: Agents):
    report = agents.run("cat", "mend\n  it")

    assert report.output == {"content": "mend\n  it", "decision": None, "tokens": None}


def test_the_context_stands_before_the_prompt_byte_for_byte(agents: Agents):
    report = agents.run("cat", agent_context=TOLD, context={"branch": "main"})

    told = TOLD.text(7, {"branch": "main"})
    assert own_context(7, "fix", '{"branch":"main"}', "json") in told
    assert content(report) == f"{told}\n\n{CONTEXT_NOTICE}\n\nmend it"


def test_a_command_of_the_agents_own_stands_alone_and_its_context_is_a_file(agents: Agents):
    report = agents.run('cat; echo; echo --; cat "$MULLIGAN_CONTEXT_FILE"', "/mend it", agent_context=TOLD)

    assert content(report) == f"/mend it\n--\n{TOLD.text(7)}"


def test_prompt_and_context_are_files_as_well(agents: Agents):
    report = agents.run('cat "$MULLIGAN_PROMPT_FILE"; echo; echo --; cat "$MULLIGAN_CONTEXT_FILE"', agent_context=TOLD)

    assert content(report) == f"mend it\n--\n{TOLD.text(7)}"


def test_the_file_of_the_context_is_there_though_nothing_is_told(agents: Agents):
    report = agents.run('wc -c < "$MULLIGAN_CONTEXT_FILE"')

    assert content(report).strip() == "0"


def test_the_failure_context_alone_is_where_every_step_finds_it(agents: Agents):
    report = agents.run('cat "$MULLIGAN_FAILURE_CONTEXT"', agent_context=TOLD, failure_context=TOLD.failure_text(7))

    assert content(report) == TOLD.failure_text(7)


def test_its_files_are_its_owners_alone_and_gone_when_it_has_ended(agents: Agents):
    report = agents.run(
        'stat -c %a "$(dirname "$MULLIGAN_PROMPT_FILE")"', agent_context=TOLD, failure_context="it broke"
    )

    assert content(report) == "700"
    assert agents.side_files().keys().isdisjoint({"prompt", "told", "stdin", "context"})


def test_the_next_task_finds_nothing_of_what_the_last_one_was_asked(agents: Agents):
    agents.run("cat", "my secret", agent_context=TOLD)

    report = agents.work.run(agents.work.shell('cat; ls "$(dirname "$MULLIGAN_OUTPUT")"'))

    assert "secret" not in report.output
    assert not any(name.endswith((".prompt", ".told", ".stdin")) for name in report.output.splitlines())


def test_no_word_of_the_prompt_is_on_a_command_line(agents: Agents):
    report = agents.run("tr '\\0' ' ' < /proc/$$/cmdline", "hunter2")

    assert "hunter2" not in content(report)


def test_a_prompt_that_is_a_value_is_asked_as_json(agents: Agents):
    assert content(agents.run("cat", ["a", 1])) == '["a",1]'


def test_a_huge_prompt_arrives_whole(agents: Agents):
    report = agents.run("wc -c", "x" * 8_000_000)

    assert content(report).strip() == "8000000"


@pytest.mark.parametrize("prompt", ["", " \n", None])
def test_an_empty_prompt_is_refused(agents: Agents, prompt: Any):
    found = failed(agents.run("cat", prompt))

    assert (found.code, found.retryable, found.message) == ("INPUT_INVALID", False, "the prompt is empty")


def test_an_agent_need_not_read_what_it_is_asked(agents: Agents):
    assert content(agents.run("echo as always", "x" * 1_000_000)) == "as always"


def test_it_runs_in_the_folder_of_its_step(agents: Agents):
    (agents.folder / "here" / "repo").mkdir(parents=True)

    report = agents.run("pwd", cwd="repo")

    assert content(report) == str(agents.folder / "here" / "repo")


# -- who it is -------------------------------------------------------------------------------------------------------


def program(agents: Agents, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name, first on the path."""
    folder = agents.folder / "bin"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


ASKED = {
    # nobody is named: claude
    (None, None): "claude [-p --output-format json] mend it",
    ("claude", "opus"): "claude [-p --output-format json --model opus] mend it",
    ("codex", None): "codex [exec --json -] mend it",
    ("codex", "$(reboot) large"): "codex [exec --json --model $(reboot) large -] mend it",
}


@pytest.mark.parametrize(("provider", "model", "asked"), [(*key, value) for key, value in ASKED.items()])
def test_claude_and_codex_are_known(
    agents: Agents, provider: str | None, model: str | None, asked: str, monkeypatch: pytest.MonkeyPatch
):
    for name in ("claude", "codex"):
        program(agents, name, f'echo "{name} [$*] $(cat)"', monkeypatch)

    report = agents.work.run(agents.lease(provider=provider, **({"model": model} if model else {})))

    assert content(report) == asked


UNASKED = {
    "claude": "claude [-p --output-format json --dangerously-skip-permissions]",
    "codex": "codex [exec --json --dangerously-bypass-approvals-and-sandbox -]",
}


@pytest.mark.parametrize("provider", SKIP_PERMISSIONS)
def test_an_agent_may_skip_permissions(agents: Agents, provider: str, monkeypatch: pytest.MonkeyPatch):
    program(agents, provider, f'echo "{provider} [$*]"', monkeypatch)
    own = 'echo "skip: [$MULLIGAN_SKIP_PERMISSIONS]"'

    assert content(agents.run(own, skip_permissions=True)) == "skip: [true]"
    assert content(agents.work.run(agents.lease(provider=provider, skip_permissions=True))) == UNASKED[provider]
    assert SKIP_PERMISSIONS[provider] in UNASKED[provider]


def test_what_the_environment_names_comes_before_what_is_known(agents: Agents):
    agents.names("MULLIGAN_AGENT_CLAUDE", "echo mine")

    assert content(agents.work.run(agents.lease(provider="claude"))) == "mine"


def test_any_name_can_be_given_to_an_agent_and_its_model_is_a_variable(agents: Agents):
    agents.names("MULLIGAN_AGENT_MY_OWN_2", 'echo "$MULLIGAN_MODEL on $(cat)"')

    report = agents.work.run(agents.lease(provider="my-own_2", model="large"))

    assert content(report) == "large on mend it"


def test_without_a_model_the_variable_is_empty_and_there(agents: Agents):
    assert content(agents.run('set -u; echo "[$MULLIGAN_MODEL]"')) == "[]"


NOT_HERE = {
    "a name that nobody knows": (
        "robot",
        {},
        "agent 'robot' is not available: MULLIGAN_AGENT_ROBOT is not set where the worker runs",
    ),
    "an empty name": (
        "robot",
        {"MULLIGAN_AGENT_ROBOT": " "},
        "agent 'robot' is not available: MULLIGAN_AGENT_ROBOT is not set where the worker runs",
    ),
    "a known one that is not installed": (
        "codex",
        {"PATH": "/nowhere"},
        "agent 'codex' is not available: there is no program 'codex', and MULLIGAN_AGENT_CODEX is not set "
        "where the worker runs",
    ),
    "a command that is not there": (
        "robot",
        {"MULLIGAN_AGENT_ROBOT": "no-such-robot --quiet"},
        "agent 'robot' is not available: the command in MULLIGAN_AGENT_ROBOT cannot be run: "
        "no-such-robot: command not found",
    ),
    "a script that is not there": (
        "robot",
        {"MULLIGAN_AGENT_ROBOT": "MODE=1 ./robot.sh"},
        "agent 'robot' is not available: the command in MULLIGAN_AGENT_ROBOT cannot be run: "
        "./robot.sh: No such file or directory",
    ),
    "a script that cannot be executed": (
        "robot",
        {"MULLIGAN_AGENT_ROBOT": "/etc/passwd"},
        "agent 'robot' is not available: the command in MULLIGAN_AGENT_ROBOT cannot be run: "
        "/etc/passwd: Permission denied",
    ),
}


@pytest.mark.parametrize(("provider", "variables", "told"), NOT_HERE.values(), ids=NOT_HERE.keys())
def test_an_agent_that_is_not_there_is_not_tried_again(
    agents: Agents, provider: str, variables: dict[str, str], told: str
):
    for name, value in {"LC_ALL": "C", **variables}.items():
        agents.names(name, value)

    found = failed(agents.work.run(agents.lease(provider=provider)))

    assert (found.code, found.retryable, found.message) == ("INPUT_INVALID", False, told)


@pytest.mark.parametrize(
    "command",
    [
        # It spoke before: so it was there.
        "echo here; exit 127",
        # A program within it is missing.
        "sh -c no-such-program",
        # It has its own reasons.
        "exit 127",
    ],
)
def test_one_that_ends_with_127_itself_is_there(agents: Agents, command: str):
    found = failed(agents.run(command))

    assert (found.code, found.exit_code) == ("EXIT_NONZERO", 127)


def test_a_path_of_the_steps_own_is_looked_at(agents: Agents, tmp_path: Path):
    (tmp_path / "claude").write_text("#!/bin/sh\necho from my path\n", encoding="utf-8")
    (tmp_path / "claude").chmod(0o755)

    report = agents.work.run(agents.lease(provider="claude", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}))

    assert content(report) == "from my path"


# -- what it answers -------------------------------------------------------------------------------------------------


def test_what_it_prints_is_its_answer_without_the_last_newline(agents: Agents):
    assert agents.run("printf 'two\\nlines\\n'").output == {"content": "two\nlines", "decision": None, "tokens": None}


def test_an_empty_answer_is_an_answer(agents: Agents):
    assert agents.run("true").output == {"content": "", "decision": None, "tokens": None}


def test_what_it_writes_is_its_answer_with_whatever_more_it_says(agents: Agents):
    report = agents.run("""echo thinking; echo '{"content": "done", "decision": "approved", "score": 7}' \
        > "$MULLIGAN_OUTPUT\"""")

    assert report.output == {"content": "done", "decision": "approved", "tokens": None, "score": 7}


def test_what_it_writes_may_leave_the_content_to_what_it_prints(agents: Agents):
    report = agents.run("""echo "decision: refused"; echo '{"score": 7}' > "$MULLIGAN_OUTPUT\"""")

    assert report.output == {"content": "decision: refused", "decision": None, "tokens": None, "score": 7}


GARBAGE = {
    "[1, 2]": '$MULLIGAN_OUTPUT is not a JSON object such as {"content": …}',
    '"approved"': '$MULLIGAN_OUTPUT is not a JSON object such as {"content": …}',
    "": "$MULLIGAN_OUTPUT is not JSON: it is empty",
    "{": "$MULLIGAN_OUTPUT is not JSON: Input data was truncated",
}


@pytest.mark.parametrize(("written", "told"), GARBAGE.items())
def test_garbage_in_its_output_is_no_answer(agents: Agents, written: str, told: str):
    found = failed(agents.run(f"""echo fine; printf %s '{written}' > "$MULLIGAN_OUTPUT\""""))

    assert (found.code, found.retryable, found.message) == ("OUTPUT_INVALID", True, told)


@pytest.mark.parametrize(
    ("printed", "word"),
    [
        ("decision: approved", "approved"),
        ("All is well.\n\ndecision: changes_requested\n\n", "changes_requested"),
        # as agents answer that were written for Alphred
        ("Fine.\nresult.metadata.routingDecision: approved", "approved"),
        ("routingDecision: blocked", "blocked"),
        ("metadata.result.routingDecision: blocked", None),
        # as models like to write it
        ("**Decision: Approved**", "Approved"),
        ("**Decision:** `not-yet`.", "not-yet"),
        # not the last line
        ("decision: approved\nunless you mind", None),
        # more than a word
        ("decision: approved with remarks", None),
        ("my decision: approved", None),
        ("decision:", None),
        ("", None),
        # nobody looks through a line that never ends
        (f"decision: {'x' * 1000}", None),
    ],
)
def test_a_last_line_with_a_decision_is_one(printed: str, word: str | None):
    assert decision(printed) == word


def test_a_decision_that_is_printed_is_in_the_answer_and_stays_in_its_content(agents: Agents):
    report = agents.run("printf 'fine\\ndecision: approved\\n'")

    assert report.output == {"content": "fine\ndecision: approved", "decision": "approved", "tokens": None}


@pytest.mark.parametrize(
    ("printed", "decided", "said"),
    [
        ('{"score": 7}', None, {"score": 7}),
        ('```json\n{"decision": "approved"}\n```', "approved", {"decision": "approved"}),
        ("[1, 2]", None, [1, 2]),
        # a decision is a word
        ('{"decision": 7}', None, {"decision": 7}),
    ],
)
def test_an_answer_that_is_asked_to_be_json_is_read(agents: Agents, printed: str, decided: str | None, said: Any):
    (agents.folder / "answer").write_text(printed)

    report = agents.run(f"cat {agents.folder}/answer", answer="json")

    assert report.output == {"content": printed, "decision": decided, "tokens": None, "json": said}


def test_an_answer_that_is_asked_to_be_json_and_is_none_is_no_answer(agents: Agents):
    found = failed(agents.run("echo well", answer="json"))

    assert (found.code, found.retryable) == ("OUTPUT_INVALID", True)
    assert found.message == "its answer is not JSON: JSON is malformed: invalid character (byte 0); it says: well"


def test_no_answer_at_all_is_no_json_either(agents: Agents):
    found = failed(agents.run("true", answer="json"))

    assert found.message == "its answer is not JSON: it is empty"


@pytest.mark.parametrize("provider", [None, "", "a b", "../x", {"name": "test"}])
def test_a_provider_that_is_no_name_is_refused_when_the_task_runs(agents: Agents, provider: Any):
    report = agents.work.run(agents.work.lease("agent", {"prompt": "mend it", "provider": provider}))

    found = failed(report)
    assert (found.code, found.retryable) == ("INPUT_INVALID", False)
    assert found.message.startswith("provider '")
    assert found.message.endswith("' is not a name of letters, digits, '_' and '-'")


def test_bytes_that_are_no_text_are_replaced(agents: Agents):
    assert content(agents.run("printf 'a\\377b\\0c'")) == "a\ufffdb\0c"


# -- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (1200, {"tokens": 1200}),
        ({"input": 1000, "output": 200}, {"input_tokens": 1000, "output_tokens": 200, "tokens": 1200}),
        ({"output": 200, "cached": 5}, {"output_tokens": 200, "tokens": 200}),
        (12.0, {"tokens": 12}),
        # what is no number counts for nothing
        ("many", {}),
        (True, {}),
        (-5, {}),
        (1e300, {}),
        ({"input": "many"}, {}),
        (None, {}),
    ],
)
def test_tokens_count_as_used(said: Any, counted: dict[str, int]):
    assert tokens(said) == counted


def test_tokens_are_measured_with_the_rest(agents: Agents):
    report = agents.run("""echo '{"tokens": {"input": 10, "output": 2}}' > "$MULLIGAN_OUTPUT\"""")

    assert {"tokens": 12, "input_tokens": 10, "output_tokens": 2}.items() <= report.usage.items()
    assert report.usage["wall_seconds"] > 0


def test_what_a_failed_attempt_has_spent_is_spent(agents: Agents):
    report = agents.run("""echo '{"tokens": 99}' > "$MULLIGAN_OUTPUT"; exit 1""")

    assert (failed(report).code, report.usage["tokens"]) == ("EXIT_NONZERO", 99)


# -- how it fails ----------------------------------------------------------------------------------------------------


def test_it_fails_like_a_command_with_the_end_of_what_it_said(agents: Agents):
    found = failed(agents.run("echo overloaded >&2; exit 3"))

    assert (found.code, found.exit_code, found.message) == ("EXIT_NONZERO", 3, "overloaded")


def test_it_may_say_itself_what_is_wrong(agents: Agents):
    found = failed(agents.run("""echo '{"code": "QUOTA", "message": "no tokens left"}' > "$MULLIGAN_ERROR\""""))

    assert (found.code, found.message) == ("QUOTA", "no tokens left")


def test_it_is_killed_when_its_time_is_up(agents: Agents):
    report = agents.run("sleep 1000 & sleep 1000", timeout=0.2)

    assert (failed(report).code, report.output) == ("TIMEOUT", None)


def test_one_that_never_stops_talking_is_ended_by_its_time(agents: Agents):
    report = agents.run("yes", timeout=0.2)

    assert failed(report).code == "TIMEOUT"


def test_an_answer_beyond_all_measure_is_none(agents: Agents):
    found = failed(agents.run("truncate -s 65M /dev/stdout"))

    size = "its standard output has 68,157,440 bytes; the limit is 67,108,864"
    assert (found.code, found.message) == ("OUTPUT_INVALID", f"{size}; it was not kept, and the log has all of it")


def test_files_that_it_has_to_write_must_be_there(agents: Agents):
    found = failed(agents.run("true", files={"patch": "fix.patch"}))

    assert (found.code, found.message) == ("OUTPUT_MISSING", "declared files missing after exit code 0: patch")
