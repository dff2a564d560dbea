"""`mulligan items`: a map step item by item, the history of one, and another round for those that failed."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from tests.support.commands import Said, mulligan, process, ran, workflow

pytestmark = pytest.mark.usefixtures("folder")

# An item fails as long as no file of its name is there; `collect` lets it.
CHECKED = """\
name: checked
steps:
  - step: check
    map: {over: "${['a', 'b', 'c']}", as: one, on_item_failure: collect, max_parallel: 1}
    do: [{shell: 'echo "$MULLIGAN_ITEM" >> trace; test -e "${one}"'}]
  - {step: report, needs: [check], shell: "echo ${steps.check.output.failed} failed"}
  - {step: aside, shell: echo aside >> trace}
outputs: {said: "${steps.report.output}"}
"""
STOPPED = CHECKED.replace("collect", "stop")
MIXED = """\
name: mixed
steps:
  - step: check
    map: {over: "${['a', {'b': 1}, 'c']}", as: one, on_item_failure: collect, max_parallel: 1}
    do:
      - shell: test "$MULLIGAN_ITEM" != 1 || exit 3
      - shell: test "$MULLIGAN_ITEM" != 2
        on_failure: echo mended
"""


def checked(*present: str) -> None:
    """A run of `CHECKED` in which the items with these names went well."""
    for name in present:
        Path(name).touch()
    ran(CHECKED)


def trace() -> list[str]:
    return Path("trace").read_text().split()


# looking


def test_the_items_of_a_map_are_listed_with_what_became_of_each():
    ran(MIXED)

    assert mulligan("items", 1, "check").plain == (
        0,
        "ITEM  STATUS  TRIES  VALUE\n"
        "0  completed  2  a\n"
        '1  failed  1  {"b": 1}  EXIT_NONZERO 3\n'
        "2  completed  2  c  recovered by its handler\n",
        "",
    )


def test_only_those_that_failed_are_listed_where_that_was_asked():
    ran(MIXED)

    assert [item["index"] for item in mulligan("items", 1, "check", "--failed", "--json").json] == [1]
    assert len(mulligan("items", 1, "check", "--failed").out.splitlines()) == 2


def test_items_are_shown_in_pages_and_a_program_gets_all_of_them():
    ran(MIXED)

    first = mulligan("items", 1, "check", "--limit", 2)
    second = mulligan("items", 1, "check", "--after", 1)

    assert [line.split()[0] for line in first.out.splitlines()] == ["ITEM", "0", "1"]
    assert first.err == (
        "items 0 to 1 of 3: 2 completed, 1 failed\n"
        "the next ones: mulligan items 1 check --after 1; all: mulligan items 1 check --all\n"
    )
    assert [line.split()[0] for line in second.out.splitlines()] == ["ITEM", "2"]
    assert second.err == "items 2 to 2 of 3: 2 completed, 1 failed\n"
    assert [one["index"] for one in mulligan("items", 1, "check", "--json").json] == [0, 1, 2]
    assert [one["index"] for one in mulligan("items", 1, "check", "--json", "--after", 0, "-n", 1).json] == [1]


@pytest.mark.parametrize("option", [("--limit", 0), ("--after", -1)])
def test_a_page_that_cannot_be_is_refused(option: tuple[str, int]):
    assert mulligan("items", 1, "check", *option).code == 2


def test_items_as_json_are_one_object_each():
    ran(MIXED)

    items = mulligan("items", 1, "check", "--json").json

    assert [(item["run_id"], item["step"], item["index"], item["item"], item["status"]) for item in items] == [
        (1, "check", 0, "a", "completed"),
        (1, "check", 1, {"b": 1}, "failed"),
        (1, "check", 2, "c", "completed"),
    ]
    assert (items[0]["failure"], items[1]["failure"]["code"]) == (None, "EXIT_NONZERO")
    assert [(item["recovered"], item["recovered_by"]) for item in items[1:]] == [(False, None), (True, "recovery")]


def test_items_behind_the_one_that_stopped_the_map_were_not_started():
    Path("a").touch()
    ran(STOPPED)

    statuses = [item["status"] for item in mulligan("items", 1, "check", "--json").json]

    assert statuses == ["completed", "failed", "not started"]


def test_a_map_that_has_not_begun_has_no_items():
    ran(
        "name: later\nsteps:\n  - {step: gate, approve: 'go?'}\n"
        "  - {step: check, needs: [gate], map: {over: '${[1]}', as: n}, do: [{shell: 'true'}]}\n"
    )

    assert mulligan("items", 1, "check") == (0, "", "step 'check' of run 1 has no items\n")
    assert mulligan("items", 1, "check", "--json").json == []


def test_a_map_of_which_nothing_failed_says_so():
    checked("a", "b", "c")

    assert mulligan("items", 1, "check", "--failed") == (0, "", "step 'check' of run 1 has no failed items\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report",), "error[refused]: step 'report' of run 1 is not a map: it has no items\n"),
        (("chekc",), "error[step.unknown]: 'chekc' is not a step of run 1\n  did you mean 'check'?\n"),
        (("check[0]",), "error[refused]: step 'check[0]' of run 1 is not a map: it has no items\n"),
        (("end",), "error[refused]: step 'end' of run 1 is not a map: it has no items\n"),
        (
            ("check", "--item", "x"),
            "error[item.unknown]: step 'check' of run 1 has no item 'x'\n  its items are 'a', 'b', 'c'\n",
        ),
        (
            ("check", "--item", 3),
            "error[item.unknown]: step 'check' of run 1 has no item 3\n  its items are 0 to 2\n",
        ),
        (
            ("check", "--failed", "--item", 1),
            "error[usage]: --failed and --item cannot be combined\n  give one of them\n",
        ),
        (("check", "--dry-run"), "error[usage]: --dry-run needs --retry\n  add --retry, or leave it out\n"),
        (("check", "--reason", "x"), "error[usage]: --reason needs --retry\n  add --retry, or leave it out\n"),
        (
            ("check", "--retry"),
            "error[run.nothing_to_retry]: no item of step 'check' of run 1 has failed, so there is nothing to retry\n"
            "  to run one anyway, name it: --item I\n",
        ),
        (
            ("check", "--retry", "--item", 3),
            "error[refused]: step 'check' of run 1 has no item 3\n  its items are 0 to 2\n",
        ),
        (("report", "--retry"), "error[refused]: step 'report' of run 1 is not a map: it has no items\n"),
        (("chekc", "--retry"), "error[step.unknown]: 'chekc' is not a step of run 1\n  did you mean 'check'?\n"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_refused(words: tuple[object, ...], said: str):
    checked("a", "b", "c")

    assert mulligan("items", 1, *words) == (2, "", said)
    if "--retry" in words:
        assert mulligan("items", 1, *words, "--dry-run") == (2, "", said)


# the history of one


def test_the_history_of_an_item_has_every_attempt_and_what_its_handler_did():
    ran(MIXED)

    [item] = mulligan("items", 1, "check", "--item", 2, "--json").json

    assert [(one["place"], one["attempt"], one["round"], one["status"]) for one in item["history"]] == [
        ("check[2].0", 1, 1, "succeeded"),
        ("check[2].1", 2, 1, "failed"),
        ("check[2].1.on_failure@2.0", 1, 1, "succeeded"),
    ]
    assert item["history"][1]["failure"]["code"] == "EXIT_NONZERO"
    assert mulligan("items", 1, "check", "--item", 2).plain == (
        0,
        "item 2 of 'check' (c): completed, recovered by its handler\n"
        "AT  ROUND  WHAT  TRY  TOOK  CPU  MEMORY  HOW IT ENDED\n"
        "THEN  1  check[c] command 1  1  Ns  Ns  NMiB  succeeded\n"
        "THEN  1  check[c] command 2  2  Ns  Ns  NMiB  EXIT_NONZERO 1\n"
        "THEN  1  check[c] command 2.on_failure@2.0  1  Ns  Ns  NMiB  succeeded\n",
        "",
    )


def test_the_history_has_the_times_of_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch):
    checked("a", "b", "c")
    [item] = mulligan("items", 1, "check", "--item", 0, "--json").json
    at = datetime.fromisoformat(item["history"][0]["started_at"])
    monkeypatch.setenv("TZ", "HERE-5:30")

    out, _ = process("items", 1, "check", "--item", 0).communicate()

    there = timezone(timedelta(hours=5, minutes=30))
    assert f"\n{at.astimezone(there):%H:%M:%S}  1" in out.decode()


def test_the_history_goes_on_over_the_rounds():
    checked("a")
    mulligan("items", 1, "check", "--retry", "--follow")

    [item] = mulligan("items", 1, "check", "--item", 1, "--json").json

    assert [(one["round"], one["attempt"]) for one in item["history"]] == [(1, 1), (2, 2)]


# another round


def test_failed_items_run_again_alone_also_in_a_run_that_completed_and_then_what_is_behind_them():
    checked("a")
    Path("b").touch()

    said = mulligan("items", 1, "check", "--retry", "--reason", "b is there", "--follow", "--json")

    assert (said.code, said.json["round"], said.json["outputs"]) == (0, 2, {"said": "1 failed"})
    assert trace().count("0") == 1
    assert sorted(trace()) == ["0", "1", "1", "2", "2", "aside"]
    assert said.err.splitlines()[:2] == [
        "run 1 begins round 2: 2 steps again, 1 kept; of 'check' only items 1, 2",
        "run 1: checked",
    ]
    assert "b is there" in mulligan("explain", 1).out


def test_what_is_behind_items_that_run_again_is_kept_if_asked():
    checked("a")
    Path("b").touch()
    Path("c").touch()

    said = mulligan("items", 1, "check", "--retry", "--keep-completed", "--follow", "--json")

    assert (said.code, said.json["round"], said.json["outputs"]) == (0, 2, {"said": "2 failed"})
    assert said.err.splitlines()[0] == "run 1 begins round 2: 1 step again, 2 kept; of 'check' only items 1, 2"


def test_named_items_run_again_and_a_failure_that_was_not_named_stays():
    checked("a")
    Path("c").touch()

    said = mulligan("items", 1, "check", "--retry", "--item", 2, "--item", 0, "--follow", "--json")

    assert [item["status"] for item in mulligan("items", 1, "check", "--json").json] == [
        "completed",
        "failed",
        "completed",
    ]
    assert (said.json["outputs"], sorted(trace())) == ({"said": "1 failed"}, ["0", "0", "1", "2", "2", "aside"])


def test_of_a_map_that_was_stopped_what_was_never_started_runs_with_what_failed():
    Path("a").touch()
    ran(STOPPED)
    Path("b").touch()
    Path("c").touch()

    said = mulligan("items", 1, "check", "--retry", "--follow", "--json")

    assert (said.json["status"], said.json["outputs"]) == ("completed", {"said": "0 failed"})


def test_a_dry_run_says_which_items_would_run_and_changes_nothing():
    checked("a")
    events = mulligan("events", 1).out

    assert mulligan("items", 1, "check", "--retry", "--dry-run").plain == (
        0,
        "STEP  WHY\ncheck  the round starts here; only items 1, 2\nreport  it comes after 'check'\n",
        "run 1 would begin round 2: 2 steps again, 1 kept; of 'check' only items 1, 2\nkept: aside\n",
    )
    assert mulligan("items", 1, "check", "--retry", "--dry-run", "--json").json["items"] == {"check": [1, 2]}
    assert mulligan("events", 1).out == events
    assert mulligan("show", 1, "--json").json["status"] == "completed"


def test_with_no_follow_a_round_for_items_is_recorded_and_left_to_resume():
    checked("a")

    assert mulligan("items", 1, "check", "--retry", "--no-follow") == (
        0,
        "",
        "run 1 begins round 2: 2 steps again, 1 kept; of 'check' only items 1, 2\n"
        "nothing is running it; to run it here: mulligan resume 1\n",
    )
    assert mulligan("resume", 1).code == 0
    assert mulligan("replay", 1, "--verify").code == 0


def test_a_plain_retry_of_a_run_that_let_items_fail_points_to_them():
    checked("a")

    assert mulligan("retry", 1) == (
        2,
        "",
        "error[run.nothing_to_retry]: run 1 completed, so there is nothing to retry\n"
        "  to run the failed items of 'check' again: mulligan items 1 check --retry\n",
    )


def test_a_fork_keeps_what_a_map_gave_and_has_no_items_of_it():
    checked("a")

    assert mulligan("fork", 1, "--from", "report", "--json").json["outputs"] == {"said": "2 failed"}
    assert mulligan("items", 2, "check") == (0, "", "step 'check' of run 2 has no items\n")


# names of items in every face

INNER = """\
name: inner
inputs: {region: string}
steps:
  - {step: fetch, shell: "echo fetching ${inputs.region}; false", on_failure: "true"}
  - {step: ok, needs: [fetch], approve: "Publish ${inputs.region}?"}
