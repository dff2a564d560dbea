"""Talking to whoever sits at the terminal: data on stdout, everything else on stderr, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TextIO

from mulligan.errors import MulliganError

_RED, _YELLOW, _BOLD, _PLAIN = "\033[1;31m", "\033[1;33m", "\033[1m", "\033[0m"
# What a text may have in it that no terminal shows, as a regular expression: the colours of our own tables, those of
# any program, none.
OWN_COLOURS, ANY_COLOURS, NO_COLOURS = r"\x1b\[(?:[012]|3[1-6])m", r"\x1b\[[0-9;:]*m", r"[^\s\S]"
# Bytes of file names that are no text, but for those that command a terminal too.
_BYTES = "[\udca0-\udcff]"
_COLOURS = (
    (r"^error\[[^\]\n]*\]:", _RED),
    (r"^warning\[[^\]\n]*\]:", _YELLOW),
    # The carets below a quoted line, with the advice behind them.
    (r"(?<=\| )\s*\^+.*$", _BOLD),
)


INTERRUPTED = 130
# What a shell reports of any program whose reader went away: 128 + SIGPIPE.
READER_GONE = 141


class Left(Exception):
    """Somebody went away: whoever pressed Ctrl-C, or a reader that has enough. No error; all has been said."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class UsageRefused(MulliganError):
    """The command line itself makes no sense."""

    code = "usage"
    http_status = 400
    exit_code = 2


class SystemTrouble(MulliganError):
    """The machine said no: a full disk, a limit, a device that is gone."""

    code = "system"


def show(text: str) -> None:
    """Put what people read on stdout as UTF-8, whatever the locale; file names come out as the bytes they are.

    Nothing in it commands their terminal.
    """
    colours = OWN_COLOURS if wants_colour(sys.stdout, os.environ) else NO_COLOURS
    show_bytes(visible(text, f"{colours}|{_BYTES}").encode("utf-8", "surrogateescape") + b"\n")


def show_json(value: object) -> None:
    """Put one JSON value on stdout."""
    show(json.dumps(value, indent=2))


def visible(text: str, colours: str = NO_COLOURS) -> str:
    """Text with all that would command a terminal, or deceive whoever reads it, spelled out; but for these colours."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    found: str = import_module("mulligan.service.formatting").escape_unprintable(text, colours)
    return found


def show_written(data: bytes, stream: TextIO) -> None:
    """Put what a program has written on stdout or stderr: as the bytes they are, unless a terminal shows them.

    There it has its colours and nothing else that commands a terminal; what would be written over stands in a line.
    """
    if stream.isatty():
        text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        data = visible(text, ANY_COLOURS).encode() + (_PLAIN.encode() if b"\x1b[" in data else b"")
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


def show_bytes(data: bytes) -> None:
    """Put bytes on stdout as they are: a picture, a page, a file."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def complain(text: str) -> None:
    """Say something to the person, on stderr. Who does not hear it, for whatever reason, keeps nobody from work."""
    said = visible(text)
    with suppress(OSError):
        print(painted(said) if wants_colour(sys.stderr, os.environ) else said, file=sys.stderr, flush=True)


@contextmanager
def where_there_is_room() -> Iterator[None]:
    """What a full disk or a terminal that has gone does not take goes unsaid. That a reader has enough is heard."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass  # a run is worth more than what is said of it


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Colour is for terminals whose owner has not said no (no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def painted(text: str) -> str:
    """An error as it looks in colour. The words stay the same."""
    for pattern, colour in _COLOURS:
        text = re.sub(pattern, rf"{colour}\g<0>{_PLAIN}", text, flags=re.MULTILINE)
    return text


def hush_stdout() -> None:
    """After stdout has gone or refused: let what is still buffered go nowhere, in silence."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def leaving_quietly() -> Iterator[None]:
    """Ctrl-C and a reader that went away (`| head`) are no errors: no more than a word, and the code shells expect."""
    try:
        yield
    except KeyboardInterrupt:
        complain("interrupted")
        raise Left(INTERRUPTED) from None
    except BrokenPipeError:
        hush_stdout()
        raise Left(READER_GONE) from None


def exit_code_of(act: Callable[[], object]) -> int:
    """Do `act` and give the exit code: what it returns, or that of the refusal it raises, which is then explained."""
    try:
        with leaving_quietly():
            answer = act()
    except Left as left:
        return left.exit_code
    except MulliganError as error:
        return _explained(error)
    except OSError as error:
        # What is still buffered would be written, and refused, once more at exit.
        hush_stdout()
        return _explained(system_trouble(error))
    except Exception as error:
        return _explained(_bugs().bug(error))
    return answer if isinstance(answer, int) else 0


def _explained(error: MulliganError) -> int:
    complain(error.render())
    if error.__cause__ and os.environ.get("MULLIGAN_DEBUG"):
        complain(_bugs().traceback_of(error.__cause__))
    return error.exit_code


def _bugs() -> Any:
    """What reads tracebacks, which hardly any command needs."""
    return import_module("mulligan.cli.internal_errors")


def system_trouble(error: OSError) -> SystemTrouble:
    """What the system calls say, with the file where there is one."""
    what = (error.strerror or str(error) or type(error).__name__).lower()
    found = SystemTrouble(f"{os.fsdecode(error.filename)}: {what}" if error.filename else what)
    found.__cause__ = error
    return found
