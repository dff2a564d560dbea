"""Notices as Slack and Microsoft Teams show them: Block Kit, and an Adaptive Card. Both take links as buttons."""

from __future__ import annotations

from typing import Any

import msgspec

from mulligan.service.server.notices.messages import Message

# What Slack takes of a text, and what is worth reading in a chat.
TEXT_CHARS_MAX, TITLE_CHARS_MAX = 2_800, 250
_LABELS = {"approve": "Approve", "refuse": "Refuse", "retry": "Retry", "fail": "Let it fail"}
_GOOD = frozenset({"approve", "retry"})


def slack_body(message: Message) -> bytes:
    """The body for an incoming webhook of Slack."""
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "plain_text", "text": _cut(message.title, TITLE_CHARS_MAX)}}
    ]
    if message.text:
        # Nobody's text is markup: a step could write links and mentions of everybody.
        blocks.append({"type": "section", "text": {"type": "plain_text", "text": _cut(message.text, TEXT_CHARS_MAX)}})
    if message.buttons:
        blocks.append(
            {
                "type": "actions",
                "elements": [
                    {
                        "type": "button",
                        "text": {"type": "plain_text", "text": _LABELS[one.answer]},
                        "url": one.url,
                        "action_id": f"mulligan-{one.answer}",
                        "style": "primary" if one.answer in _GOOD else "danger",
                    }
                    for one in message.buttons
                ],
            }
        )
    # `text` is what a notification on a telephone shows.
    return msgspec.json.encode({"text": _escaped(_cut(message.title, TITLE_CHARS_MAX)), "blocks": blocks})


def teams_body(message: Message) -> bytes:
    """The body for a workflow of Teams that posts a card."""
    texts = [
        {"type": "TextBlock", "text": _plain(_cut(message.title, TITLE_CHARS_MAX)), "weight": "Bolder", "wrap": True}
    ]
    lines = _cut(message.text, TEXT_CHARS_MAX).split("\n") if message.text else []
    texts += [{"type": "TextBlock", "text": _plain(line), "wrap": True, "spacing": "None"} for line in lines if line]
    card = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "body": texts,
        "actions": [
            {
                "type": "Action.OpenUrl",
                "title": _LABELS[one.answer],
                "url": one.url,
                "style": "positive" if one.answer in _GOOD else "destructive",
            }
            for one in message.buttons
        ],
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return msgspec.json.encode({"type": "message", "attachments": [content]})


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _escaped(text: str) -> str:
    """Text for Slack's own markup, in which `<!channel>` is a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(text: str) -> str:
    """Text in which a card finds no Markdown: links, bold, lists."""
    return "".join(f"\\{char}" if char in "\\[]*_`#<>~|" else char for char in text)