"""
REGIONS = """\
name: regions
steps:
  - step: load
    map: {over: [west, east], as: region}
    do: [{workflow: {file: inner.yaml, inputs: {region: "${region}"}}}]
  - step: check
    map: {over: [web, 'a b'], as: site}
    do:
      - python: |
          import os, pathlib, mulligan

          def main():
              print("checking", os.environ["MULLIGAN_ITEM"])
              pathlib.Path("kept.txt").write_text("kept")
              mulligan.artifact("kept.txt")
      - approve: "Check ${site}?"
"""


def regions() -> Said:
    """A run of maps over names, one with a child run for each item, that waits for four approvals."""
    workflow(INNER, "inner.yaml")
    return mulligan("run", workflow(REGIONS), "--wait", "0s")


def test_what_a_run_waits_for_has_the_names_of_items_and_commands_that_work():
    summary = regions().err
    typed = "mulligan approve 1 'check[a b] command 2' --reason"

    assert f"  ? check[a b] command 2 waits for an approval: Check a b?\n      {typed} 'why'\n" in summary
    assert f"'check[a b] command 2' waits for an approval: {typed} TEXT\n" in mulligan("show", 1).err
    pending = mulligan("pending").out
    assert "run 1 of 'regions': 'check[a b] command 2' waits for an approval: Check a b?\n" in pending
    assert f"  {typed} TEXT\n" in pending
    waits = mulligan("explain", 1).out.splitlines()
    assert "'load[west]' waits for run 2" in waits
    assert "'load[west]/ok' waits for an approval: Publish west?" in waits
    assert "'check[web] command 2' waits for an approval: Check web?" in waits
    assert "'check[web] command 2' and 3 more wait for an approval" in mulligan("list").out
    for face in (summary, pending, *waits, mulligan("list").out):
        assert not re.search(r"\[\d+\]", face), face
    answered = mulligan(*shlex.split(typed)[1:], "looks good", "--detach")
    assert "run 1: 'check[a b] command 2' is approved\n" in answered.err


def test_an_item_is_named_wherever_a_place_is_typed():
    regions()

    assert mulligan("logs", 1, "check[web]").out == "checking 0\n"
    assert mulligan("logs", 1, "check[web]").err == (
        "-- run 1, 'check[web] command 1', attempt 1\n-- run 1, 'check[web] command 2', attempt 2: it wrote nothing\n"
    )
    assert mulligan("logs", 1, "check[1]").out == mulligan("logs", 1, "check[a b] command 1").out == "checking 1\n"
    assert mulligan("explain", 1, "check[web]").out.startswith("'check[web] command 2' waits for an approval")
    assert mulligan("logs", 1, "check[ftp]").plain == (
        2,
        "",
        "error[item.unknown]: step 'check' of run 1 has no item 'ftp'\n  its items are 'web', 'a b'\n",
    )
    assert mulligan("approve", 1, "check[web]", "--reason", "fine", "--detach").err.startswith(
        "run 1: 'check[web] command 2' is approved\n"
    )
    assert mulligan("show", 1, "--output", "check[web]").json["reason"] == "fine"


def test_an_ended_run_has_the_names_of_items_in_its_logs_files_and_children():
    regions()
    for run_id, place in ((2, "ok"), (3, "ok"), (1, "check[web]"), (1, "check[a b]")):
        last = mulligan("approve", run_id, place, "--reason", "fine")

    assert "  ✓ load[west]/fetch" in last.err.replace("+", "✓"), last.err
    followed = mulligan("logs", 1, "--follow").out.splitlines()
    assert sorted(followed) == [
        "check[a b] command 1 | checking 1",
        "check[web] command 1 | checking 0",
        "load[east]/fetch | fetching east",
        "load[west]/fetch | fetching west",
    ]
    shown = mulligan("show", 1).out
    assert "for attempt 1 of 'load[west]'" in shown
    assert "artifact kept.txt of 'check[web] command 1'" in shown
    # The folders of the store are named by keys.
    assert not re.search(r"(?<!/)(load|check)\[\d+\]", shown)
    # Programs get the keys, as ever.
    found = mulligan("show", 1, "--json").json
    assert [(one["step"], one["step_name"]) for one in found["children"]] == [
        ("load[0].0", "load[west]"),
        ("load[1].0", "load[east]"),
    ]
    page = Path("page.html")
    mulligan("report", 1, "-o", page)
    text = re.sub(r"<[^>]*>", "", page.read_text())
    assert "check[web] command 1 #1" in text and "load[west], attempt 1" in text
    assert not re.search(r"(?<!/)(load|check)\[\d+\]", text)


def test_a_child_run_that_goes_on_before_its_caller_moves_has_the_name_of_its_item():
    workflow("name: inner\nsteps: [{step: go, shell: test -e up}]\n", "inner.yaml")
    ran(
        "name: outer\nsteps:\n  - step: load\n    map: {over: [west, east], as: at}\n    do: [{workflow: inner.yaml}]\n"
    )
    Path("up").touch()

    said = mulligan("retry", 1).err

    assert "load[west]/go" in said and "load[east]/go" in said
    assert "load[0]" not in said and "load[1]" not in said
