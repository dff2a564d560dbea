"""`mulligan list` and `show`: what there is, and how it stands."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.support.commands import mulligan, ran, ran_before, workflow

pytestmark = pytest.mark.usefixtures("folder")

HELLO = "name: hello\nsteps:\n  - {step: greet, shell: echo hello}\n"
BROKEN = """\
name: broken
steps:
  - {step: fetch, shell: 'echo no route >&2; exit 7'}
  - {step: load, needs: [fetch], shell: 'true'}
"""
ASKING = "name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n"
MAPPED = """\
name: mapped
steps:
  - step: check
    map: {over: "${['a', {'b': 1}, 'c']}", as: one, on_item_failure: collect}
    do: [{shell: "test ${index} != 1"}]
"""


# list


def test_where_nothing_was_run_the_list_is_empty_and_nothing_is_made(folder: Path):
    said = mulligan("list")

    assert said.plain == (0, "", f"no runs in '{folder}/.mulligan'\n")
    assert not (folder / ".mulligan").exists()
    assert mulligan("list", "--json").json == []


def test_runs_are_listed_newest_first_with_why_they_failed_and_what_to_type():
    ran(HELLO)
    ran(BROKEN)
    ran(ASKING)

    assert mulligan("list").plain == (
        0,
        "RUN  STATUS  AGE  TIME  WORKFLOW\n"
        "3  running  Ns  Ns  asking  'gate' waits for an approval\n"
        "2  failed  Ns  Ns  broken  'fetch' failed with EXIT_NONZERO 7: no route\n"
        "1  completed  Ns  Ns  hello\n",
        "run 3: mulligan approve 3 gate --reason TEXT\n",
    )


def test_the_list_as_json_has_a_run_a_line_of_the_list():
    ran(ASKING)

    [run] = mulligan("list", "--json").json

    assert sorted(run) == sorted(
        (
            "run_id workflow version status round degraded reason created_at updated_at seconds parent_run_id labels "
            "inputs driver failure waiting_for asks spent started_by damage"
        ).split()
    )
    assert (run["run_id"], run["status"], run["driver"]) == (1, "running", None)
    assert run["asks"] == [{"run_id": 1, "place": "gate", "kind": "approval"}]


def test_the_list_can_be_shortened_and_chosen_by_status():
    for text in (HELLO, BROKEN, HELLO):
        ran(text)

    assert [run["run_id"] for run in mulligan("list", "--json", "-n", 2).json] == [3, 2]
    assert [run["run_id"] for run in mulligan("list", "--json", "--status", "failed").json] == [2]
    assert mulligan("list", "--status", "paused").plain == (0, "", "no matching runs\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--status", "done"),
            "error[usage]: 'done' is not a status of a run\n  give running, paused, completed, failed, cancelled; "
            "or open or ended for several\n",
        ),
        (
            ("--status", "waiting"),
            "error[usage]: 'waiting' is not a status of a run\n"
            "  a run that waits counts as running; what waits for a person: mulligan pending\n",
        ),
        (("-n", "0"), "error[usage]: --limit must be at least 1, not 0\n"),
        (
            ("-n", "many"),
            "error[usage]: --limit must be a whole number, not 'many'\n  see: mulligan list --help\n",
        ),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(words: tuple[str, ...], said: str):
    assert mulligan("list", *words) == (2, "", said)


def test_a_home_elsewhere_is_named_in_what_is_proposed(tmp_path: Path):
    mulligan("run", workflow(ASKING), "--home", tmp_path / "else where")

    said = mulligan("list", "--home", tmp_path / "else where")

    assert said.err == f"run 1: mulligan approve 1 gate --reason TEXT --home '{tmp_path}/else where'\n"


# show


def test_a_run_is_shown_step_by_step_with_what_failed_and_what_to_do():
    ran(BROKEN)

    assert mulligan("show", 1).plain == (
        0,
        "run 1 of 'broken': failed, started Ns ago\n"
        "STEP  STATUS  TRIES  TIME  CPU  MEMORY\n"
        "fetch  failed  1  Ns  Ns  NMiB  EXIT_NONZERO 7: no route\n"
        "load  skipped\n",
        "its story: mulligan explain 1; to try again: mulligan retry 1\n",
    )


def test_a_run_that_waits_says_for_what_and_how_to_answer():
    ran(ASKING)

    assert mulligan("show", 1).plain == (
        0,
        "run 1 of 'asking': running, started Ns ago\n"
        "STEP  STATUS  TRIES  TIME  CPU  MEMORY\n"
        "gate  running  1  waits for an approval: deploy?\n",
        "nothing is running it; to run it here: mulligan resume 1\n"
        "'gate' waits for an approval: mulligan approve 1 gate --reason TEXT\n",
    )


def test_recovery_visits_items_outputs_and_the_end_are_shown():
    ran("""\
