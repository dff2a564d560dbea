"""`mulligan pending`, `classify` and `approve`: what waits for a person, and the person's word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.support.commands import mulligan, process, ran, ran_before, steady, workflow

pytestmark = pytest.mark.usefixtures("folder")

PARKED = """\
name: parked
steps:
  - step: simulate
    shell: |
      test -e fixed && exit 0
      echo step 879 >&2
      echo diverged >&2
      exit 42
    triage: true
  - {step: publish, needs: [simulate], shell: echo published}
"""
RULES = """\
name: ruled
steps:
  - step: simulate
    shell: test -e fixed || exit 42
    retry: {rules: [{exit_codes: [10, 11]}, {codes: [TIMEOUT]}, {any: true, max_retries: 1}]}
    triage: {when: exhausted, timeout: 2h, default: retry}
"""
ASKING = """\
name: asking
steps:
  - {step: gate, approve: 'deploy to prod?'}
  - {step: go, needs: [gate], shell: echo gone}
"""
LATER = "name: later\nsteps:\n  - step: gate\n    approve: {message: 'now?', timeout: 2h, default: approve}\n"
OUTER = "name: outer\nsteps:\n  - {step: inner, workflow: inner.yaml}\n"


# -- pending ---------------------------------------------------------------------------------------------------------


def test_nothing_waits_where_nothing_was_run_and_that_is_said(folder: Path):
    assert mulligan("pending") == (0, "", f"nothing waits for a person: no runs in '{folder}/.mulligan'\n")
    assert mulligan("pending", "--json").json == []


def test_nothing_waits_where_all_is_done():
    ran("name: done\nsteps:\n  - {step: a, shell: 'true'}\n")

    assert mulligan("pending") == (0, "", "nothing waits for a person\n")


def test_a_paused_run_waits_for_a_person_and_says_who_paused_it_and_why():
    ran(ASKING)
    ran(ASKING)
    mulligan("pause", 1, "--reason", "disk swap")

    first, *others = mulligan("pending", "--json").json

    assert (first["run_id"], first["kind"], first["step"], first["message"]) == (1, "paused", None, "disk swap")
    assert first["paused_by"]
    assert first["commands"] == ["mulligan resume 1"]
    assert [(one["run_id"], one["kind"]) for one in others] == [(1, "approval"), (2, "approval")]
    assert steady(mulligan("pending").out).startswith(
        f"run 1 of 'asking' is paused by {first['paused_by']}: disk swap\n  for Ns\n  mulligan resume 1\n"
    )


def test_what_waits_is_told_over_all_runs_with_what_one_must_know():
    ran(PARKED)
    ran(ASKING)

    assert mulligan("pending").plain == (
        0,
        "run 1 of 'parked': 'simulate' is parked, EXIT_NONZERO 42: diverged\n"
        "  | step 879\n"
        "  | diverged\n"
        "  for Ns, at attempt 1: it has no rules\n"
        "  mulligan classify 1 simulate retry --reason TEXT\n"
        "  mulligan classify 1 simulate fail --reason TEXT\n"
        "  mulligan logs 1 simulate\n"
        "run 2 of 'asking': 'gate' waits for an approval: deploy to prod?\n"
        "  for Ns, at attempt 1\n"
        "  mulligan approve 2 gate --reason TEXT\n"
        "  mulligan approve 2 gate --no --reason TEXT\n",
        "",
    )


def test_the_rules_that_did_not_help_are_told_with_the_reason_of_each():
    ran(RULES)

    assert steady(mulligan("pending").out).splitlines()[1:4] == [
        "  rule 1, exit codes 10, 11: exit code was 42",
        "  rule 2, TIMEOUT: the code was EXIT_NONZERO",
        "  rule 3, any failure: used up, 1 of 1",
    ]
    (parked,) = mulligan("pending", "--json").json
    assert parked["parked_for"] == "exhausted"
    assert parked["rules"][2] == {"rule": 3, "looks_for": "any failure", "reason": "used up, 1 of 1"}


def test_what_happens_by_itself_is_told_with_the_time_left():
    ran(LATER)
    ran(RULES)

    approval, parked = (line for line in mulligan("pending").out.splitlines() if " without a decision, " in line)

    assert approval.split(", at attempt ")[1] in (
        "1; without a decision, approve in 2h00m",
        "1; without a decision, approve in 1h59m",
    )
    assert parked.split(", at attempt ")[1] in (
        "2: its retries are used up; without a decision, retry in 2h00m",
        "2: its retries are used up; without a decision, retry in 1h59m",
    )


def test_what_the_same_step_did_in_other_runs_is_told():
    ran(PARKED)
    ran(PARKED)
    ran(PARKED)
    mulligan("classify", 1, "simulate", "fail", "--reason", "the mesh is broken", "--by", "ann")
    Path("fixed").touch()
    mulligan("classify", 2, "simulate", "retry", "--reason", "node was full", "--by", "bo", "--follow")
    ran(PARKED)

    (parked,) = mulligan("pending", "--json").json
    told = [line for line in mulligan("pending").out.splitlines() if line.startswith("  run ")]

    # Where it failed comes first; run 4 has completed at once.
    assert told == [
        "  run 2: failed with EXIT_NONZERO 42, bo said retry: node was full; completed on attempt 2",
        "  run 1: failed with EXIT_NONZERO 42, ann said fail: the mesh is broken; failed with EXIT_NONZERO 42",
        "  run 4: completed",
    ]
    assert (parked["run_id"], [run["run_id"] for run in parked["earlier"]]) == (3, [2, 1, 4])
    assert parked["earlier"][0] == {
        "run_id": 2,
        "status": "completed",
        "attempts": 2,
        "failure": None,
        "recovered_by": None,
        "ruling": {
            "verdict": "retry",
            "by": "bo",
            "reason": "node was full",
            "code": "EXIT_NONZERO",
            "exit_code": 42,
            "attempt": 1,
        },
    }


def test_what_waits_as_json_is_a_list_of_objects_that_all_have_the_same_keys():
    ran(PARKED)
    ran(ASKING)

    parked, asking = mulligan("pending", "--json").json

    assert list(parked) == list(asking)
    assert (parked["run_id"], parked["workflow"], parked["step"], parked["kind"]) == (1, "parked", "simulate", "parked")
    assert parked["failure"]["exit_code"] == 42
    assert parked["failure"]["message"] == "step 879\ndiverged"
    assert parked["commands"] == [
        "mulligan classify 1 simulate retry --reason TEXT",
        "mulligan classify 1 simulate fail --reason TEXT",
        "mulligan logs 1 simulate",
    ]
    assert (asking["run_id"], asking["step"], asking["kind"]) == (2, "gate", "approval")
    assert (asking["message"], asking["failure"], asking["due"]) == ("deploy to prod?", None, None)


def test_what_waits_in_a_child_run_is_told_with_the_run_that_waits_for_it():
    workflow(PARKED, "inner.yaml")
    ran(OUTER)

    (parked,) = mulligan("pending", "--json").json

    assert (parked["run_id"], parked["parent_run_id"], parked["root_run_id"]) == (2, 1, 1)
    assert mulligan("pending").out.startswith("run 2 of 'parked', a child of run 1: 'simulate' is parked, ")


def test_a_command_to_type_finds_the_same_runs_and_names_a_place_as_a_shell_wants_it():
    ran(MANY, "--home", "my home")

    first, _ = mulligan("pending", "--home", "my home", "--json").json

    assert first["commands"][0] == "mulligan approve 1 'ask[a]' --reason TEXT --home 'my home'"


def test_a_run_that_cannot_be_read_hides_no_other():
    ran(PARKED)
    ran(PARKED)
    store = apsw.Connection(".mulligan/mulligan.db")
    store.execute("UPDATE rows SET data = x'c1' WHERE run_id = 1 AND kind = 'places' AND key = 'publish'")
    store.close()

    said = mulligan("pending")
    broken, other = mulligan("pending", "--json").json

    assert said.code == 0
    assert said.out.startswith("run 2 of 'parked': 'simulate' is parked, ")
    assert said.err.startswith("run 1: 'simulate' waits for a person, but the run cannot be read: ")
    assert (broken["run_id"], broken["step"], broken["commands"]) == (1, "simulate", [])
    assert broken["error"].startswith("the tables of the run cannot be read: ")
    assert (other["run_id"], other["error"]) == (2, None)


def test_what_was_decided_waits_no_longer():
    ran(PARKED)

    mulligan("classify", 1, "simulate", "fail", "--reason", "hopeless")

    assert mulligan("pending", "--json").json == []


# -- classify --------------------------------------------------------------------------------------------------------


def test_a_parked_step_is_tried_again_and_the_run_goes_on():
    ran(PARKED)
    Path("fixed").touch()

    said = mulligan("classify", 1, "simulate", "retry", "--reason", "fixed the mesh", "--follow")

    assert said.code == 0
    assert said.err.startswith("run 1: 'simulate' runs again\n")
    assert mulligan("show", 1, "--json").json["status"] == "completed"


def test_what_the_next_attempt_gets_is_recorded_with_the_word():
    ran(PARKED)

    said = mulligan(
        "classify", 1, "simulate", "retry", "--reason", "x", "--memory", "2GiB", "--timeout", "1h30m", "--no-follow"
    )

    assert said == (0, "", "run 1: 'simulate' runs again\nnothing is running it; to run it here: mulligan resume 1\n")
    assert 'adjusted={"memory": 2147483648, "timeout": 5400.0}' in mulligan("events", 1).out


def test_a_parked_step_that_fails_fails_the_run():
    ran(PARKED)

    said = mulligan("classify", 1, "simulate", "fail", "--reason", "hopeless", "--json")

    assert (said.code, said.json["status"]) == (1, "failed")
    assert said.err.startswith("run 1: 'simulate' fails\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("publish", "retry", "--reason", "x"),
            "error[step.not_parked]: step 'publish' is waiting, so there is nothing to classify\n",
        ),
        (
            ("simulte", "retry", "--reason", "x"),
            "error[step.unknown]: 'simulte' is not a step of run 1\n  did you mean 'simulate'?\n",
        ),
        (
            ("simulate", "retry"),
            "error[input.invalid]: a classification needs a reason\n  say why: --reason TEXT\n",
        ),
        (
            ("simulate", "maybe", "--reason", "x"),
            "error[input.invalid]: 'maybe' is not a verdict\n  give retry or fail\n",
        ),
        (
            ("simulate", "retry", "--reason", "x", "--memory", "lots"),
            "error[input.invalid]: 'lots' is not a size\n  write it like 512MiB or 4GB\n",
        ),
        (
            ("simulate", "retry", "--reason", "x", "--timeout", "soon"),
            "error[input.invalid]: 'soon' is not a duration\n  write it like 30s, 5m or 1h30m\n",
        ),
        (
            ("simulate", "retry", "--reason", "x", "--timeout", "0s"),
            "error[input.invalid]: timeout must be greater than 0, not 0\n",
        ),
        (
            ("simulate", "fail", "--reason", "x", "--memory", "1GiB"),
            "error[input.invalid]: memory, timeout and budget are for a retry\n  leave them out, or decide retry\n",
        ),
        (
            ("simulate",),
            "error[usage]: name a step and a decision\n  write RUN STEP retry, RUN STEP fail, or --file FILE\n",
        ),
        (
            ("simulate", "retry", "--reason", "x", "--by", "a\nb"),
            "error[input.invalid]: 'a b' is not a name\n  one line of at most 100 characters\n",
        ),
        (
            ("simulate", "retry", "--reason", "x", "--file", "d.json"),
            "error[usage]: --file contains the decisions\n  leave out the run, the step and the other options\n",
        ),
    ],
    ids=[
        *("not parked", "unknown", "no reason", "no verdict", "memory", "timeout", "no time", "fail", "nothing"),
        *("no name", "file"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry"])
def test_a_classification_that_makes_no_sense_is_refused_and_changes_nothing(
    words: tuple[str, ...], said: str, dry: tuple[str, ...]
):
    ran_before(PARKED)
    before = mulligan("events", 1, "--json").out

    assert mulligan("classify", 1, *words, *dry) == (2, "", said)
    assert mulligan("events", 1, "--json").out == before


def test_the_second_word_on_a_step_is_refused_and_names_the_first():
    ran(PARKED)
    mulligan("classify", 1, "simulate", "fail", "--reason", "hopeless", "--by", "ann")

    assert mulligan("classify", 1, "simulate", "retry", "--reason", "x") == (
        2,
        "",
        "error[step.not_parked]: step 'simulate' is failed, so there is nothing to classify\n"
        "  already classified as fail by ann: hopeless\n",
    )


def test_who_says_so_is_the_name_that_was_given_else_that_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    ran(PARKED)
    ran(PARKED)
    ran(ASKING)
    monkeypatch.setenv("MULLIGAN_BY", "triage-bot")

    mulligan("classify", 1, "simulate", "fail", "--reason", "x", "--by", "ann")
    mulligan("classify", 2, "simulate", "fail", "--reason", "x")
    mulligan("approve", 3, "gate", "--reason", "x", "--by", "bo")

    assert [_by(1), _by(2)] == ["ann", "triage-bot"]
    assert mulligan("show", 3, "--json").json["steps"]["gate"]["output"]["by"] == "bo"


def _by(run_id: int) -> str:
    (line,) = (line for line in mulligan("events", run_id, "--json").out.splitlines() if '"step.classified"' in line)
    return str(json.loads(line)["fact"]["by"])


@pytest.mark.parametrize("verdict", ["retry", "fail"])
def test_a_dry_run_tells_what_would_follow_as_explain_tells_it_afterwards_and_writes_nothing(verdict: str):
    ran(PARKED)
    before = mulligan("events", 1, "--json").out
    words = ("classify", 1, "simulate", verdict, "--reason", "because", "--by", "ann")

    foreseen = mulligan(*words, "--dry-run", "--json")

    assert mulligan("events", 1, "--json").out == before
    assert foreseen.err == ""
    assert foreseen.json["starts"] == (["simulate: attempt 2"] if verdict == "retry" else [])
    mulligan(*words)
    explained = " ".join(mulligan("explain", 1).out.split())
    assert foreseen.json["follows"]
    for sentence in foreseen.json["follows"]:
        assert sentence.partition(": ")[2] in explained


def test_a_dry_run_is_told_in_sentences():
    ran(PARKED)

    said = mulligan("classify", 1, "simulate", "retry", "--reason", "x", "--by", "ann", "--timeout", "1h", "--dry-run")

    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0] == "run 1: if 'simulate' ran again"
    assert said.out.splitlines()[-1] == "  would start: simulate: attempt 2 with a timeout of 1h00m"


def test_a_dry_run_tells_what_lies_beyond_the_run_that_it_is_paused_and_who_waits_for_it():
    workflow(PARKED, "inner.yaml")
    ran(OUTER)
    ran(PARKED)
    mulligan("pause", 3)

    child = mulligan("classify", 2, "simulate", "fail", "--reason", "x", "--dry-run", "--json").json
    paused = mulligan("classify", 3, "simulate", "retry", "--reason", "x", "--dry-run", "--json").json

    assert child["follows"][-1] == "run 1, which waits for it, continues"
    assert paused["follows"][-1] == "the run is paused: nothing starts until it is resumed"


# -- many at once ----------------------------------------------------------------------------------------------------


def decided(**fields: Any) -> dict[str, Any]:
    return {"run_id": 1, "step": "simulate", "verdict": "retry", "reason": "x", **fields}


def written(value: Any) -> str:
    Path("decisions.json").write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return "decisions.json"


def test_an_agent_adds_verdict_and_reason_to_what_pending_prints_and_hands_it_back():
    ran(PARKED)
    ran(PARKED)
    first, second = mulligan("pending", "--json").json
    answer = [
        {**first, "verdict": "retry", "reason": "seen before", "memory": "2GiB", "timeout": 60},
        {**second, "verdict": "fail", "reason": "hopeless"},
    ]

    said = mulligan("classify", "--file", written(answer), "--by", "triage-bot", "--no-follow", "--json")

    assert said.code == 0
    assert said.err == (
        "run 1: 'simulate' runs again\n"
        "run 2: 'simulate' fails\n"
        "2 decisions recorded\n"
        "run 1: nothing is running it; to run it here: mulligan resume 1\n"
    )
    assert said.json[0] == {
        "run_id": 1,
        "step": "simulate",
        "verdict": "retry",
        "reason": "seen before",
        "memory": 2 << 30,
        "timeout": 60.0,
        "confidence": None,
        "attempt": 1,
        "by": "triage-bot",
        "is_recorded": True,
        "error": None,
    }
    assert [_by(1), _by(2)] == ["triage-bot", "triage-bot"]
    assert 'adjusted={"memory": 2147483648, "timeout": 60.0}' in mulligan("events", 1).out


def test_a_decision_may_name_the_attempt_that_it_is_about():
    ran(PARKED)

    said = mulligan("classify", 1, "simulate", "fail", "--attempt", 2, "--reason", "hopeless")

    assert said == (
        2,
        "",
        "error[step.other_attempt]: the decision is about attempt 2 of step 'simulate', which is parked after "
        "attempt 1\n"
        "  look at the failure that is parked now, and decide about it\n",
    )


def test_decisions_may_come_on_stdin():
    ran(PARKED)

    with process("classify", "--file", "-", "--no-follow", stdin=-1) as child:
        out, err = child.communicate(json.dumps([decided(verdict="fail")]).encode(), timeout=60)

    assert (child.returncode, out, err) == (0, b"", b"run 1: 'simulate' fails\n1 decision recorded\n")


def test_the_runs_of_many_decisions_go_on_one_after_the_other():
    for _ in range(3):
        ran(PARKED)
    answer = [decided(), decided(run_id=2), decided(run_id=3, verdict="fail")]
    Path("fixed").touch()

    said = mulligan("classify", "--file", written(answer), "--json")

    assert said.code == 1
    assert [one["is_recorded"] for one in said.json] == [True, True, True]
    assert [run["status"] for run in mulligan("list", "--json").json] == ["failed", "completed", "completed"]


def test_no_decisions_are_no_trouble():
    ran(PARKED)

    assert mulligan("classify", "--file", written([])) == (0, "", "0 decisions recorded\n")


def test_a_dry_run_of_many_tells_each_and_writes_nothing():
    ran(PARKED)
    ran(PARKED)
    before = mulligan("events", 1, "--json").out

    said = mulligan(
        "classify", "--file", written([decided(), decided(run_id=2, verdict="fail")]), "--dry-run", "--json"
    )

    assert [(one["run_id"], one["verdict"], one["starts"]) for one in said.json] == [
        (1, "retry", ["simulate: attempt 2"]),
        (2, "fail", []),
    ]
    assert mulligan("events", 1, "--json").out == before


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("{", "error[input.invalid]: the decisions are not JSON: Input data was truncated\n"),
        (
            {"run_id": 1},
            "error[input.invalid]: the decisions are not an array\n"
            '  write [{"run_id": 1, "step": "build", "verdict": "retry", "reason": "why"}]\n',
        ),
        (
            [3],
            "error[input.invalid]: decision 1: it is not an object\n"
            '  write [{"run_id": 1, "step": "build", "verdict": "retry", "reason": "why"}]\n',
        ),
        (
            [decided(verdct="fail")],
            "error[input.invalid]: decision 1: it has an unknown key 'verdct'\n  did you mean 'verdict'?\n",
        ),
        ([decided(reason=None)], "error[input.invalid]: decision 1: it has no 'reason'\n"),
        (
            [decided(reason=" ")],
            "error[input.invalid]: decision 1: a classification needs a reason\n  say why: --reason TEXT\n",
        ),
        ([decided(run_id="1")], "error[input.invalid]: decision 1: its 'run_id' is not a whole number\n"),
        ([decided(run_id=True)], "error[input.invalid]: decision 1: its 'run_id' is not a whole number\n"),
        ([decided(step=["a"])], "error[input.invalid]: decision 1: its 'step' is not text\n"),
        ([decided(memory=1.5)], "error[input.invalid]: decision 1: its 'memory' is not a size\n"),
        (
            [decided(memory=-5)],
            "error[input.invalid]: decision 1: '-5' is not a size\n  write it like 512MiB or 4GB\n",
        ),
        (
            [decided(verdict="skip")],
            "error[input.invalid]: decision 1: 'skip' is not a verdict\n  give retry or fail\n",
        ),
        (
            [decided(run_id=9)],
            "error[run.unknown]: decision 1: there is no run 9\n  list them: mulligan list\n",
        ),
        (
            [decided(step="simulte")],
            "error[step.unknown]: decision 1: 'simulte' is not a step of run 1\n  did you mean 'simulate'?\n",
        ),
        (
            [decided(step="publish")],
            "error[step.not_parked]: decision 1: step 'publish' is waiting, so there is nothing to classify\n",
        ),
        (
            [decided(), decided(verdict="fail")],
            "error[input.invalid]: decision 2: there are two decisions about 'simulate' of run 1;"
            " none of the 2 is recorded\n",
        ),
        (
            [decided(), decided(run_id=9), decided(step="publish")],
            "error[input.invalid]: 2 of 3 decisions are invalid; none is recorded\n"
            "  decision 2: there is no run 9\n"
            "  decision 3: step 'publish' is waiting, so there is nothing to classify\n",
        ),
    ],
    ids=[
        *("json", "no array", "no object", "key", "no reason", "blank", "run id", "true", "step", "memory", "negative"),
        *("verdict", "unknown run", "unknown step", "not parked", "twice", "many"),
    ],
)
def test_if_one_decision_makes_no_sense_none_is_recorded(answer: Any, said: str):
    ran_before(PARKED)
    before = mulligan("events", 1, "--json").out

    assert mulligan("classify", "--file", written(answer)) == (2, "", said)
    assert mulligan("events", 1, "--json").out == before


CANCELLING = """\
name: outer
fail_fast: always
steps:
  - {step: inner, workflow: inner.yaml}
  - {step: simulate, shell: exit 42, triage: true}
