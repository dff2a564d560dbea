"""The page of a step: why it failed, what was tried, what can be done; its attempts, logs, output and items."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from tests.dashboard.conftest import HOSTILE, Flows, show, text_of
from tests.support.api_client import Client

FAILING = """
name: nightly
steps:
  - step: fetch
    shell: echo connecting; echo refused >&2; exit 3
    timeout: 60
    resources: {memory: 100MB, cpus: 1}
    retry:
      rules:
        - {exit_codes: [3], max_retries: 1, delay: 0, adjust: {memory: x2}}
        - {exit_codes: [4], max_retries: 1}
    on_failure: {strategy: cleanup, shell: echo cleaned}
    next: [{to: tell, on: failure, codes: [TIMEOUT]}]
  - step: tell
    shell: echo told
  - step: other
    shell: exit 1
"""
PARKED = """
name: nightly
steps:
  - step: fetch
    shell: exit 3
    triage: true
"""
APPROVAL = """
name: release
steps:
  - step: ask
    approve: deploy?
"""
ITEMS = """
name: sweep
steps:
  - step: each
    map: {over: [a, b, c]}
    do: [{shell: 'echo ${item}; test ${item} != b'}]
  - step: sim
    matrix: {size: [1, 2]}
    shell: test ${matrix.size} = 1
"""
VALUES = """
name: values
steps:
  - step: table
    shell: echo '[{"name":"a","rows":10},{"name":"b","rows":22,"note":"late"}]'
    capture: json
  - step: tree
    shell: echo '{"deep":{"list":[1,[2,{"three":3}]]},"empty":{}}'
    capture: json
  - step: text
    shell: echo plain
