"""The parameters of a command, declared once in the signature of its function.

    def logs(run: Annotated[str, Argument("RUN", "A run.")] = "latest", ...) -> None:

The parser, the help text and the table of completion all read these declarations. A parameter is a `str`, an `int`, a
`Path` or a list of these; an option that is a `bool` takes no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

Command = Callable[..., Any]


class Argument:
    """A parameter that is given by its position."""

    def __init__(self, metavar: str, help: str) -> None:
        self.metavar = metavar
        self.help = help


class Option:
    """A parameter that is given by one of its names; without any, by its own: `--run-id` for `run_id`."""

    def __init__(self, metavar: str, help: str, *names: str, show_default: bool = False) -> None:
        self.names = names
        self.metavar = metavar
        self.help = help
        self.show_default = show_default


class Flag(Option):
    """An option without a value. `--yes/--no` names both values of a flag."""

    def __init__(self, help: str, *names: str, show_default: bool = False) -> None:
        super().__init__("", help, *names, show_default=show_default)


class Parameter(NamedTuple):
    """One parameter of a command. `kind` is the type of a single value."""

    name: str
    kind: type[Any]
    is_list: bool
    is_required: bool
    default: Any
    declared: Argument | Option

    @property
    def names(self) -> tuple[str, ...]:
        """The names of an option; an argument has none."""
        if isinstance(self.declared, Argument):
            return ()
        return self.declared.names or (f"--{self.name.replace('_', '-')}",)

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.names[0] if self.names else self.declared.metavar

    def flags(self) -> Iterator[tuple[str, bool]]:
        """The names of an option, each with the value that this name gives to a flag."""
        for names in self.names:
            yes, _, no = names.partition("/")
            yield yes, True
            if no:
                yield no, False


@cache
def parameters_of(command: Command) -> tuple[Parameter, ...]:
    """The parameters of a command, in the order of its signature."""
    # Importing `inspect`, which reads signatures, takes longer than all of this.
    hints = get_type_hints(command, include_extras=True)
    names = command.__code__.co_varnames[: command.__code__.co_argcount]
    defaults = command.__defaults__ or ()
    required_count = len(names) - len(defaults)
    parameters = []
    for position, name in enumerate(names):
        kind, declared = get_args(hints[name])
        if isinstance(kind, UnionType):
            kind = next(member for member in get_args(kind) if member is not type(None))
        is_list = get_origin(kind) is list
        is_required = position < required_count
        parameters.append(
            Parameter(
                name=name,
                kind=get_args(kind)[0] if is_list else kind,
                is_list=is_list,
                is_required=is_required,
                default=None if is_required else defaults[position - required_count],
                declared=declared,
            )
        )
    return tuple(parameters)
