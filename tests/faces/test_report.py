"""`mulligan report`: a run as one page that needs nothing but itself, and cannot be broken into."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.support.commands import Said, mulligan, ran, workflow

from mulligan.formats import load
from mulligan.service.home import Home
from mulligan.service.runs.changes.prepared_runs import prepare
from mulligan.service.service import Service

from .pages import Page

pytestmark = pytest.mark.usefixtures("folder")

HELLO = """\
name: hello
description: Says hello, twice.
inputs: {whom: {type: string, default: world}}
steps:
  - {step: greet, shell: echo hello, resources: {memory: 64MiB}}
  - {step: again, needs: [greet], shell: echo hello again}
outputs: {said: "${steps.again.output}"}
"""
LADDER = """\
name: ladder
steps:
  - step: fetch
    shell: 'echo no route >&2; test $MULLIGAN_ATTEMPT = 2'
    retry: {rules: [{exit_codes: [1], max_retries: 3}]}
  - {step: build, needs: [fetch], shell: exit 2, on_failure: echo built by hand}
  - step: deploy
    needs: [build]
    shell: '[ "$MULLIGAN_VISIT" = 2 ] || exit 9'
    next: [{to: repair, on: failure, then: rerun}]
  - {step: repair, shell: echo repaired}
"""
BROKEN = """\
name: broken
steps:
  - {step: fetch, shell: 'echo no route >&2; exit 7'}
  - {step: load, needs: [fetch], shell: 'true'}
"""
MAPPED = """\
name: mapped
steps:
  - step: check
    map: {over: "${['a', 'b', 'c']}", as: one, on_item_failure: collect}
    do: [{shell: 'test ${one} != b'}]
"""
LOOPED = """\
name: looped
steps:
  - {step: try_it, shell: echo $MULLIGAN_VISIT, capture: json, next: [{to: try_it, when: "output < 3"}]}
"""
ASKING = (
    "name: asking\nsteps:\n  - {step: gate, approve: 'deploy?'}\n  - {step: deploy, needs: [gate], shell: 'true'}\n"
)
UNDONE = """\
name: undone
steps:
  - {step: a, shell: 'true', undo: {shell: 'true'}}
  - {step: b, needs: [a], approve: 'go?'}
"""
ENDED = """\
name: ended
steps:
  - {step: fetch, shell: exit 7}
