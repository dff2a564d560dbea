"""`mulligan server`: the HTTP process, and the children that it watches."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import getpass
import ipaddress
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from logging import Logger
from pathlib import Path
from typing import NoReturn

import msgspec
import uvicorn

from mulligan.api.app import Api, make_app
from mulligan.api.areas.health import worker_metrics_file
from mulligan.api.http.routing import Pages, Route
from mulligan.api.processes.children import Child
from mulligan.api.processes.server_log import start_log
from mulligan.errors import ServerUnusable, StoreUnavailable
from mulligan.service.home import Home
from mulligan.service.home_names import CONFIG_VARIABLE
from mulligan.service.server.logins import LINK_MINUTES, start_token
from mulligan.service.server.server_config import ServerConfig, ServerSection
from mulligan.service.server.telemetry.telemetry import ENDPOINT_VARIABLES
from mulligan.service.service import Service

# How long requests that are being answered may take after SIGTERM, and those among them that read a text.
DRAIN_SECONDS, READING_SECONDS = 7, 4
# How long a start and an end may take before the log says why, and how often an end says it again.
SLOW_START_SECONDS, SLOW_END_SECONDS = 5.0, 3.0
KEEP_ALIVE_SECONDS = 75
_HAS_PROC = os.path.exists("/proc/self/stat")


def serve(
    home: Home,
    config: ServerConfig,
    *,
    config_file: str | None,
    as_json: bool,
    log_format: str,
    write: Callable[[str], None],
    pages: Pages | None = None,
    others: tuple[Route, ...] = (),
    open_page: Callable[[str], object] | None = None,
) -> int:
    """Serve a home until SIGTERM or SIGINT. `write` gets the first lines, once the server answers.

    `open_page` gets the link that logs a browser in.
    """
    section = config.server
    if config_file:
        # For the processes that it starts, and for what this one reads later.
        os.environ[CONFIG_VARIABLE] = os.path.abspath(config_file)
    log = start_log(log_format)
    start = _Start()
    _check_tls(section)
    home.refuse_read_only()
    _open_store(home, log, config.artifacts)
    start.note("opening the store")
    listener, url = _listen(section)
    secret, token = start_token(_user(), datetime.now(UTC))
    app = make_app(home, config, start_token=token, pages=pages, others=others)
    api: Api = app.state.api
    children = _children(home, config, log, log_format)

    start.note("preparing the answers")

    async def announce() -> None:
        start.note("starting to listen")
        start.report(log)
        if section.insecure and not _is_loopback(section.host) and not section.tls_cert:
            log.warning("WITHOUT TLS on '%s': anybody on the way can read tokens and take them over", section.host)
        if as_json:
            write(msgspec.json.encode({"url": url, "token": secret}).decode())
            return
        link = ""
        with contextlib.suppress(StoreUnavailable):
            code = await api.threads.change(lambda service: service.logins.offer(token, datetime.now(UTC)))
            link = f"{url}/login?code={code}"
        for line in _greeting(home, url, link):
            write(line)
        if open_page is not None and link:
            # Nobody waits for it: a browser may take seconds to start, and some run until they are closed.
            threading.Thread(target=open_page, args=(link,), daemon=True).start()

    server = _Server(_uvicorn_config(app, section), api, children, announce, log)
    try:
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve([listener]))
            # Also what still reads: nobody waits for it.
            api.threads.texts.close()
            api.threads.texts.end_idle()
            log.info("the server has ended")
            if server.force_exit or api.busy:
                # Python would wait for the threads, however long they take.
                _leave(0)
    finally:
        listener.close()
    return 0


def _leave(code: int) -> NoReturn:
    """End the process at once, with what was written so far."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class _Server(uvicorn.Server):
    """uvicorn, with our signals, our first lines and our children."""

    def __init__(
        self,
        config: uvicorn.Config,
        api: Api,
        children: list[Child],
        announce: Callable[[], Awaitable[None]],
        log: Logger,
    ) -> None:
        super().__init__(config)
        self._api = api
        self._children = children
        self._announce = announce
        self._log = log
        self._watchers: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self._announce()
        self._watchers = [asyncio.ensure_future(child.keep_running()) for child in self._children]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        reporting = asyncio.ensure_future(self._report_waiting())
        self._ending = asyncio.ensure_future(self._finish(sockets))
        try:
            await self._ending
        except asyncio.CancelledError:
            if not self.force_exit:
                raise
        finally:
            reporting.cancel()

    async def _finish(self, sockets: list[socket.socket] | None) -> None:
        await super().shutdown(sockets)
        await asyncio.gather(*self._watchers, return_exceptions=True)

    async def _report_waiting(self) -> None:
        """Say again and again what an end waits for that takes long."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(SLOW_END_SECONDS)
            children = [f"the {child.name} (process {child.pid})" for child in self._children if child.pid is not None]
            connections = len(self.server_state.connections)
            known = [f"{connections} connections"] if connections else []
            waits = ", ".join([*self._api.busy, *known, *children])
            self._log.warning("ending for %.0f s, waiting for %s", time.monotonic() - began, waits or "nothing known")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        caught = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) != signal.SIG_IGN]
        for number in caught:
            loop.add_signal_handler(number, self._end)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        """The first signal lets requests and tasks finish; the second does not wait for them."""
        self.force_exit = self.should_exit
        self.should_exit = True
        if not self.force_exit:
            # Whoever has sent a text gets an answer that the server is ending.
            asyncio.get_running_loop().call_later(READING_SECONDS, self._api.threads.texts.close)
        self._api.closing.set()
        for child in self._children:
            child.stop()
        if self.force_exit:
            for waiting in (*self._watchers, self._ending):
                if waiting is not None:
                    waiting.cancel()


class _Start:
    """How long the parts of a start took: a slow one is explained by the log, since nobody can look at it any more."""

    def __init__(self) -> None:
        # The age of the process.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) if _HAS_PROC else 0
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK") if _HAS_PROC else 0.0
        self._parts = [("loading", age)]
        self._at = time.monotonic()

    def note(self, part: str) -> None:
        """Say what was done since the last call."""
        now = time.monotonic()
        self._parts.append((part, now - self._at))
        self._at = now

    def report(self, log: Logger) -> None:
        seconds = sum(part for _, part in self._parts)
        if seconds > SLOW_START_SECONDS:
            parts = ", ".join(f"{name} {part:.1f} s" for name, part in self._parts)
            log.warning("the start took %.1f s, %.1f s of a processor: %s", seconds, time.process_time(), parts)


def _uvicorn_config(app: object, section: ServerSection) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        # Half of the speed comes from these two; without them the others do.
        # The other one has bounds of its own.
        http="mulligan.api.http.bounded_http:BoundedHttp" if find_spec("httptools") else "h11",
        loop="auto",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        # Whom we believe about the address of a client is decided in `api.auth`.
        proxy_headers=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        ssl_certfile=section.tls_cert or None,
        ssl_keyfile=section.tls_key or None,
    )


def _children(home: Home, config: ServerConfig, log: Logger, log_format: str) -> list[Child]:
    folder = str(home.folder.absolute())
    found = [Child("background process", ["-m", "mulligan.api.processes.background", folder, log_format], log)]
    if config.server.worker:
        metrics = str(worker_metrics_file(home.folder.absolute()))
        worker = ["-m", "mulligan", "worker", "--home", folder, "--log-format", log_format, "--metrics-file", metrics]
        found.append(Child("worker", worker, log))
    if _exports_traces(config):
        # Apart from the background process: a collector that does not answer must not hold up schedules.
        traces = ["-m", "mulligan", "traces", "--follow", "--home", folder]
        named = ["--endpoint", config.otel.endpoint] if config.otel.endpoint else []
        logs = ["--logs"] if config.otel.logs else []
        found.append(Child("trace exporter", [*traces, *named, *logs], log))
    return found


def _exports_traces(config: ServerConfig) -> bool:
    is_installed = find_spec("opentelemetry") is not None
    if config.otel.endpoint and not is_installed:
        raise ServerUnusable(
            "[otel] names a collector, and the library for traces is not installed",
            hint="install it: pip install 'mulligan[otel]'",
        )
    return is_installed and bool(config.otel.endpoint or any(os.environ.get(name) for name in ENDPOINT_VARIABLES))


def _greeting(home: Home, url: str, link: str) -> Iterator[str]:
    yield f"serving {home.place} at {url}"
    if link:
        yield f"log in with this link, which works once and for {LINK_MINUTES} minutes:"
        yield f"  {link}"
    yield "tokens for programs and people: mulligan token create"
    yield "stop it with Ctrl-C"


# -- what must be right before it starts -----------------------------------------------------------------------------


def _open_store(home: Home, log: Logger, artifacts: str) -> None:
    """Open the store once, so that one that cannot be used is said now. A server waits for one that is away."""
    try:
        with Service(home) as service:
            service.audit.page(project=None, limit=1)
            service.machine.keep_artifacts_in(artifacts)
    except StoreUnavailable as error:
        if not home.store_url:
            raise
        log.warning("%s; answering 503 until it is back", error.message)


def _check_tls(section: ServerSection) -> None:
    if bool(section.tls_cert) != bool(section.tls_key):
        raise ServerUnusable(
            "TLS needs a certificate and its key", hint="give both: --tls-cert CERT.pem --tls-key KEY.pem"
        )
    if section.tls_cert:
        for path in (section.tls_cert, section.tls_key):
            if not os.path.isfile(path):
                raise ServerUnusable(f"'{path}' does not exist", hint="--tls-cert and --tls-key name PEM files")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(section.tls_cert, section.tls_key, "")
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "reason", None) or str(error)
            raise ServerUnusable(
                f"the certificate '{section.tls_cert}' cannot be used with the key '{section.tls_key}': {reason}",
                hint="both must be PEM files, the key must belong to the certificate and have no password",
            ) from None
    elif not _is_loopback(section.host) and not section.insecure:
        raise ServerUnusable(
            f"'{section.host}' can be reached from other machines, and without TLS anybody on the way can read tokens",
            hint="give --tls-cert and --tls-key; or listen on 127.0.0.1 behind a proxy with TLS; or say --insecure",
        )


def _listen(section: ServerSection) -> tuple[socket.socket, str]:
    """Where a server listens, and the address under which it is found."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            section.host, section.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a name"
        raise ServerUnusable(
            f"the host '{section.host}' cannot be found: {reason}", hint="give an address of this machine: --host"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise _cannot_listen(section, error) from None
    listener.setblocking(False)
    port = listener.getsockname()[1]
    host = section.host
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 - we read it, we do not bind to it
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return listener, f"{'https' if section.tls_cert else 'http'}://{shown}:{port}"


def _cannot_listen(section: ServerSection, error: OSError) -> ServerUnusable:
    where = f"port {section.port} of '{section.host}'"
    if error.errno == errno.EADDRINUSE:
        hint = "another server may be running; choose another with --port PORT, or any free one with --port 0"
        return ServerUnusable(f"{where} is in use", hint=hint)
    if error.errno == errno.EACCES:
        return ServerUnusable(f"{where} needs more permissions", hint="choose a port above 1023 with --port PORT")
    if error.errno == errno.EADDRNOTAVAIL:
        return ServerUnusable(
            f"'{section.host}' is not an address of this machine", hint="--host 127.0.0.1 is, and so is 0.0.0.0"
        )
    return ServerUnusable(f"the server cannot listen on {where}: {error.strerror}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _user() -> str:
    try:
        return os.environ.get("MULLIGAN_BY") or getpass.getuser()
    except (OSError, KeyError):
        return "admin"
