"""Subtasks, in a worker: check a spawner's answer, list its subtasks, and summarize their results for the join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mulligan import StepError
from mulligan.core.model.failure_context import (
    CONTEXT_CHARS_MAX,
    SHARE_CHARS_MIN,
    UPSTREAM_CHARS_MAX,
    UPSTREAM_OUTPUTS_MAX,
    head_tail,
)

ROWS_CHARS_MAX = 8_000
PREVIEW_CHARS_MAX = 160

_TEXTS = ("title", "prompt")
_OPTIONAL_TEXTS = ("nodeKey", "provider", "model")
_SUBTASK_KEYS = {*_TEXTS, *_OPTIONAL_TEXTS, "metadata"}


# -- checking the answer ---------------------------------------------------------------------------------------------


def check_answer(answer: Any, most: int, taken: Sequence[str]) -> None:
    """Raise StepError if a spawner's answer is invalid. `taken` are the keys of the workflow's nodes."""
    problem = next(_problems(answer, most, taken), "")
    if problem:
        raise StepError("SPAWNER_OUTPUT_INVALID", f"SPAWNER_OUTPUT_INVALID: {problem}")


def _problems(answer: Any, most: int, taken: Sequence[str]) -> Iterator[str]:
    if not isinstance(answer, dict):
        yield 'the answer is not an object such as {"schemaVersion": 1, "subtasks": []}'
        return
    if answer.get("schemaVersion") != 1 or isinstance(answer["schemaVersion"], bool):
        yield "'schemaVersion' is not 1"
    subtasks = answer.get("subtasks")
    if not isinstance(subtasks, list):
        yield "'subtasks' is not a list"
        return
    if len(subtasks) > most:
        yield f"there are {len(subtasks)} subtasks, but at most {most} are allowed"
    for number, subtask in enumerate(subtasks, start=1):
        yield from _subtask_problems(subtask, f"subtask {number}")
    yield from _key_clashes(subtasks, taken)


def _subtask_problems(subtask: Any, label: str) -> Iterator[str]:
    if not isinstance(subtask, dict):
        yield f"{label} is not an object"
        return
    for key in _TEXTS:
        if not isinstance(subtask.get(key), str) or not subtask[key].strip():
            yield f"{label} has no '{key}'"
    for key in _OPTIONAL_TEXTS:
        if subtask.get(key) is not None and (not isinstance(subtask[key], str) or not subtask[key].strip()):
            yield f"'{key}' of {label} is not a text"
    unknown = sorted(set(subtask) - _SUBTASK_KEYS)
    if unknown:
        yield f"{label} has '{unknown[0]}', which is not a key of a subtask"


def _key_clashes(subtasks: list[Any], taken: Sequence[str]) -> Iterator[str]:
    seen = set(taken)
    for subtask in subtasks:
        key = subtask.get("nodeKey") if isinstance(subtask, dict) else None
        if isinstance(key, str):
            if key in seen:
                yield f"the nodeKey '{key}' is already used"
            seen.add(key)


# -- listing ---------------------------------------------------------------------------------------------------------


def list_subtasks(
    answer: dict[str, Any], spawner: str, visit: int, provider: str | None = None, model: str | None = None
) -> list[dict[str, Any]]:
    """The subtasks of a checked answer, with missing values from the spawner."""
    return [
        {
            "nodeKey": subtask.get("nodeKey") or f"{spawner}__{visit}__{number}",
            "title": subtask["title"],
            "prompt": subtask["prompt"],
            "provider": subtask.get("provider") or provider,
            # A model belongs to its provider: the spawner's model does not fit another provider.
            "model": subtask.get("model") or (model if subtask.get("provider") in (None, provider) else None) or "",
            "metadata": subtask.get("metadata"),
        }
        for number, subtask in enumerate(answer["subtasks"], start=1)
    ]


# -- summarizing -----------------------------------------------------------------------------------------------------


def summarize_subtasks(answer: dict[str, Any], spawner: str, visit: int, outcome: dict[str, Any]) -> str:
    """A row for each subtask, then the reports of at most four: failed ones first, then the newest."""
    subtasks = list_subtasks(answer, spawner, visit)
    failed = {failure["index"]: failure for failure in outcome["failures"]}
    ended = [_outcome_of(one, failed.get(index), outcome["results"][index]) for index, one in enumerate(subtasks)]
    rows, _ = head_tail("\n".join(map(_row, ended)), ROWS_CHARS_MAX)
    total, succeeded, failures = (outcome[key] for key in ("total", "succeeded", "failed"))
    counts = {"total": total, "terminal": succeeded + failures, "succeeded": succeeded, "failed": failures}
    head = [f"subtasks.{key}: {count}" for key, count in counts.items()]
    return "\n".join([*head, "subtask_rows:", rows, *_reports(ended)])


def _outcome_of(subtask: dict[str, Any], failure: dict[str, Any] | None, result: Any) -> dict[str, str]:
    if failure is not None:
        return {"key": subtask["nodeKey"], "status": "failed", "report": f"{failure['code']}: {failure['message']}"}
    content = result.get("content") if isinstance(result, dict) else None
    return {"key": subtask["nodeKey"], "status": "completed", "report": content if isinstance(content, str) else ""}


def _row(ended: dict[str, str]) -> str:
    preview = " ".join(ended["report"].split())[:PREVIEW_CHARS_MAX]
    return f"- node_key: {ended['key']}; status: {ended['status']}; preview: {preview}"


def _reports(ended: list[dict[str, str]]) -> Iterator[str]:
    order = sorted(range(len(ended)), key=lambda index: (ended[index]["status"] != "failed", -index))
    room = CONTEXT_CHARS_MAX - ROWS_CHARS_MAX
    for one in (ended[index] for index in order[:UPSTREAM_OUTPUTS_MAX]):
        text, cut = head_tail(one["report"], min(UPSTREAM_CHARS_MAX, room))
        if one["report"] and room >= min(len(one["report"]), SHARE_CHARS_MIN):
            room -= cut.included_chars
            yield f"\nreport of {one['key']} ({one['status']}):\n{text}"
