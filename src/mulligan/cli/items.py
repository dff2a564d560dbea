"""`mulligan items`: one map step, item by item; the history of one; and another round for those that failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from mulligan.cli.attempts import show_attempts
from mulligan.cli.changing import Adjusting, Chosen, DryRun, another_round
from mulligan.cli.options import AsJson, Follow, HomeFolder, Reason, RunName, StepName, service_at
from mulligan.cli.parameters import Option
from mulligan.cli.tables import cut, show_table
from mulligan.cli.terminal import UsageRefused, complain, show, show_json
from mulligan.service.items import history, items
from mulligan.service.overview import in_a_line
from mulligan.service.verbs import Service

_VALUE_CHARS_MAX = 24
# Who brought an item through, where it was not simply its handler.
_HELP = {
    "rerun": "on the run after its handler",
    "fallback": "by its fallback handler",
    "custom": "by its custom handler",
}


def list_items(
    run: RunName,
    step: StepName,
    failed: Annotated[bool, Option("--failed", help="Only those that have failed.")] = False,
    item: Annotated[
        list[int] | None, Option("--item", metavar="I", help="The whole history of one; may be given several times.")
    ] = None,
    retry: Annotated[bool, Option("--retry", help="Run the failed items again, or those named by --item.")] = False,
    adjust: Adjusting = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    follows: Follow = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """List the items of a map step, and what became of each.

    With --retry they get another round, alone: the other items keep their results, and what is behind the step runs
    again.
    """
    of_retry = {"--adjust": adjust, "--reason": reason, "--dry-run": dry_run, "--follow": follows is not None}
    _refuse_senseless(failed, item, retry, of_retry)
    with service_at(home) as service:
        run_id = service.find_run(run)
        if retry:
            chosen = Chosen(run_id, step, item or (), adjust)
            return another_round(service, chosen, reason, dry_run=dry_run, follows=follows, home=home, as_json=as_json)
        if item:
            _show_some(service, run_id, step, item, as_json)
        else:
            _show_all(service, run_id, step, failed, as_json)
        return 0


def _refuse_senseless(failed: bool, item: Sequence[int] | None, retry: bool, of_retry: dict[str, object]) -> None:
    without = next((name for name, value in of_retry.items() if value), None)
    if without and not retry:
        raise UsageRefused(f"{without} is for another round", hint="add --retry, or leave it out")
    if failed and item:
        raise UsageRefused("--failed and --item are two questions", hint="ask one of them")


# -- all of them -----------------------------------------------------------------------------------------------------


def _show_all(service: Service, run_id: int, step: str, is_failed: bool, as_json: bool) -> None:
    found = items(service, run_id, step, is_failed=is_failed)
    if as_json:
        show_json(found)
        return
    if not found:
        why = "no item that failed" if is_failed else "no items"
        complain(f"step '{step}' of run {run_id} has {why}")
    show_table(("ITEM", "STATUS", "TRIES", "VALUE", ""), [_row(item) for item in found])


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    tries = str(item["attempts"]) if item["attempts"] else ""
    return str(item["index"]), item["status"], tries, cut(_text(item["item"]), _VALUE_CHARS_MAX), _end(item)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _end(item: dict[str, Any]) -> str:
    """How it ended, where that needs a word."""
    if item["recovered_by"]:
        return f"recovered {_HELP.get(item['recovered_by'], 'by its handler')}"
    return in_a_line(item["failure"]) if item["failure"] and item["status"] != "completed" else ""


# -- one of them -----------------------------------------------------------------------------------------------------


def _show_some(service: Service, run_id: int, step: str, indexes: Sequence[int], as_json: bool) -> None:
    found = [history(service, run_id, step, index) for index in indexes]
    if as_json:
        show_json(found)
        return
    for one in found:
        end = f", {_end(one)}" if _end(one) else ""
        show(f"item {one['index']} of '{step}' ({cut(_text(one['item']), 200)}): {one['status']}{end}")
        show_attempts(one["history"])
