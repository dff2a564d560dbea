"""Suggested rules in words: what they would have saved, and what runs would have done with them."""

from __future__ import annotations

from mulligan.analysis.suggest.proposals import Saving
from mulligan.core.model.text.formatting import pluralize
from mulligan.service.authoring.suggest import WhatIfFigures
from mulligan.service.rendering.console.terminal_text import length


def describe_saving(saving: Saving) -> str:
    """`3 decisions, 1 failed round, 2h10m of time`; "" if it is nothing to speak of."""
    parts = [pluralize(saving.decisions, "decision")] if saving.decisions else []
    parts += [pluralize(saving.failed_runs, "failed round")] if saving.failed_runs else []
    parts += [f"{length(saving.seconds)} of time"] if saving.seconds >= 60 else []
    return ", ".join(parts)


def describe_what_if(one: WhatIfFigures) -> str:
    """`9 of 12 runs would have completed, instead of 7; 3 decisions fewer; 4 by facts alone`."""
    now, before = one.completed_now, one.completed_before
    as_before = "as before" if now == before else f"instead of {before:,}"
    words = [f"{now:,} of {pluralize(one.runs, 'run')} would have completed, {as_before}"]
    words += [f"{pluralize(one.decisions_saved, 'decision')} fewer"] if one.decisions_saved else []
    words += [f"{pluralize(one.decisions_added, 'decision')} more"] if one.decisions_added else []
    if one.attempts:
        words.append(f"{pluralize(abs(one.attempts), 'attempt')} {'more' if one.attempts > 0 else 'fewer'}")
    return "; ".join([*words, f"{one.facts:,} by facts alone"])
