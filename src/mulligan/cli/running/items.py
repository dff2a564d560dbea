"""`mulligan items`: the items of a map step or matrix, the history of one, and retrying items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from mulligan.cli.output.attempts import show_attempts
from mulligan.cli.output.tables import cut, show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_result
from mulligan.cli.running.change_commands import Adjusting, DryRun, KeepCompleted, RetryOptions, run_retry
from mulligan.cli.running.continue_run import Detach, Follow, read_continuation
from mulligan.cli.running.drive_run import CommandContext
from mulligan.cli.words.options import AsJson, HomeFolder, Reason, RunName, StepName, service_at, where
from mulligan.cli.words.parameters import Flag, Option
from mulligan.service.rendering.descriptions import summarize_failure
from mulligan.service.rendering.formatting import find_differences, shared_beginning, value_text, values_text
from mulligan.service.runs.views.items import Item, SomeItems
from mulligan.service.service import Service

_VALUE_CHARS_MAX, _SHARED_CHARS_MAX = 24, 200
# How many items a page has.
LIMIT = 200
# Up to so many differing values have a column each; more share one.
_VALUES_MAX = 5
# How an item was recovered, if not simply by its handler.
_HELP = {
    "rerun": "by the run after its handler",
    "fallback": "by its fallback handler",
    "custom": "by its custom handler",
}


def list_items(
    run: RunName,
    step: StepName,
    failed: Annotated[bool, Flag("Only failed items.")] = False,
    item: Annotated[list[str] | None, Option("I", "All attempts at this item, by index or name (repeatable).")] = None,
    after: Annotated[int | None, Option("I", "The page after this item.")] = None,
    limit: Annotated[int | None, Option("N", "How many items to show at most (default: 200).", "--limit", "-n")] = None,
    whole: Annotated[bool, Flag("Show all items, however many there are.", "--all")] = False,
    retry: Annotated[bool, Flag("Run the failed items again, or those given by --item.")] = False,
    adjust: Adjusting = False,
    keep_completed: KeepCompleted = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    follows: Follow = None,
    detach: Detach = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """List the items of a map or matrix, with the status of each.

    The table shows the values that differ; common values are above it. --json prints all items, unless --after or
    --limit asks for a page. With --retry only these items of a map run
    again: the other items keep their results, and the steps after the map run again, unless --keep-completed is given.
    """
    of_retry = {"--adjust": adjust, "--reason": reason, "--dry-run": dry_run, "--follow": follows is not None}
    of_retry |= {"--detach": detach, "--keep-completed": keep_completed}
    _refuse_combinations(failed, item, retry, of_retry)
    if limit is not None and limit < 1:
        raise UsageRefused(f"--limit must be at least 1, not {limit}")
    if after is not None and after < 0:
        raise UsageRefused(
            f"--after must be the number of an item, not {after}", hint="the last one of the page before"
        )
    with service_at(home) as service:
        run_id = service.runs.find(run)
        indexes = service.runs.find_items(run_id, step, item) if item else []
        if retry:
            service.runs.refuse_matrix(run_id, step)
            chosen = RetryOptions(run_id, step, indexes, adjust, keep_completed=keep_completed)
            continuation = read_continuation(follows, detach)
            return run_retry(CommandContext(service, home, as_json), chosen, reason, continuation, dry_run=dry_run)
        if item:
            _show_some(service, run_id, step, indexes, as_json)
        else:
            # A program gets all items, unless it asks for a page.
            most = None if whole or (as_json and after is None) else LIMIT
            start = -1 if after is None else after
            page = service.runs.some_items(run_id, step, is_failed=failed, after=start, limit=limit or most)
            if as_json:
                show_result(page.items)
            else:
                _show_page(page, run_id, step, is_failed=failed, home=where(home))
        return 0


def _refuse_combinations(failed: bool, item: Sequence[str] | None, retry: bool, of_retry: dict[str, object]) -> None:
    without = next((name for name, value in of_retry.items() if value), None)
    if without and not retry:
        raise UsageRefused(f"{without} needs --retry", hint="add --retry, or leave it out")
    if failed and item:
        raise UsageRefused("--failed and --item cannot be combined", hint="give one of them")


# -- a page of them --------------------------------------------------------------------------------------------------


def _show_page(page: SomeItems, run_id: int, step: str, *, is_failed: bool, home: str) -> None:
    found = page.items
    if not found:
        why = "no failed items" if is_failed else "no items"
        complain(f"step '{step}' of run {run_id} has {why}")
    values = [item.item for item in found]
    shared, heads, columns = _columns(values)
    if shared:
        show(f"all with {cut(shared, _SHARED_CHARS_MAX)}")
    # A step of a matrix has its own name.
    names = [[item.name] if isinstance(item.name, str) else [] for item in found]
    rows = [_row(item, [*name, *cells]) for item, name, cells in zip(found, names, columns, strict=True)]
    show_table(("ITEM", "STATUS", "TRIES", *(("STEP",) if any(names) else ()), *heads, ""), rows)
    if found and len(found) < page.total:
        counts = ", ".join(f"{count:,} {status}" for status, count in page.counts.items())
        complain(f"items {found[0].index} to {found[-1].index} of {sum(page.counts.values()):,}: {counts}")
    if page.next is not None:
        again = f"mulligan items {run_id} {step}{' --failed' if is_failed else ''}"
        complain(f"the next ones: {again} --after {page.next}{home}; all: {again} --all{home}")


def _columns(values: Sequence[Any]) -> tuple[str, Sequence[str], list[list[str]]]:
    """The common part of the values; the heads of the columns for the rest, and these columns, row by row."""
    if values and all(isinstance(value, dict) and value for value in values):
        found = find_differences(values)
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
    """How it ended, if it failed or was recovered."""
    if item.recovered_by:
        return f"recovered {_HELP.get(item.recovered_by, 'by its handler')}"
    return summarize_failure(item.failure) if item.failure and item.status != "completed" else ""


# -- one of them -----------------------------------------------------------------------------------------------------


def _show_some(service: Service, run_id: int, step: str, indexes: Sequence[int], as_json: bool) -> None:
    found = service.runs.item_histories(run_id, step, indexes)
    if as_json:
        show_result(found)
        return
    for one in found:
        end = f", {_end(one)}" if _end(one) else ""
        show(f"item {one.index} of '{step}' ({cut(value_text(one.item), 200)}): {one.status}{end}")
        tried = one.history or ()
        show_attempts(tried, service.runs.name_places(run_id, [attempt.place for attempt in tried]))
