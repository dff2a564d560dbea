"""`mulligan postgres`: a private PostgreSQL, for workers of several hosts, without an administrator."""

from __future__ import annotations

import shlex
from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused, complain, show, show_result
from mulligan.cli.words.options import AsJson
from mulligan.cli.words.parameters import Argument, Flag, Option
from mulligan.service.host.private_postgres import PostgresStatus, postgres_status, start_postgres, stop_postgres
from mulligan.service.rendering.formatting import format_size, pluralize

_WORDS = ("start", "stop", "status")
_LOOPBACK = "127.0.0.1"


def postgres(
    word: Annotated[str, Argument("start|stop|status", "What to do.")],
    data: Annotated[
        str | None,
        Option("DIR", "The folder of the server (default: $MULLIGAN_POSTGRES, or ~/.local/share/mulligan/postgres)."),
    ] = None,
    port: Annotated[int | None, Option("PORT", "For 'start' (default: a free one, which it keeps).")] = None,
    listen: Annotated[
        str | None, Option("HOST", "For 'start': a name of this machine that other hosts can reach.")
    ] = None,
    now: Annotated[bool, Flag("For 'stop': do not wait until all clients have left.")] = False,
    as_json: AsJson = False,
) -> int:
    """Start, stop or show a private PostgreSQL, for several workers.

    'start' makes the server if it is not there, and prints the MULLIGAN_STORE to set. A server that was killed recovers
    with the next 'start'. Only you can read the file of its password, which the store's URL names: processes on other
    hosts need that file at the same path, or the password in ~/.pgpass. Without --listen, only processes of this
    machine can connect; with it, any host that reaches the port may try passwords, and what is sent is not encrypted:
    use it in a network that you trust. 'status' has exit code 1 if the server does not run. Root cannot run PostgreSQL:
    for root, the owner of the folder runs it, or else the user 'postgres' or 'nobody'.
    """
    if word not in _WORDS:
        raise UsageRefused(f"unknown subcommand '{word[:40]}' of postgres", hint="write start, stop or status")
    if word != "start" and (port is not None or listen is not None):
        raise UsageRefused(f"'postgres {word}' has neither --port nor --listen", hint="they are for 'postgres start'")
    if word != "stop" and now:
        raise UsageRefused(f"'postgres {word}' has no --now", hint="it is for 'postgres stop'")
    if word == "start":
        found = start_postgres(data, port=port, listen=listen)
    elif word == "stop":
        found = stop_postgres(data, now=now, waiting=_say_waiting)
    else:
        found = postgres_status(data)
    if as_json:
        show_result(found)
    elif word == "start":
        _show_start(found)
    elif word == "stop":
        complain(f"PostgreSQL in '{found.data}' {'is stopped' if found.outcome == 'stopped' else 'does not run'}")
    else:
        _show_status(found)
    return 1 if word == "status" and not found.is_running else 0


def _say_waiting(clients: int) -> None:
    complain(f"waiting until {pluralize(clients, 'connection')} of clients are closed (--now does not wait)")


def _show_start(found: PostgresStatus) -> None:
    """The line for a shell alone goes to stdout: eval "$(mulligan postgres start)"."""
    verb = "has started" if found.outcome == "started" else "runs already"
    complain(f"PostgreSQL {found.version} {verb} in '{found.data}', at port {found.port} of {found.listen}")
    if found.listen != _LOOPBACK:
        complain("  any host that reaches this port may try passwords, and what is sent is not encrypted")
    show(f"export MULLIGAN_STORE={shlex.quote(found.store_url)}")


def _show_status(found: PostgresStatus) -> None:
    if not found.is_running:
        start = f"mulligan postgres start --data {shlex.quote(str(found.data))}"
        show(f"PostgreSQL in '{found.data}' does not run; start it: {start}")
        return
    since = f"{found.since.astimezone():%Y-%m-%d %H:%M:%S}" if found.since else "unknown"
    clients = "it does not answer" if found.connections is None else pluralize(found.connections, "connection")
    show(f"PostgreSQL {found.version} runs in '{found.data}'")
    show(f"  since   {since}, process {found.pid} on {found.host}")
    show(f"  port    {found.port} of {found.listen}")
    show(f"  size    {format_size(found.size_bytes)}")
    show(f"  in use  {clients}")
    show(f"  log     {found.log}")
    show(f"  store   {found.store_url}")
