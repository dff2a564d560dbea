"""Steps that are up to date, live: what is taken over from an earlier run, and what makes a step run again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.runner import Live, Ran, Terminal

from mulligan.core.model import events as e
from mulligan.service.host.gc import RunRetention

MESH = """
    name: mesh
    inputs: {n: {type: integer, default: 3}, unit: {type: string, default: m}}
    steps:
      - step: mesh
        shell: 'echo mesh >> trace; cat base.txt > mesh.txt; seq ${inputs.n} >> mesh.txt; echo meshed'
        reads: base.txt
        writes: mesh.txt
      - step: solve
        shell: 'echo solve >> trace; wc -l < mesh.txt > result.txt; echo "${steps.mesh.output}, solved"'
        reads: mesh.txt
        writes: result.txt
        env: {UNIT: "${inputs.unit}"}
      - {step: report, needs: solve, shell: 'echo report >> trace; echo "${steps.solve.output}"'}
    outputs: {said: "${steps.report.output}"}
"""


def since(ran: Ran) -> dict[str, int | None]:
    return {name: step["up_to_date_since"] for name, step in ran.steps.items()}


def done(live: Live) -> list[str]:
    """Which steps have really run since this was asked last."""
    lines = live.lines("trace") if (live.folder / "trace").exists() else []
    live.write("trace", "")
    return sorted(lines)


def first_run(live: Live, workflow: str = MESH, **options: Any) -> Ran:
    """A run of which everything is recorded."""
    if not (live.folder / "base.txt").exists():
        live.write("base.txt", "base\n")
    ran = live.run(workflow, changed_only=True, **options)
    assert ran.status == "completed"
    done(live)
    return ran


# -- what is taken over ----------------------------------------------------------------------------------------------


def test_nothing_runs_again_where_nothing_has_changed_and_each_step_says_since_when(live: Live):
    first = first_run(live)

    second = live.run(MESH, changed_only=True)
    third = live.run(MESH, changed_only=True)

    assert done(live) == []
    assert since(second) == since(third) == dict.fromkeys(("mesh", "solve", "report"), first.run_id)
    assert third.shown["outputs"] == first.shown["outputs"] == {"said": "meshed, solved"}
    assert f"mesh: up to date since run {first.run_id}" in third.story


def test_without_changed_only_steps_that_say_cache_are_taken_over(live_file: Live):
    workflow = MESH.replace("- step: mesh\n", "- step: mesh\n        cache: true\n")
    first = first_run(live_file, workflow)

    second = live_file.run(workflow)

    assert since(second) == {"mesh": first.run_id, "solve": None, "report": None}
    assert done(live_file) == ["report", "solve"]


def test_a_plain_run_counts_for_steps_that_declare_files(live_file: Live):
    live_file.write("base.txt", "base\n")
    first = live_file.run(MESH)
    done(live_file)

    second = live_file.run(MESH, changed_only=True)

    assert since(second) == {"mesh": first.run_id, "solve": first.run_id, "report": None}
    assert done(live_file) == ["report"]


def test_a_step_that_says_no_is_never_taken_over(live_file: Live):
    workflow = MESH.replace("- step: mesh\n", "- step: mesh\n        cache: false\n")
    first_run(live_file, workflow)

    live_file.run(workflow, changed_only=True)

    assert done(live_file) == ["mesh"]


def test_a_forced_step_runs_and_what_follows_is_up_to_date_if_it_gave_the_same(live_file: Live):
    first = first_run(live_file)

    second = live_file.run(MESH, changed_only=True, forced=["mesh"])

    assert since(second) == {"mesh": None, "solve": first.run_id, "report": first.run_id}
    assert done(live_file) == ["mesh"]


# -- what makes a step run again -------------------------------------------------------------------------------------


def test_a_file_that_it_reads_has_other_content(live_file: Live):
    first_run(live_file)
    live_file.write("base.txt", "another\nbase\n")

    live_file.run(MESH, changed_only=True)

    assert done(live_file) == ["mesh", "report", "solve"]


def test_a_file_that_was_only_touched_has_not_changed(live_file: Live):
    first_run(live_file)
    os.utime(live_file.folder / "base.txt", ns=(1, 1))
    os.utime(live_file.folder / "mesh.txt", ns=(1, 1))

    live_file.run(MESH, changed_only=True)

    assert done(live_file) == []


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        # The mesh is another one, and so all that reads it; and what comes after that without a word of what it reads.
        ({"n": 4}, ["mesh", "report", "solve"]),
        # An environment variable of one step.
        ({"unit": "km"}, ["solve"]),
    ],
)
def test_a_value_that_goes_in_is_another(live_file: Live, inputs: dict[str, Any], expected: list[str]):
    first_run(live_file)

    live_file.run(MESH, inputs=inputs, changed_only=True)

    assert done(live_file) == expected


def test_its_text_is_another(live_file: Live):
    first_run(live_file)

    live_file.run(MESH.replace("wc -l <", "wc  -l <"), changed_only=True)

    assert done(live_file) == ["solve"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("damaged")])
def test_a_file_that_it_wrote_is_gone_or_has_other_content(live_file: Live, damage: Any):
    first_run(live_file)
    damage(live_file.folder / "result.txt")

    second = live_file.run(MESH, changed_only=True)

    assert done(live_file) == ["solve"]
    assert since(second) == {"mesh": 1, "solve": None, "report": 1}


def test_a_key_adds_to_what_must_be_the_same(live_file: Live):
    workflow = """
        name: daily
        inputs: {day: {type: string}, note: {type: string, default: ""}}
        steps:
          - {step: fetch, shell: 'echo fetch "${inputs.note}" >> trace', cache: {key: "${inputs.day}"}}
    """
    first_run(live_file, workflow, inputs={"day": "mon"})

    live_file.run(workflow, inputs={"day": "mon"})
    same_day = done(live_file)
    live_file.run(workflow, inputs={"day": "tue"})
    next_day = done(live_file)
    live_file.run(workflow, inputs={"day": "mon", "note": "again"})

    assert (same_day, next_day, done(live_file)) == ([], ["fetch "], ["fetch again"])


# -- steps that do not say what they read ----------------------------------------------------------------------------

SILENT = """
    name: silent
    inputs: {n: {type: integer, default: 1}}
    steps:
      - {step: make, shell: "echo make >> trace; echo ${inputs.n} > hidden.txt"}
      - {step: between, needs: make, shell: "echo between >> trace"}
      - {step: use, needs: between, shell: "echo use >> trace; cat hidden.txt"}
