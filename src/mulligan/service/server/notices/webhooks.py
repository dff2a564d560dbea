"""Sending a message to a webhook: a CloudEvent, signed as the Standard Webhooks are (https://www.standardwebhooks.com)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from urllib.parse import urlsplit

import httpx2

from mulligan.service.server.notices.chat_messages import slack_body, teams_body
from mulligan.service.server.notices.messages import Delivery, Message
from mulligan.service.server.notices.targets import Target, sign

JSON = "application/json; charset=utf-8"
MEDIA = "application/cloudevents+json; charset=utf-8"
# A receiver that asks for more patience than this gets no more.
PATIENCE_SECONDS_MAX = 3600.0


_FORMS: Mapping[str, Callable[[Message], tuple[str, bytes]]] = {
    "event": lambda message: (MEDIA, message.event),
    "slack": lambda message: (JSON, slack_body(message)),
    "teams": lambda message: (JSON, teams_body(message)),
}


def send_to_webhook(target: Target, message: Message, now: datetime) -> Delivery:
    """Send it once. An address may contain a token, so the words name the host alone."""
    url, keys = target.webhook_url(), target.signing_keys()
    host = urlsplit(url).hostname or ""
    timestamp = int(now.timestamp())
    media, body = _FORMS[target.form](message)
    headers = {
        "content-type": media,
        "user-agent": "mulligan",
        "webhook-id": message.key,
        "webhook-timestamp": str(timestamp),
        **({"webhook-signature": sign(keys, message.key, timestamp, body)} if keys else {}),
    }
    try:
        # A redirect would send the notice to somebody who is not in the configuration.
        with (
            httpx2.Client(
                timeout=target.timeout_seconds, follow_redirects=False, verify=_certificates(timestamp // 3600)
            ) as client,
            client.stream("POST", url, content=body, headers=headers) as answer,
        ):
            status, patience = answer.status_code, answer.headers.get("retry-after", "")
    except httpx2.TimeoutException:
        return Delivery(f"{host} did not answer in {target.timeout_seconds:g}s", is_target_down=True)
    except httpx2.HTTPError as error:
        return Delivery(f"{host} could not be reached ({type(error).__name__})", is_target_busy=True)
    except (httpx2.InvalidURL, UnicodeError, ValueError):
        return Delivery("the address of the webhook is not valid", is_target_down=True)
    if 200 <= status < 300:
        return Delivery()
    if 300 <= status < 400:
        return Delivery(f"{host} answered {status}: redirects are not followed", is_target_down=True)
    # Few send a date.
    seconds = min(float(patience), PATIENCE_SECONDS_MAX) if patience.isdecimal() else 0.0
    return Delivery(
        f"{host} answered {status}",
        # It says for how long it wants no message at all.
        is_target_down=status == 429 and seconds > 0,
        is_target_busy=status in (429, 502, 503, 504),
        retry_after=seconds,
    )


@lru_cache(1)
def _certificates(hour: int) -> ssl.SSLContext:
    """The certificates that count. To read them takes longer than to send a message; they may change meanwhile."""
    return httpx2.create_ssl_context()
