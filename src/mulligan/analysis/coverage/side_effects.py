"""Whether doing a step twice has an effect that doing it once does not have: only where that can be seen.

What is recognized, and nothing else:

- `http` with POST or PATCH whose key is switched off (`Idempotency-Key: null`): otherwise the engine sends one that is
  the same for every attempt. The other methods may be repeated by definition (RFC 9110, 9.2.2).
- `sql` that inserts rows without saying what to do about those that are there, or that changes a column by its own
  value (`set total = total + 1`). A failed query is rolled back, so only failures that leave the commit unknown count.
- `shell` that posts with curl or wget, submits a batch job, sends mail or publishes a message, or that inserts with a
  database client, unless the text has an idempotency key. What a script does that it calls cannot be known.

Python, agents and actions of packages are not looked into.

`effect_of_another_visit` asks the same of a whole step that has run and runs again. Another visit has other keys, so
more counts there: every request that may change something, every query that writes, and what the author says.
"""

from __future__ import annotations

import re
from typing import Any

from mulligan.core.model.actions import called_workflow, traits_of
from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.core.model.workflow import Action, Step, Workflow

_KEY = lazy_regex(r"idempoten|MULLIGAN_IDEMPOTENCY_KEY|request[-_]?id", re.IGNORECASE)
_NOT_IDEMPOTENT = frozenset({"POST", "PATCH"})
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
# A statement that begins with one of these words, or a part of one that changes rows.
_WRITE = lazy_regex(
    r"(?:\A|;)\s*(?:--[^\n]*\n\s*)*(?:insert|update|delete|merge|replace|truncate|create|drop|alter|grant|revoke|call|copy)\b"
    r"|\binsert\s+into\b|\bdelete\s+from\b|\bmerge\s+into\b|\bupdate\s+\S+\s+set\b",
    re.IGNORECASE,
)
_INSERT = lazy_regex(r"\binsert\s+into\b", re.IGNORECASE)
_INSERT_ONCE = lazy_regex(
    r"\bon\s+conflict\b|\bon\s+duplicate\b|\binsert\s+or\s+\w+|\bnot\s+exists\b|\bmerge\s+into\b|\bdelete\s+from\b"
    r"|\btruncate\b|\bexcept\b|\bcreate\s+(?:or\s+replace\s+)?(?:temp\w*\s+)?table\b|\breplace\s+into\b",
    re.IGNORECASE,
)
_CHANGE_BY_ITSELF = lazy_regex(r"\bset\s+(?:\w+\s*=[^;]*?,\s*)?(\w+)\s*=\s*\1\s*(?:[-+*/]|\|\|)", re.IGNORECASE)
# A comment of a shell, and the text of a here-document for a remote host, are left as they are: they rarely matter.
_CURL_POST = lazy_regex(
    r"\bcurl\b[^\n;|&]*?\s(?:-X\s*|--request[ =])['\"]?(?:POST|PATCH)\b"
    r"|\bcurl\b(?![^\n;|&]*\s(?:-G|--get|-X\s*|--request[ =]))[^\n;|&]*?\s(?:-d|--data(?:-\w+)?|--json|-F|--form)[ =]"
    r"|\bwget\b[^\n;|&]*?\s--post-(?:data|file)\b"
)
_COMMANDS = (
    (_CURL_POST, "posts to a server"),
    (lazy_regex(r"(?:^|[\s;&|(])(?:sbatch|qsub|bsub)\s(?!-?-?(?:help|version)\b)"), "submits a batch job"),
    (lazy_regex(r"(?:^|[\s;&|(])(?:mail|mailx|sendmail|mutt)\s+(?:-\w|\S+@)"), "sends mail"),
    (lazy_regex(r"\baws\s+(?:sns\s+publish|sqs\s+send-message|ses\s+send-email)\b"), "sends a message"),
)
_DATABASE_CLIENT = lazy_regex(r"\b(?:psql|mysql|mariadb|sqlite3|duckdb)\b")
# Continued lines are one command.
_CONTINUED = lazy_regex(r"\\\n\s*")
# Failures after which nobody knows whether a transaction was committed.
COMMIT_UNKNOWN = frozenset({"CONNECTION", "TIMEOUT"})
# Failures of which it is known that nothing was done.
NOTHING_DONE = frozenset({"HTTP_429", "CIRCUIT_OPEN", "NO_CAPACITY", "REQUIREMENTS_FAILED", "INPUT_INVALID"})


def side_effect(action: Action | None) -> str:
    """What doing it twice does twice, in words such as "posts to a server"; "" if none is recognized."""
    found = traits_of(action)
    if action is None or found.effect:
        return found.effect
    if found.is_request:
        return _of_request(action.params)
    if found.query:
        return _of_query(_texts(action.params.get(found.query)))
    return _of_shell(_CONTINUED.sub(" ", str(action.params.get(found.script, "")))) if found.script else ""


def effect_of_another_visit(step: Step, workflow: Workflow) -> str:
    """What running a step once more changes outside of the run, in words such as "sends a POST"; "" if none is seen.

    Its author says so with `undo` or `on_lost: fail`; it asks a person or an agent; or one of its actions shows it,
    also one of a workflow that it calls. Its handlers and scripts do not count: they run only if it fails.
    """
    if step.undo is not None:
        return "has an undo"
    if step.on_lost == "fail":
        return "has on_lost: fail"
    actions = [action for one in (step, *step.do, *step.on_success) if (action := one.action) is not None]
    return next((effect for action in actions if (effect := _of_visit(action, workflow))), "")


def _of_visit(action: Action, workflow: Workflow) -> str:
    found = traits_of(action)
    if found.visit_effect:
        return found.visit_effect
    method = str(action.params.get("method", "GET")).upper()
    if found.is_request and method not in _READING:
        return f"sends a {method}"
    query = action.params.get(found.query) if found.query else None
    if any(_WRITE.search(str(one)) for one in (query if isinstance(query, list) else [query])):
        return "writes to a database"
    if (child := called_workflow(action, workflow)) is not None:
        return next((effect for one in child.steps if (effect := effect_of_another_visit(one, child))), "")
    return side_effect(action)


def _of_request(params: dict[str, Any]) -> str:
    method = str(params.get("method", "GET")).upper()
    headers = params.get("headers")
    own = {name.lower(): value for name, value in headers.items()} if isinstance(headers, dict) else {}
    is_off = "idempotency-key" in own and own["idempotency-key"] is None
    return f"sends a {method} without an idempotency key" if method in _NOT_IDEMPOTENT and is_off else ""


def _of_query(text: str) -> str:
    if _INSERT.search(text) and not _INSERT_ONCE.search(text):
        return "inserts rows"
    return "changes a column by its own value" if _CHANGE_BY_ITSELF.search(text) else ""


def _of_shell(text: str) -> str:
    if _KEY.search(text):
        return ""
    for pattern, words in _COMMANDS:
        if pattern.search(text):
            return words
    return _of_query(text) if _DATABASE_CLIENT.search(text) else ""


def _texts(value: Any) -> str:
    return value if isinstance(value, str) else " ".join(map(str, value)) if isinstance(value, list) else ""
