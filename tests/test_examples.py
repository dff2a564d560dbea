"""Everything in examples/ is true: it loads, fits the schema, draws, and does what its own comments say.

The first line of an example says what to look for. Another line says what becomes of it:

    # ends: completed; fetch completed, load failed

`# inputs: {…}` is what the run is given, in which PORT is that of a server that is unwell at first and then finds two;
`# env: {…}` is in the environment of the worker; `# folder: release` is where the files are that it works on, a folder
beside it; `# exit code: 4` says that it waits for a person.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.support.runner import Live, Ran, opened
from tests.support.web import as_json, serving

from mulligan.core.model import events as e
from mulligan.core.model.event_types import Adjusted
from mulligan.language import lint, load
from mulligan.language.schema import schema
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import plain
from mulligan.service.rendering.drawing import draw_mermaid, draw_svg

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))
VALIDATOR = Draft202012Validator(schema())
EXIT_CODES = {"completed": "0", "failed": "1", "cancelled": "3"}
# What they show is the language's doing: no store can change it.
OF_THE_LANGUAGE = set("conditions files inputs matrix python sequential sub-workflow-child values".split())


def notes(path: Path) -> dict[str, str]:
    """What the comments at the head of an example say: its `about`, and the notes below it by their name."""
    about, *others = re.findall(r"^# (.*)$", path.read_text(encoding="utf-8").partition("\nname:")[0], re.MULTILINE)
    return {"about": about, **dict(line.split(": ", 1) for line in others)}


def run(live: Live, path: Path) -> Ran:
    """As `mulligan run FILE --wait 1m` would: a default that applies after a while is waited for."""
    found = notes(path)
    if "folder" in found:
        shutil.copytree(FOLDER / found["folder"], live.folder, dirs_exist_ok=True)
    inputs = found.get("inputs", "{}")
    with environment(found.get("env", "{}")), serving(as_json("{}", 503), as_json('{"results": [1, 2]}')) as web:
        return live.run(path, inputs=json.loads(inputs.replace("PORT", str(web.port))), wait_seconds=60.0)


@contextmanager
def environment(variables: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in json.loads(variables).items():
            patch.setenv(name, value)
        yield


def index_line(path: Path) -> str:
    return f"| [{path.name}]({path.name}) | {notes(path)['about']} |"


def named(path: Path) -> str:
    return path.stem


each_example = pytest.mark.parametrize("path", EXAMPLES, ids=named)
# By day the one that has most in it.
ON_A_SERVER = [
    pytest.param(path, marks=() if path.stem == "release" else pytest.mark.nightly)
    for path in EXAMPLES
    if path.stem not in OF_THE_LANGUAGE
]


def test_every_example_loads_and_is_called_what_its_file_is_called() -> None:
    names = {path.stem: load(path).name for path in EXAMPLES}

    assert names == {**{path.stem: path.stem for path in EXAMPLES}, "sub-workflow-child": "region"}


def test_no_example_gives_cause_for_a_warning() -> None:
    warnings = {path.name: lint(path) for path in EXAMPLES}

    assert {name: found for name, found in warnings.items() if found} == {}


def test_every_example_fits_the_schema_that_editors_use() -> None:
    written = {path.name: plain(parse(decode(path.read_bytes(), path.name))) for path in EXAMPLES}

    assert [(name, error.message) for name, text in written.items() for error in VALIDATOR.iter_errors(text)] == []


def test_every_example_can_be_drawn() -> None:
    workflows = {path.name: load(path) for path in EXAMPLES}

    drawn = {
        name: (draw_mermaid(workflow, is_expanded=True), draw_svg(workflow, is_expanded=True))
        for name, workflow in workflows.items()
    }

    steps = [(name, step.name) for name, workflow in workflows.items() for step in workflow.steps]
    assert [(name, step) for name, step in steps if not all(step in picture for picture in drawn[name])] == []


def test_every_example_says_how_it_ends() -> None:
    said = {path.name: notes(path).keys() - {"inputs", "env", "folder", "exit code"} for path in EXAMPLES}

    assert said == {name: {"about", "ends"} for name in said}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the terminal of the tests is set to, a server on this machine is asked directly."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture(autouse=True)
def _forked(forked_children: None) -> None:
    """None of these tests is about the processes that run a step."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with opened(tmp_path) as found:
        yield found


@pytest.fixture
def live_server(tmp_path: Path, store_schema_url: str) -> Iterator[Live]:
    with opened(tmp_path, store_schema_url) as found:
        yield found


def expect_its_end(path: Path, ran: Ran) -> None:
    found = notes(path)
    steps = ", ".join(f"{name} {step['status']}" for name, step in ran.steps.items())
    assert f"{ran.status}; {steps}" == found["ends"]
    assert str(ran.exit_code) == found.get("exit code", EXIT_CODES.get(ran.status))