end: {shell: 'echo ''{"status": "completed", "reason": "it was only the fetch"}'''}
"""
SECTIONS = [
    "Summary",
    "Failures and how they were handled",
    "Graph",
    "Timeline",
    "Resources",
    "Steps",
    "Data",
    "Events",
]


def report(run_id: int = 1) -> Page:
    """The page of a run, read strictly."""
    said = mulligan("report", run_id, "-o", "-")
    assert (said.code, said.err) == (0, "")
    return Page(said.out)


def gathered(run_id: int = 1) -> dict[str, Any]:
    return mulligan("report", run_id, "--json").json


# where it goes


def test_the_page_is_written_here_and_its_name_is_said(folder: Path):
    ran(HELLO)

    said = mulligan("report", 1)

    assert said == (0, "", "wrote mulligan-report-1.html\n")
    assert (folder / "mulligan-report-1.html").read_text(encoding="utf-8").startswith("<!doctype html>\n<html ")


def test_another_file_may_be_named_and_a_dash_is_stdout(folder: Path):
    ran(HELLO)

    said, printed = mulligan("report", 1, "-o", "page.html"), mulligan("report", 1, "-o", "-")

    assert said == (0, "", "wrote page.html\n")
    assert printed.out.startswith("<!doctype html>\n") and printed.err == ""
    assert sorted(path.name for path in folder.iterdir() if path.suffix == ".html") == ["page.html"]


def test_a_run_that_is_not_there_is_refused_and_nothing_is_written(folder: Path):
    ran(HELLO)

    said = mulligan("report", 7)

    assert said == (2, "", "error[run.unknown]: there is no run 7\n  list them: mulligan list\n")
    assert not (folder / "mulligan-report-7.html").exists()


def test_where_nothing_was_run_it_says_so(folder: Path):
    assert mulligan("report", 1) == (
        2,
        "",
        f"error[run.unknown]: there is no run 1: '{folder}/.mulligan' has none\n"
        "  runs are stored where they were started; name another folder with --home DIR or MULLIGAN_HOME\n",
    )


def test_a_folder_that_is_not_there_is_refused():
    ran(HELLO)

    assert mulligan("report", 1, "-o", "missing/page.html") == (
        2,
        "",
        "error[file.unwritable]: 'missing/page.html' cannot be written: no such file or directory\n",
    )


def test_a_number_that_is_none_is_refused():
    assert mulligan("report", "last").err == (
        "error[run.unknown]: 'last' is not the number of a run\n"
        "  give the number of a run or 'latest'; list them: mulligan list\n"
    )


# what is in it


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (HELLO, "completed"),
        (LADDER, "completed, degraded"),
        (BROKEN, "failed"),
        (MAPPED, "completed, degraded"),
        (LOOPED, "completed"),
        (ASKING, "running"),
    ],
    ids=["completed", "ladder", "failed", "mapped", "looped", "waiting"],
)
def test_every_page_is_whole_has_every_section_and_asks_for_nothing_from_elsewhere(text: str, status: str):
    ran(text)

    page = report()

    assert page.problems == []
    assert page.headings[0].endswith(status)
    assert page.headings[1:] == SECTIONS


def test_the_top_of_a_page_says_what_ran_how_it_came_out_and_who_began_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MULLIGAN_BY", "ann")
    ran(HELLO)

    text = report().text

    assert "Mulligan · run 1 hello ✓ completed Says hello, twice. Run 1 completed. Started 20" in text
    assert " UTC by ann, ended " in text
    assert "steps 2 completed 2 failed, unhandled 0 handled 0 recovered 0 skipped 0 attempts 2 time " in text
    assert "Nothing failed." in text


def test_inputs_outputs_the_file_and_its_version_are_there():
    ran(HELLO)

    page, version = report(), gathered()["version"]

    assert 'Inputs whom "world" Outputs said "hello again"' in page.text
    assert f"hello (flow.yaml, version {version}), run 1 on " in page.text


def test_what_failed_is_told_rung_by_rung_with_what_came_of_it():
    ran(LADDER)

    found = gathered()["visits"]

    assert [(visit["unit"], visit["visit"], visit["what"], visit["answer"], visit["fate"]) for visit in found] == [
        ("fetch", 1, "EXIT_NONZERO 1: no route", "retried, then completed", "mended"),
        ("build", 1, "EXIT_NONZERO 2", "recovered by its handler", "mended"),
        ("deploy", 1, "EXIT_NONZERO 9", "routed to 'repair', which completed; then it ran again", "mended"),
    ]
    assert [[(rung["name"], rung["outcome"], rung["said"]) for rung in visit["rungs"]] for visit in found] == [
        [
            ("retry", "dealt", "retry 1 of 3 at once (rule for exit code 1)"),
            ("handle", "unasked", ""),
            ("triage", "unasked", ""),
            ("route", "unasked", ""),
            ("end", "unasked", ""),
        ],
        [
            ("retry", "absent", "no rules"),
            ("handle", "dealt", "recovery handler started"),
            ("triage", "unasked", ""),
            ("route", "unasked", ""),
            ("end", "unasked", ""),
        ],
        [
            ("retry", "absent", "no rules"),
            ("handle", "absent", "no handler"),
            ("triage", "absent", "no triage"),
            ("route", "dealt", "routed to 'repair'"),
            ("end", "unasked", ""),
        ],
    ]


def test_the_log_of_a_failed_attempt_is_there_and_the_failure_that_nobody_handled():
    ran(BROKEN)

    text = report().text

    assert "✕ fetch EXIT_NONZERO 7: no route not handled: the run fails" in text
    assert "Retry no rules Handle no handler Triage no triage Route no failure edge Converge not handled" in text
    assert "Log of fetch, attempt 1 stderr no route" in text
    assert "load shell skipped" in text


def test_items_that_failed_stand_below_their_step():
    ran(MAPPED)

    page = report()

    assert "Items of check 1 item failed with EXIT_NONZERO 1" in page.text
    assert "b EXIT_NONZERO 1 its step completed without it" in page.text
    assert '<strong title="check[1]">b</strong>' in page.html
    assert gathered()["item_names"] == {"check[0]": "a", "check[1]": "b", "check[2]": "c"}
    assert "check 3 items, 1 failure" in page.text


def test_a_failure_that_another_round_mended_is_told_of_by_round():
    ran("name: later\nsteps:\n  - {step: fetch, shell: test -e here}\n")
    Path("here").touch()
    mulligan("retry", 1, "--follow")

    [visit] = gathered()["visits"]

    assert (visit["round"], visit["visit"], visit["answer"]) == (1, 1, "completed in round 2")
    assert visit["fate"] == "mended"
    text = report().text
    assert "run 1, round 2" in text
    assert "Run 1 completed in round 2; 1 step failed in round 1. Started " in text
    rounds = [(one["number"], one["status"], one["failed"]) for one in gathered()["rounds"]]
    assert rounds == [(1, "failed", 1), (2, "completed", 0)]


def test_each_visit_of_a_loop_is_a_bar_of_its_own():
    ran(LOOPED)

    page = report()

    assert [attempt["visit"] for attempt in gathered()["attempts"]] == [1, 2, 3]
    assert page.html.count('<rect class="good" x="') == 4  # and one for the steps by status
    assert "try_it: 3 attempts, " in page.html


def test_a_run_that_waits_says_for_what_and_as_of_when():
    ran(ASKING)

    text = report().text

    assert "Run 1 is still running. Started " in text
    assert "Status as of " in text
    assert "Waiting for (1) gate waits for an approval: deploy?" in text
    assert "Next commands mulligan approve 1 gate --reason 'why'" in text


def test_a_cancelled_run_says_why_and_what_was_undone():
    ran(UNDONE)
    mulligan("cancel", 1, "--reason", "wrong day")

    page = report()

    assert page.problems == []
    assert "Run 1 was cancelled: wrong day. Started " in page.text
    assert "a.undo@1, attempt 1: succeeded" in page.html
    assert "1 completed, 1 cancelled" in page.text


def test_a_run_that_nobody_has_taken_up_has_a_page_too(folder: Path):
    file = workflow(HELLO)
    service = Service(Home(folder / ".mulligan"))
    service.changes.create(prepare(load(file), {}, folder))
    service.close()

    page = report()

    assert page.problems == []
    assert "Nothing has run yet." in page.text


def test_a_paused_run_says_that_it_is():
    ran(ASKING)
    mulligan("pause", 1, "--reason", "lunch")

    text = report().text

    assert "asking ‖ paused Run 1 is paused: lunch. Started " in text
    assert "the run waits for a person to resume the run: lunch" in text


def test_what_end_said_is_told():
    ran(ENDED)

    page = report()

    assert "end returned: completed: it was only the fetch" in page.text
    assert "not handled, but end returned completed" in page.text


def test_what_attempts_were_given_stands_beside_what_they_used():
    ran(HELLO)

    page, [greet, again] = report(), gathered()["attempts"]

    assert (greet["memory"], again["memory"]) == (64 * 1024 * 1024, None)
    assert greet["peak_memory"] > 0 and greet["cpu_seconds"] >= 0
    assert "MiB of 64MiB" in page.text


def test_a_called_run_is_named_with_its_caller():
    workflow("name: child\nsteps:\n  - {step: one, shell: echo one}\n", "child.yaml")
    ran("name: parent\nsteps:\n  - {step: call, workflow: {file: child.yaml}}\n")

    parent, child = report(1), report(2)

    assert "Child runs" in parent.headings
    assert "2 child completed call, attempt 1" in parent.text
    assert "It was called by run 1." in child.text


MIXED = """\
name: mixed
steps:
  - {step: a, shell: exit 7}
  - {step: b, shell: exit 7}
  - {step: c, shell: 'kill -9 $$'}
  - {step: d, shell: 'test $MULLIGAN_ATTEMPT = 2', retry: 1}
  - {step: e, shell: echo 0, capture: json, validate: output > 0, continue_on_error: true}
