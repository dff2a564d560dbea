"""`mulligan run`: what it prints, where, and the exit code of every way in which a run can end."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from tests.support.commands import mulligan, process, ran, steady, workflow
from tests.support.pipes import Pipe

from mulligan.cli.words.options import service_at
from mulligan.service.authoring.area import Workflows

pytestmark = pytest.mark.usefixtures("folder")

FULL = Path("/dev/full")
HELLO = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n"
GREETING = """\
name: greeting
inputs: {name: string, times: {type: integer, default: 1}}
outputs: {said: "${steps.greet.output}", times: "${inputs.times}"}
steps:
  - {step: greet, shell: 'echo hello ${inputs.name}'}
"""
BROKEN = """\
name: broken
steps:
  - {step: fetch, shell: 'echo no route >&2; exit 7'}
  - {step: load, needs: [fetch], shell: 'true'}
"""
ASKING = """\
name: asking
steps:
  - {step: sim, shell: 'echo odd >&2; exit 3', triage: true}
  - {step: ship, approve: {message: 'ship it?'}, next: end}
"""
# A step that cancels its own run, from a process of its own.
CANCELLED = """\
name: cancelled
steps:
  - {step: stop, shell: '"$PYTHON" -m mulligan cancel "$MULLIGAN_RUN_ID" --now; sleep 60'}