"""


def test_a_step_that_says_nothing_of_what_it_reads_runs_where_a_step_before_it_had_something_to_do(live_file: Live):
    first_run(live_file, SILENT)

    same = live_file.run(SILENT, changed_only=True)
    forced = live_file.run(SILENT, changed_only=True, forced=["make"])
    ran = done(live_file)
    other = live_file.run(SILENT, inputs={"n": 2}, changed_only=True)

    assert since(same) == dict.fromkeys(("make", "between", "use"), 1)
    # It was given the same as ever.
    assert (since(forced), ran) == ({"make": None, "between": 1, "use": 1}, ["make"])
    assert (done(live_file), other.steps["use"]["output"]) == (["between", "make", "use"], "2")


def test_behind_a_step_that_always_runs_only_those_are_taken_over_that_say_what_they_read(live_file: Live):
    workflow = """
        name: asks
        steps:
          - {step: ask, shell: "echo ask >> trace", cache: false}
          - {step: silent, needs: ask, shell: "echo silent >> trace"}
          - {step: declared, needs: ask, shell: "echo declared >> trace", reads: base.txt}
          - {step: claimed, needs: ask, shell: "echo claimed >> trace", cache: true}
          - {step: pause, wait: 0s}
          - {step: after_wait, needs: pause, shell: "echo waited >> trace"}
    """
    first_run(live_file, workflow)

    live_file.run(workflow, changed_only=True)

    assert done(live_file) == ["ask", "silent"]


# -- what is never reused --------------------------------------------------------------------------------------------


def test_what_failed_or_was_handled_is_run_again(live_file: Live):
    workflow = """
        name: handled
        fail_fast: never
        steps:
          - {step: failing, shell: "echo failing >> trace; exit 3"}
          - step: recovered
            shell: "echo recovered >> trace; exit 3"
            on_failure: {shell: echo instead, strategy: fallback}
          - {step: retried, shell: "echo retried >> trace; test -e tried || { touch tried; exit 3; }", retry: 1}
    """
    live_file.run(workflow, changed_only=True)
    done(live_file)

    second = live_file.run(workflow, changed_only=True)

    assert done(live_file) == ["failing", "recovered"]
    assert second.steps["retried"]["up_to_date_since"] == 1


UNDONE = """
    name: undone
    steps:
      - {step: create, shell: "echo create >> trace", undo: {shell: "echo undo >> trace"}}
      - {step: use, needs: create, shell: "test -e ready", cache: false}
