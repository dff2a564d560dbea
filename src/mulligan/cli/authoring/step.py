"""`mulligan step`: run one step of a workflow alone, once."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from mulligan.cli.output.terminal import UsageRefused, complain, show_json, show_result, show_written
from mulligan.cli.words.given_inputs import Inputs, InputsFile, given_inputs
from mulligan.cli.words.options import (
    AsJson,
    Catalogue,
    Fake,
    Fakes,
    HomeFolder,
    StepName,
    System,
    TrustTemplates,
    service_kept_or_not,
)
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.core.model.workflow import Workflow
from mulligan.service.authoring.area import Workflows
from mulligan.service.authoring.handler_trial import (
    HandlerTrial,
    describe_result,
    isolate_handler,
    isolate_item_handler,
    parse_failure,
    run_handler,
)
from mulligan.service.authoring.step_trial import isolate_step, read_fakes_given, step_results, with_fakes
from mulligan.service.driving.driver import machine
from mulligan.service.driving.outcome import exit_code
from mulligan.service.logs.logs import UnknownAttempt
from mulligan.service.rendering.descriptions import summarize_failure
from mulligan.service.rendering.formatting import quote_names
from mulligan.service.runs.changes.prepared_runs import Prepared, prepare
from mulligan.service.runs.stored.run_reader import AttemptLog
from mulligan.service.service import Service


def step(
    file: Annotated[Path, Argument("FILE", "A workflow file.")],
    step: StepName,
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    results: Annotated[
        list[str] | None,
        Option("STEP=JSON", "The result of another step, which this one reads (default: null).", "--result"),
    ] = None,
    fake: Fake = None,
    fakes: Fakes = None,
    handler: Annotated[bool, Flag("Run its failure handler instead of the step.")] = False,
    error: Annotated[str, Option("JSON", "How the step failed (default: exit code 1).")] = "",
    item: Annotated[str, Option("JSON", "The item of a map step whose command failed.")] = "",
    command: Annotated[int | None, Option("N", "Which command failed (default: the first with a handler).")] = None,
    system: System = None,
    trust_templates: TrustTemplates = False,
    catalogue: Catalogue = None,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Run a single step of a workflow once, or its handler.

    It has one attempt, no retries, no handlers and no edges. What it writes goes to stdout and stderr; if it writes
    nothing, its output is printed as JSON. It runs in a temporary home; with --home DIR the run is kept. With --handler
    the handler runs as if the step had failed as --error says, and the outcome of the step is shown. The exit code is 1
    if the failure is not handled.
    """
    given = given_inputs(inputs, inputs_file)
    workflow = Workflows.load_workflow(
        file, named=system, trust_templates=trust_templates, catalogue=catalogue, given=given
    )
    ends = read_fakes_given(workflow, fake or (), fakes)
    own = {step: ends.pop(step)} if step in ends else {}
    kept = step_results(workflow, step, ends, fake or (), _results(results or ()))
    if handler:
        trial = _handler_trial(workflow, step, item, command)
        prepared = prepare(trial.workflow, given, Path.cwd())
        return _run_handler(trial, prepared, parse_failure(error or "{}"), kept, home, as_json=as_json)
    if error or item or command is not None:
        raise UsageRefused("--error, --item and --command need --handler", hint="add --handler")
    prepared = prepare(with_fakes(isolate_step(workflow, step), own), given, Path.cwd())
    return _run_step(step, prepared, kept, home, as_json=as_json)


def _run_step(step: str, prepared: Prepared, kept: Sequence[Any], home: str | None, *, as_json: bool) -> int:
    with service_kept_or_not(home) as service:
        with service.driving.driver(machine()) as driver:
            [run_id] = service.changes.create(prepared, driver, kept=kept)
            ending = driver.drive(run_id)
        found = service.runs.show(run_id)
        _show(service, run_id, step, found, as_json=as_json)
        _explain_nulls(found["steps"][step]["failure"] or {}, kept)
        _show_where_kept(run_id, home)
    return exit_code(ending, found["status"])


def _explain_nulls(failure: dict[str, Any], kept: Sequence[Any]) -> None:
    """Explain a failed expression: it probably reads a result that was not given."""
    nulls = [one.step for one in kept if one.output is None]
    if failure.get("code") == "EXPRESSION_FAILED" and nulls:
        first = next((name for name in nulls if f"steps.{name}." in failure["message"]), nulls[0])
        complain(f"  the result of {quote_names(nulls)} is null here; to give it: --result {first}=JSON")


def _show_where_kept(run_id: int, home: str | None) -> None:
    """Show where the run is kept."""
    if home is not None:
        complain(f"kept as run {run_id} in '{home}'")


def _handler_trial(workflow: Workflow, step: str, item: str, command: int | None) -> HandlerTrial:
    if item:
        return isolate_item_handler(workflow, step, _json(item, "--item"), command)
    if command is not None:
        raise UsageRefused("--command needs --item", hint="name the item: --item JSON")
    return isolate_handler(workflow, step)


def _json(word: str, option: str) -> Any:
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        raise UsageRefused(f"'{word}' is not JSON", hint=f"""write it like {option} '"text"'""") from None


def _run_handler(
    trial: HandlerTrial, prepared: Prepared, error: Any, kept: Sequence[Any], home: str | None, *, as_json: bool
) -> int:
    with service_kept_or_not(home) as service:
        tried = run_handler(service.changes, trial, prepared, error, kept)
        if as_json:
            show_result(tried)
        else:
            _show_each(tried.logs)
        complain(describe_result(trial, tried))
        _show_where_kept(tried.run_id, home)
    return tried.exit_code


def _show_each(logs: Sequence[AttemptLog]) -> None:
    for log in logs:
        complain(f"-- '{log.place}', attempt {log.attempt}")
        _show_log(log)


def _results(words: Sequence[str]) -> dict[str, Any]:
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            raise UsageRefused(f"'{word}' is not STEP=JSON", hint="write it like build='[1, 2]'") from None
    return found


def _show(service: Service, run_id: int, step: str, found: dict[str, Any], *, as_json: bool) -> None:
    shown = found["steps"][step]
    if as_json:
        show_json(found)
    elif not _show_logs(service, run_id, step) and shown["output"] is not None:
        show_json(shown["output"])
    failure = f" with {summarize_failure(shown['failure'])}" if shown["failure"] else ""
    is_faked = " (faked)" if shown["faked"] else ""
    complain(f"step '{step}' {shown['status']}{is_faked}{failure}")


def _show_logs(service: Service, run_id: int, step: str) -> bool:
    """Print the logs; return whether there was any standard output, which http and sql steps do not have."""
    try:
        logs = service.logs.step_logs(run_id, step)
    except UnknownAttempt:
        # Its expressions failed: nothing was run.
        return False
    for log in logs:
        _show_log(log)
    return any(log.stdout for log in logs)


def _show_log(log: AttemptLog) -> None:
    show_written(log.stdout, sys.stdout)
    show_written(log.stderr, sys.stderr)
