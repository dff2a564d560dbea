"""How a child run is called after the place that called it: names that no other run has, in any store."""

from __future__ import annotations

from mulligan.core.state.state import Run


def child_uid(parent: Run, place: str, attempt: int) -> str:
    """The name of the run that an attempt calls; none where its parent has none."""
    return f"{parent.uid}.{place}.{attempt}" if parent.uid else ""


def calling_place(parent: str, child: str) -> str:
    """The place of the parent that called the child, by their uids; "" where that cannot be known."""
    called = child.removeprefix(f"{parent}.")
    return called.rpartition(".")[0] if parent and called != child else ""
