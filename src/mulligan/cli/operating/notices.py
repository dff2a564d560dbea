"""`mulligan notices`: what was sent, what waits and what was given up; sending it; a test of a target."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from mulligan.cli.output.tables import age, show_table
from mulligan.cli.output.terminal import UsageRefused, complain, show, show_result
from mulligan.cli.words.options import AsJson, HomeFolder, service_at, where
from mulligan.cli.words.parameters import Argument, Option
from mulligan.service.rendering.formatting import pluralize
from mulligan.service.server.notices.notices import NoticeLine
from mulligan.service.service import Service

HEADS = ("AGE", "TARGET", "STATUS", "NOTICE", "")
_WORDS = ("list", "send", "test")
LIMIT = 50


def notices(
    word: Annotated[str, Argument("list|send|test", "What to do (default: list).")] = "list",
    target: Annotated[str | None, Argument("TARGET", "With test: where to send a message.")] = None,
    run: Annotated[int | None, Option("RUN", "Only notices about this run.")] = None,
    limit: Annotated[int, Option("N", "How many to list at most.")] = LIMIT,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> int:
    """List the notices about runs, send those that wait, or test a target.

    A notice is written together with the event that it is about, and sent by a server, by the process that drives the
    run, or by `send`. It is tried again until its target has taken it, or until it is given up.
    """
    if word not in _WORDS:
        raise UsageRefused(f"unknown subcommand '{word[:40]}' of notices", hint="write list, send or test TARGET")
    if (target is None) != (word != "test"):
        hint = "write mulligan notices test TARGET" if word == "test" else f"write mulligan notices {word}"
        raise UsageRefused(f"'notices {word}' has other arguments", hint=hint)
    with service_at(home) as service:
        if word == "send":
            return _send(service, as_json=as_json, home=home)
        if target is not None:
            return _test(service, target, as_json=as_json)
        page = service.notices.page(run_id=run, limit=limit)
        if as_json:
            show_result(page)
        elif page.notices:
            now = datetime.now(UTC)
            show_table(HEADS, [_row(line, now) for line in page.notices])
        else:
            complain("there are no notices")
            complain(f"  mulligan run FILE --notify TARGET{where(home)}  # send some about a run")
    return 0


def _row(line: NoticeLine, now: datetime) -> tuple[str, ...]:
    status = line.status.replace("_", " ")
    if line.status == "waiting" and line.attempts:
        status = f"waiting, {pluralize(line.attempts, 'attempt')}"
    return age(line.created_at, now), line.target, status, line.title, line.reason


def _send(service: Service, *, as_json: bool, home: str | None) -> int:
    try:
        found = service.notices.send_all()
    finally:
        service.notices.close()
    if as_json:
        show_result(found)
    else:
        show(f"{pluralize(found.sent, 'notice')} sent, {found.waiting} waiting")
        if found.waiting:
            complain(f"  mulligan notices{where(home)}  # why they wait")
    return 0


def _test(service: Service, target: str, *, as_json: bool) -> int:
    found = service.notices.test(target)
    if as_json:
        show_result(found)
    elif found.is_sent:
        show(f"a test message was sent to '{target}'")
    else:
        complain(f"the test message was not sent to '{target}': {found.reason}")
    return 0 if found.is_sent else 1
