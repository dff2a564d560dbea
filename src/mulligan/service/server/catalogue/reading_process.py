"""`python -m mulligan.service.server.catalogue.reading_process FD CPU_SECONDS MEMORY_BYTES`: reads texts for a server.

It gets one call after another over a socket, and answers each. Nobody has to trust what it reads: the kernel ends it
when a call takes too long, and a server that ends kills it.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import socket
import sys
import traceback

from mulligan.errors import MulliganError
from mulligan.language.cel.cel_process import limit_memory
from mulligan.service.server.catalogue.text_reading import BROKEN, LAST, RAISED, RETURNED, STAYS, receive, send

# One that has needed more than this is ended after its answer: it would keep the memory.
KEPT_MEMORY_BYTES = 256 << 20
# A text that takes longer comes after all other work of the machine.
LONG_SECONDS, NICENESS = 1.0, 10
OUT_OF_MEMORY = 3


def main(fd: int, cpu_seconds: float, memory_bytes: int) -> None:
    """Answer calls until the server is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGVTALRM, lambda *_: os.nice(NICENESS))
    # A text is in no folder, and the one in which the server was started may be removed.
    os.chdir("/")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory(memory_bytes)
    niceness = os.nice(0)
    with socket.socket(fileno=fd) as server:
        while (call := receive(server)) is not None:
            # The kernel ends this process if the time is over, whatever it does at that moment.
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            signal.setitimer(signal.ITIMER_VIRTUAL, LONG_SECONDS)
            answer = _answer(call)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            # It cannot become more urgent again.
            is_last = _resident_bytes() > KEPT_MEMORY_BYTES or os.nice(0) > niceness
            send(server, (LAST if is_last else STAYS) + answer)


def _resident_bytes() -> int:
    """Its memory now. The peak that the kernel counts is at first that of the server which started it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _answer(call: bytes) -> bytes:
    try:
        function, args, kwargs = pickle.loads(call)  # noqa: S301 - of our own server
        return RETURNED + pickle.dumps(function(*args, **kwargs), pickle.HIGHEST_PROTOCOL)
    except MulliganError as refused:
        return RAISED + pickle.dumps(refused, pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except Exception as error:
        # Those of Python itself can be sent; the server knows what some of them say about a text.
        sent = error if type(error).__module__ == "builtins" else None
        return BROKEN + pickle.dumps((traceback.format_exc(), sent), pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
