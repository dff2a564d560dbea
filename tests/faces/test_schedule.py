"""`mulligan publish`, `workflows`, `schedule` and `run NAME@VERSION`: what they show, and what they refuse."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.commands import mulligan, steady

from mulligan.service.home import find_home
from mulligan.service.service import Service

HELLO = """\
inputs: {who: {default: world}}
steps:
  - step: hello
    shell: echo hi ${inputs.who}
schedules:
  night: {cron: "30 2 * * *", timezone: Europe/Berlin, pause_after: 3}
"""


@pytest.fixture
def published(folder: Path) -> Path:
    """A folder with a workflow that is published."""
    file = folder / "nightly.yaml"
    file.write_text(HELLO)
    assert mulligan("publish", "nightly.yaml", "--note", "begin", "--by", "ada").code == 0
    return file


def test_without_a_home_there_is_nothing_and_none_is_made(folder: Path) -> None:
    assert mulligan("workflows").err == "no workflow is published; to publish one: mulligan publish FILE\n"
    assert mulligan("schedule", "list").err.startswith("there is no schedule; write: mulligan schedule put NAME")
    assert mulligan("schedule", "list", "--json").json == {"schedules": [], "next": None}
    assert mulligan("schedule", "show", "a").code == 2
    assert mulligan("run", "nightly@1").err.startswith("error[workflow.unknown]: no workflow 'nightly' is published")
    assert mulligan("run", "nightly").err == "error[language.unreadable]: nightly: there is no such file\n"
    assert not list(folder.iterdir())


def test_the_name_of_a_published_workflow_is_answered_with_how_to_run_it_here(published: Path) -> None:
    assert mulligan("run", "nightly").err == (
        "error[usage]: there is no file 'nightly'\n"
        "  a workflow of this name is published: mulligan run nightly@latest\n"
    )


def test_a_file_is_published_listed_and_run(published: Path) -> None:
    again = mulligan("publish", "nightly.yaml")
    published.write_text(HELLO.replace("echo hi", "echo hello"))
    dry = mulligan("publish", "nightly.yaml", "--dry-run")
    second = mulligan("publish", "nightly.yaml", "--json").json
    ran = mulligan("run", "nightly@1", "-i", "who=you", "--json")

    assert again.out == "'nightly' has this text already, as version 1\nschedules: nightly.night\n"
    assert dry.out.splitlines()[-3:] == [
        f"1 file, {Path('nightly.yaml').stat().st_size}B",
        "would publish 'nightly' as version 2",
        "schedules: nightly.night",
    ]
    assert (second["version"], second["is_new"], second["schedules"]) == (2, True, ["nightly.night"])
    assert steady(mulligan("workflows", "nightly").out).splitlines()[2] == "nightly  1  mulligan  Ns ago  ada  begin"
    assert mulligan("workflows", "nightly@1").out == HELLO
    assert ran.code == 0
    assert mulligan("logs", "1", "hello").out == "hi you\n"
    assert [one["labels"]["version"] for one in mulligan("list", "--json").json] == ["1"]


def test_a_schedule_is_put_shown_paused_filled_and_deleted(published: Path) -> None:
    put = mulligan("schedule", "put", "often", "--workflow", "nightly@1", "--every", "10m", "-i", "who=me")
    fill = mulligan("schedule", "backfill", "often", "--from", "25m")
    fired = mulligan("schedule", "fire")
    again = mulligan("schedule", "backfill", "often", "--from", "25m", "--dry-run")
    paused = mulligan("schedule", "pause", "often", "--reason", "for now", "--by", "ada")

    assert put.out.splitlines()[:5] == [
        "schedule 'often'",
        "  workflow     nightly@1",
        "  when         every 10m00s",
        "  inputs       who=me",
        "  rules        catch up last, overlap skip",
    ]
    assert fill.out.startswith(("2 starts", "3 starts"))
    assert steady(fired.out) == "schedule 'often': run 1, of THEN\n"
    assert re.match(r"a backfill of 'often' would be [12] starts?; 1 other instant has a run already\n", again.out)
    assert "  paused       by ada at THEN: for now\n" in paused.out.replace(
        paused.out.split(" by ada at ")[1].split(": for now")[0], "THEN"
    )
    assert "until somebody types: mulligan schedule resume often" in paused.out
    assert mulligan("schedule", "resume", "often", "--json").json["is_paused"] is False
    assert mulligan("schedule", "delete", "often").err == "schedule 'often' is deleted; its runs stay\n"
    assert mulligan("schedule", "list", "--json").json["schedules"][0]["name"] == "nightly.night"


def test_each_start_says_what_it_gets_for_its_instant(published: Path) -> None:
    words = ("schedule", "put", "days", "--workflow", "nightly", "--cron", "0 6 * * *", "-i", "who=${schedule.date}")
    put = mulligan(*words)
    fill = mulligan("schedule", "backfill", "days", "--from", "2026-01-01", "--to", "2026-01-03", "--dry-run")
    typo = mulligan(*words[:-1], "who=${schedule.dat}")

    assert "  inputs       who=${schedule.date}\n" in put.out
    coming = [line.split()[-2:] for line in put.out.splitlines() if "T06:00:00Z" in line]
    assert [given for _, given in coming] == [f"who={at[:10]}" for at, _ in coming]
    assert len(coming) == 5
    assert fill.out.splitlines()[1:] == [
        "  2026-01-01T06:00:00Z  who=2026-01-01",
        "  2026-01-02T06:00:00Z  who=2026-01-02",
    ]
    assert typo.err == "error[input.invalid]: input 'who': 'schedule' has no 'dat'\n  did you mean 'date'?\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("schedule", "start"), "unknown subcommand 'start' of schedule"),
        (("schedule", "show"), "'schedule show' has other arguments"),
        (("schedule", "list", "a"), "'schedule list' has other arguments"),
        (("schedule", "put", "a", "--cron", "@daily"), "a schedule needs a workflow"),
        (("schedule", "put", "a", "--workflow", "nightly"), "neither 'cron' nor 'every'"),
        (("schedule", "put", "a", "--workflow", "nihgtly", "--every", "1h"), "no workflow 'nihgtly' is published"),
        (("schedule", "put", "a", "--workflow", "nightly", "--every", "1h", "--overlap", "x"), "--overlap 'x'"),
        (("schedule", "backfill", "nightly.night"), "needs the beginning of its range"),
        (("schedule", "delete", "nightly.night"), "belongs to the text of workflow 'nightly'"),
        (("publish", "missing.yaml"), "'missing.yaml' cannot be read"),
        (("publish", "flow.py"), "flow.py:1:1: SystemExit"),
        (("publish", "nightly.yaml", "--name", "a b"), "'a b' cannot be the name of a workflow"),
        (("run", "nightly@9"), "'nightly' has no version 9"),
        (("run", "nightly@1", "--format", "torc"), "is published, and read as it was published"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(published: Path, words: tuple[str, ...], said: str) -> None:
    Path("flow.py").write_text("raise SystemExit")

    answer = mulligan(*words)

    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_a_published_program_runs_where_nobody_has_its_file(folder: Path) -> None:
    Path("totals.py").write_text(
        "from mulligan import program, step\n\n\n"
        "@step\ndef double(number: int) -> int:\n    return 2 * number\n\n\n"
        "@program\ndef totals(count: int = 2):\n    return sum(double(number) for number in range(count))\n"
    )

    done = mulligan("publish", "totals.py")
    again = mulligan("publish", "totals.py")
    Path("totals.py").unlink()
    put = mulligan("schedule", "put", "night", "--workflow", "totals", "--every", "1h", "-i", "count=4")
    ran = mulligan("run", "totals@1", "-i", "count=3", "--json")

    assert done.out == "published 'totals' as version 1\n"
    assert again.out == "'totals' has these files already, as version 1\n"
    with Service(find_home()) as service:
        service.schedules.fire_due(service.now() + timedelta(hours=1))
    assert (put.code, ran.code) == (0, 0), put.err + ran.err
    assert ran.json["outputs"] == {"result": 6}
    assert mulligan("resume", "2").code == 0
    assert mulligan("show", "2", "--json").json["outputs"] == {"result": 12}


def test_a_run_of_a_program_warns_of_what_may_differ_in_a_replay(folder: Path) -> None:
    Path("clock.py").write_text(
        "import time\n\nfrom mulligan import program\n\n\n@program\ndef clock():\n    return time.time()\n"
    )

    said = mulligan("run", "clock.py")

    assert said.code == 0
    assert said.err.startswith("warning[replay]: clock.py:8:12: the program 'clock' reads the clock")


def test_a_program_is_published_with_its_schedule(folder: Path) -> None:
    Path("daily.py").write_text(
        "from mulligan import program\n\n\n"
        '@program(schedules={"nightly": {"cron": "30 2 * * *", "inputs": {"day": "${schedule.date}"}}})\n'
        "def daily(day: str):\n    return day\n"
    )

    assert mulligan("publish", "daily.py").out.splitlines()[1] == "schedules: daily.nightly"
    fill = mulligan("schedule", "backfill", "daily.nightly", "--from", "2026-01-01", "--to", "2026-01-02", "--dry-run")

    assert "2026-01-01T02:30:00Z  day=2026-01-01" in fill.out
