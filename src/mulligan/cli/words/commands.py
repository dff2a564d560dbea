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
# name -> (module in this package and function, line in --help)
COMMANDS = {
    "run": ("running.run:run", "Run a workflow to its end in this process, and show its progress."),
    "resume": ("running.resume:resume", "Resume a run that was interrupted or paused, or one of its steps."),
    "wait": ("running.wait:wait", "Wait until runs that another process drives have ended."),
    "worker": ("operating.worker:worker", "Run tasks for the runs of a store, until stopped."),
    "server": ("operating.server:server", "Serve a dashboard and HTTP for the runs of a store."),
    "mcp": ("operating.mcp:mcp", "Let an agent work with the runs of a store."),
    "dashboard": ("operating.dashboard:dashboard", "Show the runs of a store in a browser."),
    "list": ("reading.list_command:list_runs", "List runs, newest first, with their status and why they failed."),
    "workers": ("operating.workers:list_workers", "List the workers of a store, and what each of them is running."),
    "show": ("reading.show:show_run", "Show a run: its steps, its failures, and what it waits for."),
    "explain": ("reading.explain:explain", "Explain what happened in a run, and what it waits for."),
    "logs": ("reading.logs:logs", "Print what the attempts of a step wrote, even while they run."),
    "events": ("reading.logs:events", "Print the events of a run, one per line."),
    "items": ("running.items:list_items", "List the items of a map or matrix, with the status of each."),
    "data": ("running.data:data", "Get, set or list the values that the steps of a run share."),
    "report": ("reading.report:report", "Write a report of a run in HTML: failures, graph, timeline, logs."),
    "cancel": ("running.change_commands:cancel", "Cancel a run; its cleanup, undo and end steps still run."),
    "remove": ("running.change_commands:remove", "Remove a run that has ended or cannot be read."),
    "pause": ("running.change_commands:pause", "Pause a run: running steps finish, and no other step starts."),
    "retry": ("running.change_commands:retry", "Give a run another round: steps that did not complete run again."),
    "fork": ("running.change_commands:fork", "Start a new run that keeps another run's results before a step."),
    "pending": ("running.decision_commands:list_pending", "List what waits for a person, in all runs."),
    "classify": ("running.decision_commands:classify", "Decide what happens to a parked step: retry or fail."),
    "approve": ("running.decision_commands:approve", "Answer an approval that a run waits for."),
    "send": ("running.send:send", "Send an event to a run that waits for one, or will."),
    "notices": ("operating.notices:notices", "List the notices about runs, send them, or test a target."),
    "stats": ("reading.stats:show_stats", "Show how often retries, handlers, triage and routes helped."),
    "whatif": ("authoring.whatif:whatif", "Try a changed workflow on the runs that are recorded."),
    "usage": ("reading.usage:show_usage", "Compare the resources that steps requested with what they used."),
    "suggest": ("authoring.suggest:suggest", "Propose rules and limits for workflows, from what their runs did."),
    "breakers": ("operating.breakers:show_breakers", "Show the circuit breakers of a store, or close one."),
    "traces": ("operating.traces:traces", "Send the trace of a run to a collector of OpenTelemetry."),
    "replay": ("reading.replay:replay", "Show a run as it was at any of its events, or check its log."),
    "debug": ("running.debug:debug", "Run a recorded attempt again in a debugger, outside of its run."),
    "step": ("authoring.step:step", "Run a single step of a workflow once, or its handler."),
    "rehearse": ("authoring.rehearse:rehearse", "Run a workflow with some steps faked, and discard the run."),
    "validate": ("authoring.validate:validate", "Check workflow files, and show what is wrong and where."),
    "coverage": ("authoring.coverage:coverage", "Show what a workflow does about each failure; run nothing."),
    "graph": ("authoring.graph:graph", "Draw a workflow, or a run of it, as Mermaid, SVG or PNG."),
    "convert": ("authoring.convert:convert", "Convert a workflow of another system to a Mulligan workflow."),
    "publish": ("operating.publish:publish", "Publish a workflow, so that servers and schedules can start it."),
    "deploy": ("operating.deploy:deploy_project", "Publish a whole project: workflows, schedules, notices."),
    "workflows": ("operating.publish:list_workflows", "List the published workflows, or the versions of one."),
    "schedule": ("operating.schedule:schedule", "Start published workflows on time: list, put, pause, resume."),
    "webhook": ("operating.webhook:webhook", "Let programs outside send events and start workflows."),
    "schema": ("authoring.schema:schema", "Print the JSON Schema of workflow files, for editors."),
    "login": ("operating.login:login", "Check a token for a server, and store it for you alone."),
    "logout": ("operating.login:logout", "Forget the token of a server on this machine."),
    "token": ("operating.token:token", "Make, list or revoke the tokens of a server."),
    "postgres": ("operating.postgres:postgres", "Start, stop or show a private PostgreSQL, for several workers."),
    "slurm": ("operating.slurm:slurm", "Submit workers as Slurm jobs, show them, and end them."),
    "gc": ("operating.gc:gc", "Remove files that no run refers to, and old runs on request."),
    "doctor": ("operating.doctor:doctor", "Check this machine and the store, and suggest what to fix."),
    "demo": ("authoring.demo:main", "Watch a run fail on every rung of the ladder, and recover."),
}
# They drive runs in this process: they load nearly everything.
_DRIVING = frozenset({"run", "resume", "step", "rehearse", "worker", "debug"})


def load(name: str) -> Command:
    """The function of a command."""
    if name in _DRIVING:
        from mulligan.service.driving.import_order import import_in_order

        import_in_order()
    module, _, function = COMMANDS[name][0].partition(":")
    result: Command = getattr(import_module(f"mulligan.cli.{module}"), function)
    return result
