"""The pages of workflows and the editor."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from tests.support.api_client import Client

from mulligan.service.server.publishing.parts import read_publishable
from mulligan.service.service import Service

from .conftest import HOSTILE, Flows, show, text_of

FIRST = """\
# the nightly load
description: what fills the warehouse
inputs:
  day: {type: string, description: which day}
  rows: {type: integer, default: 10}
  where: {enum: [test, live], default: test}
  dry: {type: boolean, default: false}
  tables: {type: array, default: [a, b]}
steps:
  - step: fetch
    shell: exit 3
    next: {to: repair, on: failure, then: rerun}
  - {step: repair, shell: 'echo ${inputs.day}'}
"""
SECOND = FIRST.replace("exit 3", "exit 4") + "  - {step: report, shell: echo}\n"


def publish(pages: Client, name: str = "nightly", text: str = FIRST, **more: str) -> None:
    reply = pages.put(f"workflows/{name}", {"text": text, **more})
    assert reply.status == 200, reply.body


def test_a_list_without_workflows_says_how_to_make_one(pages: Client) -> None:
    read_only = show(pages, "/workflows", scope="read")

    assert "mulligan publish FILE" in text_of(show(pages, "/workflows"))
    assert "/workflows/new" in show(pages, "/workflows", scope="write")
    assert "/workflows/new" not in read_only.partition("<main")[2]


def test_the_list_has_the_version_the_last_run_the_next_start_and_drafts(pages: Client, flows: Flows) -> None:
    publish(pages, text="name: nightly\n" + FIRST.replace("type: string, ", "default: today, "))
    publish(pages, "unused", "steps: [{step: a, shell: 'true'}]\n")
    pages.put("schedules/early", {"workflow": "nightly", "cron": "0 2 * * *"})
    pages.put("workflows/idea/draft", {"text": "steps: ["})
    run_id = flows.run("name: nightly\n" + FIRST, day="monday")

    html = show(pages, "/workflows")
    text = text_of(html)

    assert f"#{run_id}" in text and "failed" in text and "LOOP_LIMIT" in text
    assert "early" in text and "never" in text
    assert "idea draft" in text and "not published" in text
    assert "/workflows/nightly?tab=run" in html and "/workflows/nightly/edit" in html
    reader = show(pages, "/workflows", scope="read")
    assert "tab=run" not in reader and "/edit" not in reader


def test_a_workflow_shows_its_graph_its_facts_and_its_runs(pages: Client, flows: Flows) -> None:
    publish(pages, note="begin")
    run_id = flows.run("name: nightly\n" + FIRST, day="monday")

    html = show(pages, "/workflows/nightly", scope="read")
    text = text_of(html)

    assert 'data-from="fetch" data-to="repair"' in html
    assert "<style" not in html and "style=" not in html
    assert "what fills the warehouse" in text and "begin" in text
    assert f"/runs/{run_id}" in html
    assert "tab=run" not in html


def test_the_form_has_a_field_for_each_input_in_its_type(pages: Client) -> None:
    publish(pages)

    html = show(pages, "/workflows/nightly", tab="run", scope="run")

    assert 'data-input="day" data-type="string" required' in html
    assert 'data-input="rows" data-type="integer"' in html and 'placeholder="10"' in html
    assert '<option value="&quot;live&quot;">live</option>' in html
    assert '<option value="true">true</option>' in html
    assert 'data-input="tables" data-type="array"' in html
    assert "may not start runs" in show(pages, "/workflows/nightly", tab="run", scope="read")


def test_versions_are_compared(pages: Client) -> None:
    publish(pages)
    publish(pages, text=SECOND, note="another exit code")
    publish(pages, text=SECOND + "# three\n")

    newest = show(pages, "/workflows/nightly", tab="versions")
    chosen = show(pages, "/workflows/nightly", tab="versions", old=1, new=3)
    old_text = show(pages, "/workflows/nightly", tab="text", version=1)

    assert "Version 2 → 3" in text_of(newest) and "# three" in newest and "exit 3" not in newest
    assert "2 added, 1 removed" not in text_of(newest)
    assert "- shell: exit 3" in text_of(chosen) and "+ shell: exit 4" in text_of(chosen)
    assert "another exit code" in text_of(chosen)
    assert "exit 3" in old_text and "the newest is 3" in text_of(old_text)
    assert pages.get("/workflows/nightly", tab="versions", old=9, new=1).status == 404
    assert "The texts are the same" not in text_of(show(pages, "/workflows/nightly", tab="versions", old=2, new=2))


def test_a_version_with_files_shows_them_and_is_not_edited_here(
    pages: Client, service: Service, tmp_path: Path
) -> None:
    def deployed(rows: str) -> None:
        (tmp_path / "nightly.yaml").write_text("steps: [{step: a, shell: cat <rows.csv>, reads: [rows.csv]}]")
        (tmp_path / "rows.csv").write_text(rows)
        service.catalogue.publish_files(read_publishable(tmp_path / "nightly.yaml", root=tmp_path))

    deployed("a")
    deployed("b")
    text = show(pages, "/workflows/nightly", scope="write", tab="text")
    versions = text_of(show(pages, "/workflows/nightly", tab="versions", old=1, new=2))

    assert "rows.csv 1B" in text_of(text) and "cat <rows.csv>" in text_of(text)
    assert "/edit" not in text.partition("<main")[2]
    assert "The texts are the same; other files: ~ rows.csv" in versions
    assert pages.get("/workflows/nightly/edit", scope="write").status == 422


def test_a_workflow_with_only_a_draft_has_a_page_and_an_unknown_one_has_none(pages: Client) -> None:
    pages.put("workflows/idea/draft", {"text": f"# {HOSTILE}"})

    html = show(pages, "/workflows/idea")

    assert "not published" in text_of(html) and "<script>alert" not in html
    assert pages.get("/workflows/nobody").status == 404
    assert pages.get("/workflows/nobody/edit").status == 404
    assert pages.get("/workflows/idea/edit", version=3).status == 404
    assert show(pages, "/workflows/idea/edit")


def test_the_editor_is_for_readers_too_and_new_workflows_are_for_writers(pages: Client) -> None:
    publish(pages)

    reader = show(pages, "/workflows/nightly/edit", scope="read")
    writer = show(pages, "/workflows/nightly/edit", scope="write")

    assert "data-readonly" in reader and 'id="publish"' not in reader and 'id="add-step"' not in reader
    assert "data-readonly" not in writer and 'id="publish"' in writer and "editor.js" in writer
    assert 'id="workflow-name"' in show(pages, "/workflows/new", scope="write")
    assert pages.get("/workflows/new", scope="read").status == 403


def test_hostile_texts_stay_texts(pages: Client, service: Service) -> None:
    text = f"description: {HOSTILE!r}\ninputs:\n  a: {{description: {HOSTILE!r}, default: {HOSTILE!r}}}\n"
    text = text.replace("\\'", "''") + "steps: [{step: a, shell: 'true'}]\n"
    publish(pages, "bad", text, note=HOSTILE)
    publish(pages, "bad", text + f"# {HOSTILE}\n", note=HOSTILE)

    for query in ({}, {"tab": "run"}, {"tab": "text"}, {"tab": "versions"}):
        html = show(pages, "/workflows/bad", **query)
        assert "<script>alert" not in html and "<img" not in html


def test_much_is_shown_in_parts(pages: Client, service: Service) -> None:
    for number in range(120):
        service.catalogue.publish(f"w{number:03}", f"steps: [{{step: a, shell: echo {number}}}]\n")
    for number in range(60):
        service.catalogue.publish("w000", f"steps: [{{step: a, shell: echo {number} again}}]\n")
    many = "".join(
        f"- {{step: s{number}, shell: echo, needs: [{f's{number - 1}' if number else ''}]}}\n" for number in range(400)
    )
    service.catalogue.publish("long", "steps:\n" + many)

    first = show(pages, "/workflows")
    rest = show(pages, "/workflows", after="w098")

    assert "w098" in first and "w119" not in first
    assert "w119" in rest and "w001" not in rest
    assert "Earlier versions" in text_of(show(pages, "/workflows/w000", tab="versions"))
    assert "400 steps are too many to draw" in text_of(show(pages, "/workflows/long"))


def test_a_version_that_cannot_be_read_any_more_says_so(pages: Client, service: Service) -> None:
    records = service.reader.store.server_records
    publish(pages)
    stored = records.version(service.catalogue._project, "nightly")
    assert stored is not None
    broken = type(stored)(
        name="nightly",
        digest="x",
        published_at=datetime.now(UTC),
        published_by="ada",
        text="steps: 3",
        format="mulligan",
    )
    records.publish(broken)

    assert "cannot be read" in text_of(show(pages, "/workflows/nightly"))
    assert "cannot be read" in text_of(show(pages, "/workflows/nightly", tab="run"))


def test_a_draft_is_tried_on_the_recorded_runs(pages: Client, flows: Flows) -> None:
    text = (
        "name: nightly\nsteps:\n  - {step: fetch, shell: exit 3, POLICY}\n  - {step: b, shell: echo, needs: [fetch]}\n"
    )
    publish(pages, text=text.replace("POLICY", "continue_on_error: false"))
    pages.put("workflows/nightly/draft", {"text": text.replace("POLICY", "retry: 1")})
    pages.put("workflows/other/draft", {"text": "steps: [{step: a, shell: 'true'}]\n"})
    pages.put("workflows/broken/draft", {"text": "steps: ["})
    run_id = flows.run(text.replace("POLICY", "continue_on_error: false"))

    found = text_of(show(pages, "/workflows/nightly/whatif", scope="read"))

    assert "1 run of 'nightly' of the last 30 days" in found
    assert f"run {run_id} (failed): nothing is recorded about a retry of 'fetch' after exit code 3" in found
    assert "/workflows/nightly/whatif" in show(pages, "/workflows/nightly", scope="read")
    assert "nothing to decide again" in text_of(show(pages, "/workflows/other/whatif"))
    assert "cannot be read" in text_of(show(pages, "/workflows/broken/whatif"))
    assert pages.get("/workflows/none/whatif").status == 404
