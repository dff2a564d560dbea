"""The commands by name. The module of a command is imported only when the command is called."""

from __future__ import annotations

from importlib import import_module

from mulligan import service as services
from mulligan.cli.parameters import Command

PROGRAM = "mulligan"
DESCRIPTION = "Durable workflows in which failure is a first-class path."
HELP = ("-h", "--help")
# Set by the completion script of a shell, which asks for suggestions.
COMPLETION_VARIABLE = "_MULLIGAN_COMPLETE"
GENERAL_OPTIONS = {
    "--help": "Show the help of a command and exit.",
    "--version": "Show the version and exit.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Print the completion script of the current shell.",
}
# name -> (module and function, line in --help)
COMMANDS = {
    "run": ("mulligan.cli.run:run", "Run a workflow to its end in this process, and show its progress."),
    "resume": ("mulligan.cli.resume:resume", "Resume a run that was interrupted or paused, or one of its steps."),
    "wait": ("mulligan.cli.wait:wait", "Wait until runs that another process drives have ended."),
    "worker": ("mulligan.cli.worker:worker", "Run tasks for the runs of a store, until stopped."),
    "server": ("mulligan.cli.server:server", "Serve a dashboard and HTTP for the runs of a store."),
    "mcp": ("mulligan.cli.mcp:mcp", "Let an agent work with the runs of a store."),
    "dashboard": ("mulligan.cli.dashboard:dashboard", "Show the runs of a store in a browser."),
    "list": (
        "mulligan.cli.list_command:list_runs",
        "List runs, newest first, with their status and why they failed.",
    ),
    "workers": ("mulligan.cli.workers:list_workers", "List the workers of a store, and what each of them is running."),
    "show": ("mulligan.cli.show:show_run", "Show a run: its steps, its failures, and what it waits for."),
    "explain": ("mulligan.cli.explain:explain", "Explain what happened in a run, and what it waits for."),
    "logs": ("mulligan.cli.logs:logs", "Print what the attempts of a step wrote, even while they run."),
    "events": ("mulligan.cli.logs:events", "Print the events of a run, one per line."),
    "items": ("mulligan.cli.items:list_items", "List the items of a map or matrix, with the status of each."),
    "data": ("mulligan.cli.data:data", "Get, set or list the values that the steps of a run share."),
    "report": ("mulligan.cli.report:report", "Write a report of a run in HTML: failures, graph, timeline, logs."),
    "cancel": ("mulligan.cli.change_commands:cancel", "Cancel a run; its cleanup, undo and end steps still run."),
    "remove": ("mulligan.cli.change_commands:remove", "Remove a run that has ended or cannot be read."),
    "pause": ("mulligan.cli.change_commands:pause", "Pause a run: running steps finish, and no other step starts."),
    "retry": ("mulligan.cli.change_commands:retry", "Give a run another round: steps that did not complete run again."),
    "fork": ("mulligan.cli.change_commands:fork", "Start a new run that keeps another run's results before a step."),
    "pending": ("mulligan.cli.decision_commands:list_pending", "List what waits for a person, in all runs."),
    "classify": ("mulligan.cli.decision_commands:classify", "Decide what happens to a parked step: retry or fail."),
    "approve": ("mulligan.cli.decision_commands:approve", "Answer an approval that a run waits for."),
    "notices": ("mulligan.cli.notices:notices", "List the notices about runs, send them, or test a target."),
    "stats": ("mulligan.cli.stats:show_stats", "Show how often retries, handlers, triage and routes helped."),
    "whatif": ("mulligan.cli.whatif:whatif", "Try a changed workflow on the runs that are recorded."),
    "usage": ("mulligan.cli.usage:show_usage", "Compare the resources that steps requested with what they used."),
    "suggest": ("mulligan.cli.suggest:suggest", "Propose rules and limits for workflows, from what their runs did."),
    "breakers": ("mulligan.cli.breakers:show_breakers", "Show the circuit breakers of a store, or close one."),
    "traces": ("mulligan.cli.traces:traces", "Send the trace of a run to a collector of OpenTelemetry."),
    "replay": ("mulligan.cli.replay:replay", "Show a run as it was at any of its events, or check its log."),
    "step": ("mulligan.cli.step:step", "Run a single step of a workflow once, or its handler."),
    "rehearse": ("mulligan.cli.rehearse:rehearse", "Run a workflow with some steps faked, and discard the run."),
    "validate": ("mulligan.cli.validate:validate", "Check workflow files, and show what is wrong and where."),
    "coverage": ("mulligan.cli.coverage:coverage", "Show what a workflow does about each failure; run nothing."),
    "graph": ("mulligan.cli.graph:graph", "Draw a workflow, or a run of it, as Mermaid, SVG or PNG."),
    "convert": ("mulligan.cli.convert:convert", "Convert a workflow of another system to a Mulligan workflow."),
    "publish": ("mulligan.cli.publish:publish", "Publish a workflow, so that servers and schedules can start it."),
    "workflows": ("mulligan.cli.publish:list_workflows", "List the published workflows, or the versions of one."),
    "schedule": ("mulligan.cli.schedule:schedule", "Start published workflows on time: list, put, pause, resume."),
    "schema": ("mulligan.cli.schema:schema", "Print the JSON Schema of workflow files, for editors."),
    "login": ("mulligan.cli.login:login", "Check a token for a server, and store it for you alone."),
    "logout": ("mulligan.cli.login:logout", "Forget the token of a server on this machine."),
    "token": ("mulligan.cli.token:token", "Make, list or revoke the tokens of a server."),
    "postgres": ("mulligan.cli.postgres:postgres", "Start, stop or show a private PostgreSQL, for several workers."),
    "slurm": ("mulligan.cli.slurm:slurm", "Submit workers as Slurm jobs, show them, and end them."),
    "gc": ("mulligan.cli.gc:gc", "Remove files that no run refers to, and old runs on request."),
    "doctor": ("mulligan.cli.doctor:doctor", "Check this machine and the store, and suggest what to fix."),
    "demo": ("mulligan.cli.demo:main", "Watch a run fail on every rung of the ladder, and recover."),
}
# They drive runs in this process: they load nearly everything.
_DRIVING = frozenset({"run", "resume", "step", "rehearse", "worker"})


def load(name: str) -> Command:
    """The function of a command."""
    if name in _DRIVING:
        services.import_in_order()
    module, _, function = COMMANDS[name][0].partition(":")
    result: Command = getattr(import_module(module), function)
    return result
