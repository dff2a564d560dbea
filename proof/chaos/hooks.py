"""The webhooks of the chaos: by which clients start runs, and senders send events."""

from __future__ import annotations

import time
from pathlib import Path

from mulligan.service.server.notices.targets import sign
from mulligan.service.server.webhooks.webhook_forms import SendForm, StartForm, WebhookForm
from mulligan.service.service import Service
from proof.chaos.flows import AWAITING, FLOWS

SECRET, SECRET_NAME = "a secret of the chaos", "chaos"
_EVENT, _VALUE = "${body.event}", "${body.value}"
_FORMS = {
    "by-key": WebhookForm(SECRET_NAME, send=SendForm(_EVENT, _VALUE, run_key="run ${body.n}")),
    "by-label": WebhookForm(SECRET_NAME, send=SendForm(_EVENT, _VALUE, labels={"order": "${body.n}"})),
    **{
        f"start-{flow}": WebhookForm(
            SECRET_NAME,
            start=StartForm(
                flow,
                inputs={"n": "${body.n}"},
                labels={"order": "${body.n}", "lot": "${body.lot}"},
                key="run ${body.n}",
            ),
        )
        for flow in AWAITING
    },
}


def put_webhooks(service: Service, folder: Path) -> str:
    """Make them; return what the configuration of the server says of them."""
    path = folder / f"{SECRET_NAME}.key"
    path.write_text(SECRET)
    for flow in AWAITING:
        service.catalogue.publish(flow, FLOWS[flow].text.lstrip())
    for name, form in _FORMS.items():
        service.webhooks.put(name, form)
    return f'[webhook_secrets]\n{SECRET_NAME} = {{file = "{path}"}}\n'


def signed(message_id: str, body: bytes) -> dict[str, str]:
    """The headers of a delivery that is made now."""
    now = int(time.time())
    headers = {"webhook-id": message_id, "webhook-timestamp": str(now)}
    return {**headers, "webhook-signature": sign([SECRET.encode()], message_id, now, body)}
