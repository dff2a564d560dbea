"""The ids of traces and spans: hashes of a run, a place and an attempt.

Nobody has to agree on them: a worker gives an attempt its `TRACEPARENT` before anything is exported, an exporter finds
the same ids in the log later, and exporting twice does no harm. A child run belongs to the trace of the run at the
top, since its uid begins with that run's uid.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

_TRACE_HEX, _SPAN_HEX = 32, 16


def run_identity(uid: str, run_id: int) -> str:
    """What the ids of a run are made of. Runs of early versions have no uid."""
    return uid or f"run {run_id}"


@lru_cache(maxsize=64)
def trace_id(identity: str) -> str:
    """The trace of a run and of all runs below it: 32 hexadecimal digits."""
    return _digits(f"trace:{identity.partition('.')[0]}", _TRACE_HEX)


def round_span_id(identity: str, number: int) -> str:
    """The span of one round of a run: 16 hexadecimal digits."""
    return _digits(f"round:{identity}:{number}", _SPAN_HEX)


def visit_span_id(identity: str, step: str, visit: int) -> str:
    """The span of one visit of a step."""
    return _digits(f"visit:{identity}:{step}:{visit}", _SPAN_HEX)


def attempt_span_id(identity: str, place: str, attempt: int) -> str:
    """The span of one attempt."""
    return _digits(f"attempt:{identity}.{place}.{attempt}", _SPAN_HEX)


def calling_span_id(identity: str) -> str:
    """The span of the attempt that called this run; "" for a run at the top.

    The uid of a child run is made of its parent's uid, the place and the attempt: see `child_uid`.
    """
    return _digits(f"attempt:{identity}", _SPAN_HEX) if "." in identity else ""


def traceparent(identity: str, place: str, attempt: int) -> str:
    """The W3C trace context of an attempt, for the programs that it starts."""
    return f"00-{trace_id(identity)}-{_digits(f'attempt:{identity}.{place}.{attempt}', _SPAN_HEX)}-01"


def _digits(text: str, length: int) -> str:
    digits = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
    # All zeros is not an id.
    return digits if digits.strip("0") else f"{1:0{length}x}"