"""


def actions(html: str) -> dict[str, dict[str, Any]]:
    """The buttons of a page by their label."""
    found = re.findall(r'<button type="button"[^>]* data-action="([^"]*)">([^<]*)</button>', html)
    return {label: json.loads(unescape(action)) for action, label in found}


def test_a_failed_step_says_why_what_was_tried_and_what_can_be_done(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    html = show(pages, f"/runs/{run_id}/steps/fetch")

    text = text_of(html)
    assert "EXIT_NONZERO 3: refused" in text
    assert "rule 1 exit code 3 used up, 1 of 1 rule 2 exit code 4 exit code was 3" in text
    assert "strategy cleanup echo cleaned" in text
    assert "edge to 'tell' not taken: it matches only TIMEOUT" in text
    assert "Converge not handled" in text
    assert list(actions(html)) == ["Retry step", "Retry from here"]


def test_attempts_stand_side_by_side_with_what_changed_between_them(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    html = show(pages, f"/runs/{run_id}/steps/fetch")

    text = text_of(html)
    assert "↳ retry 1 of 1 at once with 191MiB of memory (rule for exit code 3)" in text
    assert "of 95MiB 1 CPU, 60s" in text
    assert "of 191MiB 1 CPU, 60s" in text
    assert html.count('class="because adjusted"') == 1
    assert 'data-log-place="fetch.on_failure@2.0"' in html


def test_n_and_p_lead_to_the_other_failed_steps(pages: Client, flows: Flows) -> None:
    run_id = flows.run(FAILING)

    first = show(pages, f"/runs/{run_id}/steps/fetch")
    last = show(pages, f"/runs/{run_id}/steps/other")

    assert f'href="/runs/{run_id}/steps/other" rel="next"' in first
    assert 'rel="prev"' not in first
    assert f'href="/runs/{run_id}/steps/fetch" rel="prev"' in last


def test_a_parked_step_can_be_decided_by_who_may(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKED)

    html = show(pages, f"/runs/{run_id}/steps/fetch", scope="decide")
    read = show(pages, f"/runs/{run_id}/steps/fetch", scope="read")

    assert "Parked until somebody decides: EXIT_NONZERO 3" in text_of(html)
    assert f'href="/inbox?run={run_id}&amp;step=fetch"' in html
    action = actions(html)["Retry step"]
    assert pages.post(action["path"], {"reason": "again", "dry_run": True}, scope="decide").status == 200
    assert (actions(read), "/inbox?" in read) == ({}, False)


def test_an_approval_is_answered_here(pages: Client, flows: Flows) -> None:
    run_id = flows.run(APPROVAL)

    html = show(pages, f"/runs/{run_id}/steps/ask", scope="decide")

    found = actions(html)
    assert list(found) == ["Approve", "Reject"]
    body = {**found["Approve"]["body"], "reason": "it is good", "dry_run": True}
    assert pages.post(found["Approve"]["path"], body, scope="decide").status == 200


def test_every_button_of_a_failed_step_is_accepted_by_the_interface(pages: Client, flows: Flows) -> None:
    failed, sweep = flows.run(FAILING), flows.run(ITEMS)
    paths = (f"/runs/{failed}/steps/fetch", f"/runs/{sweep}/steps/each", f"/runs/{sweep}/steps/each/items/1")

    replies = {
        (path, label): pages.post(one["path"], {**one.get("body", {}), "reason": "a test", "dry_run": True}).status
        for path in paths
        for label, one in actions(show(pages, path)).items()
    }

    assert replies == dict.fromkeys(
        [
            (paths[0], "Retry step"),
            (paths[0], "Retry from here"),
            (paths[1], "Retry 1 failed item"),
            (paths[1], "Retry from here"),
            (paths[2], "Retry item"),
        ],
        200,
    )


def test_a_map_counts_its_items_and_an_item_has_its_own_page(pages: Client, flows: Flows) -> None:
    run_id = flows.run(ITEMS)

    whole = show(pages, f"/runs/{run_id}/steps/each")
    item = show(pages, f"/runs/{run_id}/steps/each/items/1")

    assert "1 of 3 items failed" in text_of(whole)
    assert 'data-counts="{&quot;completed&quot;: 2, &quot;failed&quot;: 1}"' in whole
    assert "each[1]" in text_of(item)
    assert "EXIT_NONZERO 1" in text_of(item)
    assert 'data-log-place="each[1].0"' in item
    assert pages.get(f"/runs/{run_id}/steps/each/items/9").status == 404


def test_a_matrix_lists_its_steps_and_each_of_them_names_its_matrix(pages: Client, flows: Flows) -> None:
    run_id = flows.run(ITEMS)
    (member,) = [
        one["name"] for one in pages.get(f"runs/{run_id}/steps/sim/items").json["items"] if one["status"] == "failed"
    ]

    whole = show(pages, f"/runs/{run_id}/steps/sim")
    step = show(pages, f"/runs/{run_id}/steps/{member}")

    assert "2 steps: 1 failed, 1 completed" in text_of(whole)
    assert f'href="/runs/{run_id}/steps/sim"' in step
    assert '{"size": 2}' in text_of(step)


def test_outputs_are_shown_as_table_tree_or_text(pages: Client, flows: Flows) -> None:
    run_id = flows.run(VALUES)

    table = show(pages, f"/runs/{run_id}/steps/table")
    tree = show(pages, f"/runs/{run_id}/steps/tree")
    text = show(pages, f"/runs/{run_id}/steps/text")

    assert "Table Tree name rows note 0 a 10 1 b 22 late" in text_of(table)
    assert '2 entries deep 1 entry list 2 items 0 1 1 2 items 0 2 1 {"three": 3} empty {}' in text_of(tree)
    assert '<pre tabindex="0">plain</pre>' in text


def table_of(*columns: str, rows: int) -> str:
    """A workflow with a step that keeps a table, as the library of values does, and an approval that shows it."""
    preview = {"columns": [[name, HOSTILE] for name in columns], "rows": [[HOSTILE] * len(columns)] * 5}
    return f"""
name: sales
steps:
  - step: load
    python: |
      import mulligan.step_context.artifacts as kept
      def main():
          path = kept.new_artifact_path(".parquet")
          open(path, "w").write("rows")
          about = dict(format="parquet", type="pandas.DataFrame", rows={rows}, columns={len(columns)})
          return kept.make_path(path, kept.register_artifact(path, name="a", preview={preview!r}, **about))
  - step: gate
    needs: [load]
    approve: {{message: ok?, evidence: {{sales: "${{steps.load.output}}"}}}}
