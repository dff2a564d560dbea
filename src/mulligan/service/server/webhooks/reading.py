"""What a delivery means: its body is read and the expressions of the webhook are evaluated, apart from the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from mulligan.errors import InputInvalid, MediaUnsupported, RequestRefused
from mulligan.language import expressions
from mulligan.service.server.catalogue.text_reading import Limits, read_apart_within
from mulligan.service.server.webhooks.webhook_forms import WebhookForm

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
FIELDS_MAX = 1_000
# A delivery is small, and there are many.
LIMITS = Limits(cpu_seconds=3.0, wall_seconds=10.0, memory_bytes=512 << 20, answer_bytes=16 << 20)
# Those that prove who sends it: no expression reads them, so that they get into no run.
_PROOFS = ("authorization", "cookie", "proxy-authorization", "webhook-signature", "x-hub-signature")
_PROOFS_BEGIN = ("x-hub-signature", "x-mulligan")


class Delivery(msgspec.Struct, frozen=True):
    """What was sent to a webhook."""

    # By their names in small letters.
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    # The address that it came from.
    source: str = ""


class Reading(msgspec.Struct, frozen=True):
    """What is to be done for a delivery."""

    # Whether the filter lets it through. If not, nothing else is read.
    is_wanted: bool
    id: str = ""
    event: str = ""
    value: Any = None
    run_key: str = ""
    labels: dict[str, str] = {}
    inputs: dict[str, Any] = {}
    key: str = ""


@read_apart_within(LIMITS)
def read_delivery(form: WebhookForm, delivery: Delivery) -> Reading:
    """`RequestRefused` for a body that cannot be read, `InputInvalid` for an expression that cannot be evaluated."""
    names = {
        "body": _body(delivery.headers.get("content-type", ""), delivery.body),
        "headers": _shown_headers(form, delivery.headers),
        "query": dict(delivery.query),
    }
    if form.filter:
        source, _ = expressions.condition_source(form.filter)
        if not expressions.condition(expressions.check(source), names):
            return Reading(is_wanted=False)
    send, start = form.send, form.start
    labels = send.labels if send is not None else start.labels if start is not None else {}
    return Reading(
        is_wanted=True,
        id=_text("id", form.id, names),
        event=_text("event", send.event, names) if send is not None else "",
        value=_fill(send.value, names) if send is not None else None,
        run_key=_text("run_key", send.run_key, names) if send is not None else "",
        labels={name: _text(f"label '{name}'", text, names) for name, text in labels.items()},
        inputs={name: _fill(value, names) for name, value in start.inputs.items()} if start is not None else {},
        key=_text("key", start.key, names) if start is not None else "",
    )


def _body(content_type: str, body: bytes) -> Any:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise RequestRefused("the body is not JSON", hint="send JSON, as UTF-8") from None
    if kind != FORM:
        raise MediaUnsupported("a webhook takes JSON or a form", hint=f"send the header 'Content-Type: {JSON}'")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:  # also of what is not ASCII or, percent-decoded, not UTF-8
        raise RequestRefused("the body is not a form", hint=f"send {FIELDS_MAX:,} fields at most, as UTF-8") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        # The first one counts, as a list of them would be another type.
        found.setdefault(name, value)
    return found


def _shown_headers(form: WebhookForm, headers: Mapping[str, str]) -> dict[str, str]:
    hidden = {*_PROOFS, form.header.lower()}
    return {name: value for name, value in headers.items() if name not in hidden and not name.startswith(_PROOFS_BEGIN)}


def _fill(value: Any, names: Mapping[str, Any]) -> Any:
    """A value with its `${…}` evaluated."""
    if isinstance(value, dict):
        return {key: _fill(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, names) for inner in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    return expressions.render(expressions.template(value), names)


def _text(what: str, text: str, names: Mapping[str, Any]) -> str:
    """The same, as a text of at least one character; "" if nothing is asked for."""
    if not text:
        return ""
    value = _fill(text, names)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputInvalid(f"the {what} is {expressions.kind_of(value)}, and not a text or a number")
    found = str(value).strip()
    if not found:
        raise InputInvalid(f"the {what} is empty")
    return found
