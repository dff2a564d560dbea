"""`mulligan items`: one map step or matrix, item by item; the history of one; another round for those that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from mulligan.cli.attempts import show_attempts
from mulligan.cli.change_commands import Adjusting, Chosen, DryRun, another_round
from mulligan.cli.options import AsJson, Follow, HomeFolder, Reason, RunName, StepName, service_at
from mulligan.cli.parameters import Option
from mulligan.cli.tables import cut, show_table
from mulligan.cli.terminal import UsageRefused, complain, show, show_json
from mulligan.service import Item, Service, summarize_failure, to_json
from mulligan.service.formatting import differing, shared_beginning, value_text, values_text

_VALUE_CHARS_MAX, _SHARED_CHARS_MAX = 24, 200
# So many values that differ have a column each; more stand in one.
_VALUES_MAX = 5
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
    """List the items of a map or matrix, with the status of each.

    What tells them apart is in the table; what all have in common stands above it. With --retry the items of a map get
    another round, alone: the other items keep their results, and what is behind the step runs again.
    """
    of_retry = {"--adjust": adjust, "--reason": reason, "--dry-run": dry_run, "--follow": follows is not None}
    _refuse_senseless(failed, item, retry, of_retry)
    with service_at(home) as service:
        run_id = service.find_run(run)
        if retry:
            service.refuse_matrix(run_id, step)
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
    found = service.list_items(run_id, step, is_failed=is_failed)
    if as_json:
        show_json(to_json(found))
        return
    if not found:
        why = "no item that failed" if is_failed else "no items"
        complain(f"step '{step}' of run {run_id} has {why}")
    values = [item.item for item in found]
    shared, heads, columns = _columns(values)
    if shared:
        show(f"all with {cut(shared, _SHARED_CHARS_MAX)}")
    # A step of a matrix has a name of its own.
    names = [[item.name] if isinstance(item.name, str) else [] for item in found]
    rows = [_row(item, [*name, *cells]) for item, name, cells in zip(found, names, columns, strict=True)]
    show_table(("ITEM", "STATUS", "TRIES", *(("STEP",) if any(names) else ()), *heads, ""), rows)


def _columns(values: Sequence[Any]) -> tuple[str, Sequence[str], list[list[str]]]:
    """What the values share, in words; the heads of the columns for what differs, and these columns, row by row."""
    if values and all(isinstance(value, dict) and value for value in values):
        found = differing(values)
        names = found.names if len(found.names) <= _VALUES_MAX else ()
        if names:
            rows = [[_cell(value[name]) if name in value else "" for name in names] for value in values]
            return values_text(found.shared), [name.upper() for name in names], rows
        rows = [[_cell(values_text(_without(value, found.shared)) or value_text(value))] for value in values]
        return values_text(found.shared) if found.names else "", ["VALUE"], rows
    texts = [value_text(value) for value in values]
    beginning = shared_beginning(texts) if any(len(text) > _VALUE_CHARS_MAX for text in texts) else ""
    rows = [[_cell(f"…{text[len(beginning) :]}" if beginning else text)] for text in texts]
    return f"{beginning}…" if beginning else "", ["VALUE"], rows


def _without(value: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name not in shared}


def _cell(value: Any) -> str:
    return cut(value_text(value), _VALUE_CHARS_MAX)


def _row(item: Item, cells: Sequence[str]) -> tuple[str, ...]:
    tries = str(item.attempts) if item.attempts else ""
    return str(item.index), item.status, tries, *cells, _end(item)


def _end(item: Item) -> str:
    """How it ended, where that needs a word."""
    if item.recovered_by:
        return f"recovered {_HELP.get(item.recovered_by, 'by its handler')}"
    return summarize_failure(item.failure) if item.failure and item.status != "completed" else ""


# -- one of them -----------------------------------------------------------------------------------------------------


def _show_some(service: Service, run_id: int, step: str, indexes: Sequence[int], as_json: bool) -> None:
    found = [service.item_history(run_id, step, index) for index in indexes]
    if as_json:
        show_json(to_json(found))
        return
    for one in found:
        end = f", {_end(one)}" if _end(one) else ""
        show(f"item {one.index} of '{step}' ({cut(value_text(one.item), 200)}): {one.status}{end}")
        show_attempts(one.history or ())
