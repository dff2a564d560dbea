"""`mulligan replay --verify`: the log proves the tables."""

from __future__ import annotations

from typing import Annotated

from mulligan.cli.options import AsJson, HomeFolder, RunName, service_at
from mulligan.cli.parameters import Option
from mulligan.cli.terminal import UsageRefused, complain, show, show_json
from mulligan.service import to_json
from mulligan.service.formatting import pluralize


def replay(
    run: RunName,
    verify: Annotated[bool, Option("--verify", help="Compare what the log gives with what the store has.")] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Rebuild a run from its event log, and compare it with the store.

    Nothing is run. The exit code is 1 if they differ.
    """
    if not verify:
        raise UsageRefused("a replay runs nothing: it can only be compared", hint="say so: --verify")
    with service_at(home) as service:
        run_id = service.find_run(run)
        found = service.replay(run_id)
    if as_json:
        show_json(to_json(found))
    elif found.differing:
        why = "somebody has changed the store, or this is a bug of ours"
        complain(f"run {run_id} differs from its log in {', '.join(found.differing)}: {why}")
    else:
        show(f"run {run_id}: {pluralize(found.events, 'event')} replayed, all as the store has it")
    return 1 if found.differing else 0
