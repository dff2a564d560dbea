"""`mulligan server`: a dashboard, REST, live streams, schedules and notices for the runs of a home."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec

from mulligan.cli.output.terminal import UsageRefused, show
from mulligan.cli.words.extra_modules import load_for
from mulligan.cli.words.options import HomeFolder, LogFormat, check_log_format
from mulligan.cli.words.parameters import Flag, Option
from mulligan.service.home import Home
from mulligan.service.server.server_config import ServerConfig, find_config
from mulligan.service.service import Service, open_service

PORTS = range(65536)


def server(
    home: HomeFolder = None,
    host: Annotated[str | None, Option("HOST", "The address to listen on (default: 127.0.0.1).")] = None,
    port: Annotated[int | None, Option("PORT", "The port to listen on; 0: any free one (default: 8642).")] = None,
    config: Annotated[
        str | None, Option("FILE", "The configuration (default: server.toml in the folder of the runs).")
    ] = None,
    as_json: Annotated[
        bool, Flag("Print the URL and an admin token for this start as one line of JSON on stdout.", "--json")
    ] = False,
    insecure: Annotated[bool, Flag("Allow other machines to connect without TLS.")] = False,
    tls_cert: Annotated[str | None, Option("FILE", "The certificate of the server, as PEM.")] = None,
    tls_key: Annotated[str | None, Option("FILE", "Its private key, as PEM.")] = None,
    no_worker: Annotated[bool, Flag("Run no worker beside the server.")] = False,
    log_format: LogFormat = "text",
) -> int:
    """Serve the runs of a folder or a PostgreSQL store over HTTP, with a dashboard, until stopped.

    It starts a worker and a process that fires schedules and sends notices. SIGTERM or Ctrl-C lets requests and running
    tasks finish; a second signal does not wait for them.
    """
    if port is not None and port not in PORTS:
        raise UsageRefused(f"--port must be between 0 and {PORTS[-1]}", hint="0 takes any free port")
    check_log_format(log_format)
    service = open_service(home)
    refuse_remote(service)
    found = with_options(
        find_config(service.home.folder, config),
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure or None,
        worker=False if no_worker else None,
    )
    return serve(service.home, found, config_file=config, as_json=as_json, log_format=log_format)


def refuse_remote(service: Service) -> None:
    """`UsageRefused` if there is nothing here that could be served."""
    if service.home.is_remote:
        raise UsageRefused(
            "a server serves a folder or a database, and MULLIGAN_SERVER names another server",
            hint="unset it, or name the folder: --home DIR",
        )


def serve(home: Home, config: ServerConfig, **options: Any) -> int:
    """Serve a home with its dashboard, until stopped."""
    load = partial(load_for, "server")
    server, pages = load("mulligan.api.processes.server"), load("mulligan.dashboard.pages")
    tools = load("mulligan.mcp_server.http_route")
    code: int = server.serve(home, config, write=show, pages=pages.PAGES, others=tools.ROUTES, **options)
    return code


def with_options(config: ServerConfig, **options: Any) -> ServerConfig:
    """The configuration with the options that were given: those that are not None."""
    given = {name: value for name, value in options.items() if value is not None}
    return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, **given))
