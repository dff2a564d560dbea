"""The commands by name. The module of a command is imported only when the command is called."""

from __future__ import annotations

from importlib import import_module

from mulligan.cli.words.parameters import Command

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
    "run": ("mulligan.cli.running.run:run", "Run a workflow to its end in this process, and show its progress."),
    "resume": (
        "mulligan.cli.running.resume:resume",
        "Resume a run that was interrupted or paused, or one of its steps.",
    ),
    "wait": ("mulligan.cli.running.wait:wait", "Wait until runs that another process drives have ended."),
    "worker": ("mulligan.cli.operating.worker:worker", "Run tasks for the runs of a store, until stopped."),
    "server": ("mulligan.cli.operating.server:server", "Serve a dashboard and HTTP for the runs of a store."),
    "mcp": ("mulligan.cli.operating.mcp:mcp", "Let an agent work with the runs of a store."),
    "dashboard": ("mulligan.cli.operating.dashboard:dashboard", "Show the runs of a store in a browser."),
    "list": (
        "mulligan.cli.reading.list_command:list_runs",
        "List runs, newest first, with their status and why they failed.",
    ),
    "workers": (
        "mulligan.cli.operating.workers:list_workers",
        "List the workers of a store, and what each of them is running.",
    ),
    "show": ("mulligan.cli.reading.show:show_run", "Show a run: its steps, its failures, and what it waits for."),
    "explain": ("mulligan.cli.reading.explain:explain", "Explain what happened in a run, and what it waits for."),
    "logs": ("mulligan.cli.reading.logs:logs", "Print what the attempts of a step wrote, even while they run."),
    "events": ("mulligan.cli.reading.logs:events", "Print the events of a run, one per line."),
    "items": ("mulligan.cli.running.items:list_items", "List the items of a map or matrix, with the status of each."),
    "data": ("mulligan.cli.running.data:data", "Get, set or list the values that the steps of a run share."),
    "report": (
        "mulligan.cli.reading.report:report",
        "Write a report of a run in HTML: failures, graph, timeline, logs.",
    ),
    "cancel": (
        "mulligan.cli.running.change_commands:cancel",
        "Cancel a run; its cleanup, undo and end steps still run.",
    ),
    "remove": ("mulligan.cli.running.change_commands:remove", "Remove a run that has ended or cannot be read."),
    "pause": (
        "mulligan.cli.running.change_commands:pause",
        "Pause a run: running steps finish, and no other step starts.",
    ),
    "retry": (
        "mulligan.cli.running.change_commands:retry",
        "Give a run another round: steps that did not complete run again.",
    ),
    "fork": (
        "mulligan.cli.running.change_commands:fork",
        "Start a new run that keeps another run's results before a step.",
    ),
    "pending": ("mulligan.cli.running.decision_commands:list_pending", "List what waits for a person, in all runs."),
    "classify": (
        "mulligan.cli.running.decision_commands:classify",
        "Decide what happens to a parked step: retry or fail.",
    ),
    "approve": ("mulligan.cli.running.decision_commands:approve", "Answer an approval that a run waits for."),
    "notices": ("mulligan.cli.operating.notices:notices", "List the notices about runs, send them, or test a target."),
    "stats": ("mulligan.cli.reading.stats:show_stats", "Show how often retries, handlers, triage and routes helped."),
    "whatif": ("mulligan.cli.authoring.whatif:whatif", "Try a changed workflow on the runs that are recorded."),
    "usage": (
        "mulligan.cli.reading.usage:show_usage",
        "Compare the resources that steps requested with what they used.",
    ),
    "suggest": (
        "mulligan.cli.authoring.suggest:suggest",
        "Propose rules and limits for workflows, from what their runs did.",
    ),
    "breakers": (
        "mulligan.cli.operating.breakers:show_breakers",
        "Show the circuit breakers of a store, or close one.",
    ),
    "traces": ("mulligan.cli.operating.traces:traces", "Send the trace of a run to a collector of OpenTelemetry."),
    "replay": ("mulligan.cli.reading.replay:replay", "Show a run as it was at any of its events, or check its log."),
    "step": ("mulligan.cli.authoring.step:step", "Run a single step of a workflow once, or its handler."),
    "rehearse": (
        "mulligan.cli.authoring.rehearse:rehearse",
        "Run a workflow with some steps faked, and discard the run.",
    ),
    "validate": ("mulligan.cli.authoring.validate:validate", "Check workflow files, and show what is wrong and where."),
    "coverage": (
        "mulligan.cli.authoring.coverage:coverage",
        "Show what a workflow does about each failure; run nothing.",
    ),
    "graph": ("mulligan.cli.authoring.graph:graph", "Draw a workflow, or a run of it, as Mermaid, SVG or PNG."),
    "convert": (
        "mulligan.cli.authoring.convert:convert",
        "Convert a workflow of another system to a Mulligan workflow.",
    ),
    "publish": (
        "mulligan.cli.operating.publish:publish",
        "Publish a workflow, so that servers and schedules can start it.",
    ),
    "workflows": (
        "mulligan.cli.operating.publish:list_workflows",
        "List the published workflows, or the versions of one.",
    ),
    "schedule": (
        "mulligan.cli.operating.schedule:schedule",
        "Start published workflows on time: list, put, pause, resume.",
    ),
    "schema": ("mulligan.cli.authoring.schema:schema", "Print the JSON Schema of workflow files, for editors."),
    "login": ("mulligan.cli.operating.login:login", "Check a token for a server, and store it for you alone."),
    "logout": ("mulligan.cli.operating.login:logout", "Forget the token of a server on this machine."),
    "token": ("mulligan.cli.operating.token:token", "Make, list or revoke the tokens of a server."),
    "postgres": (
        "mulligan.cli.operating.postgres:postgres",
        "Start, stop or show a private PostgreSQL, for several workers.",
    ),
    "slurm": ("mulligan.cli.operating.slurm:slurm", "Submit workers as Slurm jobs, show them, and end them."),
    "gc": ("mulligan.cli.operating.gc:gc", "Remove files that no run refers to, and old runs on request."),
    "doctor": ("mulligan.cli.operating.doctor:doctor", "Check this machine and the store, and suggest what to fix."),
    "demo": ("mulligan.cli.authoring.demo:main", "Watch a run fail on every rung of the ladder, and recover."),
}
# They drive runs in this process: they load nearly everything.
_DRIVING = frozenset({"run", "resume", "step", "rehearse", "worker"})


def load(name: str) -> Command:
    """The function of a command."""
    if name in _DRIVING:
        from mulligan.service.driving.import_order import import_in_order

        import_in_order()
    module, _, function = COMMANDS[name][0].partition(":")
    result: Command = getattr(import_module(module), function)
    return result
