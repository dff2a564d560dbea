"""Idempotency keys: the run that was started with a key is given again only for the same request."""

from __future__ import annotations

from collections.abc import Collection

from mulligan.core.deciding.rounds.kept_approvals import changed_inputs
from mulligan.core.model.workflow import NoticeRule
from mulligan.errors import InputInvalid, KeyMismatch
from mulligan.language.input_values import check_inputs
from mulligan.service.runs.changes.answers import Given
from mulligan.service.runs.changes.preflight import VERSION_LABEL
from mulligan.service.runs.changes.prepared_runs import Prepared
from mulligan.service.runs.stored.run_reader import RunReader


def refuse_other_request(
    reader: RunReader,
    run_id: int,
    asked: Prepared,
    key: str,
    *,
    same_version: bool = False,
    more_rules: Collection[NoticeRule] | None = None,
) -> None:
    """`KeyMismatch` if the run with this key was started with another workflow, other inputs, labels or notices.

    Names what differs, without the values, which may be nobody else's business. Notices are compared if it is known
    which rules count for every run.
    """
    record = reader.store.run(run_id)
    had = reader.start_of(run_id)
    other = [] if had is None else changed_inputs(had.inputs, asked.inputs)
    labels = [] if had is None else changed_inputs(had.labels, asked.labels) - {VERSION_LABEL}
    if record.workflow != asked.workflow.name:
        what = f"of the workflow '{record.workflow}', not '{asked.workflow.name}'"
    elif same_version and record.version != asked.version:
        what = f"of another version of '{record.workflow}'"
    elif other:
        what = f"with other inputs: {', '.join(map(repr, sorted(other)))}"
    elif labels:
        what = f"with other labels: {', '.join(map(repr, sorted(labels)))}"
    elif had is not None and more_rules is not None and not is_notified_as(had.notify, asked.notify, more_rules):
        what = "with other notices"
    else:
        return
    raise KeyMismatch(
        f"the key '{key}' was used for run {run_id} {what}", hint=_ANOTHER_KEY, run_id=run_id, inputs=sorted(other)
    )


_ANOTHER_KEY = "use another key for another run, or ask for the same again"


def is_notified_as(
    had: Collection[NoticeRule], wanted: Collection[NoticeRule], more_rules: Collection[NoticeRule]
) -> bool:
    """Whether a run with the rules `had` was asked for with those that are `wanted`.

    `more_rules` count for every run.
    """
    return set(wanted) <= set(had) <= {*wanted, *more_rules}


def is_of_older_version(
    reader: RunReader, run_id: int, prepared: Prepared, given: Given, more_rules: Collection[NoticeRule]
) -> bool:
    """Whether a run is what the same request gave when another version was the newest."""
    workflow, had = reader.first_workflow(run_id), reader.start_of(run_id)
    if had is None or workflow.name != prepared.workflow.name:
        return False
    # Those of either version, in place of which others may have been given.
    of_versions = {
        *workflow.labels.items(),
        *prepared.labels.items(),
        (VERSION_LABEL, had.labels.get(VERSION_LABEL)),
    }
    has_labels = all(had.labels.get(name) == value for name, value in given.labels.items())
    others = (one for one in had.labels.items() if one[0] not in given.labels)
    try:
        inputs = check_inputs(workflow, dict(given.inputs))
    except InputInvalid:
        return False
    is_same = not changed_inputs(had.inputs, inputs) and has_labels and all(one in of_versions for one in others)
    return is_same and is_notified_as(had.notify, prepared.notify, more_rules)
