"""The notices of a turn as records of the outbox, which its commit writes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.model.events import Entry
from mulligan.core.notices.due_notices import due_notices
from mulligan.core.state.state import State
from mulligan.history.notice_text import notice_body
from mulligan.ports import NoticeRecord

_encode = msgspec.json.Encoder().encode


def notice_records(state: State, entries: Sequence[Entry], project: str) -> list[NoticeRecord]:
    """The notices of a turn. They are due at once."""
    return [
        NoticeRecord(
            key=notice.key,
            target=notice.target,
            body=_encode(notice_body(state, notice)),
            created_at=notice.entry.at,
            run_id=state.run.run_id,
            project=project,
            due_at=notice.entry.at,
        )
        for notice in due_notices(state, entries)
    ]
