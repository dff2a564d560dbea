"""Draws docs/reference/step-states.md and run-states.md from the table of allowed transitions.

    python -m tools.state_diagrams

rewrites both files. A test checks that the pages match the table that the core uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mulligan.core.model import events as e
from mulligan.core.state.transitions import ENDED, PLACE, RUN, RUN_ENDED, RUN_STATUSES, STATUSES, Moves

COMMAND = "python -m tools.state_diagrams"
DOCS = Path(__file__).parents[1] / "docs" / "reference"

Table = Mapping[type[e.Fact], Moves]

STEP_WORDS = {
    "waiting": "It has not been entered in this visit: its needs are open, or nothing has arrived yet.",
    "ready": "It was entered, and an attempt is in the queue: a worker may take it. "
    "In a paused run a wait, an approval or a sub-workflow is here until the run is resumed; and a step "
    "that a person has paused is here until it is resumed.",
    "running": "An attempt is running, or its result is being checked: `validate` and `on_success` belong here too. "
    "A step that was asked to stop stays here until it has ended.",
    "backing_off": "An attempt failed and its retry is reserved. It becomes ready when the recovery script has ended "
    "and the delay is over.",
    "handling": "The `on_failure` commands run.",
    "pending_failed": "It failed, and a person or an agent decides what happens next. Not an end: steps that need it "
    "continue to wait.",
    "completed": "It succeeded, or its handler recovered it.",
    "failed": "No rung handled the failure, or a failure edge was taken. A remediation may bring it back.",
    "skipped": "It was never entered: a need cannot be met, nothing arrived, or its `when` is false.",
    "cancelled": "The run stopped before it was done.",
}

RUN_WORDS = {
    "running": "Steps may start. A run that stops is still running until `end` has ended.",
    "paused": "Running tasks may end and their results count; nothing starts; timers wait for `resume`.",
    "completed": (
        "Every failure was handled, recovered or allowed; or `end` returned this status. "
        "`items --retry` opens the next round for items that a map let fail."
    ),
    "failed": "A failure was not handled, the run timed out, or `end` failed or returned this status. "
    "`retry` opens the next round.",
    "cancelled": "An operator stopped it. `retry` opens the next round.",
}

# One arrow stands for several facts: they are listed below the picture.
_NAMES_SHOWN_MAX = 2


def step_states() -> str:
    """The page about steps, items and commands."""
    intro = (
        "A step, an item of a map and a command of a handler follow the same table; the picture shows the step.\n"
        "A fact that the table does not allow in the current status is a bug: it is refused and\n"
        "changes nothing."
    )
    of_steps = {kind: moves for kind, moves in PLACE.items() if not _name(kind).startswith(("item.", "command."))}
    start: Table = {e.RunStarted: {"new": "waiting"}}
    picture = diagram({**start, **of_steps}, ENDED)
    return _page("The states of a step", intro, picture, table=PLACE, statuses=STATUSES, words=STEP_WORDS)


def run_states() -> str:
    """The page about runs."""
    intro = "Each round of a run ends in exactly one of `completed`, `failed` and `cancelled`, and only through `end`."
    return _page(
        "The states of a run", intro, diagram(RUN, RUN_ENDED), table=RUN, statuses=RUN_STATUSES, words=RUN_WORDS
    )


def _page(
    title: str, intro: str, picture: str, table: Table, statuses: tuple[str, ...], words: Mapping[str, str]
) -> str:
    parts = [
        f"# {title}",
        f"<!-- Written by `{COMMAND}` from `core/state/transitions.py`. -->",
        intro,
        f"```mermaid\n{picture}\n```",
        "\n\n".join(f"**{status}**: {words[status]}" for status in statuses),
        "## Which fact leads where",
        _rows(table),
    ]
    return "\n\n".join(parts) + "\n"


def diagram(table: Table, ended: frozenset[str]) -> str:
    """A Mermaid state diagram: one arrow per pair of statuses, named for the facts that lead along it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for kind, moves in table.items():
        for before, after in moves.items():
            if before != after:
                arrows.setdefault((before, after), []).append(_name(kind))
    lines = [f"    {_state(before)} --> {after}: {_label(names)}" for (before, after), names in arrows.items()]
    ends = [f"    {status} --> [*]" for status in STATUSES if status in ended]
    return "\n".join(["stateDiagram-v2", *lines, *ends])


def _state(status: str) -> str:
    """What does not exist yet is where the drawing starts."""
    return "[*]" if status == "new" else status


def _label(names: list[str]) -> str:
    shown = names[:_NAMES_SHOWN_MAX]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _rows(table: Table) -> str:
    """Fact, from, to; the statuses that lead to the same one share a row."""
    rows = ["| fact | from | to |", "|---|---|---|"]
    for kind, moves in table.items():
        if all(before == after for before, after in moves.items()):
            rows.append(f"| {_name(kind)} | {', '.join(moves)} | stays |")
            continue
        for after in dict.fromkeys(moves.values()):
            before = ", ".join(status for status, to in moves.items() if to == after)
            rows.append(f"| {_name(kind)} | {before} | {after} |")
    return "\n".join(rows)


def _name(kind: type[e.Fact]) -> str:
    """As the log writes it: `step.completed`."""
    return str(kind.__struct_config__.tag)


def pages() -> dict[str, str]:
    """Both pages, by the name of their file."""
    return {"step-states.md": step_states(), "run-states.md": run_states()}


def main() -> None:
    DOCS.mkdir(exist_ok=True)
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