name: rich
steps:
  - {step: fixed, shell: exit 1, on_failure: echo fixed}
  - step: deploy
    needs: [fixed]
    shell: test -e certificate
    next: [{to: repair, on: failure, then: rerun}]
  - {step: repair, shell: touch certificate}
  - step: check
    map: {over: "${[1, 2]}", as: n, on_item_failure: collect}
    do: [{shell: "test ${n} = 1"}]
end: {shell: echo over}
outputs: {answer: "${steps.fixed.output}"}
""")

    assert mulligan("show", 1).plain == (
        0,
        "run 1 of 'rich': completed, degraded, started Ns ago\n"
        "STEP  STATUS  TRIES  TIME  CPU  MEMORY\n"
        "fixed  completed  1  Ns  Ns  NMiB  recovered\n"
        "deploy  completed  2  Ns  Ns  NMiB  visit 2\n"
        "repair  completed  1  Ns  Ns  NMiB\n"
        "check  completed  1  Ns  Ns  NMiB  1 of 2 items done, 1 failed\n"
        "end  completed  1  Ns  Ns  NMiB\n"
        'output answer: "fixed"\n',
        "",
    )


CALLED = "name: inner\nsteps:\n  - {step: greet, shell: test -e ok}\n"
CALLING = """\
name: outer
steps:
  - {step: call, workflow: inner.yaml, next: {to: mend, on: failure, then: rerun}}
  - {step: mend, shell: touch ok}
"""


def test_runs_that_a_step_called_are_shown_below_it_with_their_steps_attempt_by_attempt():
    workflow(CALLED, "inner.yaml")
    ran(CALLING)

    assert mulligan("show", 1).plain == (
        0,
        "run 1 of 'outer': completed, degraded, started Ns ago\n"
        "STEP  STATUS  TRIES  TIME  CPU  MEMORY\n"
        "call  completed  2  visit 2\n"
        "  run 2: inner  completed  round 2; for attempt 2 of 'call'\n"
        "  greet  completed  2  Ns  Ns  NMiB  visit 2\n"
        "mend  completed  1  Ns  Ns  NMiB\n",
        "",
    )


def test_the_tree_of_runs_is_in_the_json_and_each_step_names_those_that_it_called():
    workflow(HELLO, "inner.yaml")
    workflow("name: middle\nsteps:\n  - {step: inner, workflow: inner.yaml}\n", "middle.yaml")
    ran("name: outer\nsteps:\n  - {step: middle, workflow: middle.yaml}\n")

    shown = mulligan("show", 1, "--json").json

    [child] = shown["children"]
    assert (child["run_id"], child["step"], [below["run_id"] for below in child["children"]]) == (2, "middle", [3])
    assert (shown["steps"]["middle"]["children"], child["steps"]["inner"]["children"]) == ([2], [3])
    assert child["children"][0]["steps"]["greet"]["status"] == "completed"


def test_of_very_many_called_runs_the_first_are_shown_and_the_others_counted():
    workflow(HELLO, "inner.yaml")
    ran("""\
name: many
steps:
  - step: each
    map: {over: "${['a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p','q','r','s','t','u','v']}", as: n}
    do: [{workflow: inner.yaml}]