"""


def test_one_that_comes_too_late_is_refused_and_said_and_the_others_count():
    """The first decision stops the run, and with it the child whose step the second is about."""
    workflow(PARKED, "inner.yaml")
    ran(CANCELLING)
    answer = [decided(verdict="fail"), decided(run_id=2)]

    said = mulligan("classify", "--file", written(answer), "--no-follow", "--json")

    assert said.code == 1
    assert said.err == (
        "run 1: 'simulate' fails\n"
        "run 2: 'simulate' was refused: step 'simulate' is cancelled, so there is nothing to classify\n"
        "1 decision recorded, 1 refused\n"
        "run 1: nothing is running it; to run it here: mulligan resume 1\n"
    )
    assert [one["is_recorded"] for one in said.json] == [True, False]
    assert said.json[1]["error"]["code"] == "step.not_parked"


def test_a_file_that_is_not_there_is_said():
    assert mulligan("classify", "--file", "nope.json") == (
        2,
        "",
        "error[file.unreadable]: 'nope.json' cannot be read: no such file or directory\n",
    )


# -- approve ---------------------------------------------------------------------------------------------------------
def test_an_approval_lets_the_run_go_on():
    ran(ASKING)

    said = mulligan("approve", 1, "gate", "--reason", "all green", "--follow", "--json")

    assert (said.code, said.json["status"]) == (0, "completed")
    assert said.json["steps"]["gate"]["output"]["reason"] == "all green"
    assert said.err.startswith("run 1: 'gate' is approved\n")


def test_a_refusal_fails_the_step():
    ran(ASKING)

    said = mulligan("approve", 1, "gate", "--no", "--reason", "not on a friday", "--follow", "--json")

    assert (said.code, said.json["status"]) == (1, "failed")
    assert said.json["steps"]["gate"]["failure"]["code"] == "APPROVAL_REFUSED"
    assert said.err.startswith("run 1: 'gate' is refused\n")


def test_the_story_of_a_refusal_says_who_refused_and_why():
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n")
    mulligan("approve", 1, "gate", "--no", "--reason", "not today", "--by", "ann")

    said = mulligan("explain", 1)

    assert "gate  failed with APPROVAL_REFUSED by ann: not today\n" in said.out


def test_an_approval_that_is_classified_and_a_parked_step_that_is_approved_are_told_the_other_verb():
    ran(
        "name: w\nsteps:\n  - {step: gate, approve: 'ship?', next: end}\n  - {step: sim, triage: true, shell: exit 3}\n"
    )

    classified = mulligan("classify", 1, "gate", "retry", "--reason", "x")
    approved = mulligan("approve", 1, "sim", "--reason", "x")

    assert classified.err == (
        "error[step.not_parked]: step 'gate' is running, so there is nothing to classify\n"
        "  the step waits for an approval: mulligan approve 1 gate --reason TEXT\n"
    )
    assert approved.err == (
        "error[step.not_waiting]: 'sim' does not wait for an approval\n"
        "  the step is parked: mulligan classify 1 sim retry|fail --reason TEXT\n"
    )


MANY = """\
name: many
steps:
  - step: ask
    map: {over: "${['a', 'b']}", as: one}
    do: [{approve: "release ${one}?"}]
