"""A webhook as people and programs write it, checked: how it is signed, what it lets through, what it does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from mulligan.core.model.run_data import name_problem
from mulligan.core.model.workflow import Workflow
from mulligan.errors import InputInvalid
from mulligan.language import expressions
from mulligan.language.expressions import ExpressionRefused, Placeholder
from mulligan.language.text.input_files import parse_inputs
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.runs.changes.preflight import check_labels, refuse_reserved_labels

# What its expressions read.
NAMES = ("body", "headers", "query")
# How many texts of one webhook have expressions in them.
EXPRESSIONS_MAX = 100
HEADER = "x-hook-token"
ID_HEADER, TIME_HEADER = "webhook-id", "webhook-timestamp"
# With a plain secret, where a sender says which delivery it is: the secret proves this too.
ID_HEADERS = ("idempotency-key", ID_HEADER, "x-github-delivery")
# Not for a secret: what is in them is kept, or read by others.
_TAKEN_HEADERS = frozenset({*ID_HEADERS, TIME_HEADER, "host", "content-type", "content-length", "transfer-encoding"})
# Which texts may read the body alone, since the signature covers nothing else: with a recorded delivery somebody could
# do again, or to another run, what it has done. With `standard` for five minutes, in which its id counts.
_OF_BODY = {"standard": ("id",), "github": ("id", "send.run_key", "start.key"), "secret": ()}
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")

Auth = Literal["standard", "github", "secret"]


class SendForm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event for the run with a key, or for all open runs with labels. Texts may have `${…}` in them."""

    event: str
    value: Any = "${body}"
    run_key: str = ""
    labels: dict[str, str] = {}
    # What the sender gets if there is no such run: `refuse` makes it send the event again later.
    if_no_run: Literal["refuse", "ignore"] = "refuse"


class StartForm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run of a published workflow. Texts may have `${…}` in them."""

    workflow: str
    version: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    inputs: dict[str, Any] = {}
    labels: dict[str, str] = {}
    # The key of the run, so that later events find it. There is one run with a key, whatever is delivered.
    key: str = ""


class WebhookForm(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a webhook is. It sends an event or starts a workflow, one of the two."""

    # Its name in `[webhook_secrets]` of the configuration of the server.
    secret: str
    # `standard`: Standard Webhooks; `github`: a digest of the body; `secret`: the secret itself in a header.
    auth: Auth = "standard"
    # With `secret`: the header that has it.
    header: str = HEADER
    # Which deliveries count: a condition on `body`, `headers` and `query`. All of them without one.
    filter: str = ""
    # What makes a delivery the same as another, such as `${body.id}`. By default what the sender calls its id, if that
    # is signed, otherwise the content of the body.
    id: str = ""
    send: SendForm | None = None
    start: StartForm | None = None


def read_form(data: bytes, file: str) -> WebhookForm:
    """The webhook in a file, as YAML or JSON. `LanguageError`, `InputInvalid`."""
    given = parse_inputs(data, file, "a file of a webhook says 'secret', and 'send' or 'start'")
    try:
        return msgspec.convert(given, WebhookForm)
    except msgspec.ValidationError as error:
        raise InputInvalid(f"{file}: {str(error).replace('`', chr(39)).replace(' - at ', ' at ')}") from None


