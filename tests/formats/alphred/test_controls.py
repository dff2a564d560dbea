"""Run controls of Alphred's: pause, resume, cancel and retry of a run whose file is a draft."""

from __future__ import annotations

import pytest
from tests.support.runner import Live, Terminal

from .reading import edge, node, text

DRAFT = text([node("plan", 1), node("write", 2), node("review", 3)], [edge("plan", "write"), edge("write", "review")])
# It waits in `write` until it may go on.
AGENT = """\
cat > /dev/null
echo "$MULLIGAN_STEP" >> done
[ "$MULLIGAN_STEP" != write ] || { touch up; until [ -e go ]; do sleep 0.01; done; }
echo "$MULLIGAN_STEP is done"
"""


@pytest.fixture
def drafted(live: Live, monkeypatch: pytest.MonkeyPatch) -> Live:
    monkeypatch.setenv("MULLIGAN_AGENT_CLAUDE", f"sh {live.write('agent.sh', AGENT)}")
    live.write("draft.json", DRAFT)
    return live


def pause_in_the_middle(there: Terminal) -> None:
    there.wait_until((there.folder / "up").exists)
    there.service.changes.pause(there.run_id)
    (there.folder / "go").touch()


def cancel_in_the_middle(there: Terminal) -> None:
    there.wait_until((there.folder / "up").exists)
    there.service.changes.cancel(there.run_id)


def test_a_paused_run_goes_on_with_the_next_node(drafted: Live) -> None:
    paused = drafted.run(drafted.folder / "draft.json", meanwhile=pause_in_the_middle)
    until_then = drafted.lines("done")

    drafted.service.changes.resume(paused.run_id)
    ran = drafted.resume(paused.run_id)

    assert (paused.status, until_then) == ("paused", ["plan", "write"])
    assert (ran.status, drafted.lines("done")) == ("completed", ["plan", "write", "review"])


def test_a_cancelled_run_leaves_nothing_pending_and_can_be_retried_from_where_it_was(drafted: Live) -> None:
    cancelled = drafted.run(drafted.folder / "draft.json", meanwhile=cancel_in_the_middle)

    drafted.write("go")
    drafted.service.changes.retry(cancelled.run_id)
    ran = drafted.resume(cancelled.run_id)

    statuses = [step["status"] for step in cancelled.steps.values()]
    assert (cancelled.status, statuses) == ("cancelled", ["completed", "cancelled", "cancelled"])
    assert (ran.status, drafted.lines("done")) == ("completed", ["plan", "write", "write", "review"])
