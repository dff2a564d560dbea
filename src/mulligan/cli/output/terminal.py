"""Output to the terminal: data on stdout, everything else on stderr, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import Any, TextIO

import msgspec

from mulligan.errors import MulliganError, Problem, render_warnings
from mulligan.service.rendering.console.terminal_text import ANY_COLOURS, NO_COLOURS, OWN_COLOURS
from mulligan.service.rendering.console.terminal_text import visible as visible
from mulligan.service.rendering.console.terminal_text import wants_colour as wants_colour

_RED, _YELLOW, _BOLD, _PLAIN = "\033[1;31m", "\033[1;33m", "\033[1m", "\033[0m"
# Bytes of file names that are not UTF-8, except those that are also control characters.
_BYTES = "[\udca0-\udcff]"
_COLOURS = (
    (r"^error\[[^\]\n]*\]:", _RED),
    (r"^warning\[[^\]\n]*\]:", _YELLOW),
    # The carets below a quoted line, with the advice behind them.
    (r"(?<=\| )\s*\^+.*$", _BOLD),
)

INTERRUPTED = 130
# What a shell reports for a program whose output is closed: 128 + SIGPIPE.
READER_GONE = 141
# How many values of a large object are printed together.
PAIRS_AT_ONCE = 50
_DELETE = "\x7f"


class UsageRefused(MulliganError):
    """The command line is not valid."""

    code = "usage"
    http_status = 400
    exit_code = 2


class SystemFailure(MulliganError):
    """An error of the operating system: a full disk, a limit, a missing device."""

    code = "system"


def show(text: str) -> None:
    """Print text on stdout as UTF-8, whatever the locale; file names are printed as the bytes they are.

    Control characters are escaped.
    """
    colours = OWN_COLOURS if wants_colour(sys.stdout, os.environ) else NO_COLOURS
    show_bytes(visible(text, f"{colours}|{_BYTES}").encode("utf-8", "surrogateescape") + b"\n")


def show_json(value: object) -> None:
    """Print one JSON value on stdout."""
    show(_indented(value))


def show_result(result: object) -> None:
    """Print a result of `Service`, or a list of them, as JSON on stdout."""
    from mulligan.service.rendering.json_output import to_json

    show_json(to_json(result))


def _indented(value: object) -> str:
    """`json.dumps(value, indent=2)`, in a tenth of the time: that one indents in Python."""
    text = json.dumps(value)
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        # A number that is none in JSON, such as NaN, or a value that is nested very deep.
        return json.dumps(value, indent=2)


def show_json_parts(parts: Iterable[tuple[str, Any]]) -> None:
    """Print one JSON object on stdout, key by key, and if a value is an iterator of pairs, pair by pair.

    The same text as that of `show_json`, which would hold all of it in memory.
    """
    colours = OWN_COLOURS if wants_colour(sys.stdout, os.environ) else NO_COLOURS
    # Once, before the bytes: what was printed as text stands before them.
    sys.stdout.flush()
    for piece in _json_pieces(parts, ""):
        # JSON escapes all other characters that do not show.
        shown = visible(piece, f"{colours}|{_BYTES}") if _DELETE in piece else piece
        sys.stdout.buffer.write(shown.encode("utf-8", "surrogateescape"))
    show("")


def _json_pieces(parts: Iterable[tuple[str, Any]], indent: str) -> Iterator[str]:
    before = "{"
    for key, value in parts:
        # As `json.dumps` writes a text.
        name = f"{before}\n{indent}  {encode_basestring_ascii(key)}: "
        if isinstance(value, Iterator):
            yield name
            yield from _json_pairs(value, f"{indent}  ")
        else:
            yield name + _indented(value).replace("\n", f"\n{indent}  ")
        before = ","
    yield "{}" if before == "{" else f"\n{indent}}}"


def _json_pairs(pairs: Iterator[tuple[str, Any]], indent: str) -> Iterator[str]:
    """An object of many pairs, some of them at a time."""
    before = "{"
    while some := dict(islice(pairs, PAIRS_AT_ONCE)):
        # Without its braces, and the line break before the last one.
        yield before + _indented(some)[1:-2].replace("\n", f"\n{indent}")
        before = ","
    yield "{}" if before == "{" else f"\n{indent}}}"


def show_written(data: bytes, stream: TextIO) -> None:
    """Print what a program has written: unchanged to a file or pipe, and without control sequences on a terminal.

    A terminal keeps the colours. Text that a carriage return would overwrite gets a line.
    """
    if stream.isatty():
        text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        data = visible(text, ANY_COLOURS).encode() + (_PLAIN.encode() if b"\x1b[" in data else b"")
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


def show_bytes(data: bytes) -> None:
    """Print bytes on stdout as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def complain(text: str) -> None:
    """Print a message on stderr. If that fails, the command goes on."""
    shown = visible(text)
    with suppress(OSError):
        print(paint_error(shown) if wants_colour(sys.stderr, os.environ) else shown, file=sys.stderr, flush=True)


def show_warnings(warnings: Sequence[Problem]) -> None:
    """Print the warnings about a file on stderr: the first of each kind."""
    for text in render_warnings(warnings):
        complain(text)


def paint_error(text: str) -> str:
    """Add colours to an error message."""
    for pattern, colour in _COLOURS:
        text = re.sub(pattern, rf"{colour}\g<0>{_PLAIN}", text, flags=re.MULTILINE)
    return text


def _discard_stdout() -> None:
    """Discard what is still buffered for stdout, after stdout was closed or failed."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code_of(act: Callable[[], object]) -> int:
    """Call `act` and return its exit code. If it raises an error, show the error and return the error's exit code."""
    try:
        answer = act()
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout is gone (`| head`).
        _discard_stdout()
        return READER_GONE
    except MulliganError as error:
        return _show_error(error)
    except OSError as error:
        # What is still buffered would be written, and fail, again at exit.
        _discard_stdout()
        return _show_error(_system_failure(error))
    except Exception as error:
        return _show_error(_internal_errors().bug(error))
    return answer if isinstance(answer, int) else 0


def _show_error(error: MulliganError) -> int:
    complain(error.render())
    if error.__cause__ and os.environ.get("MULLIGAN_DEBUG"):
        complain(_internal_errors().traceback_of(error.__cause__))
    return error.exit_code


def _internal_errors() -> Any:
    """The module that reads tracebacks, imported only when it is needed."""
    from mulligan.cli.output import internal_errors

    return internal_errors


def _system_failure(error: OSError) -> SystemFailure:
    """An error of the operating system as an error of ours, with the file if there is one."""
    what = (error.strerror or str(error) or type(error).__name__).lower()
    failure = SystemFailure(f"{os.fsdecode(error.filename)}: {what}" if error.filename else what)
    failure.__cause__ = error
    return failure
