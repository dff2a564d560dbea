"""The commands by name, each imported when it is named and not before, since a prompt should not wait."""

from __future__ import annotations

from importlib import import_module

from mulligan.cli.parameters import Command

# name -> where its function is, and its line in --help.
COMMANDS = {
    "run": ("mulligan.cli.run:run", "Run a workflow to its end, here, and show how it goes."),
    "resume": ("mulligan.cli.resume:resume", "Go on with a run that was interrupted or paused, or with a step."),
    "wait": ("mulligan.cli.wait:wait", "Wait until runs have ended that another process drives."),
    "worker": ("mulligan.cli.worker:worker", "Take part in the runs of a store, until you are told to end."),
    "list": (
        "mulligan.cli.list_command:list_runs",
        "List runs, newest first: how they are, why they failed.",
    ),
    "workers": ("mulligan.cli.workers:list_workers", "List the workers of a store, and what each runs now."),
    "show": ("mulligan.cli.show:show_run", "Show a run: its steps, what failed, what is waited for."),
    "explain": ("mulligan.cli.explain:explain", "Show the story of a run, and what it waits for."),
    "logs": ("mulligan.cli.logs:logs", "Print what the attempts of a step wrote, also while they run."),
    "events": ("mulligan.cli.logs:events", "Print the events of a run, one a line."),
    "items": ("mulligan.cli.items:list_items", "List the items of a map or matrix, and what became of each."),
    "report": ("mulligan.cli.report:report", "Write a run as one HTML page: failures, graph, timeline, logs."),
    "cancel": ("mulligan.cli.change_commands:cancel", "Stop a run: cleanup, undo and its end still run."),
    "pause": ("mulligan.cli.change_commands:pause", "Let what runs end, and start nothing more until you resume it."),
    "retry": ("mulligan.cli.change_commands:retry", "Give a run another round: what was not done runs again."),
    "fork": ("mulligan.cli.change_commands:fork", "Start a new run that keeps what another did before a step."),
    "pending": ("mulligan.cli.decision_commands:list_pending", "List what waits for a person, over all runs."),
    "classify": ("mulligan.cli.decision_commands:classify", "Say what becomes of a parked step: retry, or fail."),
    "approve": ("mulligan.cli.decision_commands:approve", "Answer an approval that a run waits for."),
    "stats": ("mulligan.cli.stats:show_stats", "Show what retries, handlers, triage and routes were good for."),
    "usage": ("mulligan.cli.usage:show_usage", "Compare what steps asked for with what they used."),
    "breakers": ("mulligan.cli.breakers:show_breakers", "Show the circuit breakers of a store, or close one."),
    "replay": ("mulligan.cli.replay:replay", "Fold the log of a run again, and compare it with the store."),
    "step": ("mulligan.cli.step:step", "Run one step of a workflow alone, once; or its handler."),
    "rehearse": ("mulligan.cli.rehearse:rehearse", "Run a workflow with some steps faked, and keep nothing of it."),
    "validate": ("mulligan.cli.validate:validate", "Check workflow files and say what is wrong, and where."),
    "graph": ("mulligan.cli.graph:graph", "Draw a workflow, or a run of it, as Mermaid, SVG or PNG."),
    "convert": ("mulligan.cli.convert:convert", "Write another system's workflow as one of ours."),
    "schema": ("mulligan.cli.schema:schema", "Print the JSON Schema of workflow files, for editors."),
    "gc": ("mulligan.cli.gc:gc", "Remove what no run refers to any more, and old runs where asked."),
    "doctor": ("mulligan.cli.doctor:doctor", "Check this machine and the store, and say what to do."),
    "demo": ("mulligan.cli.demo:main", "Watch a run break on every rung of the ladder, and end well."),
}


def load(name: str) -> Command:
    """The function of a command."""
    module, _, function = COMMANDS[name][0].partition(":")
    return getattr(import_module(module), function)
