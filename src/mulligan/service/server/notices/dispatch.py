"""Sends a message to a target of either kind. The library for it is imported when the first message goes there."""

from __future__ import annotations

from datetime import datetime
from importlib.util import find_spec

from mulligan.errors import MulliganError
from mulligan.service.server.notices.messages import Delivery, Message
from mulligan.service.server.notices.targets import Target


class NotifyLibraryMissing(MulliganError):
    """Addresses of people need apprise, which is not installed."""

    code = "notices.library_missing"


def refuse_missing_library(target: Target) -> None:
    """Raise if the library that the target needs is not installed."""
    if target.urls and find_spec("apprise") is None:
        raise NotifyLibraryMissing(
            "notices to people need the package 'apprise', which is not installed",
            hint="pip install 'mulligan[notify]'",
        )


def send(target: Target, message: Message, now: datetime) -> Delivery:
    """Send a message once."""
    if target.webhook:
        from mulligan.service.server.notices.webhooks import send_to_webhook

        return send_to_webhook(target, message, now)
    try:
        refuse_missing_library(target)
    except NotifyLibraryMissing as error:
        return Delivery(f"{error.message}: {error.hint}", is_target_down=True)
    from mulligan.service.server.notices.people import send_to_people

    return send_to_people(target, message)
