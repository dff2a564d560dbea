"""`mulligan cancel`, `pause`, `retry` and `fork`, where no other process drives the run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import mulligan, ran, steady, workflow

pytestmark = pytest.mark.usefixtures("folder")

HELLO = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n"
# Waits for a person: something has been done, something is open.
WAITING = """\
name: waiting
inputs: {target: {type: string, default: staging}}
steps:
  - {step: build, shell: "echo built ${inputs.target}", undo: {shell: echo undone >> trace}}
  - step: deploy
    needs: [build]
    shell: exit 7
    on_failure: {shell: echo cleaned >> trace, strategy: cleanup}
    triage: true
  - {step: announce, needs: [deploy], shell: echo announced}
end: {shell: echo over >> trace}
"""
BROKEN = """\
name: broken
inputs: {target: {type: string, default: staging}}
steps:
  - {step: build, shell: "echo built ${inputs.target}"}
  - {step: deploy, needs: [build], shell: test -e key}
  - {step: announce, needs: [deploy], shell: "echo announced ${steps.build.output}"}
outputs: {said: "${steps.announce.output}"}
"""


# cancel


def test_a_run_that_nobody_drives_is_driven_to_its_end_undo_and_end_included():
    ran(WAITING)

    said = mulligan("cancel", 1, "--reason", "wrong target")

    assert said.code == 0
    assert said.err.startswith("run 1 is stopping and nothing is running it: its cleanup and its end run here\n")
    assert mulligan("show", 1, "--json").json["status"] == "cancelled"
    assert Path("trace").read_text().splitlines() == ["cleaned", "undone", "over"]


def test_now_runs_the_end_alone():
    ran(WAITING)

    assert mulligan("cancel", 1, "--now").code == 0

    assert Path("trace").read_text().splitlines() == ["cleaned", "over"]


def test_a_run_without_anything_left_to_run_is_cancelled_at_once():
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n")

    assert mulligan("cancel", 1) == (0, "", "run 1 is cancelled\n")


def test_a_cancelled_run_as_json_is_one_object():
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n")

    assert mulligan("cancel", 1, "--json").json["status"] == "cancelled"


def test_who_cancelled_and_why_is_in_the_log():
    ran("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n")

    mulligan("cancel", 1, "--reason", "wrong target")

    assert "reason=wrong target" in mulligan("events", 1).out


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        (
            "cancel",
            "error[run.finished]: run 1 completed on THEN UTC, so there is nothing to cancel\n"
            "  to run it again from a step: mulligan fork 1 --from STEP\n",
        ),
        ("pause", "error[run.finished]: run 1 completed, so there is nothing to pause\n"),
        (
            "retry",
            "error[run.nothing_to_retry]: run 1 completed, so there is nothing to retry\n"
            "  to run it again from a step: mulligan fork 1 --from STEP\n",
        ),
    ],
)
def test_a_run_that_completed_is_left_alone(verb: str, said: str):
    ran(HELLO)

    assert mulligan(verb, 1).plain == (2, "", said)


# pause


def test_a_run_is_paused_once_and_says_how_to_go_on():
    ran(WAITING)

    first, again = mulligan("pause", 1), mulligan("pause", 1)

    assert first == (0, "", "run 1 is paused; to continue it: mulligan resume 1\n")
    assert again == (2, "", "error[refused]: run 1 is already paused\n  to continue it: mulligan resume 1\n")


def test_a_paused_run_as_json_is_one_object():
    ran(WAITING)

    assert mulligan("pause", 1, "--json").json["status"] == "paused"


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_child_run_is_left_to_its_parent(verb: str):
    workflow("name: inner\nsteps:\n  - {step: gate, approve: 'go?'}\n", "inner.yaml")
    ran("name: outer\nsteps:\n  - {step: inner, workflow: inner.yaml}\n")

    assert mulligan(verb, 2) == (
        2,
        "",
        f"error[refused]: run 2 is a child of run 1\n  {verb} that one: mulligan {verb} 1\n",
    )


def test_a_child_run_that_is_cancelled_fails_the_step_that_called_it():
    workflow("name: inner\nsteps:\n  - {step: gate, approve: 'go?'}\n", "inner.yaml")
    ran("name: outer\nsteps:\n  - {step: inner, workflow: inner.yaml}\n")

    assert mulligan("cancel", 2).code == 0

    assert mulligan("resume", 1).code == 1
    assert mulligan("show", 1, "--json").json["steps"]["inner"]["failure"]["code"] == "CHILD_FAILED"


# retry


def test_another_round_runs_what_was_not_done():
    ran(BROKEN)
    Path("key").touch()

    said = mulligan("retry", 1, "--follow", "--json")

    assert (said.code, said.json["status"], said.json["round"]) == (0, "completed", 2)
    assert [step["attempts"] for step in said.json["steps"].values()] == [1, 2, 1]
    assert said.err.startswith("run 1 begins round 2: 2 steps again, 1 kept\n")


def test_another_round_that_fails_again_is_exit_code_1():
    ran(BROKEN)

    assert mulligan("retry", 1, "--follow").code == 1


def test_with_no_follow_a_retry_is_recorded_and_left_to_resume():
    ran(BROKEN)

    assert mulligan("retry", 1, "--no-follow") == (
        0,
        "",
        "run 1 begins round 2: 2 steps again, 1 kept\nnothing is running it; to run it here: mulligan resume 1\n",
    )
    assert mulligan("resume", 1).code == 1


def test_a_dry_run_says_what_would_run_again_and_changes_nothing():
    ran(BROKEN)

    events = mulligan("events", 1).out

    assert mulligan("retry", 1, "--dry-run").plain == (
        0,
        "STEP  WHY\ndeploy  it failed\nannounce  it was skipped\n",
        "run 1 would begin round 2: 2 steps again, 1 kept\nkept: build\n",
    )
    assert mulligan("retry", 1, "--from", "build", "--dry-run", "--json").json == {
        "run_id": 1,
        "round": 2,
        "steps": ["build", "deploy", "announce"],
        "why": {"build": "the round starts here", "deploy": "it failed", "announce": "it was skipped"},
        "items": {},
        "kept": [],
        "adjusted": {},
        "adjustments": {},
        "correction": None,
        "stale": [],
        "side_effects": {},
        "approvals": [],
        "children": [],
        "root_run_id": 0,
        "from_start": False,
        "undo_failed": [],
        "undone_first": [],
    }
    assert mulligan("show", 1, "--json").json["round"] == 1
    assert mulligan("events", 1).out == events


BEHIND = """\
name: behind
steps:
  - {step: sim, shell: test -e fixed}
  - {step: report, needs: [{step: sim, on: always}], shell: test -e fixed && echo fine || echo failed}
  - {step: tell, needs: [report], http: {url: "http://127.0.0.1:1/", method: POST}, continue_on_error: true}
  - {step: book, needs: [{step: sim, on: always}], shell: "true", undo: "true"}