def check_form(form: WebhookForm) -> None:
    """`InputInvalid` if it cannot be meant."""
    if (form.send is None) == (form.start is None):
        what = "neither 'send' nor 'start'" if form.send is None else "both 'send' and 'start'"
        raise InputInvalid(f"the webhook has {what}", hint="give one: what it sends, or what it starts")
    if not _HEADER_NAME.fullmatch(form.header):
        raise InputInvalid("this is not the name of a header", hint="write it like X-Gitlab-Token", field="header")
    if form.header.lower() in _TAKEN_HEADERS:
        raise InputInvalid(f"the header {form.header} means something else", hint="use X-Hook-Token", field="header")
    if form.header != HEADER and form.auth != "secret":
        raise InputInvalid("'header' is for 'auth: secret'", hint="leave it out", field="header")
    if form.send is not None:
        _check_send(form.send, form.auth)
    if form.start is not None:
        check_labels(form.start.labels)
        refuse_reserved_labels(form.start.labels)
    found = list(_texts(form))
    if len(found) > EXPRESSIONS_MAX:
        raise InputInvalid(f"the webhook has {len(found)} texts with '${{…}}', and {EXPRESSIONS_MAX} at most")
    for field, text in found:
        try:
            for part in expressions.find_placeholders(text):
                if isinstance(part, Placeholder):
                    read = _check_expression(part.source)
                    if read - {"body"} and field in _OF_BODY[form.auth]:
                        raise _unsigned(form.auth, field)
        except ExpressionRefused as refused:
            raise InputInvalid(f"'{field}': {refused.message}", hint=refused.hint, field=field) from None
    if form.filter:
        try:
            _check_expression(expressions.condition_source(form.filter)[0])
        except ExpressionRefused as refused:
            raise InputInvalid(f"'filter': {refused.message}", hint=refused.hint, field="filter") from None


def _unsigned(auth: Auth, field: str) -> InputInvalid:
    what = f"'auth: {auth}' signs neither headers nor the address, so '{field}' may read 'body' alone"
    return InputInvalid(what, hint="let it read the body, or use 'auth: secret'", field=field)


def _check_send(send: SendForm, auth: Auth) -> None:
    if bool(send.run_key) == bool(send.labels):
        hint = "give one: run_key: '${body.order}', or labels: {order: '${body.order}'}"
        raise InputInvalid("an event is for the run with 'run_key', or for all open runs with 'labels'", hint=hint)
    if not send.event:
        raise InputInvalid("the event has no name", hint="write it like event: paid", field="send.event")
    if "${" not in send.event and (problem := name_problem(send.event)):
        raise InputInvalid(f"'{send.event[:40]}' is not the name of an event: {problem}", field="send.event")
    if send.labels and auth == "github":
        raise InputInvalid(
            "'auth: github' signs no time, so a recorded delivery could be sent again to runs that start later",
            hint="name the run with 'run_key' in place of 'labels'",
            field="send.labels",
        )
    check_labels(dict.fromkeys(send.labels, ""))


def check_start(start: StartForm, workflow: Workflow) -> None:
    """`InputInvalid` for an input that the workflow does not have, or for one that it needs and does not get."""
    for name in start.inputs:
        if name not in workflow.inputs:
            hint = did_you_mean(name, workflow.inputs) or f"it has: {', '.join(workflow.inputs) or 'none'}"
            raise InputInvalid(f"workflow '{workflow.name}' has no input '{name}'", hint=hint, input=name)
    for name, declared in workflow.inputs.items():
        if not declared.has_default and name not in start.inputs:
            raise InputInvalid(f"workflow '{workflow.name}' needs the input '{name}'", hint="add it", input=name)


def _texts(form: WebhookForm) -> Iterator[tuple[str, str]]:
    """The texts with `${…}` in them, and where each stands."""
    tree = {"id": form.id, "send": msgspec.to_builtins(form.send), "start": msgspec.to_builtins(form.start)}
    left: list[tuple[str, Any]] = [("", tree)]
    while left:
        place, value = left.pop()
        if isinstance(value, dict):
            left += ((f"{place}.{key}".removeprefix("."), inner) for key, inner in value.items())
        elif isinstance(value, list):
            left += ((f"{place}[{index}]", inner) for index, inner in enumerate(value))
        elif isinstance(value, str) and "${" in value:
            yield place, value


def _check_expression(source: str) -> set[str]:
    """What it reads: some of the names that there are."""
    read = {path[0] for path in expressions.paths(expressions.check(source))}
    for name in sorted(read.difference(NAMES)):
        hint = did_you_mean(name, NAMES) or "a webhook reads body, headers and query"
        raise ExpressionRefused(f"'{name}' is not known here", 0, 1, hint=hint)
    return read
