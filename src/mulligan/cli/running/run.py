"""`mulligan run`: run a workflow to its end in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused, complain, show_warnings
from mulligan.cli.running.background_start import Key, start, start_published
from mulligan.cli.running.continue_run import Detach
from mulligan.cli.running.drive_run import CommandContext
from mulligan.cli.words.capacity import Gpus, Memory, On, ParallelOrNone, asked_capacity
from mulligan.cli.words.format_options import MapPatterns, MaxIterations
from mulligan.cli.words.given_inputs import Inputs, InputsFile, given_inputs
from mulligan.cli.words.options import (
    AsJson,
    Catalogue,
    HomeFolder,
    System,
    TrustTemplates,
    is_on_server,
    pairs,
    read_notify,
    service_at,
)
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.core.model.event_types import HostCapacity
from mulligan.errors import MulliganError

# What few runs need is loaded when it is used.
from mulligan.formats import examine
from mulligan.language.readers.workspace_steps import with_default_workspace
from mulligan.service.authoring.format_options import read_format_options
from mulligan.service.authoring.values import parse_duration
from mulligan.service.authoring.workflow_files import replay_warnings
from mulligan.service.driving.debugging import find_terminal
from mulligan.service.driving.driver import capacity_for
from mulligan.service.runs.changes.prepared_runs import prepare

Wait = Annotated[str, Option("TIME", "How long to wait for a timer if everything else waits for a person.")]

# How many steps that ask for more than there is are named before the run.
NOTES_MAX = 5

ChangedOnly = Annotated[bool, Flag("Run only changed steps; take other results from earlier runs.", "--changed")]
Debug = Annotated[bool, Flag("Run steps in Python in this terminal, one at a time: breakpoint(), pdb where one fails.")]
Locals = Annotated[bool, Flag("Keep the local variables of a Python failure, without secrets.", "--locals")]
Forced = Annotated[
    list[str] | None, Option("STEP", "A step to run even if it has not changed (repeatable).", "--force")
]


def run(
    file: Annotated[Path, Argument("FILE", "A workflow file, or NAME@3 for a published workflow.")],
    inputs: Inputs = None,
    inputs_file: InputsFile = None,
    home: HomeFolder = None,
    parallel: ParallelOrNone = None,
    memory: Memory = None,
    gpus: Gpus = None,
    on: On = None,
    wait: Wait = "10m",
    changed_only: ChangedOnly = False,
    forced: Forced = None,
    system: System = None,
    trust_templates: TrustTemplates = False,
    catalogue: Catalogue = None,
    patterns: MapPatterns = None,
    iterations: MaxIterations = None,
    worktree: Annotated[bool, Flag("Run the steps in a Git worktree on a branch, not in this checkout.")] = False,
    key: Key = "",
    detach: Detach = False,
    dry_run: Annotated[bool, Flag("Show what would run, in order, and what is missing; start nothing.")] = False,
    label: Annotated[
        list[str] | None, Option("KEY=VALUE", "A label, to find the run with `mulligan list --label` (repeatable).")
    ] = None,
    notify: Annotated[
        list[str] | None,
        Option("TARGET[=EVENT,…]", "Notify a target of server.toml when the run ends or needs a person (repeatable)."),
    ] = None,
    debug: Debug = False,
    has_locals: Locals = False,
    as_json: AsJson = False,
) -> int:
    """Run a workflow to its end in this process, and show its progress.

    Files of Torc, Prodigy, NoETL and Alphred run as they are. The kind is recognised, or given by --format.
    The exit code is 0 if the run completed, 1 if it failed, 2 if it was refused, 3 if it was cancelled, 4 if it waits
    for a person, and 130 if it was interrupted; `mulligan resume` continues it.
    """
    wait_seconds = parse_duration(wait)
    asked = asked_capacity(parallel, memory, gpus, on, may_be_none=True)
    options = read_format_options(patterns, iterations)
    given = given_inputs(inputs, inputs_file)
    reference = _published_reference(file)
    if reference is None and not file.exists() and not file.suffix and file.name == str(file):
        # On a server a bare name is that of what is published.
        if is_on_server(home):
            reference = (file.name, None)
        else:
            _refuse_published_name(file.name, home)
    if debug:
        _refuse_debugging(home, detach=detach)
    labels = pairs(label, "label", "--label name=value")
    has_file_options = system is not None or trust_templates or catalogue is not None or bool(options)
    if reference is not None and has_file_options:
        raise UsageRefused(f"'{file}' is published, and read as it was published", hint="give no option of files")
    if is_on_server(home):
        _refuse_for_server(asked, worktree=worktree, has_locals=has_locals)
        if reference is not None and not dry_run:
            if changed_only or forced:
                raise UsageRefused(
                    "--changed and --force are for a file: a server runs every step of a published workflow",
                    hint="leave them out",
                )
            return start_published(
                *reference,
                given,
                labels,
                notify=notify or (),
                key=key,
                is_detached=detach,
                wait_seconds=wait_seconds,
                as_json=as_json,
                home=home,
            )
    if reference is None:
        examined = examine(
            file,
            named=system,
            trust_templates=trust_templates,
            catalogue=catalogue,
            given=given,
            options=options,
        )
        workflow = examined.workflow
        show_warnings((*examined.warnings, *replay_warnings(str(file), workflow)))
    else:
        with service_at(home) as service:
            published = service.catalogue.prepare(*reference, given, labels, cwd=Path.cwd())
        workflow, labels = published.workflow, published.labels
    workflow = with_default_workspace(workflow) if worktree else workflow
    if dry_run:
        if changed_only:
            complain("note: every step is listed, since only a run finds out which steps are up to date")
        from mulligan.cli.authoring.dry_run import show_preview

        code: int = show_preview(workflow, given, capacity=capacity_for(asked), as_json=as_json, home=home)
        return code
    prepared = prepare(
        workflow,
        given,
        Path.cwd(),
        file="" if reference else str(file.absolute()),
        labels=labels,
        changed_only=changed_only,
        forced=forced or (),
        capacity=asked,
        has_files=not is_on_server(home),
        notify=read_notify(notify),
    )
    with service_at(home) as service:
        if service.home.is_remote:
            complain(f"note: the steps run on {service.home.place}, in the folders of its workers")
        for text in service.starts.capacity_notes(workflow, capacity_for(asked))[:NOTES_MAX]:
            complain(f"note: {text}")
        if prepared.notify or workflow.notify:
            for name in service.notices.unknown_targets((*workflow.notify, *prepared.notify)):
                from mulligan.service.server.notices.notices import unknown_target_note

                complain(f"note: {unknown_target_note(name)}")
        if permissions := service.starts.permission_note(workflow):
            complain(f"note: {permissions}")
        return start(
            CommandContext(service, home, as_json, is_debugged=debug, has_locals=has_locals),
            prepared,
            key=key,
            is_detached=detach,
            asked=asked,
            wait=wait,
            wait_seconds=wait_seconds,
        )


def _refuse_debugging(home: str | None, *, detach: bool) -> None:
    """Refuse, before anything is started, a run whose steps could not be debugged in this terminal."""
    if detach:
        raise UsageRefused("--debug needs this terminal, and --detach leaves it", hint="leave one of them out")
    if is_on_server(home):
        raise UsageRefused(
            "--debug runs the steps in this terminal, and the workers of a server run these",
            hint="to debug a failed attempt here: mulligan debug RUN STEP",
        )
    find_terminal()


def _refuse_for_server(asked: HostCapacity | None, *, worktree: bool, has_locals: bool) -> None:
    """Refuse options about this machine: a server runs the steps."""
    option = (
        "--on"
        if asked is not None and asked.on
        else "--parallel, --memory or --gpus"
        if asked is not None
        else "--worktree"
        if worktree
        else "--locals"
        if has_locals
        else ""
    )
    if option:
        raise UsageRefused(
            f"{option} is about this machine, and the workers of a server run the steps", hint="leave it out"
        )


def _published_reference(file: Path) -> tuple[str, int | None] | None:
    """The name and the version of a published workflow, if the words are no file and name one."""
    if file.exists():
        return None
    from mulligan.service.server.catalogue.texts import published_reference

    return published_reference(str(file))


def _refuse_published_name(name: str, home: str | None) -> None:
    """Say how to run what is published: here its steps work in this folder, which has to be meant."""
    with service_at(home) as service:
        try:
            if not service.home.is_there:
                return
            service.catalogue.workflow(name)
        except MulliganError:
            return
    raise UsageRefused(
        f"there is no file '{name}'", hint=f"a workflow of this name is published: mulligan run {name}@latest"
    )
