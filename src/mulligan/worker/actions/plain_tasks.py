"""Which tasks ask a worker for nothing but a call of their function, and which answers say nothing but a result.

Secrets, artifacts, kept results, links to logs, limits of memory, GPUs: each is a stage that a task may pass before it
starts or after it has ended. Whether a task passes any of them is asked once, of all of them together.
"""

from __future__ import annotations

from operator import itemgetter

import msgspec

from mulligan.core.effects.tasks import Task
from mulligan.core.model.artifacts import KEY_AS_JSON
from mulligan.worker.actions.action_registry import is_python
from mulligan.worker.child.warm_child import CallResult

_encode = msgspec.json.Encoder().encode
_astuple = msgspec.structs.astuple
# What a task has that needs a stage of its own, here or at its end.
_STAGES = (
    *("deadline", "memory", "gpus", "context", "files", "secrets", "agent_context", "late", "logs", "folders"),
    *("reuse", "data", "waits", "conversation"),
)
_stages = itemgetter(*map(Task.__struct_fields__.index, _STAGES))
_NO_STAGE = _stages(_astuple(Task(0, "", 0, "", {}, "", "", "", 0)))
# Parameters of which each needs one.
_PARAMETERS = frozenset({"requirements", "on", "stdin"})

# What an answer may say beside its result: that is looked at, field by field.
_NOTES = (
    *("in_file", "folder", "unreadable", "refused", "exit", "invalid", "reported", "exception", "forked", "dirty"),
)
_notes = itemgetter(*map(CallResult.__struct_fields__.index, _NOTES))
_NO_NOTE = _notes(_astuple(CallResult(0, 0.0, 0, 0, 0)))


def is_plain(task: Task) -> bool:
    """Whether it is a function in a warm child, with values that are all in the task, and needs no other stage."""
    if _stages(_astuple(task)) != _NO_STAGE or not _PARAMETERS.isdisjoint(task.params):
        return False
    return is_python(task) and KEY_AS_JSON not in _encode((task.params, task.env, task.cwd))


def is_plain_result(answer: CallResult) -> bool:
    """Whether it has returned, and left nothing behind. Its logs are named by then."""
    return bool(_notes(_astuple(answer)) == _NO_NOTE)