"""


# Exit codes


def test_a_run_that_completes_is_told_in_three_lines_on_stderr():
    assert ran(HELLO).plain == (
        0,
        "",
        "run 1: hello\nTHEN ✓ greet  completed\n\n✓ run 1 completed in Ns (1 step)\n",
    )


def test_a_failure_is_told_with_what_was_done_about_it_its_logs_and_what_to_type():
    assert ran(BROKEN).plain == (
        1,
        "",
        "run 1: broken\n"
        "THEN ✗ fetch  failed with EXIT_NONZERO 7: no route\n"
        "THEN · load  skipped: 'fetch' did not complete\n"
        "\n"
        "✗ run 1 failed in Ns (2 steps, 1 failed, 1 skipped)\n"
        "  ✗ fetch  EXIT_NONZERO 7: no route → not handled: the run fails  (mulligan logs 1 fetch)\n"
        "  mulligan retry 1  # run the failed steps again\n"
        "  mulligan explain 1  # the full story\n",
    )


def test_a_run_that_waits_for_outside_says_who_has_to_type_what():
    said = ran(ASKING)

    assert (said.code, said.out) == (4, "")
    assert steady(said.err).partition("\n\n")[2] == (
        "? run 1 waits for a person\n"
        "  ? sim waits for a person to classify EXIT_NONZERO 3: odd\n"
        "  mulligan logs 1 sim\n"
        "  mulligan classify 1 sim retry --reason 'why'\n"
        "  ? ship waits for an approval: ship it?\n"
        "  mulligan approve 1 ship --reason 'why'\n"
    )


def test_a_cancelled_run_is_exit_code_3(monkeypatch: pytest.MonkeyPatch):
    source = Path(__file__).parent.parent.parent / "src"
    monkeypatch.setenv("PYTHONPATH", str(source))

    said = ran(CANCELLED.replace('"$PYTHON"', sys.executable))

    assert said.code == 3
    assert "run 1 was cancelled in" in said.err
    assert said.err.endswith("  mulligan retry 1  # continue the run\n")


SLOW = "name: slow\nsteps:\n  - {step: a, shell: 'echo on > pipe; exec sleep 60'}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_exit_code_130_and_says_how_to_go_on(number: signal.Signals):
    pipe = Pipe()
    child = process("run", workflow(SLOW))
    pipe.hear()

    child.send_signal(number)
    out, err = child.communicate(timeout=60)

    assert (child.returncode, out, steady(err.decode())) == (
        130,
        b"",
        "run 1: slow\n"
        "! interrupted: waiting for running tasks to end (press Ctrl-C again to kill them)\n"
        "THEN ↻ a  attempt 1 interrupted; it will run again\n"
        "\n"
        "? run 1 was interrupted after Ns; it can be resumed\n"
        "  mulligan resume 1  # continue where it stopped\n",
    )


# Data


def test_what_the_workflow_puts_out_is_json_on_stdout():
    said = ran(GREETING, "-i", "name=ann", "--input", "times=3")

    assert (said.code, said.json) == (0, {"said": "hello ann", "times": 3})


def test_as_json_the_whole_run_is_one_object_on_stdout_and_the_talk_stays_on_stderr():
    said = ran(BROKEN, "--json")

    assert said.code == 1
    assert {"run_id", "status", "degraded", "round", "steps", "failures", "outputs", "end"} <= set(said.json)
    assert (said.json["run_id"], said.json["status"]) == (1, "failed")
    assert set(said.json["steps"]) == {"fetch", "load"}
    keys = {"status", "visits", "attempts", "recovered", "handled", "output", "failure", "failure_route", "waiting_for"}
    assert keys <= set(said.json["steps"]["fetch"])
    assert said.err.startswith("run 1: broken\n")


@pytest.mark.skipif(not FULL.exists(), reason="there is no device that is always full")
def test_a_run_of_which_nothing_can_be_told_for_want_of_room_goes_on_to_its_end():
    with FULL.open("wb") as full:
        out, _ = process("run", workflow(BROKEN), "--json", stderr=full).communicate(timeout=60)

    assert [(name, step["status"]) for name, step in json.loads(out)["steps"].items()] == [
        ("fetch", "failed"),
        ("load", "skipped"),
    ]


def test_a_waiting_run_is_json_too():
    said = ran(ASKING, "--json")

    assert (said.code, said.json["status"], said.json["steps"]["sim"]["status"]) == (4, "running", "pending_failed")


# What is told


LADDER = """\
name: ladder
steps:
  - step: fetch
    shell: 'test -e fetched && exit 0; touch fetched; echo reset >&2; exit 10'
    retry: {max_retries: 2, delay: 0s}
  - {step: build, needs: [fetch], shell: 'echo no space >&2; exit 2', on_failure: echo v1}
  - step: check
    needs: [build]
    map: {over: [1, 2], as: one, on_item_failure: collect, max_parallel: 1}
    do: [{shell: 'test ${one} != 2'}]
  - step: deploy
    needs: [check]
    shell: 'test -e fixed || { echo expired >&2; exit 1; }'
    next: [{to: repair, on: failure, then: rerun}]
  - {step: repair, shell: touch fixed}
  - {step: announce, needs: [deploy], shell: 'exit 7', continue_on_error: true}
