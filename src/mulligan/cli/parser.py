"""The command line as Typer knows it: help, completion, and words that are not in order."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from mulligan import __version__
from mulligan.cli.commands import COMMANDS, load
from mulligan.cli.conversion import taken_plainly
from mulligan.cli.parameters import Argument, Command, Option
from mulligan.cli.terminal import UsageRefused, exit_code_of, leaving_quietly

PROGRAM = "mulligan"
_SETTINGS = {"help_option_names": ["-h", "--help"]}


class OneCommand(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return taken_plainly(super().get_params(ctx))


class LazyCommand(TyperCommand):
    """A name and a line of help. The command itself is imported when somebody calls it."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(name=name, help=summary)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        assert self.name is not None
        single = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)
        single.command(name=self.name, cls=OneCommand)(as_typer_has_it(load(self.name)))
        return typer.main.get_command(single).make_context(info_name, args, parent, **extra)


def as_typer_has_it(command: Command) -> Command:
    """The same command, its parameters marked as Typer marks them."""
    hints = get_type_hints(command, include_extras=True)

    @wraps(command)
    def marked(*args: Any, **values: Any) -> Any:
        return command(*args, **values)

    parameters = inspect.signature(command).parameters.values()
    signature = [one.replace(annotation=_marked(hints.get(one.name, one.annotation))) for one in parameters]
    marked.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    marked.__annotations__ = {one.name: one.annotation for one in signature}
    return marked


def _marked(hint: Any) -> Any:
    kind, marker = (*get_args(hint), None, None)[:2]
    if isinstance(marker, Argument):
        return Annotated[kind, typer.Argument(metavar=marker.metavar, help=marker.help, show_default=False)]
    if isinstance(marker, Option):
        option = typer.Option(*marker.names, metavar=marker.metavar, help=marker.help, show_default=marker.show_default)
        return Annotated[kind, option]
    return hint


class Commands(TyperGroup):
    """All commands. A command returns its exit code (None is 0); whatever it raises becomes words and a code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, summary) in COMMANDS.items():
            self.add_command(LazyCommand(name, summary))

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        sys.exit(exit_code_of(lambda: self._answer(args, prog_name or PROGRAM, extra)))

    def _answer(self, args: Sequence[str] | None, prog_name: str, extra: dict[str, Any]) -> Any:
        try:
            return super().main(args, prog_name, **extra)
        except TyperException as error:
            raise usage_refusal(error) from error

    def get_params(self, ctx: Any) -> list[Any]:
        return taken_plainly(super().get_params(ctx))

    # Typer has words of its own for Ctrl-C and for a reader that went away; ours are the same everywhere.
    # Help and version are shown while the context is made, everything else while it is invoked.
    def make_context(self, *args: Any, **extra: Any) -> Any:
        with leaving_quietly():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with leaving_quietly():
            return super().invoke(ctx)


def usage_refusal(error: TyperException) -> UsageRefused:
    """What the parser says, in our words: lower case, no full stop, what to do on the next line."""
    sentence, _, advice = error.format_message().partition(" Did you mean ")
    sentence, _, options = sentence.partition(" (Possible options: ")
    meant = [f"'{name}'" for name in options.rstrip(")").split(", ") if name not in ("", "--help")]
    advice = advice or (f"{' or '.join(meant)}?" if meant else "")
    # Pydantic, which Typer asks about values, puts its own words before the reason.
    sentence = sentence.rstrip(".").replace(": Value error, ", ": ", 1)
    context = getattr(error, "ctx", None)
    path = context.command_path if context else PROGRAM
    hint = _habit(sentence, path) or (f"did you mean {advice}" if advice else f"how it is used: {path} --help")
    return UsageRefused(sentence[:1].lower() + sentence[1:], hint=hint)


def _habit(sentence: str, path: str) -> str:
    """What to write for a word that other programs have, and for an input without its option."""
    if unknown := re.search(r"No such command '([^']*)'", sentence):
        meant = _OTHER_WORDS.get(unknown[1].lower(), "")
        return f"did you mean '{PROGRAM} {meant}'?" if meant else ""
    extra = re.search(r"unexpected extra arguments?(?:\(s\))? \((\w+=[^)]*)\)", sentence)
    given = " ".join(f"-i {word}" for word in extra[1].split() if "=" in word) if extra else ""
    return f"inputs are given with -i: {path} … {given}" if given else ""


# Verbs of other systems, and what they are called here.
_OTHER_WORDS = {
    word: ours
    for ours, words in {
        "show": "status describe get inspect info",
        "list": "ls ps runs",
        "run": "start submit exec execute trigger apply",
        "resume": "continue unpause restart",
        "retry": "rerun redo",
        "cancel": "stop kill abort terminate",
        "logs": "log tail output",
        "explain": "why history trace",
        "validate": "check lint verify",
        "graph": "dag draw plot",
        "gc": "clean prune delete rm remove purge",
        "worker": "agent serve",
        "doctor": "diagnose health",
        "pending": "todo waiting approvals",
        "workers": "nodes hosts",
        "wait": "await join",
    }.items()
    for word in words.split()
}


app = typer.Typer(
    cls=Commands,
    name=PROGRAM,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def mulligan(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Durable workflows in which failure is a first-class path."""
    if context.invoked_subcommand is None:
        # Not on stdout, and not a success: `mulligan $COMMAND` with nothing in it did nothing.
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def keep_order_of_suggestions() -> None:
    """Let the scripts of Typer show suggestions in our order, the newest run first, and not in that of the alphabet."""
    scripts = getattr(import_module("typer._completion_shared"), "_completion_scripts", {})
    for shell, before, after in (
        ("bash", "complete -o default", "complete -o nosort -o default"),
        ("fish", "--no-files", "--no-files --keep-order"),
    ):
        if shell in scripts:
            scripts[shell] = scripts[shell].replace(before, after)


def exit_code(words: Sequence[str]) -> int:
    """The exit code of a command line."""
    if words and words[0].endswith("-completion"):
        keep_order_of_suggestions()
    try:
        typer.main.get_command(app).main(list(words))
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0
