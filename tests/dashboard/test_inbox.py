"""The inbox: what waits, why, what was tried, what was decided before, and what can be done."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from typing import Any

import pytest
from tests.dashboard.conftest import HOSTILE, Flows, show, text_of
from tests.support.api_client import Client

PARKED = """
name: nightly
steps:
  - step: load
    shell: 'echo "copied 7 files" >&2; echo "no space left" >&2; exit 74'
    retry: {rules: [{exit_codes: [75], max_retries: 1}]}
    triage: true
    on_failure: {strategy: cleanup, commands: [{shell: 'true'}]}
  - step: check
    shell: exit 74
    triage: true
"""
APPROVAL = "name: release\nsteps:\n  - step: ship\n    approve: {message: 'Ship 4.2?', timeout: 2h}\n"


def test_an_empty_inbox_says_so(pages: Client) -> None:
    said = text_of(show(pages, "/inbox"))

    assert "Nothing waits for a person." in said


def test_a_parked_step_shows_what_is_wrong_what_was_tried_and_what_can_be_done(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKED)

    html = show(pages, "/inbox", run=run_id, step="load")
    said = text_of(html)

    assert "2 parked steps" in said
    assert "EXIT_NONZERO 74: no space left" in said
    assert "copied 7 files no space left" in said
    assert "1 exit code 75 exit code was 74" in said
    assert "its cleanup handler ran, and the step still failed" in said
    assert "Nobody has decided about this error before." in said
    assert 'data-decide="retry"' in html and 'data-decide="fail"' in html
    assert len(re.findall(r'class="one"', html)) == 2 and len(re.findall(r'class="all"', html)) == 1


def test_an_approval_of_an_item_has_the_name_of_the_item_and_the_key_in_its_data(pages: Client, flows: Flows) -> None:
    run_id = flows.run("""
name: sites
steps:
  - step: check
    map: {over: [web, api], as: site}
    do: [{shell: 'true'}, {approve: "Open ${site}?"}]
""")

    # A link that names the item finds the command that waits.
    html = show(pages, "/inbox", run=run_id, step="check[1]")
    said = text_of(html)
    assert "check[api] command 2" in said and "Open api?" in said
    assert 'data-step="check[1].1"' in html and 'data-name="check[api] command 2"' in html
    assert not re.search(r"check\[\d", said)
    events = show(pages, f"/runs/{run_id}", tab="events")
    assert {"check[web]", "check[web] command 1"} <= {*re.findall(r'class="feed-place">([^<]*)<', events)}
    for tab in ("overview", "replay"):
        assert not re.search(r"check\[\d", text_of(show(pages, f"/runs/{run_id}", tab=tab))), tab


def test_what_was_decided_before_is_shown_with_how_it_ended(pages: Client, flows: Flows) -> None:
    first = flows.run(PARKED)
    for step in ("load", "check"):
        flows.service.changes.classify(first, step, "fail", "the volume is full")
    flows.drive(first)
    now = flows.run(PARKED)

    said = text_of(show(pages, "/inbox", run=now, step="load"))
    over = text_of(show(pages, "/inbox", run=first, step="load"))
    details = pages.get(f"pending/{now}/load").json

    assert "fail by a tester" in said and "the volume is full" in said
    assert "failed with EXIT_NONZERO; the run failed" in said
    assert "In other steps" in said and "check of nightly" in said
    assert "Decided: let it fail by a tester" in over
    assert [one["about"] for one in details["decisions"]] == ["same_step", "same_error"]
    assert (details["log"]["stream"], details["entry"]["attempt"]) == ("stderr", 1)


def test_an_approval_and_a_paused_run_can_be_answered(pages: Client, flows: Flows) -> None:
    asking, paused = flows.run(APPROVAL), flows.start(PARKED)
    flows.service.changes.pause(paused, reason="waits for the legal team")

    approval = show(pages, "/inbox", run=asking, step="ship")
    pause = show(pages, "/inbox", run=paused)

    assert "Ship 4.2?" in text_of(approval) and "without a decision: refuse" in text_of(approval)
    assert 'data-decide="approve"' in approval
    assert "waits for the legal team" in text_of(pause) and f"runs/{paused}:resume" in pause


def test_who_may_only_read_sees_everything_and_no_buttons(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKED)
    flows.service.changes.pause(run_id, step="check", reason="later")

    html = show(pages, "/inbox", scope="read", run=run_id, step="load")
    paused = show(pages, "/inbox", scope="read", run=run_id, step="check")

    assert "no space left" in html
    for one in (html, paused):
        assert "data-decide" not in one and "checkbox" not in one and "data-action" not in one


def test_whatever_a_step_says_is_text(pages: Client, flows: Flows) -> None:
    quoted = HOSTILE.replace("'", "'\\''")
    text = f"""
name: hostile
steps:
  - step: load
    shell: |
      printf '%s\\n' '{quoted}' >&2
      exit 3
    triage: true
