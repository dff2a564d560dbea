"""The HTTP server of Mulligan as a victim: killed, stopped and started again under the same address."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Iterable

from mulligan.worker.supervisor.processes import find_process, send_signal, snapshot
from proof.chaos.fleet import stopped
from proof.chaos.proxy import Proxy
from proof.stage import Stage

# What a server writes that nobody should ever read.
BUGS = ("Traceback", "internal error")


class ApiServer:
    """A place for `mulligan server`, its way to the database, and the process that is there now."""

    def __init__(self, stage: Stage, proxy: Proxy, config: str = "") -> None:
        self.stage = stage
        self.proxy = proxy
        self.said = stage.folder / "api-server"
        # It has no worker: the fleet works.
        self.config = stage.folder / "server.toml"
        kinds = [f"{kind}requests_{when}" for kind in ("", "webhook_") for when in ("per_second", "at_once")]
        limits = "".join(f"{name} = 100000\n" for name in kinds)
        self.config.write_text(f"[server]\nworker = false\n{limits}{config}")
        self.port = free_port()
        self.starts = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and do not wait for it: its first line says when it is there."""
        self.starts += 1
        with self.said.open("a") as said, self.said.with_suffix(".stdout").open("a") as lines:
            options = {"environment": {"MULLIGAN_STORE": self.proxy.url}, "stdout": lines, "stderr": said}
            words = ("server", "--port", self.port, "--config", self.config, "--json")
            self.process = self.stage.start(*words, **options)

    def look(self) -> None:
        """One that has ended, since the database was away when it was started, is started again."""
        if self.process.poll() is not None:
            self.start()

    # -- what can happen to it

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.start()

    def kill_background(self) -> None:
        """Kill the process that fires schedules and sends notices: the server starts another one."""
        children = [process for process in snapshot().values() if process.parent == self.process.pid]
        send_signal(children, signal.SIGKILL)

    def stop(self) -> Callable[[], None]:
        """Until what is returned is called."""
        found = find_process(self.process.pid)
        return stopped([found] if found is not None else [])

    # -- the end

    def end(self, seconds: float) -> Iterable[str]:
        """In order; what is wrong with it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            yield f"the HTTP server does not end when it gets SIGTERM: see {self.said}"
        else:
            if code:
                yield f"the HTTP server ended with {code} after SIGTERM: see {self.said}"
        written = self.said.read_text()
        yield from (f"the HTTP server wrote '{bug}': see {self.said}" for bug in BUGS if bug in written)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    """A port that nobody has. The server gets the same one at every start, so that clients find it again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