""")

    lines = mulligan("show", 1).plain[1].splitlines()

    assert sum(line.startswith("  run ") for line in lines) == 20
    assert lines[-1] == "  2 more runs  mulligan list --all"
    assert len(mulligan("show", 1, "--json").json["steps"]["each"]["children"]) == 22


def test_what_a_called_run_asks_of_people_is_shown_with_the_caller():
    workflow(ASKING, "inner.yaml")
    ran("name: outer\nsteps:\n  - {step: call, workflow: inner.yaml}\n")

    shown = mulligan("show", 1)

    assert shown.plain[1].splitlines()[2:] == [
        "call  running  1",
        "  run 2: asking  running",
        "  gate  running  1  waits for an approval: deploy?",
    ]
    assert shown.err.endswith("'gate' waits for an approval: mulligan approve 2 gate --reason TEXT\n")


def test_called_runs_are_listed_only_with_all_and_then_below_their_callers():
    workflow(ASKING, "inner.yaml")
    ran("name: outer\nsteps:\n  - {step: call, workflow: inner.yaml}\n")
    ran(HELLO)

    assert mulligan("list").plain == (
        0,
        "RUN  STATUS  AGE  TIME  WORKFLOW\n"
        "3  completed  Ns  Ns  hello\n"
        "1  running  Ns  Ns  outer  'gate' of run 2 waits for an approval\n",
        "run 1: mulligan approve 2 gate --reason TEXT\n",
    )
    assert mulligan("list", "--all").plain == (
        0,
        "RUN  STATUS  AGE  TIME  WORKFLOW\n"
        "3  completed  Ns  Ns  hello\n"
        "1  running  Ns  Ns  outer  'gate' of run 2 waits for an approval\n"
        "  2  running  Ns  Ns  asking  'gate' waits for an approval\n",
        "run 1: mulligan approve 2 gate --reason TEXT\n",
    )
    assert [run["run_id"] for run in mulligan("list", "--json", "--all", "-n", 2).json] == [3, 2]
    assert "child of run 1" in mulligan("list", "--all", "-n", 2).out


def test_a_parked_step_says_its_failure_once_and_until_when_somebody_may_decide():
    ran("""\
name: parked
steps:
  - {step: simulate, shell: 'echo diverged >&2; exit 42', triage: {timeout: 1h}}
""")

    assert mulligan("show", 1).plain[1].splitlines()[2] == (
        "simulate  pending_failed  1  Ns  Ns  NMiB  waits for a person to classify EXIT_NONZERO 42: diverged;"
        " the default applies on THEN"
    )


def test_what_was_undone_is_shown_as_that():
    ran("""\
name: undone
steps:
  - {step: reserve, shell: 'true', undo: {shell: 'true'}}
  - {step: charge, needs: [reserve], shell: exit 1}
""")

    assert "reserve  completed  1  Ns  Ns  NMiB  undone" in mulligan("show", 1).plain[1]


def test_what_could_not_be_undone_is_shown_as_that_and_retry_asks_for_force():
    said = ran("""\
name: undone
order: sequential
steps:
  - {step: reserve, shell: 'true', undo: {shell: 'true'}}
  - {step: charge, shell: 'true', undo: {shell: exit 4}}
  - {step: mail, shell: exit 1}
