"""Fingerprints: how later runs find the result of a step, and what they take over.

A *fingerprint* covers everything that goes into a step: its definition, its values, the contents of the files that it
reads, the code of its function. A completed step is found by its fingerprint in the tables of its run. Of secrets only
the names are included, never the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from mulligan.core.deciding.report_checks import PART_CHARS_MAX, PARTS_MAX
from mulligan.core.effects.reuse import contents_of, digest_of, without_pinned
from mulligan.core.effects.snapshot import read_place
from mulligan.core.effects.tasks import Task
from mulligan.core.model.file_records import FileRecord
from mulligan.core.state.transitions import RUN_ENDED
from mulligan.errors import CodecError

# Part of every fingerprint. A change of this number makes all earlier results unfindable.
_VERSION = 1
FINGERPRINT_CHARS = 32
# Of the hash of a part, which is only compared with those of one other run.
_PART_CHARS = 12


class Result(msgspec.Struct, frozen=True):
    """The result of a step in an earlier run. `run_id` is the run that did the work."""

    run_id: int
    output: Any
    files: tuple[FileRecord, ...]


def fingerprint(task: Task, contents: Mapping[str, str], code: str = "") -> str:
    """The fingerprint of a task, given the hashes of the files that it reads, by name, and of its code."""
    about = task.reuse
    assert about is not None, f"'{task.place}' cannot be reused"
    params = without_pinned(task.params) if code else task.params
    values = [params, task.env, task.cwd, task.late, task.bound, about.key]
    values += [(one.step, one.output) for one in task.agent_context.outputs] if task.agent_context else []
    known_by = (_VERSION, task.workflow, task.step, task.home, task.kind, about.definition, about.after, contents)
    return digest_of((*known_by, contents_of(values), *filter(None, [code])))[:FINGERPRINT_CHARS]


def parts_of(task: Task, contents: Mapping[str, str], code: Mapping[str, str]) -> dict[str, str]:
    """A hash of each part of a fingerprint, by its description, so that `explain` can name the one that differs."""
    about = task.reuse
    assert about is not None, f"'{task.place}' cannot be reused"
    args = task.params.get("args", {})
    found: dict[str, Any] = {"its definition": about.definition, "the key of 'cache'": about.key, "'cwd'": task.cwd}
    found |= {f"the argument '{name}'": value for name, value in args.items()} if isinstance(args, Mapping) else {}
    found |= {f"the variable '{name}'": value for name, value in task.env.items()}
    params = without_pinned(task.params) if code else task.params
    found["its values"] = ({**params, "args": None}, task.late, task.bound)
    found |= {f"the file '{name}'": content for name, content in contents.items()}
    found |= {f"what '{name}' did": trace for name, trace in about.after.items()}
    hashes = {name: digest_of(contents_of(value))[:_PART_CHARS] for name, value in found.items() if value}
    if len(hashes) + len(code) >= PARTS_MAX:
        code = _by_file(code)
    hashes |= {f"the code of {name}": part[:_PART_CHARS] for name, part in code.items()}
    named = ((name, part) for name, part in hashes.items() if len(name) <= PART_CHARS_MAX)
    kept = dict(islice(named, PARTS_MAX - 1))
    return {**kept, "something else": digest_of(hashes)[:_PART_CHARS]} if len(kept) < len(hashes) else kept


def _by_file(code: Mapping[str, str]) -> dict[str, str]:
    """One hash for each file: of so many functions, none is named."""
    by_file: dict[str, list[tuple[str, str]]] = {}
    for name, part in sorted(code.items()):
        by_file.setdefault(name.partition(": ")[0], []).append((name, part))
    return {file: digest_of(parts) for file, parts in by_file.items()}


def differences(now: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Which parts are not what they were: in words, in the order in which a person looks for them."""
    changed = [name for name, part in now.items() if name in before and before[name] != part]
    changed += [f"{name} (new)" for name in now if name not in before]
    return changed + [f"{name} (gone)" for name in before if name not in now]


def result_of(run_id: int, status: str, key: str, data: bytes, task: Task) -> Result | None:
    """The result in a row of the tables; None if it may not be taken over.

    A run takes no result of its own, also not from a run that has taken it over. The result of a step with an `undo`
    counts only after its run has ended, since it may be undone until then; and only in the run that did the work, since
    others that took it over do not know whether it was undone. A row that cannot be read is ignored: that is a problem
    of its own run.
    """
    has_undo = task.reuse is not None and task.reuse.has_undo
    if run_id == task.run_id or (has_undo and status not in RUN_ENDED):
        return None
    try:
        place = read_place(key, data)
    except CodecError:
        return None
    worked_run_id = place.result_run_id or run_id
    if worked_run_id == task.run_id or (has_undo and worked_run_id != run_id):
        return None
    return Result(worked_run_id, place.output, place.files)
