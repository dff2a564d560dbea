"""What a delivery means to a webhook, and which webhooks cannot be meant."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan.errors import ExpressionFailed, InputInvalid, MediaUnsupported, RequestRefused
from mulligan.language import load_text
from mulligan.service.server.webhooks.reading import FIELDS_MAX, Delivery, Reading, read_delivery
from mulligan.service.server.webhooks.webhook_forms import (
    EXPRESSIONS_MAX,
    SendForm,
    StartForm,
    WebhookForm,
    check_form,
    check_start,
    read_form,
)

SEND = SendForm("paid", run_key="${body.order}")


def read(
    form: WebhookForm, body: Any, kind: str = "application/json", query: dict[str, str] | None = None, **headers: str
) -> Reading:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    sent = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return read_delivery(form, Delivery(sent, query or {}, data))


def sends(**fields: Any) -> WebhookForm:
    return WebhookForm("shop", send=SendForm(**{"event": "paid", "run_key": "7", **fields}))


def test_an_event_has_the_body_as_its_value_unless_the_webhook_says_another() -> None:
    body = {"order": 7, "kind": "paid"}

    found = read(WebhookForm("shop", send=SEND), body)
    other = read(
        sends(event="${body.kind}", value={"of": ["order ${body.order}", 1]}, labels={"a": "${query.a}"}),
        body,
        query={"a": "x"},
    )

    assert (found.is_wanted, found.event, found.value, found.run_key, found.labels) == (True, "paid", body, "7", {})
    assert (other.event, other.value, other.labels) == ("paid", {"of": ["order 7", 1]}, {"a": "x"})
    assert (found.id, found.inputs, found.key) == ("", {}, "")


def test_a_start_has_inputs_with_their_types_labels_a_key_and_an_id() -> None:
    start = StartForm(
        "deploy", inputs={"n": "${body.n}", "all": ["${body}", "$${x}"]}, labels={"n": "${body.n}"}, key="k ${body.n}"
    )

    found = read(WebhookForm("shop", id="${headers['x-id']}", start=start), {"n": 7}, x_id="d1")

    assert found.inputs == {"n": 7, "all": [{"n": 7}, "$${x}".replace("$$", "$")]}
    assert (found.labels, found.key, found.id, found.event, found.value) == ({"n": "7"}, "k 7", "d1", "", None)


def test_a_filter_decides_before_anything_else_is_read() -> None:
    form = WebhookForm("shop", filter="${body.ok}", send=SEND)

    assert read(form, {"ok": False}) == Reading(is_wanted=False)
    assert read(form, {"ok": True, "order": "7"}).is_wanted
    for body in ({"ok": 1}, {}):
        with pytest.raises(ExpressionFailed):
            read(form, body)


@pytest.mark.parametrize("order", [True, None, [7], {"a": 1}, 7.5, "", "  "])
def test_what_is_no_text_is_no_key(order: Any) -> None:
    with pytest.raises(InputInvalid):
        read(WebhookForm("shop", send=SEND), {"order": order})


def test_headers_that_prove_who_sends_are_not_seen() -> None:
    shown = read(
        msgspec.structs.replace(sends(value="${headers}"), auth="secret", header="X-Own"),
        {},
        x_own="s",
        authorization="s",
        cookie="s",
        webhook_signature="s",
        x_hub_signature="s",
        x_hub_signature_256="s",
        proxy_authorization="s",
        x_kind="push",
    )

    assert shown.value == {"content-type": "application/json", "x-kind": "push"}


def test_a_body_is_json_or_a_form() -> None:
    form = "application/x-www-form-urlencoded"

    assert read(sends(), b"[1]", "application/cloudevents+json; charset=utf-8").value == [1]
    assert read(sends(), b"a=1&b=&a=2&c=%C3%A4", form).value == {"a": "1", "b": "", "c": "ä"}
    for body, kind in ((b"{", "application/json"), (b"", "application/json"), (b"\xff", form), (b"a=%ff", form)):
        with pytest.raises(RequestRefused):
            read(sends(), body, kind)
    assert read(sends(), b"&".join([b"a=1"] * FIELDS_MAX), form).value == {"a": "1"}
    with pytest.raises(RequestRefused):
        read(sends(), b"&".join([b"a=1"] * (FIELDS_MAX + 1)), form)
    for kind in ("", "text/plain", "json"):
        with pytest.raises(MediaUnsupported):
            read(sends(), b"{}", kind)


@pytest.mark.parametrize(
    ("form", "field"),
    [
        (WebhookForm("shop"), None),
        (WebhookForm("shop", send=SEND, start=StartForm("deploy")), None),
        (WebhookForm("shop", send=SEND, header="X-Token"), "header"),
        (WebhookForm("shop", auth="secret", header="X Token", send=SEND), "header"),
        (WebhookForm("shop", send=SendForm("paid")), None),
        (WebhookForm("shop", send=SendForm("paid", run_key="7", labels={"a": "b"})), None),
        (WebhookForm("shop", send=SendForm("", run_key="7")), "send.event"),
        (WebhookForm("shop", auth="github", send=SendForm("paid", labels={"a": "b"})), "send.labels"),
        (WebhookForm("shop", send=SEND, filter="boddy.x"), "filter"),
        (WebhookForm("shop", send=SEND, filter="body."), "filter"),
        (WebhookForm("shop", send=SEND, id="${run.id}"), "id"),
        (WebhookForm("shop", send=SendForm("paid", value=[{"a": "${x}"}], run_key="7")), "send.value[0].a"),
        (WebhookForm("shop", start=StartForm("deploy", labels={"version": "1"})), "labels"),
        (WebhookForm("shop", start=StartForm("deploy", labels={"": "1"})), None),
        (WebhookForm("shop", send=SendForm("paid", labels={"": "1"})), None),
    ],
)
def test_a_webhook_that_cannot_be_meant_says_where(form: WebhookForm, field: str | None) -> None:
    with pytest.raises(InputInvalid) as refused:
        check_form(form)

    assert refused.value.data.get("field") == field


def test_a_webhook_has_a_hundred_expressions_at_most() -> None:
    check_form(sends(value=["${body}"] * EXPRESSIONS_MAX))
    with pytest.raises(InputInvalid):
        check_form(sends(value=["${body}"] * (EXPRESSIONS_MAX + 1)))


def test_webhooks_that_can_be_meant_are_accepted() -> None:
    for form in (
        WebhookForm("shop", auth="github", send=SEND, filter="${has(body.x)}"),
        WebhookForm("shop", auth="secret", header="X-Gitlab-Token", start=StartForm("deploy")),
        WebhookForm("shop", send=SendForm("paid", labels={"a": "${query.a}"}), id="${body.x}"),
    ):
        check_form(form)


def test_a_file_of_a_webhook_is_yaml_or_json() -> None:
    text = b"secret: shop\nsend: {event: paid, run_key: '7'}\n"

    assert read_form(text, "hook.yaml") == read_form(msgspec.json.encode(sends()), "hook.json") == sends()
    with pytest.raises(InputInvalid, match=r"hook\.yaml: .*'surprise'"):
        read_form(text + b"surprise: 1\n", "hook.yaml")


def test_a_webhook_gives_a_workflow_the_inputs_that_it_has_and_needs() -> None:
    text = "name: deploy\ninputs: {ref: string, target: {default: staging}}\nsteps: [{step: a, shell: 'true'}]\n"
    workflow = load_text(text, "deploy.yaml")

    check_start(StartForm("deploy", inputs={"ref": "${body.ref}"}), workflow)
    check_start(StartForm("deploy", inputs={"ref": "main", "target": "prod"}), workflow)
    for inputs, named in (({}, "ref"), ({"target": "prod"}, "ref"), ({"ref": "main", "taget": "prod"}, "taget")):
        with pytest.raises(InputInvalid) as refused:
            check_start(StartForm("deploy", inputs=inputs), workflow)
        assert refused.value.data["input"] == named


@pytest.mark.parametrize(
    ("auth", "send", "fields"),
    [
        ("github", {"run_key": "${query.order}"}, {}),
        ("github", {"run_key": "order ${headers['x-order']}"}, {}),
        ("github", {}, {"id": "${headers['x-github-delivery']}"}),
        ("standard", {}, {"id": "${query.delivery}"}),
    ],
)
def test_what_decides_which_delivery_it_is_is_signed(auth: Any, send: dict[str, Any], fields: dict[str, Any]) -> None:
    form = msgspec.structs.replace(sends(**send), auth=auth, **fields)

    with pytest.raises(InputInvalid, match=f"'auth: {auth}' signs neither headers nor the address"):
        check_form(form)
    check_form(msgspec.structs.replace(form, auth="secret"))


def test_the_key_of_a_started_run_is_signed() -> None:
    form = WebhookForm("shop", auth="github", start=StartForm("order", key="${query.order}"))

    with pytest.raises(InputInvalid, match=r"'start\.key' may read 'body' alone"):
        check_form(form)
    check_form(
        msgspec.structs.replace(form, start=StartForm("order", inputs={"from": "${query.order}"}, key="${body.order}"))
    )


@pytest.mark.parametrize("header", ["Idempotency-Key", "webhook-id", "X-GitHub-Delivery", "webhook-timestamp", "Host"])
def test_a_secret_is_in_no_header_that_means_something_else(header: str) -> None:
    """The id of a delivery is kept with what it does: the secret would be in the store."""
    form = msgspec.structs.replace(sends(), auth="secret", header=header)

    with pytest.raises(InputInvalid, match="means something else"):
        check_form(form)


@pytest.mark.parametrize("name", ["a b", "7", "a/b"])
def test_an_event_that_can_never_be_sent_is_refused_when_the_webhook_is_made(name: str) -> None:
    with pytest.raises(InputInvalid, match="is not the name of an event"):
        check_form(sends(event=name))
    check_form(sends(event="paid-${body.order}"))
