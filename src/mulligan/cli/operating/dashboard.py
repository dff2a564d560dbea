"""`mulligan dashboard`: a server for this machine alone, and a browser that shows it."""

from __future__ import annotations

import webbrowser
from typing import Annotated

from mulligan.cli.operating.server import PORTS, refuse_remote, serve, with_options
from mulligan.cli.output.terminal import UsageRefused
from mulligan.cli.words.options import HomeFolder
from mulligan.cli.words.parameters import Flag, Option
from mulligan.service.server.server_config import find_config
from mulligan.service.service import open_service


def dashboard(
    home: HomeFolder = None,
    port: Annotated[int, Option("PORT", "The port to listen on; 0: any free one (default: 0).")] = 0,
    no_browser: Annotated[bool, Flag("Only print the link.")] = False,
    no_worker: Annotated[bool, Flag("Run no worker beside it.")] = False,
) -> int:
    """Show the runs of a folder or a PostgreSQL store in a browser, until stopped.

    It is `mulligan server` on 127.0.0.1, with a link that logs the browser in.
    """
    if port not in PORTS:
        raise UsageRefused(f"--port must be between 0 and {PORTS[-1]}", hint="0 takes any free port")
    service = open_service(home)
    refuse_remote(service)
    config = with_options(
        find_config(service.home.folder, None), host="127.0.0.1", port=port, worker=False if no_worker else None
    )
    return serve(
        service.home,
        config,
        config_file=None,
        as_json=False,
        log_format="text",
        open_page=None if no_browser else webbrowser.open,
    )
