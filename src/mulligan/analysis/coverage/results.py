"""What coverage finds: the cases, the table of steps and failures, and the findings. Plain data."""

from __future__ import annotations

from typing import Literal

import msgspec

# How a failure is dealt with, from best to worst. A cell of the table has the worst of its cases.
Verdict = Literal["recovered", "handled", "allowed", "unknown", "parked", "fails", "stops"]
VERDICTS: tuple[Verdict, ...] = ("recovered", "handled", "allowed", "unknown", "parked", "fails", "stops")
# `recovered`: the step completed in the end. `handled`: it failed, and a route, a remediation or the code of a program
# went on from there. `allowed`: it failed, and the workflow says that it may. `unknown`: code decides what follows, and
# a fake is missing to play it. `parked`: the run waits for a person.
# `fails`: the run fails, after its other steps have gone as far as they can. `stops`: running steps are stopped too.
DEALT_WITH = frozenset({"recovered", "handled", "allowed"})
Times = Literal["once", "twice", "always"]


class FailureKind(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way in which a step, or what belongs to it, can fail. `name` is what `--failure` takes."""

    name: str
    code: str
    exit_code: int | None = None
    # What fails: step, handler, script, remediation, undo, triager, end; or `cancel` and `kill` of the run.
    of: str = "step"
    # Where the workflow names it: a rule, a route, a handler; empty if nothing names it.
    named_by: str = ""
    # Of an exception that a rule names: its class and the bases that are known.
    exceptions: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True, omit_defaults=True):
    """One failure that was played: what happened to the run."""

    step: str
    failure: str
    times: Times
    verdict: Verdict
    run_status: str
    # What dealt with it: retry, handler, script, route, remediation, triage, allowed, nothing …
    rung: str
    attempts: int
    # From the first start to the end of the run, delays included; worst case.
    seconds: float
    # A second failure that was played together with it: step and failure.
    with_step: str = ""
    with_failure: str = ""
    # Of a program: where it caught the failure, or where it makes a call that has no fake: `nightly.py:14`.
    at: str = ""
    # The label of that call without a fake.
    needs: str = ""


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step and a failure: the worst of its cases."""

    step: str
    failure: str
    verdict: Verdict
    cases: tuple[Case, ...]
    # Why the workflow accepts it; empty if it says nothing.
    accepted: str = ""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that the author would want to know before the night. `code` is stable, `message` is for people."""

    code: str
    message: str
    step: str = ""
    failure: str = ""
    hint: str = ""
    # Of the file; 0 if unknown.
    line: int = 0
    accepted: str = ""


class AgentCosts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What budgets let agents cost in US dollars, None if nothing limits it; and the steps without such a limit."""

    limit: float | None = None
    without_limit: tuple[str, ...] = ()


class Coverage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a workflow does about failures."""

    workflow: str
    steps: tuple[str, ...]
    failures: tuple[FailureKind, ...]
    cells: tuple[Cell, ...]
    findings: tuple[Finding, ...]
    # How many cases were played, and of how many pairs; whether the pairs are a sample.
    cases_count: int
    pairs_count: int = 0
    is_sample: bool = False
    seed: int = 0
    # What could not be played, in words: a part of the workflow that depends on a value that nobody knows.
    unknown: tuple[str, ...] = ()
    # The pairs of failures that end worse than each of the two alone.
    pairs: tuple[Case, ...] = ()
    # None if it has no agent.
    agent_costs: AgentCosts | None = None
    # Of a program that was rehearsed: where each call is made, `nightly.py:14`, by its row.
    called_at: dict[str, str] = {}
    # And the file with its fakes.
    fakes: str = ""
