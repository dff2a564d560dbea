"""The process that says which calls an edited program keeps: it loads the program, and runs it over what is recorded.

Nothing new runs in it. It is a process of its own because it is code of the user, which may print, exit or not end.
"""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec

from mulligan.programs import messages as m

# How long an edited program may take over what is recorded: 25,000 calls take a second.
SECONDS_MAX = 60.0


class Corrected(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls that are kept; where the program differs, in words; or why it could not be run."""

    kept: tuple[m.CallId, ...] = ()
    differences: tuple[str, ...] = ()
    problem: str = ""


def correct(begin: m.Begin, folder: str) -> Corrected:
    """Run an edited program, in the folder of its run, over the history in a file."""
    reader, writer = os.pipe()
    argv = [sys.executable, "-m", "mulligan.programs.correction_process", str(writer), folder]
    try:
        done = subprocess.run(
            argv,
            input=msgspec.msgpack.encode(begin),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(writer,),
            timeout=SECONDS_MAX,
            check=False,
        )
        os.close(writer)
        writer = -1
        with os.fdopen(reader, "rb") as answer:
            reader = -1
            data = answer.read()
    except subprocess.TimeoutExpired:
        return Corrected(problem=f"it does not come to an end within {SECONDS_MAX:g}s")
    finally:
        for fd in (reader, writer):
            if fd >= 0:
                os.close(fd)
    if not data:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return Corrected(problem=lines[-1] if lines else f"it exits with {done.returncode}")
    return msgspec.msgpack.decode(data, type=Corrected)


def main(answer: str, folder: str) -> None:
    """Read what to begin from standard input, and write the answer to a descriptor."""
    from mulligan.programs.correction import corrected
    from mulligan.programs.process import decode_arguments, load_function

    begin = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=m.Begin)
    os.chdir(folder)
    with open(begin.history, "rb") as file:
        history = m.decode_history(file.read())
    try:
        _, function = load_function(begin, folder)
        found = corrected(
            function, decode_arguments(function, begin.inputs, begin.files), history, at=begin.at, files=begin.files
        )
        said = Corrected(found.kept, found.differences)
    except Exception as error:
        said = Corrected(problem=f"{type(error).__name__}: {error}")
    with os.fdopen(int(answer), "wb") as file:
        file.write(msgspec.msgpack.encode(said))
    # Threads of the program must not keep it.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