"""


def test_what_was_undone_is_run_again(live: Live):
    assert live.run(UNDONE, changed_only=True).status == "failed"
    assert done(live) == ["create", "undo"]
    live.write("ready")

    second = live.run(UNDONE, changed_only=True)

    assert (second.status, done(live)) == ("completed", ["create"])


def test_what_an_earlier_run_did_is_not_undone_by_the_run_that_took_it_over(live_file: Live):
    live_file.write("ready")
    live_file.run(UNDONE, changed_only=True)
    (live_file.folder / "ready").unlink()
    done(live_file)

    second = live_file.run(UNDONE, changed_only=True)
    third = live_file.run(UNDONE, changed_only=True)

    assert (second.status, third.status, done(live_file)) == ("failed", "failed", [])
    assert not second.facts(e.UndoStarted) and third.steps["create"]["up_to_date_since"] == 1


def test_a_step_that_may_still_be_undone_is_not_taken_over(live: Live):
    first = live.run(
        UNDONE.replace('shell: "test -e ready", cache: false', "approve: go on?"),
        changed_only=True,
    )
    assert first.ending == "waiting"
    done(live)

    live.run(UNDONE.replace('shell: "test -e ready", cache: false', "shell: 'true'"), changed_only=True)

    assert done(live) == ["create"]


def test_a_loop_goes_back_to_really_do_it_again(live_file: Live):
    workflow = """
        name: poll
        steps:
          - step: poll
            start: true
            shell: "echo poll >> trace; wc -l < trace"
            capture: json
            next: [{to: poll, when: "output < 3"}, {to: done, when: "output >= 3"}]
          - {step: done, shell: "echo ${steps.poll.output}"}
    """

    ran = live_file.run(workflow, changed_only=True)

    assert ran.steps["poll"]["visits"] == 3
    assert done(live_file) == ["poll", "poll", "poll"]


def test_a_round_really_runs_what_it_is_opened_for(live_file: Live):
    workflow = """
        name: rounds
        steps:
          - {step: a, shell: "echo a >> trace"}
          - {step: b, needs: a, shell: "echo b >> trace; test -e ready"}
    """
    live_file.write("ready")
    live_file.run(workflow, changed_only=True)
    (live_file.folder / "ready").unlink()
    second = live_file.run(workflow, changed_only=True, forced=["b"])
    assert second.status == "failed"
    live_file.write("ready")
    done(live_file)

    live_file.service.changes.retry(second.run_id, from_step="a")
    live_file.resume(second.run_id)

    assert done(live_file) == ["a", "b"]


def test_a_fork_runs_the_step_that_it_starts_from(live_file: Live):
    first = first_run(live_file)

    new = live_file.service.changes.fork(first.run_id, "mesh", {}).fork_run_id
    second = live_file.resume(new)

    assert since(second) == {"mesh": None, "solve": None, "report": None}
    assert done(live_file) == ["mesh", "report", "solve"]


def test_what_a_fork_has_kept_is_up_to_date_since_the_run_that_did_it(live_file: Live):
    first = first_run(live_file)
    new = live_file.service.changes.fork(first.run_id, "solve", {}).fork_run_id
    assert live_file.resume(new).steps["mesh"]["up_to_date_since"] is None
    again = live_file.service.changes.fork(new, "solve", {}).fork_run_id
    live_file.resume(again)

    last = live_file.run(MESH, changed_only=True)

    assert since(last) == {"mesh": first.run_id, "solve": again, "report": first.run_id}


# -- other kinds of steps --------------------------------------------------------------------------------------------


def test_combinations_of_a_matrix_are_steps_of_their_own_and_are_forced_by_name_or_together(live_file: Live):
    workflow = """
        name: sweep
        steps:
          - step: sim
            matrix: {a: [1, 2, 3]}
            cache: true
            shell: 'echo sim${matrix.a} >> trace; echo ${matrix.a} > out_${matrix.a}.txt'
            writes: "out_{a}.txt"
    """
    first_run(live_file, workflow)
    (live_file.folder / "out_2.txt").unlink()

    live_file.run(workflow)
    gone = done(live_file)
    live_file.run(workflow, forced=["sim_3"])
    one = done(live_file)
    live_file.run(workflow, forced=["sim"])

    assert (gone, one, done(live_file)) == (["sim2"], ["sim3"], ["sim1", "sim2", "sim3"])


def test_items_of_a_map_are_taken_over_one_by_one(live: Live):
    workflow = """
        name: items
        inputs: {of: {type: array}}
        steps:
          - step: each
            cache: true
            map: {over: "${inputs.of}", as: one, on_item_failure: collect}
            do: [{shell: 'echo "${one}" >> trace; test "${one}" != bad; echo "did ${one}"'}]
        outputs: {results: "${steps.each.output.results}"}
    """
    live.run(workflow, inputs={"of": ["a", "b", "bad"]})
    done(live)

    second = live.run(workflow, inputs={"of": ["bad", "b", "new", "a"]})

    assert done(live) == ["bad", "new"]
    assert second.shown["outputs"]["results"] == [None, "did b", "did new", "did a"]
    assert "each: completed, 2 items up to date" in second.story


def test_an_item_runs_again_if_its_own_files_have_changed(live_file: Live):
    workflow = """
        name: items
        inputs: {of: {type: array, default: [a, b, c]}}
        steps:
          - step: each
            map: {over: "${inputs.of}", as: one, on_item_failure: collect}
            do:
              - shell: 'echo "${one}" >> trace; test "${one}" = bad || tr a-z A-Z < ${one}.in > ${one}.out'
                reads: "${one}.in"
                writes: "${one}.out"
        outputs: {failures: "${steps.each.output.failures.map(f, f.message)}"}
    """
    for name in ("a", "b", "c", "bad"):
        live_file.write(f"{name}.in", name)
    live_file.run(workflow, changed_only=True)
    done(live_file)
    live_file.write("b.in", "other")
    (live_file.folder / "c.out").unlink()

    second = live_file.run(workflow, changed_only=True, inputs={"of": ["bad", "c", "b", "a"]})

    assert done(live_file) == ["b", "bad", "c"]
    assert (live_file.read("b.out"), live_file.read("c.out")) == ("OTHER", "C")
    assert second.shown["outputs"]["failures"] == ["declared files missing after exit code 0: bad.out"]


def test_the_steps_of_a_called_workflow_are_up_to_date_or_not_by_themselves(live_file: Live):
    live_file.write("child.yaml", "name: child\nsteps:\n  - {step: inner, shell: 'echo inner >> trace'}\n")
    workflow = "name: parent\nsteps:\n  - {step: call, workflow: child.yaml}\n"
    live_file.run(workflow, changed_only=True)
    done(live_file)

    live_file.run(workflow, changed_only=True)
    taken_over = done(live_file)
    live_file.run(workflow, changed_only=True, forced=["call"])

    assert (taken_over, done(live_file)) == ([], ["inner"])


CACHED_GROUP = """
    name: nightly
    steps:
      - step: publish
        matrix: {to: [here]}
        group:
          order: sequential
          retry: {rules: [{exit_codes: [7], max_retries: 2}]}
          steps:
            - {step: stage, shell: echo stage >> trace, cache: true}
            - {step: load, shell: 'test $(wc -l < trace) -ge 2 || exit 7; echo load >> trace'}