"""


def test_a_data_frame_is_shown_with_what_changed_since_the_last_run(pages: Client, flows: Flows) -> None:
    first = flows.run(table_of("region", HOSTILE, rows=400))
    second = flows.run(table_of("region", "sold", *(f"c{number}" for number in range(12)), rows=410))

    earlier = show(pages, f"/runs/{first}/steps/load")
    later = show(pages, f"/runs/{second}/steps/load")
    inbox = show(pages, "/inbox", run=second, step="gate")

    assert "Since run" not in text_of(earlier)
    assert f"Since run {first} : 400 → 410 rows (+10, +2.5%)" in text_of(later)
    assert "columns added: 'sold', 'c0'" in text_of(later)
    assert "1 column removed: '" in text_of(later)
    assert "and 405 more rows" in text_of(later)
    assert "Columns (14)" in text_of(later)
    assert "table 410 × 14 (parquet, 4B)" in text_of(inbox)
    assert "region sold c0" in text_of(inbox)
    assert all(HOSTILE not in html for html in (earlier, later, inbox))


def test_a_step_that_is_well_says_what_would_deal_with_a_failure(pages: Client, flows: Flows) -> None:
    run_id = flows.run(VALUES)

    text = text_of(show(pages, f"/runs/{run_id}/steps/text"))

    assert "What would deal with a failure Retry none Handle none Triage none Route none Converge the run fails" in text


def test_a_step_of_a_run_that_nobody_took_waits(pages: Client, flows: Flows) -> None:
    run_id = flows.start(FAILING)

    text = text_of(show(pages, f"/runs/{run_id}/steps/fetch"))

    assert "Waits for a worker that takes the run" in text
    refused = pages.get(f"runs/{run_id}/steps/fetch")
    assert (refused.status, refused.json["detail"].partition(":")[0]) == (409, f"run {run_id} has not started yet")


def test_hostile_text_stays_text(pages: Client, flows: Flows) -> None:
    printed = json.dumps(HOSTILE)
    run_id = flows.run(
        f"""
name: hostile
steps:
  - step: fails
    python: |
      import sys
      def main():
          print({printed}, file=sys.stderr)
          raise ValueError({printed})
  - step: each
    map: {{over: [{printed}]}}
    do: [{{shell: 'printf %s "$V" >&2; exit 1', env: {{V: '${{item}}'}}}}]
  - step: value
    python: |
      def main():
          return [{{{printed}: {printed}, "deep": [{printed}]}}]
"""
    )

    places = ("fails", "each", "each/items/0", "value")
    for html in (show(pages, f"/runs/{run_id}/steps/{place}") for place in places):
        assert "<script>alert" not in html
        assert "<img" not in html
        assert not re.search(r"<[^>]*\sonmouseover=", html)


def test_an_unknown_step_is_not_found(pages: Client, flows: Flows) -> None:
    run_id = flows.run(PARKED)

    reply = pages.get(f"/runs/{run_id}/steps/fetsch")

    assert reply.status == 404
    assert "did you mean" in reply.body.decode()


def test_the_calls_of_an_agent_are_listed_with_their_arguments_and_answers(
    pages: Client, flows: Flows, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = flows.folder / "answers.json"
    calls = [{"name": "look", "arguments": {"word": HOSTILE}}, {"name": "nothing"}]
    script.write_text(json.dumps([{"turn": 1, "tool_calls": calls}, {"turn": 2, "answer": "done"}]))
    monkeypatch.setenv("MULLIGAN_SCRIPTED_AGENT", str(script))
    run_id = flows.run(
        "steps: [{step: look, description: d, tool: {inputs: {word: string}}, shell: 'echo found'},"
        "{step: ask, agent: {provider: scripted, prompt: Look, tools: [look]}}]"
    )

    html = show(pages, f"/runs/{run_id}/steps/ask")

    text = text_of(html)
    assert "Tool Arguments Answer look" in text
    assert "nothing there is no tool 'nothing'; the tools are: look" in text
    assert "question 2, attempt 1" in text
    assert "tool call 1, attempt 1" in text
    assert "<script>alert" not in html
