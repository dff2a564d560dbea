"""Answers of a model over HTTP, as a stream of events in either wire format."""

from __future__ import annotations

import json
from typing import Any

from mulligan.worker.models.settings import ModelKind


def stream(*data: Any, cut: bool = False) -> bytes:
    """An answer of events. `cut`: the connection breaks off before its end."""
    texts = [one if isinstance(one, str) else json.dumps(one) for one in data]
    body = "".join(f"event: any\r\ndata: {text}\r\n\r\n: a comment\n" for text in texts).encode()
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    length = f"Content-Length: {len(body) + cut}\r\n" if cut else ""
    return f"{head}{length}Connection: close\r\n\r\n".encode() + body


def said(kind: ModelKind, *pieces: str) -> list[Any]:
    """The events of an answer without its end."""
    if kind == "openai":
        return [{"model": "small-1", "choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    begin = {"type": "message_start", "message": {"model": "small-1", "usage": {"input_tokens": 7, "output_tokens": 1}}}
    texts = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}} for piece in pieces
    ]
    return [begin, {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, *texts]


def ended(kind: ModelKind, reason: str = "") -> list[Any]:
    """The events of the end of an answer."""
    if kind == "openai":
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason or "stop"}], "usage": None}
        return [end, {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}, "[DONE]"]
    delta = {"type": "message_delta", "delta": {"stop_reason": reason or "end_turn"}, "usage": {"output_tokens": 3}}
    return [{"type": "ping"}, delta, {"type": "message_stop"}]