"""


@pytest.mark.parametrize("changed_only", [False, True])
def test_a_group_that_is_tried_again_takes_nothing_over_from_the_try_before(live_file: Live, changed_only: bool):
    ran = live_file.run(CACHED_GROUP, changed_only=changed_only)

    assert (ran.status, done(live_file)) == ("completed", ["load", "stage", "stage"])


@pytest.mark.parametrize("name", ["publish_here", "publish"])
def test_of_a_group_that_is_forced_every_step_runs(live_file: Live, name: str):
    live_file.run(CACHED_GROUP, changed_only=True)
    done(live_file)

    taken_over = live_file.run(CACHED_GROUP, changed_only=True)
    nothing = done(live_file)
    live_file.write("trace", "an earlier line\n")
    live_file.run(CACHED_GROUP, changed_only=True, forced=[name])

    assert (taken_over.status, nothing) == ("completed", [])
    assert done(live_file) == ["an earlier line", "load", "stage"]


def test_python_steps_are_taken_over_with_values_of_any_type(live_file: Live):
    workflow = """
        name: typed
        inputs: {n: {type: integer, default: 1}}
        steps:
          - step: make
            python: |
              def main(n):
                  open("trace", "a").write("make\\n")
                  return {"n": n, "list": [1, None, 2.5]}
            args: {n: "${inputs.n}"}
    """
    first_run(live_file, workflow)

    second = live_file.run(workflow, changed_only=True)

    assert done(live_file) == []
    assert second.steps["make"]["output"] == {"n": 1, "list": [1, None, 2.5]}


CALLS = """
    name: calls
    steps:
      - step: load
        python: {call: "sales:load"}
        cache: SETTING
      - {step: told, shell: 'echo "${steps.load.output}"', needs: load}