outputs: {said: "${steps.report.output}"}
"""


def test_a_dry_run_names_what_runs_again_because_of_another_and_side_effects_first():
    ran(BEHIND)

    assert mulligan("retry", 1, "--dry-run").plain == (
        0,
        "STEP  WHY\n"
        "tell  it comes after 'sim'; it sends a POST\n"
        "book  it was undone; it has an undo\n"
        "sim  it failed\n"
        "report  it comes after 'sim'\n",
        "run 1 would begin round 2: 4 steps again\n",
    )
    kept = mulligan("retry", 1, "--dry-run", "--keep-completed", "--json").json
    assert (kept["steps"], kept["kept"]) == (["sim", "book"], ["report", "tell"])
    fork = mulligan("fork", 1, "--from", "book", "--dry-run", "--json").json
    assert (fork["steps"], fork["why"]["report"]) == (["sim", "report", "tell", "book"], "it comes after 'sim'")
    kept = mulligan("fork", 1, "--from", "book", "--dry-run", "--keep-completed", "--json").json
    assert (kept["steps"], kept["kept"]) == (["sim", "tell", "book"], ["report"])


@pytest.mark.parametrize(("words", "said"), [((), "fine"), (("--keep-completed",), "failed")])
def test_a_step_that_made_its_result_of_a_failure_makes_it_again_unless_it_is_kept(words: tuple[str, ...], said: str):
    ran(BEHIND)
    Path("fixed").touch()

    assert mulligan("retry", 1, *words, "--follow", "--json").json["outputs"] == {"said": said}
    assert mulligan("replay", 1, "--verify").code == 0


@pytest.mark.parametrize(("words", "said"), [((), "fine"), (("--keep-completed",), "failed")])
def test_a_fork_keeps_no_result_of_a_step_behind_one_that_runs_again_unless_it_is_asked_to(
    words: tuple[str, ...], said: str
):
    ran(BEHIND)
    Path("fixed").touch()

    assert mulligan("fork", 1, "--from", "book", *words, "--json").json["outputs"] == {"said": said}


INNER = """\
name: inner
steps:
  - {step: first, shell: echo first >> trace}
  - {step: second, needs: [first], shell: echo second >> trace; test -e key}