"""


def test_failures_are_grouped_by_code_those_that_nobody_handled_first():
    ran(MIXED)

    page = report()

    counts = [
        (one["code"], one["steps"], one["visits"], one["unhandled"], one["mended"]) for one in gathered()["codes"]
    ]
    assert counts == [
        ("EXIT_NONZERO", 3, 3, 2, 1),
        ("SIGNALED", 1, 1, 1, 0),
        ("VALIDATION_FAILED", 1, 1, 0, 0),
    ]
    summed = "EXIT_NONZERO 3 steps, 2 unhandled SIGNALED 1 step, 1 unhandled VALIDATION_FAILED 1 step"
    assert summed in page.text
    heads = re.findall(r'<h3 class="code">(\w+)', page.html)
    assert heads == ["EXIT_NONZERO", "SIGNALED", "VALIDATION_FAILED"]
    assert "the output that 'validate' rejected 0" in page.text


def test_of_many_failures_with_one_code_the_first_are_shown_and_the_rest_is_folded():
    ran("name: wide\nsteps:\n" + "".join(f"  - {{step: s{n}, shell: exit 1}}\n" for n in range(14)))

    page = report()

    assert page.problems == []
    assert "2 more with EXIT_NONZERO" in page.text


def test_a_step_that_fails_in_every_round_is_not_said_to_be_mended():
    ran("name: never\nsteps: [{step: a, shell: exit 3}]\n")
    mulligan("retry", 1, "--follow")

    found = [(visit["round"], visit["answer"], visit["fate"]) for visit in gathered()["visits"]]

    assert found == [
        (2, "not handled: the run fails", "open"),
        (1, "ran again in a later round", "left"),
    ]


def test_what_to_type_next_is_there_with_the_home_that_it_needs():
    ran(BROKEN)

    assert [one["text"] for one in gathered()["next_commands"]] == [
        "mulligan logs 1 fetch",
        "mulligan retry 1",
        "mulligan explain 1",
    ]
    said = mulligan("report", 1, "--home", ".mulligan", "-o", "-")
    assert "mulligan retry 1 --home .mulligan" in Page(said.out).text


def test_logs_are_linked_where_the_page_can_reach_them(folder: Path):
    ran(BROKEN)

    mulligan("report", 1)
    Path("sub").mkdir()
    mulligan("report", 1, "-o", "sub/r.html")

    here, below = Page(Path("mulligan-report-1.html").read_text()), Page(Path("sub/r.html").read_text())
    assert here.problems == below.problems == []
    assert here.links == [".mulligan/runs/1/logs/fetch%231.err"]
    assert below.links == ["../.mulligan/runs/1/logs/fetch%231.err"]
    assert (folder / unquote(here.links[0])).read_text() == "no route\n"


def test_where_nobody_knows_where_the_page_will_be_the_path_of_a_log_is_text():
    ran(BROKEN)

    page = report()

    assert page.links == []
    assert "Full log: .mulligan/runs/1/logs/fetch#1.err" in page.text


def test_json_is_one_object_with_all_of_it():
    ran(BROKEN)

    said = mulligan("report", 1, "--json")

    found = said.json
    assert said.err == ""
    assert (found["run_id"], found["workflow"], found["status"], found["visits_count"]) == (1, "broken", "failed", 1)
    assert found["counts"] == {
        "total_steps": 2,
        "failed_steps_count": 1,
        "handled_steps_count": 0,
        "recovered_steps_count": 0,
        "skipped_steps_count": 1,
        "dropped_outputs_count": 0,
    }
    assert {step["name"]: step["status"] for step in found["steps"]} == {
        "fetch": "failed",
        "load": "skipped",
        "end": "completed",
    }


# bad input

BREAKOUT = "</pre></title></style></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
HOSTILE = """\
name: %(name)s
inputs: {said: {type: string}}
steps:
  - step: hostile
    shell: |
      printf '%%s\\n' "$TEXT"
      printf '%%s\\n' "$TEXT" >&2
      exit 3
    env: {TEXT: "${inputs.said}"}
    when: inputs.said != '<script>'
    continue_on_error: true
