"""Webhooks: what they are, for admins; and the addresses to which programs outside send, with a signature of each."""

from __future__ import annotations

import msgspec

from mulligan.api.areas.catalogue import Deleted, DryRunQuery
from mulligan.api.http.entity_tags import expected_revision, with_revision
from mulligan.api.http.routing import Answer, Call, Routes
from mulligan.service.server.webhooks.area import BODY_BYTES_MAX, Received, WebhookView
from mulligan.service.server.webhooks.reading import Delivery
from mulligan.service.server.webhooks.webhook_forms import WebhookForm

ROUTES = Routes()


class WebhooksPage(msgspec.Struct, frozen=True):
    webhooks: list[WebhookView]
    next: None


@ROUTES.add("GET", "webhooks", "read")
def list_webhooks(call: Call) -> WebhooksPage:
    """List the webhooks: where each is, and what it does. Their secrets are with the server."""
    return WebhooksPage(call.service.webhooks.all(), None)


@ROUTES.add("GET", "webhooks/{name}", "read", answer=WebhookView)
def show_webhook(call: Call, name: str) -> Answer:
    """One webhook: where it is, and what it does."""
    return with_revision(call.service.webhooks.show(name))


@ROUTES.add("PUT", "webhooks/{name}", "admin", answer=WebhookView, problems=(412,))
def put_webhook(call: Call, name: str, query: DryRunQuery, body: WebhookForm) -> Answer:
    """Create or change a webhook. If-Match may have the revision that it replaces."""
    expected = expected_revision(call.headers, without=None)
    return with_revision(call.service.webhooks.put(name, body, expected=expected, dry_run=query.dry_run))


@ROUTES.add("DELETE", "webhooks/{name}", "admin")
def delete_webhook(call: Call, name: str) -> Deleted:
    """Remove a webhook: what is sent to it from then on is refused."""
    call.service.webhooks.delete(name)
    return Deleted(name, is_deleted=True)


# -- from outside ----------------------------------------------------------------------------------------------------

_SIGNED = (
    ("webhook-signature", "The signatures of a Standard Webhook, with `webhook-id` and `webhook-timestamp`."),
    ("X-Hub-Signature-256", "The signature of a webhook with `auth: github`."),
    ("X-Hook-Token", "The secret of a webhook with `auth: secret`, or the header that it names."),
)
_DELIVERY = {
    "answer": Received,
    "status": 202,
    "request_headers": _SIGNED,
    "problems": (409, 415),
    "body_bytes_max": BODY_BYTES_MAX,
}


@ROUTES.add("POST", "/hooks/{name}", "public", **_DELIVERY)
async def receive_delivery(call: Call, name: str, query: dict[str, str], body: bytes) -> Answer:
    """Send to a webhook, which sends an event to a run or starts a workflow. The signature is the permission."""
    return await _receive(call, "", name)


@ROUTES.add("POST", "/hooks/{project}/{name}", "public", **_DELIVERY)
async def receive_delivery_of_project(
    call: Call, project: str, name: str, query: dict[str, str], body: bytes
) -> Answer:
    """Send to a webhook of a project."""
    return await _receive(call, project, name)


async def _receive(call: Call, project: str, name: str) -> Answer:
    delivery = Delivery(call.headers, call.query, call.body, call.source)
    checked = await call.read(lambda service: service.webhooks.check(project, name, delivery))
    # Not before it is known who sends it: a stranger takes nothing away from whoever has the secret.
    call.limit_webhook(f"{project}/{name}")
    return Answer(await call.compute(lambda service: service.webhooks.carry_out(checked)), 202)