"""
OUTER = "name: outer\nsteps:\n  - {step: call, workflow: inner.yaml}\n  - {step: after, needs: [call], shell: 'true'}\n"


def test_a_retry_of_a_child_run_is_a_round_of_the_run_at_the_top_and_drives_it():
    workflow(INNER, "inner.yaml")
    ran(OUTER)
    Path("key").touch()

    foretold = mulligan("retry", 2, "--dry-run")
    said = mulligan("retry", 2, "--follow", "--json")

    assert foretold.plain == (
        0,
        "STEP  WHY\nsecond  it failed\n",
        "run 2 would begin round 2, in another round of run 1: 1 step again, 1 kept\nkept: first\n",
    )
    assert (said.code, said.json["run_id"], said.json["round"], said.json["status"]) == (0, 1, 2, "completed")
    assert Path("trace").read_text().split() == ["first", "second", "second"]


def test_a_plan_names_the_child_runs_that_go_on_and_those_that_start_anew():
    workflow(INNER, "inner.yaml")
    ran(OUTER)

    assert mulligan("retry", 1, "--dry-run").err.splitlines()[-1] == (
        "  'call': run 2 continues in round 2, if it is called with the same inputs"
    )
    assert mulligan("retry", 1, "--from-start", "--dry-run").err.splitlines()[-1] == (
        "  'call': a new child run after run 2: --from-start"
    )
    assert mulligan("retry", 2, "--from-start", "--dry-run").err.splitlines()[0] == (
        "run 1 would begin another round, with a new child run instead of run 2: 2 steps again"
    )
    assert mulligan("retry", 1, "--dry-run", "--json").json["children"] == [
        {"place": "call", "run_id": 2, "round": 2, "why_new": "", "name": "call"}
    ]


def test_from_start_a_child_runs_anew():
    workflow(INNER, "inner.yaml")
    ran(OUTER)
    Path("key").touch()

    said = mulligan("retry", 1, "--from-start", "--follow")

    shown = mulligan("show", 1, "--json").json["children"]
    assert (said.code, [(one["run_id"], one["status"]) for one in shown]) == (0, [(2, "failed"), (3, "completed")])
    assert Path("trace").read_text().split() == ["first", "second"] * 2


def test_what_cannot_be_retried_from_below_says_what_to_type_instead():
    workflow(INNER, "inner.yaml")
    ran(OUTER.replace("inner.yaml", "inner.yaml, continue_on_error: true") + "  - {step: a, shell: 'false'}\n")
    ran(OUTER)
    mulligan("retry", 3, "--from-start", "--follow")
    ran(BROKEN)

    said = [mulligan("retry", *words) for words in [(2,), (4,), (4, "--file", "inner.yaml"), (6, "--from-start")]]

    assert [one.code for one in said] == [2] * 4
    assert [one.err for one in said] == [
        "error[run.nothing_to_retry]: the next round of run 1 does not continue run 2 at 'call': its failure was "
        "handled, or does not count\n  to run it again with the steps after it: mulligan fork 1 --from call\n",
        "error[run.nothing_to_retry]: run 5 replaced run 4 in step 'call' of run 3\n"
        "  retry that one: mulligan retry 5\n",
        "error[refused]: run 4 is a child of run 3: that run decides which file it uses\n"
        "  give the corrected file of that one: mulligan retry 3 --file FILE\n",
        "error[run.nothing_to_retry]: run 6 has no child run that did not complete, so there is none to start anew\n"
        "  without --from-start the steps that did not complete run again\n",
    ]


def test_a_corrected_file_for_a_child_of_a_completed_run_is_refused_without_naming_a_command_that_is_refused_too():
    workflow("name: inner\nsteps: [{step: a, shell: 'false'}]\n", "inner.yaml")
    ran("name: outer\nsteps: [{step: call, workflow: inner.yaml, continue_on_error: true}]\n")

    said = mulligan("retry", 2, "--file", "inner.yaml")

    assert said.err == (
        "error[run.nothing_to_retry]: run 2 is part of run 1, which completed, so there is nothing to retry\n"
        "  to go on from one of its events in a new run: mulligan fork 1 --at EVENT\n"
    )


def test_the_summary_of_a_run_has_what_its_child_runs_recovered_and_retried():
    workflow(
        "name: inner\nsteps: [{step: flaky, shell: 'test -e up || { touch up; exit 3; }', retry: 1}]\n", "inner.yaml"
    )

    said = ran("name: outer\nsteps: [{step: call, workflow: inner.yaml}]\n")

    assert said.err.splitlines()[-1] == (
        "  ✓ call/flaky  EXIT_NONZERO 3 → retried, then completed  (mulligan logs 2 flaky)"
    )


def test_a_run_of_which_only_the_end_failed_runs_that_again():
    ran("name: end\nsteps:\n  - {step: a, shell: 'true'}\nend: {shell: test -e report}\n")
    Path("report").touch()

    said = mulligan("retry", 1, "--follow")

    assert (said.code, said.err.splitlines()[0]) == (0, "run 1 begins round 2: only its end again, 1 kept")


def test_a_retry_from_a_step_runs_it_and_what_is_behind_it_again():
    ran(BROKEN)
    Path("key").touch()

    said = mulligan("retry", 1, "--from", "build", "--follow", "--json")

    assert said.err.startswith("run 1 begins round 2: 3 steps again\n")
    assert [step["attempts"] for step in said.json["steps"].values()] == [2, 2, 1]


LATE = """\
name: late
steps:
  - {step: solve, shell: "test -e quick || read -r < never", timeout: 1s}
  - {step: count, shell: "exit 3"}