"""


def test_each_rung_of_the_ladder_is_told_as_it_is_climbed_and_summed_up_in_a_line():
    assert ran(LADDER, "--parallel", "1").plain == (
        0,
        "",
        "run 1: ladder\n"
        "THEN ✗ fetch  attempt 1 failed with EXIT_NONZERO 10: reset\n"
        "THEN ↻ fetch  retry 1 of 2 at once (rule for any failure)\n"
        "THEN ✓ fetch  completed\n"
        "THEN ✗ build  attempt 1 failed with EXIT_NONZERO 2: no space\n"
        "THEN ↻ build  recovery handler started\n"
        "THEN ✓ build  recovered by its handler\n"
        "THEN · check  expanded to 2 items\n"
        "THEN ✗ check[1]  item failed with EXIT_NONZERO 1\n"
        "THEN ✓ check  completed\n"
        "THEN ✗ deploy  failed with EXIT_NONZERO 1: expired; "
        "routed to 'repair'; 'deploy' will run again when it completes\n"
        "THEN ✓ repair  completed; handled the failure of 'deploy'\n"
        "THEN ↻ deploy  will run again: 'repair' completed\n"
        "THEN ✓ deploy  completed\n"
        "THEN ✗ announce  failed (allowed) with EXIT_NONZERO 7\n"
        "\n"
        "✓ run 1 completed (degraded: 1 recovered, 1 handled) in Ns (6 steps, 1 failed)\n"
        "  ✗ announce  EXIT_NONZERO 7 → allowed to fail  (mulligan logs 1 announce)\n"
        "  ✗ check[1]  EXIT_NONZERO 1 → its step completed without it  (mulligan logs 1 check --item 1)\n"
        "  ✓ fetch  EXIT_NONZERO 10: reset → retried, then completed  (mulligan logs 1 fetch)\n"
        "  ✓ build  EXIT_NONZERO 2: no space → recovered by its handler  (mulligan logs 1 build)\n"
        "  ✓ deploy  EXIT_NONZERO 1: expired → routed to 'repair', which completed; then it ran again"
        "  (mulligan logs 1 deploy)\n"
        "  mulligan items 1 check --retry  # run only the failed items again\n",
    )


def test_of_very_many_steps_only_what_is_out_of_the_ordinary_is_told():
    steps = "".join(f"  - {{step: s{n}, when: 'false', shell: 'true'}}\n" for n in range(101))

    said = ran(f"name: many\nsteps:\n{steps}")

    assert said.plain == (0, "", "run 1: many\n\n✓ run 1 completed in Ns (101 steps, 101 skipped)\n")


def test_many_failures_of_one_kind_are_told_together():
    alike = "".join(f"  - {{step: s{n}, shell: 'exit 1'}}\n" for n in range(9))
    other = "  - {step: odd, shell: 'exit 2'}\n"

    said = ran(f"name: many\nsteps:\n{alike}{other}")

    lines = steady(said.err).partition("\n\n")[2].splitlines()
    alike_line = "  ✗ 9 steps  EXIT_NONZERO 1 → not handled: the run fails  (mulligan logs 1 "
    assert (lines[0], len(lines)) == ("✗ run 1 failed in Ns (10 steps, 10 failed)", 6)
    assert [line for line in lines if line.startswith(alike_line)]
    assert [line for line in lines if line.strip().endswith(" and 1 more")]
    assert "  ✗ odd  EXIT_NONZERO 2 → not handled: the run fails  (mulligan logs 1 odd)" in lines


def test_of_very_many_failures_the_first_are_told_and_the_rest_counted():
    steps = "".join(f"  - {{step: s{n}, shell: 'exit {n + 1}'}}\n" for n in range(22))

    said = ran(f"name: many\nsteps:\n{steps}")

    lines = steady(said.err).partition("\n\n")[2].splitlines()
    assert said.code == 1
    assert lines[0] == "✗ run 1 failed in Ns (22 steps, 22 failed)"
    assert len([line for line in lines if "not handled" in line]) == 20
    assert lines[21:] == [
        "  2 more failed: mulligan explain 1",
        "  mulligan retry 1  # run the failed steps again",
        "  mulligan explain 1  # the full story",
    ]


def test_of_very_many_failed_items_their_step_is_told_first_and_the_rest_counted_as_items():
    values = list(range(1, 23))
    step = f"  - {{step: all, map: {{over: {values}, as: one}}, do: [{{shell: 'exit ${{one}}'}}]}}\n"

    said = ran(f"name: wide\nsteps:\n{step}")

    lines = steady(said.err).partition("\n\n")[2].splitlines()
    assert lines[1].startswith("  ✗ all  ITEMS_FAILED: 22 of 22 items failed → not handled")
    assert lines[21] == "  3 more items failed: mulligan items 1 all"


def test_many_items_that_failed_alike_are_told_together_with_where_they_are_listed():
    step = f"  - {{step: all, map: {{over: {[1] * 22}, as: one}}, do: [{{shell: 'exit ${{one}}'}}]}}\n"

    said = ran(f"name: wide\nsteps:\n{step}")

    lines = steady(said.err).partition("\n\n")[2].splitlines()
    assert lines[2] == "  ✗ 22 items of all  EXIT_NONZERO 1 → its step fails  (mulligan items 1 all --failed)"
    assert lines[3].strip().endswith("and 14 more")


def test_of_very_many_that_are_well_again_the_rest_is_said_to_have_failed_before():
    do = "[{shell: 'exit ${one}', on_failure: echo well}]"
    step = f"  - {{step: all, map: {{over: {list(range(1, 23))}, as: one}}, do: {do}}}\n"

    said = ran(f"name: wide\nsteps:\n{step}")

    lines = steady(said.err).partition("\n\n")[2].splitlines()
    assert lines[-1] == "  2 more items failed at first: mulligan items 1 all"


def test_a_run_that_is_taken_up_and_only_waits_still_tells_what_had_failed_before():
    ran(
        "name: w\nsteps:\n  - {step: a, shell: 'exit 3'}\n  - {step: ship, approve: {message: 'ship it?'}, next: end}\n"
    )

    said = mulligan("resume", "1")

    assert said.code == 4
    assert "  ✗ a  EXIT_NONZERO 3 → not handled: the run fails  (mulligan logs 1 a)" in steady(said.err)


def test_a_step_whose_child_run_failed_says_why_and_points_to_the_story_of_that_run(folder: Path):
    (folder / "child.yaml").write_text("name: child\nsteps:\n  - {step: fit, shell: 'exit 5'}\n")

    said = ran("name: parent\nsteps:\n  - {step: call, workflow: {file: child.yaml}}\n")

    inside = "child run 2 failed at 'fit': EXIT_NONZERO 5"
    assert f"  ✗ call  CHILD_FAILED: {inside} → not handled: the run fails  (mulligan explain 2)\n" in said.err
    assert f"CHILD_FAILED: {inside}" in mulligan("show", 1).out


@pytest.mark.nightly
def test_after_a_thousand_lines_there_are_no_more_and_the_summary_says_where_they_are():
    many = f"inputs: {{many: {{type: array, default: {[1] * 1001}}}}}\n"
    step = "  - {step: all, map: {over: '${inputs.many}', as: one}, do: [{shell: 'exit ${one}'}]}\n"

    said = ran(f"name: wide\n{many}steps:\n{step}")

    lines = said.err.splitlines()
    assert (said.code, lines.index("")) == (1, 1 + 1000)
    assert "  not all lines are shown; for the full story: mulligan explain 1" in lines


def test_a_warning_of_the_file_is_told_and_refuses_nothing():
    said = ran("name: odd\ninputs: {unused: {type: string, default: x}}\nsteps:\n  - {step: a, shell: 'true'}\n")

    assert said.code == 0
    assert said.err.startswith("warning[")


def test_what_to_type_names_the_home_that_was_named():
    said = ran(BROKEN, "--home", "my runs")

    assert said.code == 1
    assert "mulligan logs 1 fetch --home 'my runs'" in said.err
    assert "  mulligan retry 1 --home 'my runs'" in said.err
    assert Path("my runs", "mulligan.db").exists()


def test_a_remediation_that_failed_and_was_handled_in_turn_is_summed_up_as_that():
    said = ran(
        "name: chain\nsteps:\n"
        "  - {step: restart, shell: exit 5, next: {to: reinstall, on: failure}}\n"
        "  - {step: reinstall, shell: exit 6, next: {to: rebuild, on: failure}}\n"
        "  - {step: rebuild, shell: 'true'}\n"
    )

    assert said.plain[2].splitlines()[-2:] == [
        "  ✓ restart  EXIT_NONZERO 5 → routed to 'reinstall', which failed and was handled in turn"
        "  (mulligan logs 1 restart)",
        "  ✓ reinstall  EXIT_NONZERO 6 → routed to 'rebuild', which completed  (mulligan logs 1 reinstall)",
    ]


def test_a_called_run_that_waits_for_outside_is_named_in_what_they_have_to_type():
    workflow("name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n", "inner.yaml")

    said = ran("name: outer\nsteps:\n  - {step: call, workflow: inner.yaml}\n")

    assert said.plain[2].splitlines()[-3:] == [
        "? run 1 waits for a person",
        "  ? run 2, gate waits for an approval: deploy?",
        "  mulligan approve 2 gate --reason 'why'",
    ]


def test_where_signs_cannot_be_shown_there_are_letters(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")

    out, err = process("run", workflow(BROKEN)).communicate(timeout=60)

    assert (out, steady(err.decode("ascii")).splitlines()[1:5]) == (
        b"",
        [
            "THEN x fetch  failed with EXIT_NONZERO 7: no route",
            "THEN - load  skipped: 'fetch' did not complete",
            "",
            "x run 1 failed in Ns (2 steps, 1 failed, 1 skipped)",
        ],
    )
    assert b"x fetch  EXIT_NONZERO 7: no route -> not handled" in err


# What is refused


REFUSED = {
    # no such file
    ("missing.yaml",): "error[language.unreadable]: missing.yaml: there is no such file\n",
    # an input that nobody declared
    ("hello.yaml", "-i", "a=1"): "error[input.invalid]: workflow 'hello' has no input 'a'\n  it has no inputs\n",
    # an input without a value
    ("hello.yaml", "-i", "a"): "error[usage]: 'a' is not an input\n  write it like -i name=value\n",
    ("hello.yaml", "-i", "=1"): "error[usage]: '=1' is not an input\n  write it like -i name=value\n",
    # twice the same
    ("hello.yaml", "-i", "a=1", "-i", "a=2"): "error[usage]: input 'a' is given twice\n",
    ("hello.yaml", "--parallel", "-1"): "error[usage]: --parallel must be at least 0, not -1\n",
    ("hello.yaml", "--parallel", "0"): (
        "error[input.invalid]: with --parallel 0 this process runs no steps, and no other process can: "
        "the store is a file of this machine\n  name a store that workers share: MULLIGAN_STORE=postgresql://…\n"
    ),
    ("hello.yaml", "--gpus", "-1"): "error[usage]: --gpus must be at least 0, not -1\n",
    ("hello.yaml", "--memory", "much"): ("error[input.invalid]: 'much' is not a size\n  write it like 512MiB or 4GB\n"),
    ("hello.yaml", "--wait", "soon"): (
        "error[input.invalid]: 'soon' is not a duration\n  write it like 30s, 5m or 1h30m\n"
    ),
}


@pytest.mark.parametrize(("words", "told"), REFUSED.items(), ids=[" ".join(words) for words in REFUSED])
def test_what_makes_no_sense_is_refused_before_anything_is_made(words: tuple[str, ...], told: str, folder: Path):
    workflow(HELLO, "hello.yaml")

    said = mulligan("run", *words)

    assert tuple(said) == (2, "", told)
    assert sorted(path.name for path in folder.iterdir()) == ["hello.yaml"]


def test_a_value_that_is_not_what_its_input_must_be_is_refused():
    said = mulligan("run", workflow(GREETING), "-i", "name=ann", "-i", "times=often")

    told = "error[input.invalid]: input 'times' is 'often', a whole number such as 3 is expected\n"
    assert tuple(said) == (2, "", told)


def test_a_home_that_cannot_be_made_is_told():
    said = ran(HELLO, "--home", "flow.yaml/runs")

    assert (said.code, said.out) == (1, "")
    assert said.err == (
        f"error[home.unusable]: '{Path.cwd()}/flow.yaml/runs' cannot be the home: it is not a folder\n"
        "  choose another folder with --home DIR or MULLIGAN_HOME, or get permission to read and write this one\n"
    )


def test_a_file_that_is_no_database_is_told():
    Path(".mulligan").mkdir()
    Path(".mulligan/mulligan.db").write_text("not a database, but long enough to be looked at as one " * 20)

    said = ran(HELLO)

    told = (
        f"error[store.refused]: '{Path.cwd()}/.mulligan/mulligan.db' is not a database\n"
        "  name a file that does not exist yet, or one that Mulligan has created\n"
    )
    assert tuple(said) == (1, "", told)


def test_the_home_of_runs_is_left_out_of_repositories(folder: Path):
    ran("name: w\nsteps: [{step: a, shell: 'true'}]")

    assert (folder / ".mulligan" / ".gitignore").read_text() == "*\n"


LARGE = """\
name: large
steps:
  - {step: small, shell: echo >> ran}
  - {step: train, shell: "[ -e fixed ]", resources: {gpus: 3}}