outputs: {said: "${inputs.said}"}
"""


def hostile(said: str) -> Said:
    text = HOSTILE % {"name": json.dumps(said)}
    return ran(text, "-i", f"said={said}")


def test_whatever_a_run_says_it_stays_text():
    hostile(BREAKOUT)

    page = report()

    assert page.problems == []
    assert page.headings[0].startswith(BREAKOUT)
    assert page.text.count("<script>alert(1)</script>") >= 5


def test_what_would_command_a_terminal_or_turn_the_writing_is_taken_out_or_spelled_out():
    hostile("red \x1b[31m bell \x07 turned \u202eabc\u2066 mark \u200f zero \u200b end")

    page = report()

    assert page.problems == []
    assert not set(page.html) & set("\x1b\x07\u202e\u2066\u200f\u200b")
    assert "turned \\u202eabc\\u2066 mark \\u200f zero \\u200b end" in page.text


def test_bytes_that_are_no_text_do_no_harm():
    ran("name: bytes\nsteps:\n  - {step: one, shell: 'printf \"\\377\\376\\000<b>\\n\" >&2; exit 1'}\n")

    page = report()

    assert page.problems == []
    assert "\ufffd\ufffd<b>" in page.text


def test_of_a_long_log_the_end_is_there_and_the_page_says_so():
    ran("name: long\nsteps:\n  - {step: one, shell: 'echo FIRST >&2; seq 200000 >&2; exit 1'}\n")

    page = report()

    assert "Log of one, attempt 1 (the end of it) stderr " in page.text
    assert "199999 200000" in page.text
    assert "FIRST" not in page.text
    assert len(page.html) < 100_000


def test_a_log_that_has_been_removed_is_no_trouble(folder: Path):
    ran(BROKEN)
    for log in (folder / ".mulligan" / "runs" / "1" / "logs").iterdir():
        os.unlink(log)

    assert "Log of fetch, attempt 1: no log" in report().text


def test_a_long_value_is_cut():
    ran(HELLO, "-i", f"whom={'x' * 5_000}")

    page = report()

    assert "x" * 1_999 + " …" in page.text
    assert "x" * 2_001 not in page.text