"""


def test_a_retry_that_adjusts_says_what_gets_more_and_gives_it():
    os.mkfifo("never")
    ran(LATE)
    Path("quick").touch()

    foretold = mulligan("retry", 1, "--adjust", "--dry-run")
    said = mulligan("retry", 1, "--adjust", "--follow", "--json")

    assert foretold.out.splitlines()[1].endswith("it failed; timeout 1s -> 2s, because it timed out")
    assert said.err.splitlines()[:2] == [
        "run 1 begins round 2: 2 steps again",
        "  'solve': timeout 1s -> 2s, because it timed out",
    ]
    assert said.json["steps"]["solve"]["status"] == "completed"
    assert 'adjusted={"timeout": 2.0}' in mulligan("events", 1).out


def test_a_retry_that_adjusts_nothing_says_so():
    ran(BROKEN)

    assert mulligan("retry", 1, "--adjust").err.splitlines()[1] == (
        "  no step that runs again had run out of memory or time"
    )


@pytest.mark.parametrize("words", [(), ("--dry-run",)], ids=["retry", "dry run"])
def test_a_run_that_has_not_ended_cannot_be_retried(words: tuple[str, ...]):
    ran(WAITING)

    assert mulligan("retry", 1, *words) == (
        2,
        "",
        "error[run.not_finished]: run 1 is running; it can be retried after it has ended\n"
        "  if nothing is running it: mulligan resume 1; to stop it: mulligan cancel 1\n",
    )


def test_a_retry_from_a_step_that_is_not_there_is_refused():
    ran(BROKEN)

    assert mulligan("retry", 1, "--from", "depoly") == (
        2,
        "",
        "error[step.unknown]: 'depoly' is not a step of run 1\n  did you mean 'deploy'?\n",
    )


# fork


def test_a_fork_keeps_what_was_done_before_the_step():
    ran(BROKEN)
    Path("key").touch()

    said = mulligan("fork", 1, "--from", "deploy", "--json")

    assert (said.code, said.json["run_id"], said.json["status"]) == (0, 2, "completed")
    assert said.json["outputs"] == {"said": "announced built staging"}
    assert [step["attempts"] for step in said.json["steps"].values()] == [0, 1, 1]
    assert re.search(r"^build +completed +kept from the run that was forked$", mulligan("show", 2).out, re.MULTILINE)
    assert mulligan("logs", 2, "build").err == (
        "error[attempt.unknown]: 'build' of run 2 has had no attempt\n"
        "  its result was kept from run 1: mulligan logs 1 build\n"
    )


def test_a_fork_may_have_other_inputs_and_another_workflow():
    ran(BROKEN)
    fixed = workflow(BROKEN.replace("test -e key", "'true'"), "fixed.yaml")

    said = mulligan("fork", 1, "--from", "build", "-i", "target=prod", "--file", fixed, "--json")

    assert (said.code, said.json["outputs"]) == (0, {"said": "announced built prod"})


def test_a_fork_can_be_left_for_later():
    ran(BROKEN)

    assert mulligan("fork", 1, "--from", "deploy", "--no-follow") == (
        0,
        "",
        "run 2 is a fork of run 1 from 'deploy': 2 steps to run, 1 kept\n"
        "nothing is running it; to run it here: mulligan resume 2\n",
    )
    assert mulligan("resume", 2).code == 1


def test_a_dry_fork_says_what_would_run_and_makes_no_run():
    ran(BROKEN)

    assert mulligan("fork", 1, "--from", "deploy", "--dry-run").plain == (
        0,
        "STEP  WHY\ndeploy  the fork starts here\nannounce  it comes after 'deploy'\n",
        "a fork of run 1 from 'deploy' would run:\nkept: build\n",
    )
    assert len(mulligan("list", "--json").json) == 1


CORRECTED = """\
name: broken
steps:
  - {step: build, shell: echo built otherwise}
  - {step: check, needs: [build], shell: echo checked}
  - {step: deploy, needs: [check], shell: echo deployed}
