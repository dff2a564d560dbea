"""`mulligan rehearse`: run a workflow with some steps faked, and keep nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mulligan.cli.output.terminal import complain, show_warnings
from mulligan.cli.running.drive_run import CommandContext, drive_run
from mulligan.cli.running.run import Wait
from mulligan.cli.words.capacity import Parallel, asked_capacity
from mulligan.cli.words.given_inputs import Inputs, InputsFile, given_inputs
from mulligan.cli.words.options import (
    AsJson,
    Catalogue,
    Fake,
    Fakes,
    HomeFolder,
    System,
    TrustTemplates,
    service_kept_or_not,
)
from mulligan.cli.words.parameters import Argument
from mulligan.formats import examine
from mulligan.service.authoring.step_trial import read_fakes_given, with_fakes
from mulligan.service.authoring.values import parse_duration
from mulligan.service.driving.driver import capacity_for
from mulligan.service.rendering.formatting import quote_names
from mulligan.service.runs.changes.prepared_runs import prepare


def rehearse(
    file: Annotated[Path, Argument("FILE", "A workflow file.")],
    fake: Fake = None,
    fakes: Fakes = None,
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    parallel: Parallel = None,
    wait: Wait = "0s",
    system: System = None,
    trust_templates: TrustTemplates = False,
    catalogue: Catalogue = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Run a workflow with some steps faked, and discard the run.

    A faked step runs nothing and ends as you say; its check, retries, handler and edges are real. All other steps run
    here. The run is in a temporary home; with --home DIR it is kept. The exit codes are those of `mulligan run`.
    """
    wait_seconds = parse_duration(wait)
    given = given_inputs(inputs, inputs_file)
    examined = examine(file, named=system, trust_templates=trust_templates, catalogue=catalogue, given=given)
    show_warnings(examined.warnings)
    ends = read_fakes_given(examined.workflow, fake or (), fakes)
    workflow = with_fakes(examined.workflow, ends)
    prepared = prepare(workflow, given, Path.cwd(), file=str(file.absolute()))
    complain(f"faked: {quote_names(list(ends))}" if ends else "no step is faked: all steps run")
    with service_kept_or_not(home) as service:
        code = drive_run(
            CommandContext(service, home, as_json),
            lambda driver: service.changes.create(prepared, driver)[0],
            capacity=capacity_for(asked_capacity(parallel, None, None)),
            wait_seconds=wait_seconds,
            is_kept=home is not None,
        )
    complain(f"kept in '{home}'" if home is not None else "the run was removed; to keep it: --home DIR")
    return code
