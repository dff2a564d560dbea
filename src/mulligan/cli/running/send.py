"""`mulligan send`: an event for a run, or for several."""

from __future__ import annotations

from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused, complain, show_result
from mulligan.cli.running.continue_run import Detach, Follow, continue_run, read_continuation
from mulligan.cli.running.drive_run import CommandContext, worst_code
from mulligan.cli.words.given_value import read_value
from mulligan.cli.words.options import AsJson, By, HomeFolder, pairs, service_at
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.runs.changes.event_receivers import send_to_all
from mulligan.service.runs.changes.starting import check_key


def send(
    run: Annotated[str, Argument("RUN", "A run, or 'latest'; with --key or --label, the name of the event.")],
    name: Annotated[str, Argument("NAME", "The name of the event.")] = "",
    value: Annotated[
        str | None, Argument("VALUE", "JSON; anything that is not JSON is a text. '-' reads stdin.")
    ] = None,
    key: Annotated[str, Option("KEY", "Send it to the run that was started with this --key.")] = "",
    label: Annotated[list[str] | None, Option("NAME=VALUE", "Send it to all open runs with this label.")] = None,
    once: Annotated[str | None, Option("ID", "Send it only once: a second event with this id is the same.")] = None,
    is_text: Annotated[bool, Flag("The value is a text, even if it looks like JSON.", "--text")] = False,
    by: By = "",
    follows: Follow = None,
    detach: Detach = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """Send an event to a run.

    A step that waits for an event of this name takes it, with its value as its output. If none does yet, the event is
    kept until one does. Each event is taken once, in the order in which they arrived. With --key or --label the first
    argument is the name of the event. The exit codes are those of `mulligan run`; 1 if a run has refused the event.
    """
    chosen = read_continuation(follows, detach)
    labels = pairs(label, "label", "--label name=value")
    if key or labels:
        if value is not None:
            raise UsageRefused(
                "--key and --label say which run it is", hint="write: mulligan send --key KEY NAME VALUE"
            )
        run, name, value = "", run, name or None
    if not name:
        raise UsageRefused("name the event", hint="write: mulligan send RUN NAME VALUE")
    given = None if value is None else read_value(value, is_text=is_text)
    if isinstance(given, str) and not is_text and given.lstrip()[:1] in ("{", "["):
        complain("note: the value is not JSON, so it is sent as a text; --text says that this is meant")
    sent_once = "" if once is None else check_key(once)
    with service_at(home, by) as service:
        if labels:
            runs = service.runs.find_receivers(key=key, labels=labels)
            sent = send_to_all(runs, lambda one: service.changes.send_event(one, name, given, key=sent_once))
            for one in sent.refused:
                complain(f"run {one.run_id}: '{name}' was refused: {one.message}")
            complain(f"'{name}' was sent to {pluralize(len(sent.run_ids), 'run')}")
            codes = {int(bool(sent.refused))}
            for run_id in sent.run_ids:
                codes.add(continue_run(CommandContext(service, home, as_json, prints=False), run_id, chosen))
            if as_json:
                show_result(sent)
            return worst_code(codes)
        run_id = service.runs.find_receivers(key=key)[0] if key else service.runs.find(run)
        service.changes.send_event(run_id, name, given, key=sent_once)
        complain(f"run {run_id}: '{name}' was sent")
        return continue_run(CommandContext(service, home, as_json), run_id, chosen)
