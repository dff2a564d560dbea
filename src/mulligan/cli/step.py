"""`mulligan step`: one step of a workflow, alone, once."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from mulligan.cli.options import (
    AsJson,
    Fake,
    Fakes,
    HomeFolder,
    Inputs,
    StepName,
    System,
    TrustTemplates,
    service_kept_or_not,
)
from mulligan.cli.parameters import Argument, Option
from mulligan.cli.run import given_inputs
from mulligan.cli.terminal import UsageRefused, complain, show_json, show_written
from mulligan.service import (
    AttemptLog,
    HandlerTrial,
    Prepared,
    Service,
    UnknownAttempt,
    Workflow,
    describe_result,
    exit_code,
    machine,
    parse_failure,
    summarize_failure,
    to_json,
)
from mulligan.service.formatting import quote_names


def step(
    file: Annotated[Path, Argument(metavar="FILE", help="A workflow file.")],
    step: StepName,
    inputs: Inputs = None,
    results: Annotated[
        list[str] | None,
        Option("--result", metavar="STEP=JSON", help="What another step gave, where this one reads it: else null."),
    ] = None,
    fake: Fake = None,
    fakes: Fakes = None,
    handler: Annotated[
        bool, Option("--handler", help="Try its failure handler: the step itself does not run.")
    ] = False,
    error: Annotated[str, Option("--error", metavar="JSON", help="How it failed; by default a plain exit 1.")] = "",
    item: Annotated[
        str, Option("--item", metavar="JSON", help="Of a map step: the item whose command has failed.")
    ] = "",
    command: Annotated[
        int | None, Option("--command", metavar="N", help="Which command: else the first with a handler.")
    ] = None,
    system: System = None,
    trust_templates: TrustTemplates = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Run a single step of a workflow once, or its handler.

    One attempt, no retries, no handlers, no edges. What it writes goes to stdout and stderr; if it writes nothing, its
    output does, as JSON. It runs in a home of its own that is removed; with --home DIR it is kept. With --handler the
    step is taken to have failed as --error says: its handler really runs, and what it would make of the step is told.
    The exit code is 1 if the failure climbs on.
    """
    workflow = Service.load_workflow(file, named=system, trust_templates=trust_templates)
    ends = Service.read_fakes(workflow, fake or (), fakes)
    own = {step: ends.pop(step)} if step in ends else {}
    kept = Service.step_results(workflow, step, ends, fake or (), _results(results or ()))
    if handler:
        trial = _handler_trial(workflow, step, item, command)
        prepared = Service.prepare(trial.workflow, given_inputs(inputs or []), Path.cwd())
        return _try_handler(trial, prepared, parse_failure(error or "{}"), kept, home, as_json=as_json)
    if error or item or command is not None:
        raise UsageRefused("--error, --item and --command are about a handler", hint="say --handler, too")
    prepared = Service.prepare(
        Service.apply_fakes(Service.isolate_step(workflow, step), own), given_inputs(inputs or []), Path.cwd()
    )
    return _try_step(step, prepared, kept, home, as_json=as_json)


def _try_step(step: str, prepared: Prepared, kept: Sequence[Any], home: str | None, *, as_json: bool) -> int:
    with service_kept_or_not(home) as service:
        with service.driver(machine()) as driver:
            [run_id] = service.start(prepared, driver, kept=kept)
            ending = driver.drive(run_id)
        found = service.show(run_id)
        _show(service, run_id, step, found, as_json=as_json)
        _say_what_is_null(found["steps"][step]["failure"] or {}, kept)
        _say_where(run_id, home)
    return exit_code(ending, found["status"])


def _say_what_is_null(failure: dict[str, Any], kept: Sequence[Any]) -> None:
    """An expression that fails here most likely reads what nobody handed over."""
    nulls = [one.step for one in kept if one.output is None]
    if failure.get("code") == "EXPRESSION_FAILED" and nulls:
        first = next((name for name in nulls if f"steps.{name}." in failure["message"]), nulls[0])
        complain(f"  what {quote_names(nulls)} gave is null here; to hand it over: --result {first}=JSON")


def _say_where(run_id: int, home: str | None) -> None:
    """Where the run is found, if it is kept."""
    if home is not None:
        complain(f"kept as run {run_id} in '{home}'")


def _handler_trial(workflow: Workflow, step: str, item: str, command: int | None) -> HandlerTrial:
    if item:
        return Service.isolate_item_handler(workflow, step, _json(item, "--item"), command)
    if command is not None:
        raise UsageRefused("--command is about an item", hint="say which: --item JSON")
    return Service.isolate_handler(workflow, step)


def _json(word: str, option: str) -> Any:
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        raise UsageRefused(f"'{word}' is no JSON", hint=f"""write it like {option} '"text"'""") from None


def _try_handler(
    trial: HandlerTrial, prepared: Prepared, error: Any, kept: Sequence[Any], home: str | None, *, as_json: bool
) -> int:
    with service_kept_or_not(home) as service:
        tried = service.run_handler(trial, prepared, error, kept)
        if as_json:
            show_json(to_json(tried))
        else:
            _show_each(tried.logs)
        complain(describe_result(trial, tried))
        _say_where(tried.run_id, home)
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
            raise UsageRefused(f"'{word}' is no STEP=JSON", hint="write it like build='[1, 2]'") from None
    return found


def _show(service: Service, run_id: int, step: str, found: dict[str, Any], *, as_json: bool) -> None:
    told = found["steps"][step]
    if as_json:
        show_json(found)
    elif not _show_logs(service, run_id, step) and told["output"] is not None:
        show_json(told["output"])
    failure = f", {summarize_failure(told['failure'])}" if told["failure"] else ""
    is_faked = ", faked" if told["faked"] else ""
    complain(f"step '{step}' {told['status']}{is_faked}{failure}")


def _show_logs(service: Service, run_id: int, step: str) -> bool:
    """Whether it wrote anything to its standard output. What an http or sql step gives is only its output."""
    try:
        logs = service.step_logs(run_id, step)
    except UnknownAttempt:
        # Its expressions failed: nothing was run.
        return False
    for log in logs:
        _show_log(log)
    return any(log.stdout for log in logs)


def _show_log(log: AttemptLog) -> None:
    show_written(log.stdout, sys.stdout)
    show_written(log.stderr, sys.stderr)
