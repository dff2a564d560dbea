"""Coverage made by hand, for the tests of what people see of it."""

from __future__ import annotations

from collections.abc import Mapping

from mulligan.analysis.coverage.results import VERDICTS, Case, Cell, Coverage, FailureKind, Finding, Verdict

KINDS = (
    FailureKind("exit 11", "EXIT_NONZERO", exit_code=11, named_by="a retry rule"),
    FailureKind("EXIT_NONZERO", "EXIT_NONZERO"),
    FailureKind("TIMEOUT", "TIMEOUT"),
    FailureKind("OUT_OF_MEMORY", "OUT_OF_MEMORY"),
    FailureKind("WORKER_LOST", "WORKER_LOST"),
    FailureKind("handler", "EXIT_NONZERO", of="handler"),
    FailureKind("remediation", "EXIT_NONZERO", of="remediation"),
    FailureKind("cancel", "", of="cancel"),
)
# By the first letter of a verdict; two letters: if it happens once, and if it goes on. In brackets: accepted.
_LETTERS: dict[str, Verdict] = {verdict[0]: verdict for verdict in VERDICTS}


def cell(step: str, failure: str, letters: str, *, seconds: float = 10.0) -> Cell:
    """`cell("fetch", "TIMEOUT", "rf")`: recovered if it happens once, fails the run if it goes on."""
    accepted = "the vendor says so" if letters.startswith("(") else ""
    plain = letters.strip("()")
    once, always = _LETTERS[plain[0]], _LETTERS[plain[-1]]
    status = {"parked": "waiting", "fails": "failed", "stops": "failed"}
    cases = tuple(
        Case(
            step=step,
            failure=failure,
            times=times,
            verdict=verdict,
            run_status=status.get(verdict, "completed"),
            rung={"recovered": "retry", "handled": "route", "allowed": "allowed", "parked": "triage"}.get(
                verdict, "nothing"
            ),
            attempts=attempts,
            seconds=seconds * attempts,
        )
        for times, verdict, attempts in (("once", once, 2), ("twice", once, 3), ("always", always, 4))
    )
    return Cell(step, failure, always, cases, accepted)


def coverage(rows: Mapping[str, str], *findings: Finding) -> Coverage:
    """A row of letters for each step, one word for each of `KINDS`; `-` for what cannot happen."""
    cells = [
        cell(step, kind.name, letters, seconds=10.0 * number)
        for step, row in rows.items()
        for number, (kind, letters) in enumerate(zip(KINDS, row.split(), strict=True), start=1)
        if letters != "-"
    ]
    return Coverage(
        workflow="nightly",
        steps=tuple(rows),
        failures=KINDS,
        cells=tuple(cells),
        findings=findings,
        cases_count=3 * len(cells),
    )


NIGHTLY = coverage(
    {
        "fetch": "r rf rf f r - - s",
        "transform_the_table": "- f rf f r - - s",
        "load": "- p p p r p h s",
        "report": "- a a a r - - (s)",
    },
    Finding(
        code="coverage.unhandled",
        message="nothing deals with TIMEOUT of 'fetch', and 3 steps need it",
        step="fetch",
        failure="TIMEOUT",
        hint="add a retry rule, a handler or a failure edge",
        line=3,
    ),
)
SOURCE = "name: nightly\nsteps:\n  - step: fetch\n    shell: ./fetch.sh\n"
LARGE = coverage(
    {
        **{f"sim_{number}": "r rf rf f r - - s" for number in range(1, 998)},
        "gather": "- f f f r - - s",
        "check": "- r r r r - - r",
        "publish": "- p p p r p h s",
    }
)