"""


def test_capacity_that_is_missing_is_said_before_anything_runs_and_an_option_replaces_it(folder: Path):
    file = workflow(LARGE)
    refused = mulligan("run", file)
    assert (refused.code, refused.err) == (
        2,
        "error[input.invalid]: step 'train' asks for more than this machine can give: "
        "3 gpus (there is none; --gpus 3 allows it)\n"
        "  set the right numbers with the options, or let the step ask for less\n",
    )
    assert not (folder / "ran").exists()

    assert mulligan("run", file, "--gpus", "3").code == 1

    # The run remembers it.
    (folder / "fixed").touch()
    assert mulligan("retry", "--follow").code == 0


def test_a_run_in_the_background_has_the_capacity_that_it_was_started_with(folder: Path):
    (folder / "fixed").touch()

    assert ran(LARGE, "--gpus", "3", "--detach").code == 0

    assert mulligan("wait", "latest").code == 0


def test_a_step_that_may_never_run_is_only_noted():
    text = LARGE.replace("resources: {gpus", "when: 'false', resources: {gpus")

    said = ran(text)

    assert said.code == 0
    assert said.err.startswith("note: step 'train' asks for more than this machine can give: 3 gpus (there is none;")


# -- agents that never ask -------------------------------------------------------------------------------------------

UNASKED = "note: claude runs with --dangerously-skip-permissions: without asking, it edits files and runs commands"


def test_the_first_run_says_that_an_agent_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("claude").write_text('#!/bin/sh\necho \'{"result": "done"}\'\n')
    Path("claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(Path.cwd()), prepend=":")
    file = workflow("name: fix\nsteps: [{step: a, agent: {prompt: fix it, skip_permissions: true}}]\n")

    first, second = (mulligan("run", file) for _ in range(2))
    monkeypatch.setenv("MULLIGAN_AGENT_CLAUDE", "echo done")
    others = mulligan("run", file, "--home", "elsewhere")

    assert (first.code, first.err.startswith(UNASKED)) == (0, True)
    assert [UNASKED in said.err for said in (second, others)] == [False, False]


def test_it_says_so_too_of_agents_in_the_end_in_called_workflows_and_named_by_an_expression() -> None:
    agent = "agent: {prompt: fix it, skip_permissions: true}"
    child = workflow(f"name: child\nsteps: [{{step: a, {agent}}}]\n", "child.yaml")
    caller = workflow("name: caller\nsteps: [{step: a, workflow: {file: child.yaml}}]\n", "caller.yaml")
    last = workflow(f"name: last\nsteps: [{{step: a, shell: 'true'}}]\nend: {{{agent}}}\n", "last.yaml")

    any_agent = workflow(
        "name: any\ninputs: {who: string}\n"
        "steps: [{step: a, agent: {prompt: fix, provider: '${inputs.who}', skip_permissions: true}}]\n",
        "any.yaml",
    )

    with service_at(None) as service:
        notes = [
            service.starts.permission_note(Workflows.load_workflow(file)) for file in (child, caller, last, any_agent)
        ]

    assert [f"note: {note}".startswith(UNASKED) for note in notes[:3]] == [True, True, True]
    assert notes[3].startswith("claude runs with --dangerously-skip-permissions and codex runs with --dangerously-")
