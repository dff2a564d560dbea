"""What a program outside sends to a webhook, signed as the Standard Webhooks say, without code of the product."""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from tests.support.api_client import Client, Reply

KEY = b"a key of the tests, of 32 bytes."
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
JSON = "application/json"


def signature(key: bytes, message_id: str, timestamp: int | str, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}"


def signed_headers(body: bytes, message_id: str = "msg_1", *, key: bytes = KEY, age: float = 0) -> dict[str, str]:
    """The headers of a delivery that was made `age` seconds ago."""
    timestamp = int(time.time() - age)
    return {
        "content-type": JSON,
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(key, message_id, timestamp, body),
    }


def deliver(
    client: Client,
    name: str,
    body: Any,
    message_id: str = "msg_1",
    *,
    key: bytes = KEY,
    age: float = 0,
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> Reply:
    """Send to a webhook, without a token. A body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    signed = {**signed_headers(data, message_id, key=key, age=age), **(headers or {})}
    return client.request("POST", f"/hooks/{name}", body=data, scope=None, headers=signed, **options)
