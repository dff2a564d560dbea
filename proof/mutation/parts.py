"""The parts of the product whose mutants are run: the modules of each, and the tests that judge them.

A part has the modules that decide and do nothing else, and few others. Its tests are those about it: a change that only
a test of something else detects is a gap here. A module may be in several parts: the core has all of its own.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from .project import Project


class Part(NamedTuple):
    """Packages or modules, and files or folders of tests."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


PARTS = {
    "core": Part(("mulligan.core", "mulligan.history"), ("tests/core", "tests/golden")),
    "schedules": Part(
        (
            "mulligan.core.model.schedule",
            "mulligan.core.schedules",
            "mulligan.service.server.schedules.cron",
            "mulligan.service.server.schedules.forms",
            "mulligan.service.server.schedules.past_instants",
            "mulligan.service.server.schedules.timing_words",
        ),
        (
            "tests/core/test_schedules.py",
            "tests/service/test_cron.py",
            "tests/service/test_past_instants.py",
            "tests/service/test_schedule_forms.py",
            "tests/service/test_schedule_inputs.py",
            "tests/service/test_schedules.py",
        ),
    ),
    "notices": Part(
        (
            "mulligan.core.notices",
            "mulligan.core.state.notice_rules",
            "mulligan.history.notice_text",
            "mulligan.service.server.notices.messages",
            "mulligan.service.server.notices.sender",
            "mulligan.service.server.notices.targets",
            "mulligan.service.server.notices.webhooks",
        ),
        (
            "tests/core/test_notice_text.py",
            "tests/core/test_notices.py",
            "tests/notices/test_messages.py",
            "tests/notices/test_sender.py",
            "tests/notices/test_targets.py",
            "tests/notices/test_webhooks.py",
        ),
    ),
    "webhooks": Part(
        (
            "mulligan.service.server.webhooks.reading",
            "mulligan.service.server.webhooks.signatures",
            "mulligan.service.server.webhooks.webhook_forms",
        ),
        ("tests/service/test_webhook_readings.py", "tests/service/test_webhook_signatures.py"),
    ),
    "triage": Part(
        (
            "mulligan.core.deciding.agents.budgets",
            "mulligan.core.deciding.agents.triage_agent",
            "mulligan.core.deciding.agents.triage_prompt",
            "mulligan.core.evolve.spending_ledger",
            "mulligan.core.model.agents.guard_rails",
            "mulligan.core.model.agents.triage_answers",
        ),
        (
            "tests/core/test_agent_tools.py",
            "tests/core/test_budgets.py",
            "tests/core/test_guard_rails.py",
            "tests/core/test_ladder_triage.py",
            "tests/core/test_triage_agent.py",
            "tests/core/test_triage_answers.py",
        ),
    ),
    "caching": Part(
        (
            "mulligan.core.effects.fingerprints",
            "mulligan.core.effects.reuse",
            "mulligan.core.model.file_records",
            "mulligan.worker.outputs.file_hashes",
            "mulligan.worker.outputs.result_cache",
        ),
        (
            "tests/core/test_reuse.py",
            "tests/core/test_reuse_keys.py",
            "tests/worker/test_file_hashes.py",
            "tests/worker/test_result_cache_decisions.py",
        ),
    ),
    "sizing": Part(
        (
            "mulligan.core.deciding.workers.adjustment",
            "mulligan.core.deciding.workers.resource_usage",
            "mulligan.core.model.text.sizes",
            "mulligan.core.model.clusters.slurm_profile",
            "mulligan.service.host.slurm.planning",
            "mulligan.worker.slots.allocation",
            "mulligan.worker.slots.resource_pool",
        ),
        (
            "tests/core/test_ladder_adjust.py",
            "tests/core/test_ladder_triage.py",
            "tests/core/test_resource_usage.py",
            "tests/core/test_resource_usage_limits.py",
            "tests/core/test_sizes.py",
            "tests/core/test_triage_agent.py",
            "tests/pilots/test_planning.py",
            "tests/pilots/test_profile_limits.py",
            "tests/worker/test_allocation.py",
            "tests/worker/test_resource_counts.py",
        ),
    ),
}


@cache
def project_of(part: str) -> Project:
    """The modules of a part, its tests, and what was judged."""
    here = Path(__file__)
    return Project(here.parents[2], *PARTS[part], here.with_name("judged.toml"), kept=part)
