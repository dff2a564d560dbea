"""What a changed workflow would have made of recorded runs, in words."""

from __future__ import annotations

from collections.abc import Iterator

from mulligan.analysis.whatif.results import Estimate, WhatIf
from mulligan.service.rendering.console.terminal_text import length
from mulligan.service.rendering.formatting import pluralize

# Why a recorded outcome is only assumed.
ASSUMED = {
    "sooner": "the attempt comes sooner after its failure than the recorded one",
    "other_action": "the step runs another command",
    "other_values": "the step gets other values",
    "other_limits": "the step gets less memory than it used",
}


def whatif_summary(found: WhatIf, title: str, over: str = "") -> Iterator[str]:
    """Three lines: what would be otherwise, what that costs, and how sure it is. `over`: "of the last 30d"."""
    over = f" {over}" if over else ""
    failed = f" in which '{found.step}' failed" if found.step else ""
    others = f"{found.changed_total:,} would have gone another way, {found.ends_otherwise:,} of them to another end"
    if not found.changed_total:
        others = "all would have gone as they did" if not found.undecided_total else "none would have gone another way"
    if found.ends_otherwise_by:
        others += f" ({', '.join(f'{by}: {count:,}' for by, count in found.ends_otherwise_by.items())})"
    yield f"{title}: {pluralize(found.runs, 'run')} of '{found.workflow}'{over}{failed}: {others}"
    is_spread = found.completed_low != found.completed_high
    spread = f" ({found.completed_low:,} to {found.completed_high:,})" if is_spread else ""
    needed = found.decisions - found.decisions_saved + found.decisions_added
    yield (
        f"completed {found.completed_before:,} -> {found.completed_now:,}{spread}; "
        f"decisions by people {found.decisions:,} -> {needed:,}; "
        f"attempts {found.attempts:+,}; time {_signed(found.seconds)}"
    )
    assumed, estimated = sum(found.outcomes_assumed.values()), sum(found.outcomes_estimated.values())
    sure = [f"facts alone decide {found.facts:,} of {pluralize(found.runs, 'run')}"]
    if found.changed_total:
        outcomes = f"{found.outcomes_recorded:,} recorded, {assumed:,} assumed and {estimated:,} estimated outcomes"
        sure.append(f"the changed ones rest on {outcomes}")
    sure += [f"{found.undecided_total:,} cannot be said"] if found.undecided_total else []
    sure += ["older runs were left out"] if found.is_cut else []
    yield "; ".join(sure)


def describe_end(status: str, *, is_degraded: bool) -> str:
    """How a run ended, or would have."""
    return "degraded" if status == "completed" and is_degraded else status


def describe_estimate(one: Estimate) -> str:
    """What an outcome was drawn from: how often it worked, how sure that is, and how often it was used."""
    after = f" after {one.failure}" if one.failure else ""
    what = {
        "first": f"'{one.place}'",
        "again": f"another attempt of '{one.place}'{after}",
        "repaired": f"'{one.place}' after its repair{after}",
        "decision": f"a person about '{one.place}'{after}",
    }[one.kind]
    did = "said retry" if one.kind == "decision" else "worked"
    return (
        f"{what}: {did} {one.worked:,} of {one.tried:,} times "
        f"(95% sure: {one.low:.0%} to {one.high:.0%}), used {pluralize(one.used, 'time')}"
    )


def describe_assumptions(found: WhatIf) -> list[str]:
    """Why recorded outcomes are only assumed, and how often."""
    return [f"{ASSUMED[doubt]} ({pluralize(count, 'time')})" for doubt, count in found.outcomes_assumed.items()]


def _signed(seconds: float) -> str:
    if abs(seconds) < 1:
        return "+0s"
    return f"{'-' if seconds < 0 else '+'}{length(abs(seconds))}"
