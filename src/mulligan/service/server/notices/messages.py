"""A notice as it is sent: words for people, and a CloudEvent for programs.

What to type and where to click is added here, since only the sender knows its address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from mulligan.core.model.text.formatting import pluralize
from mulligan.errors import InputInvalid
from mulligan.history.notice_text import NoticeBody
from mulligan.ports import NoticeRecord
from mulligan.service.rendering.next_commands import commands_for_wait, suggest_commands

Answer = Literal["approve", "refuse", "retry", "fail"]
SOURCE = "mulligan"
# How many notices a digest for people lists.
DIGEST_LINES_MAX = 50
# The types of events that are not about a run.
_KINDS = {"test": "mulligan.test", "worker_trouble": "mulligan.worker.trouble"}


class Button(NamedTuple):
    """What a message has: which answer it gives, and where it leads."""

    answer: Answer
    url: str


MakeButtons = Callable[[NoticeRecord, NoticeBody], tuple[Button, ...]]
_decode = msgspec.json.Decoder(NoticeBody).decode


class Message(msgspec.Struct, frozen=True):
    """What goes to a target: one notice, or several in a digest."""

    key: str
    title: str
    # Without the title.
    text: str
    # A CloudEvent in JSON.
    event: bytes
    notices: tuple[NoticeRecord, ...]
    buttons: tuple[Button, ...] = ()


class Delivery(msgspec.Struct, frozen=True):
    """What came of sending a message once. It was sent if `problem` is empty."""

    problem: str = ""
    # Other messages to this target would fail as well, so they are not tried now.
    is_target_down: bool = False
    # The trouble is the target's, and may have passed with the next message: some in a row mean that it is down.
    is_target_busy: bool = False
    # How long the receiver asked to wait, in seconds.
    retry_after: float = 0.0


def make_message(notice: NoticeRecord, url: str = "", buttons: MakeButtons | None = None) -> Message:
    """The message of one notice. `url`: the address of the server, for links."""
    body = _decode(notice.body)
    event, text, made = _event(notice, body, url), _text(body, url), tuple[Button, ...]()
    try:
        made = buttons(notice, body) if buttons is not None else ()
    except InputInvalid as error:
        text = f"{text}\n\nwithout buttons: {error.message}".strip("\n")
    return Message(notice.key, body.title, text, msgspec.json.encode(event), (notice,), made)


def make_digest(notices: Sequence[NoticeRecord], at: datetime, url: str = "") -> Message:
    """One message for several notices. It has the key of each, so that a receiver knows what it has already."""
    bodies = [_decode(notice.body) for notice in notices]
    key = f"digest_{hashlib.sha256(' '.join(notice.key for notice in notices).encode()).hexdigest()[:32]}"
    title = f"{len(notices)} notices about {_workflows(bodies)}"
    lines = [f"- {body.title}" for body in bodies[:DIGEST_LINES_MAX]]
    if len(bodies) > DIGEST_LINES_MAX:
        lines.append(f"and {len(bodies) - DIGEST_LINES_MAX} more")
    lines += ["", "mulligan list", "mulligan pending"]
    data = {"title": title, "notices": [_event(one, body, url) for one, body in zip(notices, bodies, strict=True)]}
    event = _envelope(key, "mulligan.digest", at, url, data)
    return Message(key, title, "\n".join(lines), msgspec.json.encode(event), tuple(notices))


def _workflows(bodies: Sequence[NoticeBody]) -> str:
    names = list(dict.fromkeys(body.workflow for body in bodies if body.workflow))
    more = f" and {pluralize(len(names) - 3, 'other')}" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "mulligan"


def commands_of(body: NoticeBody) -> list[str]:
    """What a person may type about it."""
    if body.event == "worker_trouble":
        return ["mulligan workers"]
    if body.request:
        return commands_for_wait(body.run_id, body.request, body.name or body.step)
    if body.event in ("completed", "recovered", "degraded"):
        # Items that a map collected are not listed, and yet the reason for such a notice.
        is_smooth = body.event == "completed" and not body.failures
        return [] if is_smooth else [f"mulligan explain {body.run_id}"]
    if body.event == "late":
        return [f"mulligan show {body.run_id}", f"mulligan cancel {body.run_id}"]
    found = suggest_commands(body.run_id, body.status, has_run_out=body.has_run_out, needs_force=body.needs_force)
    return [one.text for one in found]


def link_to(body: NoticeBody, url: str) -> str:
    return f"{url.rstrip('/')}/api/v1/runs/{body.run_id}/report" if url and body.run_id else ""


def _text(body: NoticeBody, url: str) -> str:
    lines = [*body.details]
    for failure in body.failures:
        lines += [f"{failure.step}: {failure.what}", f"  {failure.answer}"]
    if body.failures_count:
        lines.append(f"and {body.failures_count - len(body.failures)} more")
    if commands := commands_of(body):
        lines += ["", *commands]
    if link := link_to(body, url):
        lines += ["", link]
    return "\n".join(lines).strip("\n")


def _event(notice: NoticeRecord, body: NoticeBody, url: str) -> dict[str, Any]:
    data = {
        **msgspec.to_builtins(body),
        "text": _text(body, url),
        "commands": commands_of(body),
        "project": notice.project,
        "target": notice.target,
    }
    if link := link_to(body, url):
        data["url"] = link
    kind = _KINDS.get(body.event) or f"mulligan.run.{body.event}"
    event = _envelope(notice.key, kind, body.at, url, data)
    if body.run_id:
        event["subject"] = f"runs/{body.run_id}"
    return event


def _envelope(key: str, kind: str, at: datetime, url: str, data: dict[str, Any]) -> dict[str, Any]:
    """A CloudEvent, version 1.0, in structured mode."""
    return {
        "specversion": "1.0",
        "id": key,
        "source": url or SOURCE,
        "type": kind,
        "time": at,
        "datacontenttype": "application/json",
        "data": data,
    }