""")

    line = "charge  completed  1  Ns  Ns  NMiB  undo failed, what it did may still be in effect; warning: UNDO_FAILED"
    assert line in mulligan("show", 1).plain[1]
    charge = mulligan("show", 1, "--json").json["steps"]["charge"]
    assert (charge["undone"], charge["undo_failed"]) == (False, True)
    assert "mulligan retry 1 --force  # check first what could not be undone: it runs again" in said.err
    assert (
        "after you have checked what could not be undone, to run it again: mulligan retry 1 --force"
        in mulligan("show", 1).err
    )
    refused = mulligan("retry", 1)
    assert (refused.code, refused.err) == (
        2,
        "error[step.undo_failed]: step 'charge' of run 1 would run again, but its undo failed: what it did may still "
        "be in effect\n  check it first; to run it again anyway: mulligan retry 1 --force\n",
    )
    planned = mulligan("retry", 1, "--force", "--dry-run", "--json").json
    assert (planned["undo_failed"], planned["why"]["charge"]) == (
        ["charge"],
        "forced, though its undo failed and what it did may still be in effect",
    )


def test_a_run_as_json_is_what_run_printed_and_more():
    printed = ran(BROKEN, "--json").json

    shown = mulligan("show", 1, "--json").json

    more = {
        "labels",
        "workflow",
        "version",
        "created_at",
        "updated_at",
        "parent_run_id",
        "driver",
        "children",
        "artifacts",
    }
    assert set(shown) == set(printed) | more
    same = set(printed) - {"steps", "end"}
    assert {key: shown[key] for key in same} == {key: printed[key] for key in same}
    fetch = shown["steps"]["fetch"]
    undo = {"undone", "undo_failed"}
    assert set(fetch) == set(printed["steps"]["fetch"]) | {"usage", "items", "children", "tries", "progress"} | undo
    assert set(fetch["usage"]) == {"wall_seconds", "cpu_seconds", "peak_memory"}
    assert (fetch["usage"]["peak_memory"] > 0, fetch["items"]) == (True, None)


# Runs that are not there


@pytest.mark.parametrize(
    "words",
    [
        ("show", 9),
        ("items", 9, "a"),
        ("events", 9),
        ("explain", 9),
        ("logs", 9, "a"),
        ("cancel", 9),
        ("pause", 9),
        ("retry", 9),
        ("retry", 9, "--dry-run"),
        ("fork", 9, "--from", "a"),
        ("classify", 9, "a", "fail", "--reason", "x"),
        ("approve", 9, "a", "--reason", "x"),
        ("replay", 9, "--verify"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_every_verb_refuses_a_run_that_is_not_there(words: tuple[object, ...], folder: Path):
    nowhere = mulligan(*words)
    ran_before(HELLO)
    unknown = mulligan(*words)

    assert nowhere == (
        2,
        "",
        f"error[run.unknown]: there is no run 9: '{folder}/.mulligan' has none\n"
        "  runs are stored where they were started; name another folder with --home DIR or MULLIGAN_HOME\n",
    )
    assert unknown == (2, "", "error[run.unknown]: there is no run 9\n  list them: mulligan list\n")


@pytest.mark.parametrize("words", [("run", "flow.yaml"), ("show", 1), ("events", 1)], ids=["run", "show", "events"])
def test_a_store_whose_tables_are_not_ours_is_refused_and_not_waited_for(words: tuple[object, ...], folder: Path):
    ran(HELLO)
    database = sqlite3.connect(".mulligan/mulligan.db")
    database.execute("ALTER TABLE events RENAME TO happenings")
    database.close()

    code, _, err = mulligan(*words)

    assert code == 1
    assert (
        f"error[store.refused]: '{folder}/.mulligan/mulligan.db' does not have the tables that this Mulligan expects: "
        "no such table: events\n  restore it from a copy, or use another --home\n"
    ) in err


CALLS_HELLO = """\
name: calling
steps:
  - {step: call, workflow: hello.yaml}
