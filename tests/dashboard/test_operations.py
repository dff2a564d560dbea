"""Schedules, recovery, usage, workers, audit, tokens and notices as pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.dashboard.conftest import HOSTILE, Flows, show, text_of
from tests.support.api_client import Client, open_client, token_record

from mulligan.dashboard.pages import PAGES
from mulligan.ports.server_records import NoticeRecord
from mulligan.service.home import Home
from mulligan.service.server.schedules.forms import ScheduleForm
from mulligan.service.server.tokens.tokens import TokenForm
from mulligan.service.service import Service

HELLO = "inputs: {who: {default: world}}\nsteps:\n  - step: hello\n    shell: echo hi ${inputs.who}\n"
FLAKY = """
name: flaky
steps:
  - step: fetch
    shell: test "$MULLIGAN_ATTEMPT" -gt 1
    resources: {memory: 2GiB}
    retry: {exit_codes: [1], max_retries: 2, delay: 0}
"""
HELD = """
name: held
breakers: {mainframe: {failures: 1, reset: 1h}}
steps:
  - step: call
    shell: exit 1
    breaker: mainframe
"""
EVERY_PAGE = (
    *("/schedules", "/schedules/new", "/recovery", "/recovery/suggestions", "/usage", "/workers", "/audit"),
    *("/tokens", "/notices"),
)


@pytest.mark.parametrize("path", EVERY_PAGE)
def test_a_page_of_an_empty_server_says_what_would_be_there(pages: Client, path: str) -> None:
    html = show(pages, path)

    assert "<h1" in html
    assert "style=" not in html
    assert "onclick" not in html


@pytest.mark.parametrize("path", ["/audit", "/tokens", "/workers/doctor", "/schedules/new"])
def test_a_page_that_a_token_may_not_see_is_refused(pages: Client, path: str) -> None:
    reply = pages.get(path, scope="read")

    assert reply.status == 403
    assert b"Not allowed" in reply.body


def test_a_parameter_that_a_page_does_not_have_is_refused(pages: Client) -> None:
    assert pages.get("/usage", run=1, workflow="x").status == 422
    assert pages.get("/recovery", weeks=0).status in (400, 422)
    assert pages.get("/audit", nonsense=1).status in (400, 422)


# -- schedules -------------------------------------------------------------------------------------------------------


@pytest.fixture
def nightly(service: Service) -> Service:
    service.catalogue.publish("hello", HELLO)
    service.schedules.put("nightly", ScheduleForm("hello", cron="30 2 * * *", timezone="Europe/Berlin"))
    return service


def test_schedules_are_listed_with_what_comes_next(pages: Client, nightly: Service) -> None:
    text = text_of(show(pages, "/schedules"))

    assert "nightly starts hello every day at 02:30 Europe/Berlin" in text
    assert "New schedule" in text


def test_a_schedule_shows_ten_instants_in_its_zone(pages: Client, nightly: Service) -> None:
    html = show(pages, "/schedules/nightly")
    text = text_of(html)

    assert "Starts hello every day at 02:30, Europe/Berlin." in text
    assert "The next ten instants" in text
    assert text.count(", 02:30") == 10
    assert "No instant has passed yet." in text
    for button in ("Pause", "Backfill…", "Edit", "Remove"):
        assert button in text


def test_the_calendar_leads_to_the_runs_and_says_what_was_skipped(pages: Client, nightly: Service) -> None:
    now = datetime.now(UTC)
    nightly.schedules.backfill("nightly", now - timedelta(days=3), now)
    nightly.schedules.fire_due(now)

    html = show(pages, "/schedules/nightly")

    assert 'class="calendar few"' in html
    assert 'href="/runs/1" class="instant now"' in html
    assert "waiting: it is started when those before it have ended" in html


def test_recovery_says_what_becomes_of_each_failure_code(pages: Client, flows: Flows) -> None:
    flows.run("name: a\nsteps: [{step: x, shell: exit 3}]\n")
    flows.run("name: b\nsteps: [{step: x, shell: exit 4, continue_on_error: true}]\n")
    flows.run(
        "name: c\nsteps: [{step: x, shell: exit 5, on_failure: {strategy: recovery, commands: [{shell: 'true'}]}}]\n"
    )

    html = show(pages, "/recovery")
    (found,) = pages.get("stats/weeks").json["codes"]

    assert found == {"code": "EXIT_NONZERO", "runs": 3, "failed": 3, "recovered": 1, "handled": 1, "unhandled": 1}
    assert "By failure code" in text_of(html) and 'href="/runs?failure=EXIT_NONZERO"' in html
    # Breakers that hold nothing back are no news.
    assert html.index('id="works"') < html.index('id="breakers"')


def test_a_schedule_is_edited_with_a_field_for_each_input(pages: Client, service: Service) -> None:
    text = "inputs: {who: {default: world}, size: {type: integer}, deep: {type: boolean, default: false}}\n"
    service.catalogue.publish("typed", text + "steps: [{step: a, shell: 'true'}]\n")
    pages.put(
        "schedules/night", {"workflow": "typed", "every": "6h", "inputs": {"who": HOSTILE, "size": 3, "deep": True}}
    )

    new = show(pages, "/schedules/new", workflow="typed")
    edit = show(pages, "/schedules/night/edit")
    unknown = show(pages, "/schedules/new", workflow="none")

    assert 'data-input="size" data-type="integer" required' in new
    assert 'value="3"' in edit and '<option value="true" selected>' in edit and "<script>alert" not in edit
    assert "data-input" not in unknown and "Name a published workflow" in text_of(unknown)


def test_a_schedule_shows_and_edits_inputs_that_read_the_instant(pages: Client, service: Service) -> None:
    typed = "inputs: {year: integer, full: {type: boolean, default: false}}\nsteps:\n  - {step: a, shell: echo hi}\n"
    service.catalogue.publish("typed", typed)
    year = "${timestamp(schedule.instant).getFullYear()}"
    inputs = {"year": year, "full": "${schedule.date.endsWith('-01')}"}
    put = service.schedules.put("yearly", ScheduleForm("typed", cron="0 6 1 1 *", inputs=inputs))

    shown = text_of(show(pages, "/schedules/yearly"))
    edit = show(pages, "/schedules/yearly/edit")

    assert f"year={put.next[0].year}, full=true" in shown
    assert f'value="{year}"' in edit
    assert '<option value="&quot;${schedule.date.endsWith(&#x27;-01&#x27;)}&quot;" selected>' in edit
    assert "${schedule.previous_date}" in text_of(edit)


def test_a_paused_schedule_says_who_why_and_how_to_go_on(pages: Client, nightly: Service) -> None:
    nightly.schedules.pause("nightly", HOSTILE)

    html = show(pages, "/schedules/nightly")

    assert "Paused by a tester" in text_of(html)
    assert "Resume" in text_of(html)
    assert "<script>alert" not in html
    assert "paused by a tester" in text_of(show(pages, "/schedules"))


def test_who_may_only_look_sees_no_buttons(pages: Client, nightly: Service) -> None:
    for path in ("/schedules", "/schedules/nightly", "/recovery", "/workers", "/notices"):
        assert "data-action" not in show(pages, path, scope="read")


def test_a_schedule_of_a_file_is_changed_by_publishing(pages: Client, service: Service) -> None:
    service.catalogue.publish("hello", f"schedules: {{often: {{every: 10m}}}}\n{HELLO}")

    text = text_of(show(pages, "/schedules/hello.often"))

    assert "every 10m" in text
    assert "Edit" not in text
    assert "Belongs to the text of hello" in text


def test_the_form_has_what_the_schedule_has(pages: Client, nightly: Service) -> None:
    html = show(pages, "/schedules/nightly/edit")

    assert 'value="30 2 * * *"' in html
    assert 'data-revision="1"' in html
    assert pages.get("/schedules/none/edit").status == 404


def test_past_instants_are_given_by_the_interface(pages: Client, nightly: Service) -> None:
    now = datetime.now(UTC)
    nightly.schedules.backfill("nightly", now - timedelta(days=2), now)
    nightly.schedules.fire_due(now)

    found = pages.get("schedules/nightly/past").json

    assert (found["name"], found["timezone"]) == ("nightly", "Europe/Berlin")
    assert found["instants"][-1]["outcome"] == "started"


# -- recovery and usage ----------------------------------------------------------------------------------------------


def test_recovery_shows_what_was_tried_and_worked(pages: Client, flows: Flows) -> None:
    flows.run(FLAKY)

    html = show(pages, "/recovery")
    text = text_of(html)

    assert "Retries week by week: worked 1 of 1" in html
    assert "100% 1 of 1 worked" in text
    assert "flaky fetch retry, exit code 1" in text
    assert "flaky" in text_of(show(pages, "/recovery", workflow="flaky", weeks=4))
    assert pages.get("stats/weeks", weeks=4).json["weeks"][0]["worked"] == 1


def test_an_open_breaker_says_why_and_can_be_reset(pages: Client, flows: Flows) -> None:
    flows.run(HELD)

    text = text_of(show(pages, "/recovery"))

    assert "mainframe open 1 failure in a row; by itself one task tries again" in text
    assert "Reset" in text


def test_usage_says_which_steps_ask_for_too_much(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FLAKY)

    for path in ("/usage", f"/usage?run={run_id}", "/usage?workflow=flaky"):
        name, _, query = path.partition("?")
        text = text_of(show(pages, name, **dict([query.split("=")]) if query else {}))
        assert "memory: too much" in text
        assert "resources: {memory: 64MiB}" in text
    assert pages.get("usage/workflows/flaky").json["run_ids"] == [run_id]
    assert pages.get("usage/spending").json["workflows"] == []


def test_a_run_leads_to_its_report_and_its_usage(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FLAKY)

    html = show(pages, f"/runs/{run_id}")
    report = pages.get(f"/api/v1/runs/{run_id}/report")

    assert f'href="/api/v1/runs/{run_id}/report"' in html
    assert f'href="/usage?run={run_id}"' in html
    assert "sandbox" in report.headers["content-security-policy"]
    assert b"<svg" in report.body


# -- workers and doctor ----------------------------------------------------------------------------------------------


def test_a_worker_shows_its_load_and_its_tasks(pages: Client, flows: Flows) -> None:
    with flows.service.driving.driver() as driver:
        text = text_of(show(pages, "/workers"))

        assert driver.name in text
        assert "1 worker with" in text


def test_doctor_says_what_it_found_and_what_to_do(pages: Client, flows: Flows) -> None:
    flows.start(HELLO)

    text = text_of(show(pages, "/workers/doctor"))
    found = pages.get("doctor").json

    assert "a step that runs 'true' completed" in text
    assert {"python", "store", "disk", "tasks"} <= {one["name"] for one in found["checks"]}


def test_doctor_is_not_for_a_token_of_one_project(home: Home) -> None:
    client = open_client(home, pages=PAGES, tokens=[token_record("boss", ["admin"], project="team")])
    try:
        assert client.get("doctor", scope="boss").status == 403
        reply = client.get("/workers/doctor", scope="boss")
        refused = text_of(reply.body.decode())
        assert reply.status == 403
        assert "may not examine the server" in refused
        assert "python" not in refused
        assert "Examine" not in text_of(show(client, "/workers", scope="boss"))
    finally:
        client.close()


# -- audit, tokens, notices ------------------------------------------------------------------------------------------


def test_the_audit_shows_changes_and_refusals_and_can_be_filtered(pages: Client, service: Service) -> None:
    service.catalogue.publish("hello", HELLO)
    run_id = pages.post("runs", {"workflow": "hello"}).json["run_id"]
    pages.post(f"runs/{run_id}:cancel", {"reason": HOSTILE})
    pages.post(f"runs/{run_id}:cancel", {}, scope="read")

    html = show(pages, "/audit")
    text = text_of(html)
    mine = show(pages, "/audit", who="read")

    assert f'href="/runs/{run_id}"' in html
    assert "POST runs/{run_id}:cancel" in text
    assert "<script>alert" not in html
    assert "refused (403)" in text_of(mine)
    assert "accepted" not in text_of(mine)
    assert "Nobody has changed anything that fits." in text_of(show(pages, "/audit", who="nobody"))


def test_the_audit_has_pages(pages: Client) -> None:
    for _ in range(101):
        pages.post("breakers/none:reset", {})

    first = show(pages, "/audit")
    older = first.partition("/audit?before=")[2].partition('"')[0]

    assert older
    assert "Newest" in text_of(show(pages, "/audit", before=older))


def test_tokens_are_listed_without_their_secrets(pages: Client, service: Service) -> None:
    form = TokenForm(user=HOSTILE[:60], scopes=("read", "run"), workflows=("hello",), decisions_per_hour=3)
    made = service.tokens.create(form)

    html = show(pages, "/tokens")

    assert made.secret not in html
    assert "only hello; 3 decisions an hour" in text_of(html)
    assert "Revoke" in html
    assert "<script>alert" not in html
    service.tokens.revoke(made.token.id)
    assert "1 expired or revoked" in text_of(show(pages, "/tokens"))


def test_notices_say_what_waits_and_why(pages: Client, service: Service, flows: Flows) -> None:
    flows.start(HELLO)
    body = b'{"event":"failed","title":"<b>run</b> failed","at":"2026-01-01T00:00:00Z","run_id":1,"status":"failed"}'
    now = datetime.now(UTC)
    service.reader.store.server_records.put_notices([NoticeRecord("k", "ops", body, now, due_at=now)])
    service.notices.set_hooks(())

    html = show(pages, "/notices", status="waiting")

    assert "&lt;b&gt;run&lt;/b&gt; failed" in html
    assert "ops" in text_of(html)
    assert "No notices." in text_of(show(pages, "/notices", status="sent"))
