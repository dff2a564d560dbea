"""Workflows and schedules over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api_client import Client

HELLO = "inputs: {who: {default: world}}\nsteps:\n  - step: hello\n    shell: echo hi ${inputs.who}\n"
TORC = "name: two\njobs:\n  - name: first\n    command: echo 1\n"


def publish(client: Client, name: str = "hello", text: str = HELLO, **more: Any) -> Any:
    reply = client.put(f"workflows/{name}", {"text": text, **more})
    assert reply.status == 200, reply.body
    return reply.json


def test_a_workflow_is_published_listed_and_read(client: Client) -> None:
    dry = client.put("workflows/hello", {"text": HELLO}, query={"dry_run": "true"})
    first = publish(client, note="begin")
    again = publish(client)
    publish(client, text=HELLO + "# two\n")

    listed = client.get("workflows", scope="read").json
    one = client.get("workflows/hello", scope="read", version=1)
    versions = client.get("workflows/hello/versions", scope="read", limit=1).json

    assert (dry.json["version"], dry.json["dry_run"], dry.json["is_new"]) == (1, True, True)
    assert (first["version"], first["is_new"], first["published_by"], "text" in first) == (1, True, "admin", False)
    assert (again["version"], again["is_new"]) == (1, False)
    assert [(each["name"], each["version"]) for each in listed["workflows"]] == [("hello", 2)]
    assert (one.json["text"], one.headers["etag"]) == (HELLO, '"1"')
    assert ([each["version"] for each in versions["workflows"]], versions["next"]) == ([2], "2")


def test_a_draft_is_written_by_revision_and_published(client: Client) -> None:
    created = client.put("workflows/hello/draft", {"text": "steps: ["})
    taken = client.put("workflows/hello/draft", {"text": HELLO})
    broken = client.post("workflows/hello:publish", {})
    written = client.put("workflows/hello/draft", {"text": HELLO}, headers={"if-match": created.headers["etag"]})
    stale = client.post("workflows/hello:publish", {}, headers={"if-match": '"1"'})
    read = client.get("workflows/hello/draft", scope="read")
    done = client.post("workflows/hello:publish", {"note": "it is time"}, headers={"if-match": '"2"'})

    assert [one.status for one in (created, taken, broken, written, stale, done)] == [200, 412, 422, 200, 412, 200]
    assert (read.json["text"], read.headers["etag"]) == (HELLO, '"2"')
    assert (done.json["version"], done.json["note"]) == (1, "it is time")
    assert client.get("workflows/hello/draft").status == 404
    assert client.delete("workflows/hello/draft").status == 404
    assert client.put("workflows/hello/draft", {"text": ""}, headers={"if-match": "new"}).code == "request.refused"


def test_texts_are_checked_and_converted_without_being_stored(client: Client) -> None:
    good = client.post("workflows:validate", {"text": HELLO}, scope="read")
    bad = client.post("workflows:validate", {"text": "steps:\n  - step: a\n    shel: b\n"}, scope="read")
    converted = client.post("workflows:convert", {"text": TORC}, scope="read")
    python = client.post("workflows:validate", {"text": "1", "file": "a.py"}, scope="read")

    edit = client.post("workflows:edit", {"text": HELLO, "step": "hello", "set": {"retry": 2}}, scope="read")
    missing = client.post("workflows:edit", {"text": HELLO, "step": "helo", "set": {"retry": 2}}, scope="read")

    assert edit.json["text"] == HELLO + "    retry: 2\n"
    assert edit.json["validation"]["ok"]
    assert missing.status == 404
    assert (good.json["ok"], good.json["steps"]) == (True, 1)
    assert (bad.status, bad.json["ok"], bad.json["problems"][0]["line"]) == (200, False, 3)
    assert (converted.json["origin"], "first" in converted.json["text"]) == ("torc", True)
    assert (python.status, python.code) == (422, "input.invalid")
    assert client.get("workflows").json["workflows"] == []


def test_a_check_gives_the_picture_and_the_lines_of_the_steps_in_the_same_answer(client: Client) -> None:
    good = client.post("workflows:validate", {"text": HELLO, "graph": True}, scope="read").json
    bad = client.post("workflows:validate", {"text": "steps: 3", "graph": True}, scope="read").json
    foreign = client.post("workflows:validate", {"text": TORC, "graph": True}, scope="read").json
    matrix = 'steps:\n- step: "train_{seed}"\n  matrix: {seed: [1, 2]}\n  shell: echo\nend: {shell: echo}\n'
    sweep = client.post("workflows:validate", {"text": matrix, "graph": True}).json["graph"]

    assert good["graph"]["steps"] == [{"name": "hello", "line": 3}]
    assert 'data-step="hello" data-line="3"' in good["graph"]["svg"]
    assert (bad["ok"], bad["graph"], bad["problems"][0]["line"]) == (False, None, 1)
    assert (foreign["format"], foreign["graph"]["steps"]) == ("torc", [{"name": "first", "line": 3}])
    assert [(one["name"], one["line"]) for one in sweep["steps"]] == [("train_1", 2), ("train_2", 2), ("end", 5)]


def test_steps_and_edges_are_added_to_a_text(client: Client) -> None:
    both = {
        "add_step": {"step": "fix", "set": {"shell": "make"}},
        "add_edge": {"source": "hello", "target": "fix", "on": "failure", "then": "rerun", "exit_codes": [75]},
    }
    done = client.post("workflows:edit", {"text": HELLO, **both}, scope="read").json

    edge = "    next: {to: fix, on: failure, exit_codes: [75], then: rerun}\n"
    assert done["text"] == HELLO + edge + "  - step: fix\n    shell: make\n"
    assert (done["line"], done["validation"]["ok"]) == (5, True)
    assert client.post("workflows:edit", {"text": HELLO}).code == "input.invalid"
    assert client.post("workflows:edit", {"text": HELLO, "set": {"shell": "a"}}).code == "input.invalid"


def test_drafts_are_listed_and_the_schema_is_there_for_editors(client: Client) -> None:
    client.put("workflows/b/draft", {"text": "x"})
    client.put("workflows/a/draft", {"text": "y"})

    schema = client.get("workflows:schema", scope="read")
    again = client.request("GET", "workflows:schema", headers={"if-none-match": schema.headers["etag"]})

    assert [one["name"] for one in client.get("drafts", scope="read").json["drafts"]] == ["a", "b"]
    assert "step" in schema.json["$defs"]
    assert again.status == 304


@pytest.mark.parametrize("name", ["hello world", "a:b", "-", "a" * 101, "%00"])
def test_names_that_cannot_be_are_refused_and_never_found(client: Client, name: str) -> None:
    assert client.put(f"workflows/{name}", {"text": HELLO}).status in (400, 404, 405, 422)
    assert client.get(f"workflows/{name}").status in (400, 404, 422)
    assert client.get(f"schedules/{name}").status in (400, 404, 422)


def test_who_may_only_run_publishes_nothing(client: Client) -> None:
    assert client.put("workflows/hello", {"text": HELLO}, scope="run").status == 403
    assert client.put("schedules/a", {"workflow": "hello", "every": "1h"}, scope="run").status == 403
    publish(client)
    client.put("schedules/a", {"workflow": "hello", "every": "1h"}, scope="write")
    assert client.post("schedules/a:pause", {"reason": "now"}, scope="run").status == 200
    assert client.post("schedules/a:resume", {}, scope="read").status == 403


def test_a_schedule_is_put_paused_resumed_and_deleted(client: Client) -> None:
    publish(client)
    form = {"workflow": "hello", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "catch_up": "all(3)"}

    dry = client.put("schedules/nightly", form, query={"dry_run": "true"})
    none = client.get("schedules").json["schedules"]
    put = client.put("schedules/nightly", form)
    paused = client.post("schedules/nightly:pause", {"reason": "for a while"})
    twice = client.post("schedules/nightly:pause", {})
    resumed = client.post("schedules/nightly:resume", {})
    stale = client.put("schedules/nightly", form | {"overlap": "queue"}, headers={"if-match": '"9"'})
    listed = client.get("schedules", scope="read").json
    past = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z", "dry_run": True}
    backfill = client.post("schedules/nightly:backfill", past, scope="run").json

    assert (dry.json["dry_run"], len(dry.json["next"]), none) == (True, 10, [])
    assert (put.json["is_paused"], put.json["catch_up"], put.headers["etag"]) == (False, "all(3)", '"1"')
    assert (paused.json["pause"]["by"], paused.json["pause"]["reason"]) == ("admin", "for a while")
    assert paused.json["next"] == []
    assert [one.status for one in (twice, resumed, stale)] == [409, 200, 412]
    assert [one["name"] for one in listed["schedules"]] == ["nightly"]
    assert (backfill["instants"], backfill["dry_run"]) == (["2026-01-01T01:30:00Z", "2026-01-02T01:30:00Z"], True)
    assert client.delete("schedules/nightly").json == {"name": "nightly", "is_deleted": True}
    assert client.get("schedules/nightly").code == "schedule.unknown"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cron": "* * *"}, "has 3 fields"),
        ({"cron": "0 0 * * *", "timezone": "Moon"}, "is not a time zone"),
        ({"every": -1}, "is not a duration"),
        ({"every": "1h", "overlap": "wait"}, "overlap"),
        ({"every": "1h", "unknown": 1}, "unknown"),
        ({"every": "1h", "version": 10**12}, "does not exist"),
        ({"every": "1h", "inputs": {"what": 1}}, "what"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_a_problem_in_words(client: Client, change: Any, words: str) -> None:
    publish(client)

    reply = client.put("schedules/a", {"workflow": "hello", **change})

    assert (reply.status, reply.code) == (422, "input.invalid")
    assert words in reply.json["detail"]


def test_coverage_of_a_published_workflow_and_of_a_text(client: Client) -> None:
    publish(client)

    stored = client.get("workflows/hello/coverage", scope="read").json
    sent = client.post("workflows:coverage", {"text": HELLO, "file": "hello.yaml"}, scope="read").json
    story = client.get(
        "workflows/hello/coverage", scope="read", step="hello", failure="EXIT_NONZERO", times="once"
    ).json
    half = client.get("workflows/hello/coverage", scope="read", step="hello")
    unknown = client.post("workflows:coverage", {"text": HELLO, "step": "hallo", "failure": "kill"}, scope="read")
    wrong = client.post("workflows:coverage", {"text": "steps: ["}, scope="read")

    assert stored["figures"] == sent["figures"]
    assert (stored["figures"]["total"], stored["figures"]["dealt_with"]) == (5, 2)
    assert (story["story"]["case"]["verdict"], story["coverage"]) == ("fails", None)
    assert (half.status, half.json["hint"]) == (422, "give 'failure' too")
    assert (unknown.status, unknown.json["hint"]) == (404, "did you mean 'hello'?")
    assert wrong.status == 422
    assert client.get("workflows/other/coverage").status == 404


def test_a_changed_text_is_tried_on_recorded_runs(client: Client) -> None:
    tried = client.post("workflows:whatif", {"text": f"name: hello\n{HELLO}", "since": "1d"}, scope="read")
    wrong = client.post("workflows:whatif", {"text": HELLO, "step": "other"}, scope="read")

    assert (tried.status, tried.json["runs"], tried.json["changed"]) == (200, 0, [])
    assert wrong.status == 404
