"""`mulligan run`: a workflow to its end, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mulligan.cli.background_start import Detach, Key, start
from mulligan.cli.dry_run import DryRun, foretell
from mulligan.cli.options import AsJson, HomeFolder, Inputs, System, TrustTemplates, pairs, service_at
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.terminal import UsageRefused, complain
from mulligan.service import Service, parse_duration

Parallel = Annotated[
    int | None, Option("--parallel", "-p", metavar="N", help="How many steps at once: else one per processor.")
]
Wait = Annotated[
    str, Option("--wait", metavar="TIME", help="How long to wait for a timer where all else waits for a person.")
]

ChangedOnly = Annotated[
    bool, Option("--changed", help="Run only what has changed: other steps are taken over from earlier runs.")
]
Forced = Annotated[
    list[str] | None, Option("--force", metavar="STEP", help="A step to run in any case; may be given several times.")
]


def run(
    file: Annotated[Path, Argument(metavar="FILE", help="A workflow file.")],
    inputs: Inputs = None,
    home: HomeFolder = None,
    parallel: Parallel = None,
    wait: Wait = "10m",
    changed_only: ChangedOnly = False,
    forced: Forced = None,
    system: System = None,
    trust_templates: TrustTemplates = False,
    key: Key = "",
    detach: Detach = False,
    dry_run: DryRun = False,
    label: Annotated[
        list[str] | None,
        Option("--label", metavar="KEY=VALUE", help="To find the run by: `mulligan list --label`; several times."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run a workflow to its end in this process, and show its progress.

    Files of Torc, Prodigy, NoETL and Alphred run as they are. The kind is recognised, or given by --format.
    The exit code is 0 if the run completed, 1 if it failed, 2 if it was refused, 3 if it was cancelled, 4 if it waits
    for a person, and 130 if it was interrupted: then `mulligan resume` goes on with it.
    """
    wait_seconds = parse_duration(wait)
    examined = Service.examine_workflow(file, named=system, trust_templates=trust_templates)
    for warning in examined.warnings:
        complain(warning.render())
    if dry_run:
        given = given_inputs(inputs or [])
        if changed_only:
            complain("note: what is up to date is known when a step is about to start: every step is listed")
        return foretell(examined.workflow, given, parallel=checked_parallel(parallel), as_json=as_json, home=home)
    labels = pairs(label, "label", "--label name=value")
    prepared = Service.prepare(
        examined.workflow,
        given_inputs(inputs or []),
        Path.cwd(),
        file=str(file.absolute()),
        labels=labels,
        changed_only=changed_only,
        forced=forced or (),
    )
    with service_at(home) as service:
        return start(
            service,
            prepared,
            key=key,
            is_detached=detach,
            parallel=checked_parallel(parallel),
            wait=wait,
            wait_seconds=wait_seconds,
            as_json=as_json,
            home=home,
        )


def given_inputs(words: list[str]) -> dict[str, str]:
    """The inputs by name. What each of them must be says the workflow."""
    given: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageRefused(f"'{word}' is no input", hint="write it like -i name=value")
        if name in given:
            raise UsageRefused(f"input '{name}' is given twice")
        given[name] = value
    return given


def checked_parallel(number: int | None) -> int | None:
    if number is not None and number < 1:
        raise UsageRefused(f"{number} steps at once are none", hint="--parallel takes 1 or more")
    return number
