"""What the scopes of a token allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# What each scope allows, itself included. `worker` is for programs that run tasks: it allows nothing that people do;
# `send` is for programs outside, which see nothing.
ALLOWED: Mapping[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "send": frozenset({"send"}),
    "run": frozenset({"run", "send", "read"}),
    "decide": frozenset({"decide", "read"}),
    "propose": frozenset({"propose", "read"}),
    "write": frozenset({"write", "propose", "run", "send", "read"}),
    "admin": frozenset({"admin", "write", "propose", "run", "send", "decide", "read"}),
    "worker": frozenset({"worker"}),
}
SCOPES = tuple(ALLOWED)
# Each in a few words, for people who choose.
MEANINGS: Mapping[str, str] = {
    "read": "look at runs, logs and workflows",
    "send": "send events to runs, and nothing else",
    "run": "start published workflows, and cancel, pause, resume and retry runs",
    "decide": "answer what waits for a person",
    "propose": "save drafts of workflows, which somebody else publishes",
    "write": "publish workflows and send texts to run, which is code",
    "admin": "everything but the work of a worker, tokens and audit included",
    "worker": "run tasks, and nothing else",
}


def allows(scopes: Iterable[str], wanted: str) -> bool:
    """Whether one of the scopes is `wanted` or implies it. An unknown scope allows nothing."""
    return any(wanted in ALLOWED.get(scope, ()) for scope in scopes)
