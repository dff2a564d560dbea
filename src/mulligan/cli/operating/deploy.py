"""`mulligan deploy`: a whole project, as its mulligan.toml says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mulligan.cli.output.tables import show_table
from mulligan.cli.output.terminal import complain, show, show_result, show_warnings
from mulligan.cli.words.options import AsJson, By, HomeFolder, service_at, where
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.rendering.formatting import format_size, pluralize
from mulligan.service.server.publishing.deploying import DeployedWorkflow, deploy

# How many changed files a line names.
NAMED_MAX = 4


def deploy_project(
    folder: Annotated[Path, Argument("FOLDER", "The folder with a mulligan.toml (default: this one).")] = Path(),
    note: Annotated[str, Option("TEXT", "Why it is deployed, which is recorded with each new version.")] = "",
    is_dry: Annotated[bool, Flag("Say what would change, and stop.", "--dry-run")] = False,
    by: By = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Publish all workflows of a project, with their files, schedules, notices and labels: its mulligan.toml.

    What has not changed stays as it is, so the command may be repeated. Nothing is published unless everything can be.
    A workflow that is no longer in the project is named, and nothing is done about it.
    """
    with service_at(home, by) as service:
        done = deploy(service.catalogue, folder, service.now(), note=note, dry_run=is_dry)
    if as_json:
        show_result(done)
        return
    show_warnings(done.warnings)
    rows = [(one.name, str(one.version).rjust(len("VERSION")), one.change, _what(one)) for one in done.workflows]
    show_table(("WORKFLOW", "VERSION", "CHANGE", "WHAT"), rows)
    if done.schedules:
        show("")
        show_table(("SCHEDULE", "CHANGE"), [(one.name, one.change) for one in done.schedules])
    for left in done.left:
        complain(f"'{left.name}' is on the server as version {left.version}, and no longer in the project")
        for name in left.schedules:
            complain(f"  mulligan schedule pause {name}{where(home)}  # it is still started")
    if is_dry:
        complain("nothing was deployed: this was a dry run")
    elif not done.is_changed:
        complain(f"'{done.name}' is deployed already: nothing has changed")


def _what(one: DeployedWorkflow) -> str:
    if one.change != "changed":
        return f"{pluralize(one.count, 'file')}, {format_size(one.size)}"
    named = [*one.files[:NAMED_MAX], *([f"{len(one.files) - NAMED_MAX} more files"] if one.files[NAMED_MAX:] else [])]
    return ", ".join([*named, *one.settings])