@each_example
def test_an_example_ends_as_it_says(path: Path, live: Live) -> None:
    ran = run(live, path)

    expect_its_end(path, ran)


@pytest.mark.parametrize("path", ON_A_SERVER, ids=named)
def test_an_example_ends_the_same_way_on_postgresql(path: Path, live_server: Live) -> None:
    ran = run(live_server, path)

    expect_its_end(path, ran)


def test_the_index_has_a_line_for_every_example_and_no_other() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")

    lines = re.findall(r"^\| \[.*\.(?:yaml|py)\]\(.*$", index, re.MULTILINE)

    assert lines == [index_line(path) for path in EXAMPLES]


# What an example shows beyond its statuses.


def shown(live: Live, name: str) -> Ran:
    return run(live, FOLDER / f"{name}.yaml")


def outputs(ran: Ran) -> dict[str, Any]:
    return {name: step["output"] for name, step in ran.steps.items()}


def test_undo_takes_back_the_last_thing_first(live: Live) -> None:
    shown(live, "undo")

    assert live.lines("undone.txt") == ["called back parcel-7", "released seat-12"]


def test_the_four_strategies_give_the_outputs_that_their_comments_promise(live: Live) -> None:
    ran = shown(live, "handlers")

    assert outputs(ran) == {
        "recovered": "built with -j1",
        "repaired": "deployed",
        "replaced": {"rates": "yesterday", "reason": "EXIT_NONZERO"},
        "cleaned": None,
        "judged": "4 means: nothing to do",
        "shared": "tidied",
    }
    assert not (live.folder / "scratch").exists()


def test_each_way_to_write_a_handler_gives_its_output(live: Live) -> None:
    ran = shown(live, "handler-forms")

    assert outputs(ran) == {
        "text": "after EXIT_NONZERO",
        "action": {"code": "EXIT_NONZERO"},
        "list": "second",
        "mapping": "second",
        "name": "tidied",
    }


def test_a_handler_is_told_what_its_example_says(live: Live) -> None:
    ran = shown(live, "handler-error")

    first, second, third = ran.shown["outputs"]["reported"].splitlines()
    assert first == "fetch: EXIT_NONZERO 22 (error) in attempt 2"
    assert re.fullmatch(r'at \S+Z: it said "no"', second)
    assert third == "in short: EXIT_NONZERO 22"


def test_a_recovery_script_writes_a_log_of_its_own(live: Live) -> None:
    ran = shown(live, "recovery-script")

    assert live.logs(ran.run_id, "fetch", "script") == [("fetch, attempt 1: EXIT_NONZERO 11\n", "")]


@pytest.mark.parametrize(
    ("name", "attempts"),
    [("retry-budget", 4), ("retry-max-attempts", 3), ("rule-codes", 2), ("retry-backoff", 4), ("handler-rerun", 2)],
)
def test_a_step_is_tried_as_often_as_its_example_says(name: str, attempts: int, live: Live) -> None:
    ran = shown(live, name)

    [step] = ran.steps.values()
    assert step["attempts"] == attempts


def test_the_next_attempt_gets_what_its_rule_adjusts(live: Live) -> None:
    adjusted = [
        ran.facts(e.RetryScheduled)[0].adjusted for ran in (shown(live, "adjust-timeout"), shown(live, "adjust-cpus"))
    ]

    assert adjusted == [Adjusted(timeout=0.6), Adjusted(cpus=1.0)]


def test_a_value_with_a_command_in_it_is_one_word_everywhere(live: Live) -> None:
    ran = shown(live, "values")

    assert live.read("my $(reboot); file.txt") == "hello\n"
    assert ran.steps["stem"]["output"] == "my $(reboot); file"
    literal = "world is the shell's own, and so is a home; ${inputs.file} is only text"
    assert ran.steps["literal"]["output"] == literal


def test_outputs_keep_the_types_of_their_expressions(live: Live) -> None:
    ran = live.run(FOLDER / "inputs.yaml", inputs={"target": "prod", "regions": '["east", "west"]'})

    assert ran.shown["outputs"] == {
        "text": 'plan: 4 replicas in ["east","west"], team core\nprod gets 0.5 of the traffic',
        "replicas": 4,
        "is_real": True,
        "note": None,
    }


def test_an_alert_gets_the_context_of_the_failure(live: Live) -> None:
    shown(live, "failure-alert")

    head, _, rest = live.read("page.txt").partition("\n")
    assert head == "MULLIGAN_FAILURE_ROUTE_CONTEXT v1"
    assert "disk full" in rest