"""
    first, now = flows.run(text), flows.run(text)
    flows.service.changes.classify(first, "load", "fail", HOSTILE)

    html = show(pages, "/inbox", run=now, step="load")

    assert "<script>alert" not in html and "<img" not in html and "</textarea>" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3


@pytest.mark.parametrize("query", [{"run": 99, "step": "load"}, {"run": 1, "step": "<b>"}])
def test_what_is_gone_is_said_and_the_list_stays(pages: Client, flows: Flows, query: Any) -> None:
    flows.run(PARKED)

    said = text_of(show(pages, "/inbox", **query))

    assert "it may have been removed" in said
    assert "nightly EXIT_NONZERO 74" in said


def test_a_decision_may_name_its_attempt(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKED)
    decision = {"run_id": run_id, "step": "load", "verdict": "retry", "reason": "once more"}

    asked = {"decisions": [{**decision, "attempt": 2}, {**decision, "attempt": 1}], "dry_run": True}
    late, right = pages.post("decisions", asked).json["decisions"]

    assert late["error"]["code"] == "step.other_attempt"
    assert (right["error"], right["starts"]) == (None, ["load: attempt 2"])


def test_a_suggestion_is_shown_with_why_it_was_not_applied_and_can_be_accepted(
    pages: Client, flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"verdict": "retry", "confidence": 0.6, "reason": HOSTILE, "memory": "1GiB", "rule": f"pattern: {HOSTILE}"}
    monkeypatch.setenv("MULLIGAN_AGENT_NIGHT", f"printf %s {shlex.quote(json.dumps(answer))}")
    run_id = flows.run(PARKED.replace("triage: true", "triage: {by: agent, agent: night, memory_max: 2GiB}", 1))

    html = show(pages, "/inbox", run=run_id, step="load")
    read_only = show(pages, "/inbox", scope="read", run=run_id, step="load")
    accepted = json.loads(unescape(re.search(r'data-accept="([^"]*)"', html)[1]))  # type: ignore[index]
    (done,) = pages.post("decisions", {"decisions": [accepted]}).json["decisions"]

    said = text_of(html)
    assert "What agent 'night' suggests" in said
    assert "retry with 1.0GiB of memory, confidence 60%" in said
    assert "Not applied: it is not sure enough (60% is below 80%)." in said
    assert "<script>alert" not in html and "data-accept" not in read_only
    assert (done["error"], accepted["attempt"], accepted["memory"]) == (None, 1, f"{2**30}B")
    assert accepted["reason"].startswith("agreed with agent 'night': ")


def test_an_agent_without_an_answer_is_said(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKED.replace("triage: true", "triage: {by: agent, agent: nobody}", 1))

    html = show(pages, "/inbox", run=run_id, step="load")

    assert "It gave no answer: it failed (INPUT_INVALID: agent 'nobody' is not available" in text_of(html)
    assert "data-accept" not in html


PICTURE = b"\x89PNG\r\n\x1a\n and pixels"


def keeping(name: str, content: bytes) -> str:
    return f"""
name: plots
steps:
  - step: plot
    python: |
      import mulligan, pathlib
      def main():
          pathlib.Path("made").write_bytes({content!r})
          return mulligan.artifact("made", name={name!r})
  - step: gate
    needs: [plot]
    approve: {{message: ok?, evidence: {{plot: "${{steps.plot.output}}"}}}}
"""


def images_of(html: str) -> list[str]:
    return re.findall(r'<img src="([^"]+)" alt="plot"', html)


def test_a_picture_is_shown_as_a_picture_of_its_type(pages: Client, flows: Flows) -> None:
    run_id = flows.run(keeping("plot.png", PICTURE))

    (address,) = images_of(show(pages, "/inbox", run=run_id, step="gate"))
    image = pages.get(address)

    assert (image.status, image.body) == (200, PICTURE)
    assert image.headers["content-type"] == "image/png"
    assert image.headers["content-disposition"] == "attachment"
    assert "default-src 'none'" in image.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("name", "content", "is_named"),
    [("plot.png", f"<svg>{HOSTILE}</svg>".encode(), True), ("plot.svg", PICTURE, False), ("plot.png", b"", True)],
)
def test_what_only_calls_itself_a_picture_is_not_served_as_one(
    pages: Client, flows: Flows, name: str, content: bytes, is_named: bool
) -> None:
    run_id = flows.run(keeping(name, content))

    shown = images_of(show(pages, "/inbox", run=run_id, step="gate"))

    assert len(shown) == is_named
    assert [pages.get(one).status for one in shown] == [404] * is_named


def test_the_evidence_of_an_approval_is_text_and_nothing_of_it_is_part_of_the_page(pages: Client, flows: Flows) -> None:
    rows = [{"region": HOSTILE, "sold": 12}]
    evidence = {"sales": rows, "changes": f"@@ -1 +1 @@\n-{HOSTILE}\n+ok", "note": HOSTILE}
    run_id = flows.run(f"""
name: publish
steps:
  - step: gate
    approve: {{message: Publish?, evidence: {json.dumps(evidence)}}}
""")

    html = show(pages, "/inbox", run=run_id, step="gate")

    assert HOSTILE not in html
    assert '<span class="added">+ok' in html
    assert "region sold" in text_of(html)