"""


def test_where_no_run_is_named_the_newest_that_nobody_called_is_meant(folder: Path):
    (folder / "hello.yaml").write_text(HELLO)
    ran(BROKEN)
    ran(CALLS_HELLO)

    assert mulligan("show", "--json").json["run_id"] == 2
    assert mulligan("show", "latest", "--json").json["run_id"] == 2
    assert mulligan("events").out == mulligan("events", 2).out
    assert mulligan("explain", "call").out == mulligan("explain", 2, "call").out
    assert mulligan("report", "--json").json["run_id"] == 2


def test_a_step_alone_names_its_logs_in_the_newest_run():
    ran(HELLO)
    ran(BROKEN)

    assert mulligan("logs", "fetch").err == "-- run 2, 'fetch', attempt 1\nno route\n"
    assert mulligan("logs", 1, "greet").out == "hello\n"
    assert mulligan("logs").err == mulligan("logs", "fetch").err


def test_retry_without_a_run_gives_the_newest_another_round():
    ran(BROKEN)

    assert "run 1 would begin round 2" in mulligan("retry", "--dry-run").err


@pytest.mark.parametrize("verb", ["show", "logs", "explain", "events", "report", "retry"])
def test_where_nothing_was_run_there_is_no_newest_run(verb: str):
    said = mulligan(verb, *(["step"] if verb == "logs" else []))

    assert (said.code, said.err.split(":")[0]) == (2, "error[run.unknown]")


def test_a_run_is_named_by_its_number():
    assert mulligan("events", "hello") == (
        2,
        "",
        "error[run.unknown]: 'hello' is not the number of a run\n"
        "  give the number of a run or 'latest'; list them: mulligan list\n",
    )


def test_what_a_step_or_an_item_gave_is_shown_whole():
    ran("""\
name: giving
steps:
  - {step: text, shell: echo hello}
  - {step: rows, shell: 'echo "[1, 2]"', capture: json}
  - {step: each, map: {over: [3, 4]}, do: [{shell: 'seq ${item}0000', capture: lines}]}
  - {step: never, needs: [rows], when: 'false', shell: echo no}
""")

    assert mulligan("show", 1, "--output", "text") == (0, "hello\n", "")
    assert mulligan("show", 1, "--output", "text", "--json").json == "hello"
    assert mulligan("show", 1, "--output", "rows").json == [1, 2]
    assert mulligan("show", 1, "--output", "never").json is None
    assert mulligan("show", 1, "--output", "each[1]").json == [str(number) for number in range(1, 40001)]
    assert [len(found) for found in mulligan("show", 1, "--output", "each").json["results"]] == [30000, 40000]


def test_the_end_of_what_a_failed_step_wrote_is_shown_with_the_line_that_says_most():
    ran("""\
name: compiling
steps:
  - step: build
    shell: 'echo "a.c:3: error: no b" >&2; echo "make: *** [all] Error 2" >&2; exit 2'
""")

    shown, told = mulligan("show", 1).out, mulligan("explain", 1)

    assert "EXIT_NONZERO 2: a.c:3: error: no b\n" in shown
    written = "  | a.c:3: error: no b\n  | make: *** [all] Error 2\n"
    assert f"the last lines of 'build' (all: mulligan logs 1 build):\n{written}" in shown
    assert [line.strip() for line in told.out.splitlines()[1:3]] == [line.strip() for line in written.splitlines()]
    tails = [line["tail"] for line in mulligan("explain", 1, "--json").json if "tail" in line]
    assert tails == [["a.c:3: error: no b", "make: *** [all] Error 2"]]


def test_the_output_that_validate_refused_is_shown_everywhere():
    said = ran("""\
name: wanting
steps:
  - {step: rows, shell: 'echo "[]"', capture: json, validate: size(output) > 0}
""")

    refused = "VALIDATION_FAILED: 'size(output) > 0' does not hold; output: []"
    assert f"rows  {refused} → not handled: the run fails  (mulligan show 1 --output rows)" in said.err
    assert refused in mulligan("show", 1).out
    assert refused in mulligan("explain", 1).out
    assert mulligan("show", 1, "--json").json["steps"]["rows"]["failure"]["details"] == {"output": []}
    note = "note: 'rows' failed because 'validate' rejected this output\n"
    assert mulligan("show", 1, "--output", "rows") == (0, "[]\n", note)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("texts", "error[step.unknown]: 'texts' is not a step of run 1\n  did you mean 'text'?\n"),
        ("text[3]", "error[step.unknown]: 'text[3]' of run 1 has no output\n"),
    ],
)
def test_what_gave_nothing_here_is_not_shown(place: str, message: str):
    ran("name: giving\nsteps: [{step: text, shell: echo hello}]")

    assert mulligan("show", 1, "--output", place) == (2, "", message)
