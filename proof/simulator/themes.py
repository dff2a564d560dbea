"""Themes of histories: some bugs show only where many things of one kind meet."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import msgspec


class Theme(msgspec.Struct, frozen=True):
    """What is more frequent in a history. Most histories have the theme without a name."""

    name: str = ""
    # Steps that this history always has, and how often.
    steps: Mapping[str, int] = {}
    # How often a finished run is forked.
    forks: float = 0.08
    # How many processes there are at first, and their slots; empty: random.
    engines: int | None = None
    slots: tuple[int, ...] = ()
    # Others act between any two calls; and there are no other faults of the store.
    is_dense: bool = False
    # Workers of the second host take part over HTTP, through a server.
    is_remote: bool = False
    # Servers start what a schedule says, and send the notices of all runs.
    has_servers: bool = False
    # What the steps of its workflow have more often: breakers, calls, undo, tools, cached, worktrees.
    often: str = ""


PLAIN = Theme()
GUESTS = Theme(
    "guests",
    steps={
        "newcomer": 6,
        "interrupt": 12,
        "end_task": 30,
        # No retries or forks: another round would repair what was forgotten.
        **dict.fromkeys(("lose_worker", "crash", "freeze", "cancel", "cancel_now", "pause"), 0),
    },
    engines=1,
    slots=(1,),
    is_dense=True,
)
FORKS = Theme("forks", steps={"fork": 6}, forks=0.6)
_THEMES = (
    # One worker with few slots; others come, take what waits, and die.
    Theme("crowd", steps={"newcomer": 14, "lose_worker": 3}, engines=1, slots=(1,), is_dense=True),
    # One worker with few slots; others come, take what waits, and leave in an orderly way.
    GUESTS,
    FORKS,
    Theme("breakers", often="breakers"),
    Theme("calls", steps={"pause": 3, "resume": 5}, often="calls"),
    Theme("undo", steps={"cancel": 2}, often="undo"),
)
# The store is unavailable for longer than a lease, repeatedly; if shared, heartbeats are too old then.
OUTAGES = Theme("outages", steps={"outage": 3, "pass_time": 16, "end_task": 30, "lose_worker": 1}, engines=3)
# Operators pause and resume single steps while everything else continues.
HOLDS = Theme("holds", steps={"pause_step": 8, "resume_step": 6, "pause": 2, "resume": 4})
# Agents with tools: their questions and calls are lost, repeated, cancelled and out of budget.
TOOLS = Theme("tools", steps={"end_task": 30, "lose_worker": 3}, often="tools")
# Runs of one workflow that take over each other's results, while these are made, rejected, undone and forked.
CACHED = Theme(
    "cached", steps={"start_run": 8, "end_task": 30, "retry": 2, "fork": 2}, engines=2, forks=0.3, often="cached"
)
# Runs that work in Git worktrees, which are forked again and again, also while others go on.
WORKTREES = Theme(
    "worktrees", steps={"fork": 8, "end_task": 30, "retry": 3, "pause": 1, "resume": 4}, forks=0.6, often="worktrees"
)
# Workers over HTTP: exchanges are lost on both ways, servers start again, the store behind them is away.
REMOTE = Theme("remote", steps={"outage": 1, "end_task": 40, "step": 60}, engines=4, slots=(2, 4), is_remote=True)
# Two servers with one schedule and one outbox: they die between any two calls, targets are down, clocks jump.
SERVERS = Theme(
    "servers",
    steps={"serve": 20, "lose_server": 1, "freeze_server": 1, "crash_server": 2, "pass_time": 12, "end_task": 30}
    | {"hold_schedule": 2},
    has_servers=True,
)
# The same, and others act between any two calls of a server.
RACING_SERVERS = msgspec.structs.replace(SERVERS, name="racing servers", is_dense=True)
# Programs: each turn is replayed, by whichever worker gets it.
PROGRAMS = Theme(
    "programs", steps={"end_task": 45, "lose_worker": 3, "retry": 2, "fork": 2}, forks=0.2, often="programs"
)
_SHARE = 0.3
_OUTAGES_SHARE = 0.08
_HOLDS_SHARE = 0.08
_TOOLS_SHARE = 0.08
_CACHED_SHARE = 0.05
_REMOTE_SHARE = 0.06
_SERVERS_SHARE = 0.06
_WORKTREES_SHARE = 0.06
_PROGRAMS_SHARE = 0.14


def theme_of(seed: object, store: str = "") -> Theme:
    """Chosen independently of everything else: a new theme does not change the histories of other seeds.

    `store` is the kind of store that was asked for, if any: remote workers need one that hosts share.
    """
    if Random(f"outages {seed}").random() < _OUTAGES_SHARE:
        return OUTAGES
    if Random(f"holds {seed}").random() < _HOLDS_SHARE:
        return HOLDS
    if Random(f"tools {seed}").random() < _TOOLS_SHARE:
        return TOOLS
    if Random(f"cached {seed}").random() < _CACHED_SHARE:
        return CACHED
    if store in ("", "shared") and Random(f"remote {seed}").random() < _REMOTE_SHARE:
        return REMOTE
    if Random(f"servers {seed}").random() < _SERVERS_SHARE:
        return SERVERS if Random(f"racing {seed}").random() < 0.5 else RACING_SERVERS
    if Random(f"worktrees {seed}").random() < _WORKTREES_SHARE:
        return WORKTREES
    if Random(f"programs {seed}").random() < _PROGRAMS_SHARE:
        return PROGRAMS
    rng = Random(f"theme {seed}")
    return rng.choice(_THEMES) if rng.random() < _SHARE else PLAIN
