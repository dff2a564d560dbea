"""`mulligan mcp`: the tools of an agent, over stdin and stdout."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

from mulligan.cli.output.terminal import UsageRefused, complain
from mulligan.cli.words.extra_modules import load_for
from mulligan.cli.words.options import By, HomeFolder, is_on_server
from mulligan.cli.words.parameters import Flag, Option
from mulligan.errors import StoreUnavailable
from mulligan.ports.server_records import TokenLimits
from mulligan.service.server.tokens.tokens import read_limits
from mulligan.service.service import open_service

# What an agent on this machine may do unless less is asked for: what the person may do who has started it.
SCOPES = ("read", "run", "decide", "write")


def mcp(
    home: HomeFolder = None,
    server: Annotated[
        str | None, Option("URL", "Work with the runs of this server (log in first: mulligan login URL).")
    ] = None,
    agent: Annotated[str, Option("NAME", "Record what it does as agent:NAME (default: your own name).")] = "",
    may: Annotated[str, Option("VERDICTS", "What it may decide: retry, fail, approve, refuse (default: all).")] = "",
    decisions: Annotated[int | None, Option("N", "How often it may decide.", "--decisions-per-hour")] = None,
    min_confidence: Annotated[str, Option("N", "How sure its decisions about failures have to be, like 0.8.")] = "",
    by: By = "",
    read_only: Annotated[bool, Flag("Offer only tools that change nothing.")] = False,
) -> int:
    """Let an agent work with the runs of a store: the Model Context Protocol over stdin and stdout.

    A client such as Claude Code, Cursor or VS Code starts this command; docs/agents shows how to set it up. Needs
    `pip install 'mulligan[mcp]'`.
    """
    if home is not None and server is not None:
        raise UsageRefused("--home and --server cannot be combined", hint="leave one of them out")
    if sys.stdin.isatty():
        raise UsageRefused(
            "`mulligan mcp` is started by a client, and reads its messages from stdin",
            hint="add it to your client; for Claude Code: claude mcp add mulligan -- mulligan mcp",
        )
    if server is not None and not is_on_server(server):
        raise UsageRefused(f"'{server}' is not a URL like https://HOST:PORT", hint="a folder is named with --home")
    limits = read_limits(may, decisions, min_confidence)
    if is_on_server(server or home) and (agent or limits != TokenLimits()):
        raise UsageRefused(
            "on a server, the token of an agent sets its limits, not these options",
            hint="leave the options out, and log in with: mulligan token create --agent NAME",
        )
    stdio = load_for("mcp", "mulligan.mcp_server.stdio")
    _refuse_unusable(server or home)
    scopes = ("read",) if read_only else SCOPES
    code: int = stdio.serve(partial(open_service, server or home, by), scopes, agent, limits)
    return code


def _refuse_unusable(home: str | None) -> None:
    """Refuse a wrong address or token at once. A server that does not answer now may answer later."""
    with open_service(home) as service:
        try:
            if service.home.is_there and service.home.is_remote:
                service.machine.ping()
        except StoreUnavailable as error:
            complain(f"note: {error.message}; tools answer with an error until it does")
