"""What a history has more of than others: some defects show only where many things of one kind meet."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import msgspec


class Theme(msgspec.Struct, frozen=True):
    """What is more frequent. The one without a name is that of most histories."""

    name: str = ""
    # Moves that this history has in any case, and how often.
    steps: Mapping[str, int] = {}
    # How often a run that has ended is forked.
    forks: float = 0.08
    # How many processes there are in the beginning, and what each can run at once; nothing: as chance has it.
    engines: int | None = None
    slots: tuple[int, ...] = ()
    # Others act between any two calls of anybody; and nothing else goes wrong with the store.
    is_dense: bool = False
    # What the steps of its workflow have more often: breakers, calls, undo.
    often: str = ""


PLAIN = Theme()
GUESTS = Theme(
    "guests",
    steps={
        "newcomer": 6,
        "interrupt": 12,
        "end_task": 30,
        # They may come back and do what nobody else did: what was forgotten would not show.
        **dict.fromkeys(("lose_worker", "crash", "freeze", "cancel", "cancel_now", "pause"), 0),
    },
    engines=1,
    slots=(1,),
    is_dense=True,
)
_THEMES = (
    # One who is alone and has little room; others come, take what waits, and die.
    Theme("crowd", steps={"newcomer": 14, "lose_worker": 3}, engines=1, slots=(1,), is_dense=True),
    # One who is alone and has little room; others come, take what waits, and leave as they should.
    GUESTS,
    Theme("forks", steps={"fork": 6}, forks=0.6),
    Theme("breakers", often="breakers"),
    Theme("calls", steps={"pause": 3, "resume": 5}, often="calls"),
    Theme("undo", steps={"cancel": 2}, often="undo"),
)
# The store is away for longer than a lease, again and again; where hosts share it, heartbeats are too old then.
OUTAGES = Theme("outages", steps={"outage": 3, "pass_time": 16, "end_task": 30, "lose_worker": 1}, engines=3)
# People hold single steps and let them go, while everything else goes on as ever.
HOLDS = Theme("holds", steps={"pause_step": 8, "resume_step": 6, "pause": 2, "resume": 4})
_SHARE = 0.3
_OUTAGES_SHARE = 0.08
_HOLDS_SHARE = 0.08


def theme_of(seed: object) -> Theme:
    """Chosen apart from everything else: a theme more leaves the histories of the other seeds as they are."""
    if Random(f"outages {seed}").random() < _OUTAGES_SHARE:
        return OUTAGES
    if Random(f"holds {seed}").random() < _HOLDS_SHARE:
        return HOLDS
    rng = Random(f"theme {seed}")
    return rng.choice(_THEMES) if rng.random() < _SHARE else PLAIN
