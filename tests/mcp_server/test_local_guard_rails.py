"""Guard rails of an agent on this machine: the options of `mulligan mcp`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mcp_server.conftest import PARKED, ran
from tests.mcp_server.conversation import agent_at
from tests.support.commands import mulligan

from mulligan.ports.server_records import TokenLimits
from mulligan.service.service import open_service

ORDER = {"run_id": 1, "step": "fetch", "reason": "x", "dry_run": False}


def test_a_local_agent_is_held_to_its_options_and_counted_after_a_restart(folder: Path) -> None:
    ran(
        PARKED.replace(
            "  - step: load\n    needs: [fetch]\n    shell: 'true'",
            "  - step: load\n    shell: exit 4\n    triage: true",
        )
    )
    home, limits = folder / ".mulligan", TokenLimits(verdicts=("retry",), decisions_per_hour=1)

    with agent_at(home, limits=limits) as agent:
        forbidden = agent.refused("classify", **ORDER, verdict="fail")
        made = agent.call("classify", **ORDER, verdict="retry")
    with agent_at(home, limits=limits) as agent:
        spent = agent.refused("classify", **{**ORDER, "step": "load"}, verdict="retry")
        left = {one["step"]: one["attempt"] for one in agent.call("list_pending")["pending"]}["load"]

    assert (forbidden["code"], made["by"], spent["code"], left) == (
        "token.verdict",
        "agent:robot",
        "token.decisions",
        1,
    )
    with open_service(str(home)) as service:
        rows = service.audit.page(project=None).audit
    assert [(row.who, row.action, row.status) for row in reversed(rows)] == [
        ("agent:robot", "MCP classify", 403),
        ("agent:robot", "MCP classify", 202),
        ("agent:robot", "MCP classify", 429),
    ]
    assert {row.target.partition("?")[0] for row in rows} == {"stdio"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--may", "retri"), "unknown verdict 'retri' of a token"),
        (("--min-confidence", "high"), "'high' is not a number"),
        (("--decisions-per-hour", "-1"), "decisions per hour must be a number of 0 or more"),
    ],
)
def test_wrong_guard_rails_are_refused_before_anything_is_answered(
    folder: Path, options: tuple[str, str], said: str
) -> None:
    refused = mulligan("mcp", *options)

    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
