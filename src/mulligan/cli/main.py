"""`mulligan`: the commands by name, each imported when it is named and not before, since a prompt should not wait."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mulligan import __version__
from mulligan.cli.conversion import taken_plainly
from mulligan.cli.terminal import complain, exit_code_of, hush_stdout

PROGRAM = "mulligan"
INTERRUPTED = 130
# What a shell reports of any program whose reader went away: 128 + SIGPIPE.
READER_GONE = 141

# name -> where its function is, and its line in --help.
COMMANDS = {
    "validate": ("mulligan.cli.validate:validate", "Check workflow files and say what is wrong, and where."),
    "graph": ("mulligan.cli.graph:graph", "Draw a workflow as Mermaid, SVG or PNG."),
    "schema": ("mulligan.cli.schema:schema", "Print the JSON Schema of workflow files, for editors."),
    "demo": ("mulligan.cli.demo:main", "Watch a small run break on every rung of the ladder, and end well."),
}
_SETTINGS = {"help_option_names": ["-h", "--help"]}


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return taken_plainly(super().get_params(ctx))


class LazyCommand(TyperCommand):
    """A name and a line of help. The command itself is imported when somebody calls it."""

    def __init__(self, name: str, target: str, summary: str) -> None:
        super().__init__(name=name, help=summary)
        self._target = target

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        module, _, function = self._target.partition(":")
        single = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)
        single.command(name=self.name, cls=Command)(getattr(import_module(module), function))
        return typer.main.get_command(single).make_context(info_name, args, parent, **extra)


class Commands(TyperGroup):
    """All commands. A command returns its exit code (None is 0); whatever it raises becomes words and a code."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (target, summary) in COMMANDS.items():
            self.add_command(LazyCommand(name, target, summary))

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        sys.exit(exit_code_of(lambda: super(Commands, self).main(args, prog_name or PROGRAM, **extra)))

    def get_params(self, ctx: Any) -> list[Any]:
        return taken_plainly(super().get_params(ctx))

    # Help and version are shown while the context is made, everything else while it is invoked.
    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _leaving_quietly():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _leaving_quietly():
            return super().invoke(ctx)


@contextmanager
def _leaving_quietly() -> Iterator[None]:
    """Ctrl-C and a reader that went away (`| head`) are no errors: no more than a word, and the code shells expect."""
    try:
        yield
    except KeyboardInterrupt:
        complain("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        hush_stdout()
        raise typer.Exit(READER_GONE) from None


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


def main() -> None:
    """Run the command line and end the process with its exit code."""
    typer.main.get_command(app).main()


if __name__ == "__main__":
    main()
