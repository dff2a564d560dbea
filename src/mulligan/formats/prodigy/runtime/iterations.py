"""The passes of a workflow that runs several times: for each file, or until nothing changes."""

from __future__ import annotations

import glob
import hashlib
import os
from typing import Any

from mulligan import StepError
from mulligan.worker.git.git import Git, is_installed

INPUTS_MAX = 10_000
Iteration = dict[str, Any]


def list_inputs(patterns: list[str], arguments: str = "") -> list[dict[str, str]]:
    """The files that match the patterns, then the words of `--args`: each is one pass.

    The argument of a file is its name without the ending; of `65-refactor.md` only `65`, as in Prodigy.
    """
    found: list[dict[str, str]] = []
    for pattern in patterns:
        paths = sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
        if not paths:
            raise StepError("INPUT_INVALID", f"no file matches '{pattern[:200]}'", retryable=False)
        found += [{"path": path, "argument": _argument(path)} for path in paths]
    found += [{"path": "", "argument": word} for word in arguments.split()]
    if len(found) > INPUTS_MAX:
        message = f"{len(found):,} files match, and at most {INPUTS_MAX:,} are possible"
        raise StepError("INPUT_INVALID", message, retryable=False)
    return found


def _argument(path: str) -> str:
    stem = os.path.splitext(os.path.basename(path))[0]
    return stem.partition("-")[0] or stem


def begin_iteration(number: int, total: int = 0, inputs: list[dict[str, str]] | None = None) -> Iteration:
    """What pass `number`, counted from 1, is for. Without inputs it also remembers the state of the files."""
    if inputs is not None:
        return {"number": number, "total": len(inputs), "state": "", **inputs[number - 1]}
    return {"number": number, "total": total, "state": _state_of_files(), "argument": "", "path": ""}


def end_iteration(iteration: Iteration) -> dict[str, Any]:
    """Whether there is another pass: not after the last one, and not if a pass changed nothing."""
    number, total, state = iteration["number"], iteration["total"], iteration["state"]
    is_idle = bool(state) and state == _state_of_files()
    reason = f"pass {number} of {total} changed nothing" if is_idle else f"pass {number} of {total} is done"
    return {"is_repeated": number < total and not is_idle, "next": number + 1, "reason": reason}


def _state_of_files() -> str:
    """A digest of all files in the checkout; "" outside a repository."""
    git = Git(os.getcwd())
    head = git.query("rev-parse", "--verify", "HEAD") if is_installed() else None
    if head is None:
        return ""
    untracked = git.paths("ls-files", "--others", "--exclude-standard")
    texts = [head, git("diff", "HEAD"), *(f"{path} {os.stat(path).st_mtime_ns}" for path in untracked)]
    return hashlib.sha256("\0".join(texts).encode(errors="surrogateescape")).hexdigest()