"""


def test_one_approval_of_many_is_named_by_its_place():
    ran(MANY)

    assert mulligan("approve", 1, "ask", "--reason", "x") == (
        2,
        "",
        "error[refused]: 2 approvals wait in step 'ask': 'ask[a]', 'ask[b]'\n  name one of them\n",
    )
    assert mulligan("approve", 1, "ask[0].0", "--reason", "x").code == 4
    assert mulligan("approve", 1, "ask", "--reason", "x", "--follow").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("go", "--reason", "x"), "error[step.not_waiting]: 'go' does not wait for an approval\n"),
        (
            ("nope", "--reason", "x"),
            "error[step.unknown]: 'nope' is not a step of run 1\n  list its steps: mulligan show 1\n",
        ),
        (("gate",), "error[input.invalid]: an approval needs a reason\n  say why: --reason TEXT\n"),
    ],
    ids=["not asking", "unknown", "no reason"],
)
def test_an_approval_that_makes_no_sense_is_refused(words: tuple[str, ...], said: str):
    ran(ASKING)

    assert mulligan("approve", 1, *words) == (2, "", said)


def test_an_answer_to_a_child_run_takes_the_whole_tree_on():
    workflow(ASKING, "inner.yaml")
    ran("name: outer\nsteps:\n  - {step: inner, workflow: inner.yaml}\n")

    said = mulligan("approve", 2, "gate", "--reason", "x", "--follow", "--json")

    assert (said.code, said.json["run_id"], said.json["status"]) == (0, 1, "completed")


def test_where_a_child_moves_first_it_is_still_the_run_itself_that_is_told_of():
    workflow(ASKING, "inner.yaml")
    ran(
        "name: outer\nsteps:\n  - {step: inner, workflow: inner.yaml}\n"
        "  - {step: broken, needs: [inner], shell: exit 3}\n  - {step: last, shell: 'true'}\n"
    )

    said = mulligan("approve", 2, "gate", "--reason", "x", "--follow")

    assert said.code == 1
    assert "(3 steps, 1 failed)" in said.err


def test_after_a_childs_last_word_the_run_to_go_on_with_is_its_parents():
    workflow(PARKED, "inner.yaml")
    ran(OUTER)

    said = mulligan("classify", 2, "simulate", "fail", "--reason", "x", "--no-follow")

    assert said == (0, "", "run 2: 'simulate' fails\nnothing is running it; to run it here: mulligan resume 1\n")
    assert mulligan("resume", 1, "--json").json["steps"]["inner"]["failure"]["code"] == "CHILD_FAILED"
