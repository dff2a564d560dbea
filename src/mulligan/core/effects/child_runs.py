"""The uid of a child run, derived from the place that called it; unique over all stores."""

from __future__ import annotations

from mulligan.core.state.state import Run


def child_uid(parent: Run, place: str, attempt: int) -> str:
    """The uid of the run that an attempt calls; "" if its parent has none."""
    return f"{parent.uid}.{place}.{attempt}" if parent.uid else ""


def calling_place(parent: str, child: str) -> str:
    """The place of the parent that called the child, from their uids; "" if unknown."""
    called = child.removeprefix(f"{parent}.")
    return called.rpartition(".")[0] if parent and called != child else ""
