"""What a command takes, said once in its signature: read here word by word, and by Typer where words are unusual.

Typer's import takes longer than most of our commands. So a command whose words are all in order is called without it,
and everything else (help, completion, a word too many) is left to Typer, which is given the same signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


class Argument:
    """A word by its position."""

    def __init__(self, *, metavar: str, help: str) -> None:
        self.metavar = metavar
        self.help = help


class Option:
    """A word by its name. Of type bool it takes no value (`--yes/--no`: two names); of type list it may come again."""

    def __init__(self, *names: str, metavar: str | None = None, help: str = "", show_default: bool = False) -> None:
        self.names = names
        self.metavar = metavar
        self.help = help
        self.show_default = show_default


Command = Callable[..., Any]
_READ: dict[Any, Callable[[str], Any]] = {str: str, int: int, Path: Path}


def arguments(command: Command, words: Sequence[str]) -> dict[str, Any] | None:
    """What to call a command with; None where that takes somebody who knows more: Typer."""
    hints = get_type_hints(command, include_extras=True)
    hints.pop("return", None)
    markers = {name: get_args(hint) for name, hint in hints.items()}
    if not all(marker and isinstance(marker[-1], Argument | Option) for marker in markers.values()):
        return None
    try:
        found = _read({name: (plain(kind), marker) for name, (kind, marker) in markers.items()}, iter(words))
    except ValueError:
        return None
    return found if _is_enough(command, found) else None


def plain(kind: Any) -> Any:
    """The type without `| None`."""
    if isinstance(kind, UnionType):
        return next(one for one in get_args(kind) if one is not type(None))
    return kind


def _read(parameters: dict[str, tuple[Any, Argument | Option]], words: Iterator[str]) -> dict[str, Any]:
    """The values by parameter. Whatever is out of the ordinary is a ValueError."""
    options = {flag: (name, is_on) for name, (_, marker) in parameters.items() for flag, is_on in _flags(marker)}
    positions = [name for name, (_, marker) in parameters.items() if isinstance(marker, Argument)]
    found: dict[str, Any] = {}
    for word in words:
        if word.startswith("-"):
            flag, is_joined, value = word.partition("=") if word.startswith("--") else (word, "", "")
            name, is_on = options.get(flag, ("", True))
            if name and parameters[name][0] is bool and not is_joined:
                _put(found, name, is_on)
                continue
            value = value if is_joined else next(words, "-")
        else:
            name, value = next((name for name in positions if name not in found), ""), word
        _put_word(found, name, parameters[name][0] if name else None, value)
    return found


def _flags(marker: Argument | Option) -> Iterator[tuple[str, bool]]:
    """The names of an option, and what a flag of that name says."""
    for names in marker.names if isinstance(marker, Option) else ():
        yes, _, no = names.partition("/")
        yield yes, True
        if no:
            yield no, False


def _put(found: dict[str, Any], name: str, value: Any) -> None:
    if name in found:
        raise ValueError(name)
    found[name] = value


def _put_word(found: dict[str, Any], name: str, kind: Any, word: str) -> None:
    """One value. A name that nobody knows, twice the same, and what looks like another option are not for us."""
    if word.startswith("-"):
        raise ValueError(word)
    if get_origin(kind) is list:
        found.setdefault(name, []).append(_READ[get_args(kind)[0]](word))
    elif kind in _READ:
        _put(found, name, _READ[kind](word))
    else:
        raise ValueError(word)


def _is_enough(command: Command, found: dict[str, Any]) -> bool:
    code, defaults = command.__code__, command.__defaults__ or ()
    required = code.co_varnames[: code.co_argcount - len(defaults)]
    return all(name in found for name in required)