"""
SALES = """
from helpers import value
def load():
    open("trace", "a").write("load\\n")
    return value()
"""


def calls(live: Live, setting: str = "true", value: str = "1") -> Any:
    live.write("sales.py", SALES)
    live.write("helpers.py", f"def value():\n    return {value}\n")
    return live.run(CALLS.replace("SETTING", setting)).steps["told"]["output"]


def test_a_python_step_runs_again_if_the_code_that_it_calls_has_changed(live: Live):
    told = [calls(live), calls(live), calls(live, value="(2)")]

    assert (told, done(live)) == (["1", "1", "2"], ["load", "load"])


def test_explain_names_what_is_not_as_it_was_in_the_run_before(live: Live):
    workflow = CALLS.replace("SETTING", "true\n        args: {n: '${inputs.n}'}")
    live.write("sales.py", SALES.replace("load()", "load(n)"))
    ids = []
    for n, value in ((1, 1), (2, 1), (2, 3)):
        live.write("helpers.py", f"def value():\n    return {value} + 0\n")
        text = workflow.replace("name: calls", f"name: calls\n    inputs: {{n: {{type: integer, default: {n}}}}}")
        ids.append(live.run(text).run_id)

    told = [[one.line.text for one in live.service.runs.story(run_id, "load")] for run_id in ids]

    assert ["not up to date" in line for line in told[0]] == [False] * len(told[0])
    assert "not up to date: changed since run 1: the argument 'n'" in told[1]
    assert "not up to date: changed since run 2: the code of helpers.py: value" in told[2]


def test_explain_compares_with_the_run_that_did_the_work_however_often_it_was_reused(live: Live):
    for _ in range(4):
        calls(live)
    calls(live, value="2")

    told = [one.line.text for one in live.service.runs.story(5, "load")]

    assert "not up to date: changed since run 1: the code of helpers.py: value" in told


def test_code_that_may_change_is_not_compared(live: Live):
    told = [calls(live, "{code: false}"), calls(live, "{code: false}", "2")]

    assert (told, done(live)) == (["1", "1"], ["load"])


def test_a_result_of_code_that_changes_while_it_runs_is_taken_over_by_nobody(live: Live):
    live.write("helpers.py", "def value():\n    open('helpers.py', 'a').write('# later\\n')\n    return 1\n")
    live.write("sales.py", SALES)
    workflow = CALLS.replace("SETTING", "true")

    runs = [live.run(workflow) for _ in range(2)]

    assert [since(one)["load"] for one in runs] == [None, None]


def test_a_step_whose_code_has_changed_gets_a_process_that_has_not_loaded_it_before(live: Live):
    workflow = """
        name: changes
        steps:
          - {step: before, python: {call: "helpers:value"}, cache: true}
          - {step: change, shell: "echo 'def value(): return 20' > helpers.py", needs: before}
          - {step: after, python: {call: "helpers:value"}, cache: true, needs: change}
    """
    live.write("helpers.py", "def value():\n    return 1\n")

    ran = live.run(workflow)

    assert [ran.steps[name]["output"] for name in ("before", "after")] == [1, 20]


def test_a_large_output_is_taken_over_and_outlives_the_run_that_gave_it(live: Live):
    workflow = """
        name: large
        steps:
          - {step: make, shell: "echo make >> trace; seq 100000", cache: true}
          - {step: count, needs: make, shell: "echo count >> trace; wc -l", stdin: "${steps.make.output}"}
    """
    first = live.run(workflow)
    second = live.run(workflow)
    assert done(live) == ["count", "count", "make"]

    gone = live.service.machine.collect_garbage(RunRetention(keep=1))
    third = live.run(workflow)

    assert gone.runs == [first.run_id]
    assert done(live) == ["count"]
    assert third.steps["count"]["output"] == second.steps["count"]["output"] == "99999"
    assert third.steps["make"]["up_to_date_since"] == first.run_id


def test_gc_leaves_what_a_task_that_looks_for_a_result_may_just_have_found(live_file: Live):
    live_file.run("name: large\nsteps:\n  - {step: make, shell: seq 100000}\n")
    kept: list[Any] = []

    def clean(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="look")
        kept.append(there.service.machine.collect_garbage(RunRetention(keep=1)))
        (there.folder / "go").touch()

    looking = 'shell: "until test -e go; do sleep 0.01; done", cache: true'
    live_file.run(f"name: looks\nsteps:\n  - {{step: look, {looking}}}\n", meanwhile=clean)
    later = live_file.service.machine.collect_garbage(RunRetention())

    assert (kept[0].runs, kept[0].artifacts, len(later.artifacts)) == ([1], [], 1)


def test_a_large_value_from_another_run_with_the_same_content_has_not_changed(live_file: Live):
    workflow = """
        name: large
        steps:
          - {step: make, shell: "echo make >> trace; seq 100000", cache: false}
          - {step: count, needs: make, shell: "echo count >> trace; wc -l", stdin: "${steps.make.output}", cache: true}
    """
    live_file.run(workflow)
    done(live_file)

    live_file.run(workflow)

    assert done(live_file) == ["make"]


# -- secrets ---------------------------------------------------------------------------------------------------------


def test_a_secret_takes_part_by_its_name_alone(live_file: Live, monkeypatch: pytest.MonkeyPatch):
    workflow = """
        name: secretive
        secrets: {token: {env: THE_TOKEN}, other: {env: THE_TOKEN}}
        steps:
          - {step: call, shell: 'echo call >> trace', env: {TOKEN: "${secrets.token}"}, cache: true}
    """
    monkeypatch.setenv("THE_TOKEN", "first-secret-value")
    first = live_file.run(workflow)
    done(live_file)
    monkeypatch.setenv("THE_TOKEN", "second-secret-value")

    second = live_file.run(workflow)
    same_name = done(live_file)
    live_file.run(workflow.replace("secrets.token", "secrets.other"))

    assert (same_name, done(live_file)) == ([], ["call"])
    prints = [fact.fingerprint for ran in (first, second) for fact in ran.facts(e.AttemptSucceeded)]
    assert len(set(prints)) == 1
    assert b"secret-value" not in msgspec.json.encode([first.log, second.log])


# -- two at once, and crashes ----------------------------------------------------------------------------------------


def test_a_run_takes_over_what_another_one_that_still_goes_on_has_completed(live: Live):
    workflow = """
        name: together
        steps:
          - {step: a, shell: "echo a >> trace; echo done", cache: true}
          - {step: b, needs: a, approve: "go on?"}
    """
    first = live.run(workflow)
    assert first.ending == "waiting"
    done(live)

    second = live.run(workflow)

    assert (done(live), second.steps["a"]["up_to_date_since"]) == ([], first.run_id)


def test_what_was_cut_off_before_it_completed_is_not_taken_over(live_file: Live):
    workflow = """
        name: cut
        steps:
          - step: a
            shell: "echo a >> trace; test -e quick || sleep 60"
            cache: true
            on_success: {shell: "test -e quick || sleep 60"}
    """

    def cancel(there: Terminal) -> None:
        there.wait_for(e.AttemptStarted, place="a")
        there.service.changes.cancel(there.run_id, now=True)

    assert live_file.run(workflow, meanwhile=cancel).status == "cancelled"
    live_file.write("quick")
    done(live_file)

    live_file.run(workflow)

    assert done(live_file) == ["a"]


def test_a_step_that_died_with_its_driver_is_found_when_it_has_completed_and_not_before(live_file: Live):
    workflow = """
        name: killed
        steps:
          - {step: before, shell: "echo before >> trace", cache: true}
          - step: cut
            needs: before
            shell: "echo cut >> trace; test -e go || { echo up > up; sleep 60; }"
            cache: true
    """

    ran = live_file.run_killed_when_up(workflow)
    cut = ran.facts(e.AttemptSucceeded, place="cut")
    done(live_file)
    second = live_file.run(workflow, changed_only=True)

    assert (ran.status, [fact.attempt for fact in cut]) == ("completed", [2])
    assert (since(second), done(live_file)) == ({"before": 1, "cut": 1}, [])