def test_an_agent_mends_what_the_failure_names(live: Live) -> None:
    ran = shown(live, "agent")

    assert live.read("add.sh") == "echo $(($1 + $2))\n"
    assert ran.steps["fix"]["output"]["content"] == "changed add.sh: it took away what it should add"


def test_a_writer_is_sent_back_once_and_told_why(live: Live) -> None:
    ran = shown(live, "agent-review")

    assert (ran.steps["publish"]["output"], ran.steps["write"]["visits"]) == ("long enough", 2)


def test_the_release_is_repaired_on_its_way(live: Live) -> None:
    ran = shown(live, "release")

    assert (ran.shown["degraded"], ran.steps["deploy"]["output"]) == (True, "deployed to staging")
    assert ran.steps["check"]["output"]["succeeded"] == 2
    assert live.lines("page.txt") == ["MULLIGAN_FAILURE_ROUTE_CONTEXT v1"]
    assert ran.steps["announce"]["output"]["status"] == 200


def test_a_secret_is_stars_in_all_that_a_step_prints(live: Live) -> None:
    ran = shown(live, "secrets")

    # What of the base64 belongs to "deploy:" alone is seen.
    told = ["POST /releases?token=***", "Authorization: Basic ZGVwbG95O***==", "***"]
    assert ran.steps["upload"]["output"].splitlines() == told
    assert len(ran.steps["sign"]["output"]) == 16


# What people do with a run: the verbs that an example's first line names.


def test_another_round_keeps_what_was_done(live: Live) -> None:
    ran = shown(live, "round")

    live.service.changes.retry(ran.run_id)

    assert live.resume(ran.run_id).status == "completed"
    assert live.lines("done.txt") == ["fetched", "loaded", "reported 3 rows"]


def test_a_parked_step_goes_on_when_somebody_has_decided(live: Live) -> None:
    ran = shown(live, "triage-person")

    live.service.changes.classify(ran.run_id, "simulate", "retry", "the mesh was mended")

    assert outputs(live.resume(ran.run_id)) == {"mesh": "1200 cells", "simulate": "converged", "report": "converged"}


def test_a_cancelled_run_cleans_up_undoes_and_ends(live: Live) -> None:
    ran = shown(live, "cancel")

    live.service.changes.cancel(ran.run_id)

    assert live.resume(ran.run_id).status == "cancelled"
    assert live.lines("stopped.txt") == ["announced that ask is off", "released seat-12", "ended, cancelled"]


# What failed, and where that led.


def test_a_remediation_is_told_the_failure_in_a_file_and_as_a_value(live: Live) -> None:
    ran = shown(live, "failure-context")

    assert ran.steps["report"]["output"] == "convert failed for the last time at attempt 2"
    assert live.lines("context.txt")[0] == "MULLIGAN_FAILURE_ROUTE_CONTEXT v1"


def test_a_repair_may_take_more_than_once(live: Live) -> None:
    ran = shown(live, "failure-loop")

    assert [step["visits"] for step in ran.steps.values()] == [3, 2]


def test_each_item_climbs_for_itself(live: Live) -> None:
    ran = shown(live, "map-items")

    assert ran.steps["sites"]["output"]["results"][2] == "gamma is slow, TIMEOUT"
    assert [fact.place.split(".")[0] for fact in ran.facts(e.RetryScheduled)] == ["sites[1]"]


def test_a_child_that_fails_is_continued_in_its_next_round_and_then_told_by_its_cause(live: Live) -> None:
    ran = shown(live, "sub-workflow-failure")

    assert ran.steps["smaller"]["output"] == "without fetch, which gave exit code 8"
    assert [child.status for child in live.children(ran.run_id)] == ["completed", "failed"]
    attempts = [fact for fact in ran.facts(e.AttemptStarted) if fact.place == "nightly"]
    assert [fact.continues.round if fact.continues else 1 for fact in attempts] == [1, 2]


def test_nobody_runs_behind_a_breaker_that_is_open(live: Live) -> None:
    ran = shown(live, "breaker-fail")

    assert ran.steps["second"]["failure"]["code"] == "CIRCUIT_OPEN"
    assert not (live.folder / "asked").exists()


# What came in with other systems' files, and is everybody's.


def test_each_delay_is_the_one_that_is_named_and_the_last_holds_on(live: Live) -> None:
    ran = shown(live, "retry-delays")

    reserved = [(entry.at, entry.fact) for entry in ran.entries(e.RetryScheduled)]
    delays = [(fact.due - at).total_seconds() for at, fact in reserved]
    assert delays == [0.01, 0.08, 0.02, 0.02]


def test_a_rule_grants_nothing_beyond_its_own_bound_of_attempts(live: Live) -> None:
    ran = shown(live, "rule-max-attempts")

    assert (ran.steps["fetch"]["attempts"], ran.steps["fetch"]["failure"]["exit_code"]) == (2, 8)