"""


def test_a_fork_with_a_corrected_file_says_where_that_differs():
    ran(BROKEN)
    fixed = workflow(CORRECTED, "fixed.yaml")

    assert mulligan("fork", 1, "--from", "deploy", "--file", fixed, "--dry-run", "--json").json == {
        "run_id": 1,
        "from_step": "deploy",
        "steps": ["check", "deploy"],
        "kept": ["build"],
        "changed": ["build"],
        "dropped": ["announce"],
        "stale": [],
        "approvals": [],
        "why": {"check": "it is new", "deploy": "the fork starts here"},
        "side_effects": {},
        "undo_failed": [],
    }
    said = mulligan("fork", 1, "--from", "deploy", "--file", fixed)
    assert (said.code, said.err.splitlines()[:3]) == (
        0,
        [
            "a fork of run 1 from 'deploy': 2 steps to run, 1 kept",
            "kept, although the file changed them: build",
            "no longer in the file: announce",
        ],
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "nope"), "error[step.unknown]: 'nope' is not a step of the workflow to run\n"),
        (
            ("--from", "delpoy"),
            "error[step.unknown]: 'delpoy' is not a step of the workflow to run\n  did you mean 'deploy'?\n",
        ),
        (
            ("--from", "deploy", "-i", "targte=x"),
            "error[input.invalid]: workflow 'broken' has no input 'targte'\n  did you mean 'target'?\n",
        ),
        (
            ("--from", "deploy", "-i", "target"),
            "error[usage]: 'target' is not an input\n  write it like -i name=value\n",
        ),
        (
            ("--from", "deploy", "--file", "no.yaml"),
            "error[language.unreadable]: no.yaml: there is no such file\n",
        ),
        (
            (),
            "error[usage]: a fork begins before a step or after an event: give one of them\n"
            "  write mulligan fork RUN --from STEP, or mulligan fork RUN --at EVENT\n",
        ),
        (
            ("--at", 4, "--keep-completed"),
            "error[usage]: --at keeps all that is recorded, and reads a file as that of the run was read\n"
            "  leave out --keep-completed, --format, --trust-templates and --catalogue, or give --from\n",
        ),
    ],
    ids=["step", "a slip", "input", "no input", "file", "nothing", "an event and more"],
)
def test_a_fork_that_makes_no_sense_is_refused_and_makes_no_run(words: tuple[str, ...], said: str):
    ran(BROKEN)

    assert mulligan("fork", 1, *words) == (2, "", said)
    assert len(mulligan("list", "--json").json) == 1


# -- a file that has changed -------------------------------------------------------------------------------------------


CHANGED = "note: 'w.yaml' has changed since run 1 was started; the run keeps the old version\n"
TO_GO_ON = "  to continue with the new version: mulligan retry 1 --file w.yaml\n"
TO_FORK = "  to run the new version: mulligan fork 1 --from STEP --file w.yaml\n"


def started_from(text: str) -> None:
    Path("w.yaml").write_text(text, encoding="utf-8")
    mulligan("run", "w.yaml")


@pytest.mark.parametrize(
    ("words", "proposal"),
    [
        (("retry", 1), TO_GO_ON),
        (("retry", 1, "--dry-run"), TO_GO_ON),
        (("fork", 1, "--from", "a", "--dry-run"), TO_FORK),
    ],
)
def test_whoever_runs_something_again_is_told_that_its_file_has_changed(words: tuple[Any, ...], proposal: str):
    started_from("steps: [{step: a, shell: exit 1}]")
    Path("w.yaml").write_text("steps: [{step: a, shell: exit 0}]", encoding="utf-8")

    said = mulligan(*words)

    assert said.err.startswith(CHANGED + proposal)


@pytest.mark.parametrize(
    "today",
    [
        "steps: [{step: a, shell: exit 1}]",
        "# a comment more\nsteps:\n  - {step: a, shell: exit 1}\n",
        "steps: [{step: a, shell: exit 1",
        None,
    ],
)
def test_a_file_that_says_the_same_or_nothing_that_could_be_run_is_not_mentioned(today: str | None):
    started_from("steps: [{step: a, shell: exit 1}]")
    Path("w.yaml").unlink() if today is None else Path("w.yaml").write_text(today, encoding="utf-8")

    said = mulligan("retry", 1, "--dry-run")

    assert "has changed" not in said.err


def test_a_fork_that_is_given_the_file_is_not_told():
    started_from("steps: [{step: a, shell: exit 1}]")
    Path("w.yaml").write_text("steps: [{step: a, shell: exit 0}]", encoding="utf-8")

    said = mulligan("fork", 1, "--from", "a", "--file", "w.yaml")

    assert (said.code, "has changed" in said.err) == (0, False)
    Path("w.yaml").write_text("steps: [{step: a, shell: exit 5}]", encoding="utf-8")
    assert "has changed since run 2" in mulligan("fork", 2, "--from", "a", "--dry-run").err


# -- a single step -----------------------------------------------------------------------------------------------------

GATED = """\
name: gated
steps:
  - {step: gate, approve: {message: go?}}
  - {step: load, needs: [gate], shell: echo loaded}
