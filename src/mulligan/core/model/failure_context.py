"""The context that a step gets about earlier failures and outputs: framed text of bounded length.

There are three kinds of envelopes, always in this order: the failures that led here, the outputs of earlier steps, the
summary of its own last failed attempt. Facts hold no declared secrets: workers redact them. A payload is made in four
steps, and their order makes it safe:

    compose     the strings of a failure become one text
    hide        text that looks like an undeclared credential, unless the workflow turns this off
    neutralise  so that a payload cannot imitate the frame
    cut         to its share of the budget, with the sizes in the header

Only payloads count, in code points. Equal input gives equal text: no clock, no randomness.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Literal

import msgspec

from mulligan.core.model.clusters.scheduler_job import describe_job
from mulligan.core.model.failure import MESSAGE_CHARS_MAX, UNWRITABLE, Failure
from mulligan.core.model.text.credential_patterns import hide_at_ends, hide_credentials
from mulligan.core.model.text.lazy_regex import lazy_regex

POLICY_VERSION = 1
CONTEXT_CHARS_MAX = 32_000
FAILURE_CHARS_MAX = 6_000
UPSTREAM_CHARS_MAX = 12_000
UPSTREAM_OUTPUTS_MAX = 4
SUMMARY_CHARS_MAX = 4_000
# A shorter excerpt is useless: an entry gets at least this much, or all it needs, or it is left out.
SHARE_CHARS_MIN = 1_000

FAILURE_HEADER = "MULLIGAN_FAILURE_ROUTE_CONTEXT v1"
UPSTREAM_HEADER = "MULLIGAN_UPSTREAM_OUTPUT v1"
SUMMARY_HEADER = "MULLIGAN_RETRY_FAILURE_SUMMARY v1"
OWN_HEADER = "MULLIGAN_WORKFLOW_CONTEXT v1"
BEGIN = "<<<BEGIN>>>"
END = "<<<END>>>"

_FRAME = (
    *(FAILURE_HEADER, UPSTREAM_HEADER, SUMMARY_HEADER, OWN_HEADER, BEGIN, END),
    *("attempt_metadata:", "failure_artifact:", "retry_summary_artifact:"),
)
_CAUSES_MAX = 5
_LINE_CHARS_MAX = 200
_CUT_WORD = lazy_regex(r"\S{1,500}(?=\s)")
_CUT_LAST_WORD = lazy_regex(r"(?<=\s)\S{1,500}\Z")

ContentType = Literal["text", "json"]


class RetrySummary(msgspec.Struct, frozen=True):
    """The summary of a failed attempt for the next one. `failure_seq` is the event of that failure."""

    seq: int
    source_attempt: int
    target_attempt: int
    failure_seq: int
    created_at: datetime
    content: str


class FailedSource(msgspec.Struct, frozen=True):
    """A failed visit whose failure edge led here. The seqs are those of the events that recorded it."""

    step: str
    visit: int
    attempt: int
    max_retries: int
    retries_used: int
    reason: str
    failure: Failure
    entered_seq: int
    failure_seq: int
    failed_at: datetime
    summary: RetrySummary | None = None


class UpstreamOutput(msgspec.Struct, frozen=True):
    """The output of an earlier step, as text."""

    step: str
    visit: int
    attempt: int
    entered_seq: int
    output_seq: int
    created_at: datetime
    content: str
    content_type: ContentType = "text"


class Truncation(msgspec.Struct, frozen=True):
    """The effect of a cut. `included_chars + dropped_chars == original_chars`, without the marker at the cut.

    What a worker left out of a long log is dropped too; it is counted in bytes.
    """

    applied: bool
    method: Literal["none", "head_tail"]
    original_chars: int
    included_chars: int
    dropped_chars: int


class Manifest(msgspec.Struct, frozen=True):
    """What was included in a context and what was not, as seqs of failures, outputs and the summary, in text order.

    `budget_overflow`: an entry got less than its own limit allows, or nothing, because others took the space.
    """

    included: tuple[int, ...] = ()
    truncated: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    included_chars: int = 0
    failure_chars: int = 0
    upstream_chars: int = 0
    summary_chars: int = 0
    budget_overflow: bool = False
    policy_version: int = POLICY_VERSION


class Context(msgspec.Struct, frozen=True):
    """The text for a step, and its manifest."""

    text: str
    manifest: Manifest


class _Draft(msgspec.Struct, frozen=True):
    """An envelope before its cut: neutralised, with its maximum length."""

    seq: int
    header: str
    fields: dict[str, object]
    payload: str
    limit: int
    # What was left out before, where the text was read.
    left_out: int = 0

    @property
    def wants(self) -> int:
        return min(len(self.payload), self.limit)


# A draft and the characters that it was granted; None if it was left out.
_Granted = tuple[_Draft, int | None]


def assemble(
    run_id: int,
    target: str,
    failed: Sequence[FailedSource] = (),
    upstream: Sequence[UpstreamOutput] = (),
    summary: RetrySummary | None = None,
    own: str = "",
    hides: bool = True,
) -> Context:
    """The whole context of `target`, within 32,000 characters. Of `upstream` the first four count, in order.

    `own`, the envelope of the context written in the workflow, follows the failures and takes no share of the budget.
    Failures and the summary get their shares first: a step that repairs something must see what broke, however much
    output the other steps have.
    """
    failures = _granted_failures(run_id, target, failed, hides)
    summaries = _granted_summary(run_id, target, summary, hides)
    room = CONTEXT_CHARS_MAX - _chars(failures) - _chars(summaries)
    outputs = _granted_outputs([_upstream_draft(run_id, target, source, hides) for source in upstream], room)
    texts = [_failures_text(failures), own, *_envelopes(outputs), *_envelopes(summaries)]
    return Context("\n\n".join(filter(None, texts)), _manifest(failures, outputs, summaries))


def failure_context(run_id: int, target: str, sources: Sequence[FailedSource], hides: bool = True) -> str:
    """An envelope per failed source, newest first, within 6,000 characters in total; "" without sources.

    Each source gets at least 1,000 characters (or all it needs); what is left goes to the newest first. The oldest,
    for which there is no space, are counted in the last line.
    """
    return _failures_text(_granted_failures(run_id, target, sources, hides))


def own_context(run_id: int, target: str, content: str, content_type: ContentType = "text") -> str:
    """The envelope of the context that the workflow itself gives a step, cut to 32,000 characters.

    Untrusted like the others, since values may have been filled in. It has no hash: it may contain secrets, and a hash
    would help to guess them.
    """
    fields: dict[str, object] = {"workflow_run_id": run_id, "target_node_key": target, "content_type": content_type}
    draft = _Draft(0, OWN_HEADER, fields=fields, payload=neutralise(content), limit=CONTEXT_CHARS_MAX)
    return _envelope(draft, draft.wants)


def retry_summary_text(failure: Failure, attempt: int, hides: bool = True) -> str:
    """A summary of a failed attempt for the next one: what happened, and the end of its message."""
    headline = f"attempt {attempt} ended with {_in_words(failure)}"
    message = _message(failure, hides).strip()[-MESSAGE_CHARS_MAX:]
    return f"{headline}; its last message:\n{message}" if message else f"{headline} without a message"


def head_tail(text: str, limit: int) -> tuple[str, Truncation]:
    """`text` within `limit` characters: its head and tail, with a visible marker at the cut."""
    size = len(text)
    if size <= limit:
        return text, Truncation(False, "none", original_chars=size, included_chars=size, dropped_chars=0)
    head, tail = text[: limit // 2], text[size - (limit - limit // 2) :]
    dropped = size - limit
    marker = f"\n[... {dropped} characters left out ...]\n"
    return head + marker + tail, Truncation(
        True, "head_tail", original_chars=size, included_chars=limit, dropped_chars=dropped
    )


def neutralise(text: str) -> str:
    r"""`text` with the words of the frame escaped: `<<<END>>>` becomes `<\<<END>>>`.

    Also inside lines, since a cut can put any character at the start of a line.
    """
    for word in _FRAME:
        text = text.replace(word, f"{word[0]}\\{word[1:]}")
    return UNWRITABLE.sub("\ufffd", text)


# ---- shares of the budget


def _granted_failures(run_id: int, target: str, sources: Sequence[FailedSource], hides: bool) -> list[_Granted]:
    newest_first = sorted(sources, key=lambda source: source.failure_seq, reverse=True)
    drafts = [_failure_draft(run_id, target, source, hides) for source in newest_first]
    return list(zip(drafts, _fair_shares([draft.wants for draft in drafts], FAILURE_CHARS_MAX), strict=True))


def _fair_shares(wants: list[int], budget: int) -> list[int | None]:
    """The minimum share for each while the budget lasts, then the rest to the first that want more."""
    sure = [min(want, SHARE_CHARS_MIN) for want in wants]
    kept = sum(total <= budget for total in accumulate(sure))
    spare = budget - sum(sure[:kept])
    shares: list[int | None] = [None] * len(wants)
    for place in range(kept):
        more = min(wants[place] - sure[place], spare)
        shares[place] = sure[place] + more
        spare -= more
    return shares


def _granted_outputs(drafts: Iterable[_Draft], room: int) -> list[_Granted]:
    """The first four in order: each gets what it wants, or at least the minimum share, while there is space."""
    granted: list[_Granted] = []
    for place, draft in enumerate(drafts):
        fits = place < UPSTREAM_OUTPUTS_MAX and room >= min(draft.wants, SHARE_CHARS_MIN)
        share = min(draft.wants, room) if fits else None
        room -= share or 0
        granted.append((draft, share))
    return granted


def _granted_summary(run_id: int, target: str, summary: RetrySummary | None, hides: bool) -> list[_Granted]:
    if summary is None:
        return []
    draft = _summary_draft(run_id, target, summary, hides)
    return [(draft, draft.wants)]


def _chars(granted: Iterable[_Granted]) -> int:
    return sum(share or 0 for _, share in granted)


def _manifest(failures: list[_Granted], outputs: list[_Granted], summaries: list[_Granted]) -> Manifest:
    granted = failures + outputs + summaries
    # An output beyond the fourth is dropped for its position, not for lack of space.
    rivals = failures + outputs[:UPSTREAM_OUTPUTS_MAX] + summaries
    return Manifest(
        included=tuple(draft.seq for draft, share in granted if share is not None),
        truncated=tuple(draft.seq for draft, share in granted if share is not None and share < len(draft.payload)),
        dropped=tuple(draft.seq for draft, share in granted if share is None),
        included_chars=_chars(granted),
        failure_chars=_chars(failures),
        upstream_chars=_chars(outputs),
        summary_chars=_chars(summaries),
        budget_overflow=any(share is None or share < draft.wants for draft, share in rivals),
    )


# ---- payloads


def _failure_draft(run_id: int, target: str, source: FailedSource, hides: bool) -> _Draft:
    fields = {
        "workflow_run_id": run_id,
        "target_node_key": target,
        "source_node_key": source.step,
        "source_run_node_id": source.entered_seq,
        "source_attempt": source.attempt,
        "failure_artifact_id": source.failure_seq,
        "retry_summary_artifact_id": source.summary.seq if source.summary else None,
        "created_at": source.failed_at,
    }
    payload = "\n".join(_failure_payload(source, hides))
    return _Draft(
        source.failure_seq,
        FAILURE_HEADER,
        fields=fields,
        payload=payload,
        limit=FAILURE_CHARS_MAX,
        left_out=source.failure.left_out,
    )


def _upstream_draft(run_id: int, target: str, source: UpstreamOutput, hides: bool) -> _Draft:
    payload = _payload(source.content, UPSTREAM_CHARS_MAX, hides)
    fields = {
        "workflow_run_id": run_id,
        "target_node_key": target,
        "source_node_key": source.step,
        "source_run_node_id": source.entered_seq,
        "source_attempt": source.attempt,
        "artifact_id": source.output_seq,
        "artifact_type": "report",
        "content_type": source.content_type,
        "created_at": source.created_at,
        "sha256": _sha256(payload),
    }
    return _Draft(source.output_seq, UPSTREAM_HEADER, fields=fields, payload=payload, limit=UPSTREAM_CHARS_MAX)


def _summary_draft(run_id: int, target: str, summary: RetrySummary, hides: bool) -> _Draft:
    payload = _payload(summary.content, SUMMARY_CHARS_MAX, hides)
    fields = {
        "workflow_run_id": run_id,
        "target_node_key": target,
        "source_attempt": summary.source_attempt,
        "target_attempt": summary.target_attempt,
        "summary_artifact_id": summary.seq,
        "failure_artifact_id": summary.failure_seq,
        "created_at": summary.created_at,
        "sha256": _sha256(payload),
    }
    return _Draft(summary.seq, SUMMARY_HEADER, fields=fields, payload=payload, limit=SUMMARY_CHARS_MAX)


def _payload(text: str, limit: int, hides: bool) -> str:
    """A text that will be cut to `limit` characters, with credentials hidden and neutralised."""
    return neutralise(hide_at_ends(text, limit) if hides else text)


def _failure_payload(source: FailedSource, hides: bool) -> list[str]:
    metadata = {
        "attempt": source.attempt,
        "max_retries": source.max_retries,
        "retries_exhausted": source.retries_used >= source.max_retries,
        "retries_used": source.retries_used,
        "failure_reason": source.reason,
    }
    artifact = {"id": source.failure_seq, "created_at": source.failed_at}
    return [
        *("attempt_metadata:", *_lines(metadata, "  ")),
        *("failure_artifact:", *_lines(artifact, "  "), "  content:"),
        neutralise(_failure_text(source.failure, hides)),
        *_summary_section(source.summary, hides),
    ]


def _summary_section(summary: RetrySummary | None, hides: bool) -> list[str]:
    if summary is None:
        return []
    artifact = {
        "id": summary.seq,
        "source_attempt": summary.source_attempt,
        "target_attempt": summary.target_attempt,
        "failure_artifact_id": summary.failure_seq,
        "created_at": summary.created_at,
    }
    content = _payload(summary.content, FAILURE_CHARS_MAX, hides)
    return ["retry_summary_artifact:", *_lines(artifact, "  "), "  content:", content]


def _failure_text(failure: Failure, hides: bool) -> str:
    """The message, then code, exit code etc.: a message is often the tail of stderr, which does not mention them."""
    known = {
        "code": _one_line(failure.code),
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "item": failure.item,
        "ran_on": describe_job(failure.details) or None,
    }
    facts = _lines({key: value for key, value in known.items() if value is not None})
    message = _whole_message(failure, hides)
    return "\n".join([*([message] if message else []), *facts, *_causes(failure, hides)])


def _whole_message(failure: Failure, hides: bool) -> str:
    """The message, after the beginning of the stderr that it is the end of, with a marker for what is missing."""
    if not failure.head:
        return _message(failure, hides)
    if not failure.left_out:
        return hide_credentials(failure.head + failure.message) if hides else failure.head + failure.message
    marker = f"\n[... {failure.left_out} bytes left out ...]\n"
    if not hides:
        return failure.head + marker + failure.message
    # The last word of the beginning may be part of a credential.
    last = _CUT_LAST_WORD.search(failure.head)
    head = failure.head[: last.start()] if last else failure.head
    return hide_credentials(head) + marker + _message(failure, hides)


def _message(failure: Failure, hides: bool) -> str:
    """The message of a failure. A long message was cut at its beginning: its first word may be part of a credential."""
    if not hides:
        return failure.message
    message = failure.message
    if len(message) >= MESSAGE_CHARS_MAX:
        first = _CUT_WORD.match(message)
        message = f"[...]{message[first.end() :]}" if first else message
    return hide_credentials(message)


def _causes(failure: Failure, hides: bool) -> list[str]:
    """A line for the failure of the handler, and for each of the first few causes."""
    met = [("handler_failure", failure.handler_failure)] if failure.handler_failure else []
    met += [("cause", cause) for cause in failure.cause[:_CAUSES_MAX]]
    lines = [f"{key}: {_in_words(cause)}: {_one_line(_message(cause, hides))}" for key, cause in met]
    left_out = len(failure.cause) - _CAUSES_MAX
    return [*lines, f"causes_left_out: {left_out}"] if left_out > 0 else lines


def _in_words(failure: Failure) -> str:
    known = {"exit code": failure.exit_code, "signal": failure.signal, "item": failure.item}
    words = [f"{name} {value}" for name, value in known.items() if value is not None]
    return ", ".join([_one_line(failure.code), *words])


def _one_line(text: str) -> str:
    """The end of `text` on one line."""
    return " ".join(text.split())[-_LINE_CHARS_MAX:]


# ---- the frame


def _failures_text(granted: list[_Granted]) -> str:
    envelopes = _envelopes(granted)
    left_out = len(granted) - len(envelopes)
    return "\n\n".join([*envelopes, f"older_failed_sources_left_out: {left_out}"] if left_out else envelopes)


def _envelopes(granted: list[_Granted]) -> list[str]:
    return [_envelope(draft, share) for draft, share in granted if share is not None]


def _envelope(draft: _Draft, share: int) -> str:
    included, truncation = head_tail(draft.payload, share)
    if draft.left_out:
        truncation = Truncation(
            True,
            "head_tail",
            original_chars=truncation.original_chars + draft.left_out,
            included_chars=truncation.included_chars,
            dropped_chars=truncation.dropped_chars + draft.left_out,
        )
    return "\n".join(
        [
            draft.header,
            *_lines({"policy_version": POLICY_VERSION, "untrusted_data": True, **draft.fields}),
            *("truncation:", *_lines(msgspec.structs.asdict(truncation), "  ")),
            *("content:", BEGIN, included, END),
        ]
    )


def _lines(fields: dict[str, object], indent: str = "") -> list[str]:
    return [f"{indent}{key}: {_scalar(value)}" for key, value in fields.items()]


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _timestamp(value) if isinstance(value, datetime) else str(value)


def _timestamp(at: datetime) -> str:
    """ISO 8601 in UTC with milliseconds. A time without a zone is UTC: the zone of the host must not matter."""
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return aware.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
