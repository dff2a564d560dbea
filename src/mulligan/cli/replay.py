"""`mulligan replay --verify`: check that the tables of a run agree with its log."""

from __future__ import annotations

from typing import Annotated

from mulligan.cli.options import AsJson, HomeFolder, RunName, service_at
from mulligan.cli.parameters import Option
from mulligan.cli.terminal import UsageRefused, complain, show, show_json
from mulligan.service import to_json
from mulligan.service.formatting import pluralize


def replay(
    run: RunName,
    verify: Annotated[bool, Option("--verify", help="Compare the replayed log with the store.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Rebuild a run from its event log, and compare it with the store.

    Runs nothing. The exit code is 1 if they differ.
    """
    if not verify:
        raise UsageRefused("--verify is required", hint="write mulligan replay RUN --verify")
    with service_at(home) as service:
        run_id = service.find_run(run)
        found = service.replay(run_id)
    if as_json:
        show_json(to_json(found))
    elif found.differing:
        why = "the store was changed by hand, or this is a bug in Mulligan"
        complain(f"run {run_id} differs from its log in {', '.join(found.differing)}: {why}")
    else:
        show(f"run {run_id}: {pluralize(found.events, 'event')} replayed, no difference")
    return 1 if found.differing else 0