"""


def test_a_step_is_paused_and_every_command_says_how_to_resume_it():
    ran(GATED)

    said = mulligan("pause", 1, "load", "--by", "ann", "--reason", "the warehouse is full")
    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow")
    resumed = mulligan("resume", 1)

    assert said == (0, "", "step 'load' of run 1 is paused; to continue it: mulligan resume 1 load\n")
    assert (resumed.code, resumed.err.splitlines()[-1]) == (4, "      mulligan resume 1 load")
    assert "'load' is paused: mulligan resume 1 load" in mulligan("list").out
    pending = mulligan("pending").out.splitlines()
    assert pending[0] == "run 1 of 'gated': 'load' is paused by ann: the warehouse is full"
    assert pending[-1] == "  mulligan resume 1 load"
    assert mulligan("explain", 1).out.splitlines()[-1] == (
        "'load' waits for a person to resume it (paused by ann: the warehouse is full)"
    )
    step = mulligan("show", 1, "--json").json["steps"]["load"]
    assert (step["paused"]["by"], step["waiting_for"][0]["kind"]) == ("ann", "step_pause")


def test_a_step_that_is_resumed_goes_on_here_where_nobody_drives_the_run():
    ran(GATED)
    mulligan("pause", 1, "load")
    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow")

    said = mulligan("resume", 1, "load", "--reason", "there is room")

    assert (said.code, mulligan("show", 1, "--json").json["status"]) == (0, "completed")
    assert "load  resumed by " in steady(mulligan("explain", 1).out)


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_step_that_is_not_there_is_refused_with_the_one_that_was_meant(verb: str):
    ran(GATED)

    said = mulligan(verb, 1, "laod")

    assert said.code == 2
    assert said.err == "error[step.unknown]: 'laod' is not a step of run 1\n  did you mean 'load'?\n"


def test_a_step_of_a_matrix_is_paused_by_the_name_of_the_whole():
    text = "name: sweep\nsteps:\n  - {step: gate, approve: {message: go?}}\n"
    ran(text + "  - {step: sim, needs: [gate], matrix: {n: [1, 2]}, shell: 'echo ${matrix.n}'}\n")

    said = mulligan("pause", 1, "sim", "--json")

    paused = {name for name, step in said.json["steps"].items() if step["paused"]}
    assert (said.code, len(paused), "gate" in paused) == (0, 2, False)


def test_a_matrix_that_is_paused_is_resumed_by_one_command():
    ran(GATED_SWEEP)
    mulligan("pause", 1, "sim")
    mulligan("approve", 1, "gate", "--reason", "fine", "--no-follow")
    mulligan("resume", 1)

    said = mulligan("show", 1)

    asked = [line for line in said.err.splitlines() if "paused" in line]
    assert asked == ["3 steps of 'sim' are paused: mulligan resume 1 sim"]


GATED_SWEEP = """\
name: gated
steps:
  - {step: gate, approve: Go?}
  - {step: sim, needs: [gate], matrix: {a: [1, 2, 3]}, shell: echo}
"""


def test_a_run_that_is_paused_as_a_whole_is_shown_with_the_command_that_resumes_it():
    ran(GATED_SWEEP)
    mulligan("pause", 1)

    assert "it is paused: mulligan resume 1\n" in mulligan("show", 1).err
