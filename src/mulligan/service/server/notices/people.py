"""Sending a message to people through apprise: mail, chat, telephone. The only module that imports it."""

from __future__ import annotations

import logging

import apprise

from mulligan.service.server.notices.messages import Delivery, Message
from mulligan.service.server.notices.targets import Target

# It logs addresses, which contain passwords.
logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)


def send_to_people(target: Target, message: Message) -> Delivery:
    """Send it once to all addresses of the target. It has been sent if all of them took it."""
    addresses = target.addresses()
    refused: list[str] = []
    is_unknown = False
    for number, address in enumerate(addresses, start=1):
        # One by one, so that the words can say which one failed without showing it.
        sender = apprise.Apprise()
        if not sender.add(address):
            refused.append(f"address {number} is not one that apprise knows")
            is_unknown = True
        elif not _notify(sender, message):
            refused.append(f"address {number} ({address.partition(':')[0]}) did not accept the message")
    if not refused:
        return Delivery()
    return Delivery(f"apprise: {', '.join(refused)}", is_target_down=is_unknown, is_target_busy=not is_unknown)


def _notify(sender: apprise.Apprise, message: Message) -> bool:
    try:
        return bool(
            sender.notify(
                title=message.title,
                body=message.text or message.title,
                body_format=apprise.NotifyFormat.TEXT,
                notify_type=apprise.NotifyType.WARNING,
            )
        )
    except (TypeError, ValueError, OSError):
        return False
