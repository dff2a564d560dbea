"""`service.notices`: what was sent, what waits and what was given up; sending it; and the rules of a project."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from mulligan.core.model.text.durations import parse_duration
from mulligan.core.model.workflow import NOTICE_KINDS, NoticeKind, NoticeRule
from mulligan.errors import InputInvalid, MulliganError, NotFound, Refused
from mulligan.language.text.suggestions import did_you_mean
from mulligan.ports import Document, NoticeRecord, NoticeStatus, WaitingTarget
from mulligan.service.home_names import CONFIG_VARIABLE, HOOKS_MARK
from mulligan.service.home_names import SERVER_CONFIG as FILE
from mulligan.service.server.combined_structs import combine
from mulligan.service.server.notices.targets import check_name
from mulligan.service.server.notices.worker_trouble import announce_troubles
from mulligan.service.server.server_config import ServerConfig, find_config

if TYPE_CHECKING:
    from mulligan.history.notice_text import NoticeBody
    from mulligan.service.runs.stored.run_reader import RunReader
    from mulligan.service.server.notices.messages import Button
    from mulligan.service.server.notices.sender import Sender

# What `--notify TARGET` means: all but `late`, which needs a time.
USUAL_KINDS: tuple[NoticeKind, ...] = ("needs_person", "failed", "degraded", "completed", "recovered")
HOOKS = "hooks"
RULES_MAX, TARGETS_MAX = 50, 20
# What the rules of a server may name beside events of runs: a worker takes no more tasks, or does so again.
HookKind = Literal["needs_person", "failed", "degraded", "completed", "recovered", "late", "worker_trouble"]
WORKER_TROUBLE: Final = "worker_trouble"
# How often workers are looked at.
WORKERS_EVERY = timedelta(seconds=10)
# How long `notices send` and `notices test` wait for targets.
SEND_SECONDS_MAX = 60.0
# How long notices that were sent or given up are kept, and how often old ones are looked for.
KEEP, REMOVE_EVERY = timedelta(days=30), timedelta(hours=1)
# What is due later than this is found by looking again.
NEAR = timedelta(seconds=1)


class NoticeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A notice of the outbox, for a list."""

    id: int
    key: str
    target: str
    event: str
    title: str
    run_id: int | None
    project: str
    status: NoticeStatus
    created_at: datetime
    attempts: int
    # When it is sent next; for one that was sent or given up, when that was.
    due_at: datetime | None
    # What the last attempt said, or why it waits.
    reason: str


class NoticePage(msgspec.Struct, frozen=True):
    """A page of notices, the newest first; `next` is the id to ask for the next page with."""

    notices: list[NoticeLine]
    next: int | None = None


class SentNotices(msgspec.Struct, frozen=True):
    """What `notices send` has done: how many were sent, and how many still wait."""

    sent: int
    waiting: int


class TestResult(msgspec.Struct, frozen=True):
    """What came of a test message."""

    target: str
    is_sent: bool
    reason: str = ""


class HookRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule for all workflows of a project: which events go to which targets."""

    on: tuple[HookKind, ...]
    to: tuple[str, ...]
    # With `late`: how long a run may last, such as "2h".
    late_after: str | None = None


class Hooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of a project. They count for runs that are started from now on."""

    rules: tuple[HookRule, ...] = ()
    # Grows with every change; 0 before the first.
    revision: int = 0
    updated_by: str = ""
    updated_at: datetime | None = None


class UnknownTarget(NotFound):
    """The configuration has no such target."""

    code = "notices.unknown_target"


class Notices:
    """The verbs about notices, over one home."""

    def __init__(self, reader: RunReader, by: str, project: str | None = "") -> None:
        self._reader = reader
        self._by = by
        # None for all projects.
        self._project = project
        self._removed_at = datetime.min.replace(tzinfo=UTC)

    # -- reading -----------------------------------------------------------------------------------------------------

    def page(
        self,
        *,
        status: NoticeStatus | None = None,
        run_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> NoticePage:
        """The newest notices, with ids below `before`."""
        if not 1 <= limit <= 1000:
            raise InputInvalid(f"a page has 1 to 1000 notices, not {limit}")
        if not self._reader.home.is_there:
            return NoticePage([])
        found = self._outbox.notices(
            status=status, project=self._project, run_id=run_id, before=before, limit=limit + 1
        )
        lines = [notice_line(notice) for notice in found[:limit]]
        return NoticePage(lines, lines[-1].id if len(found) > limit else None)

    @property
    def _outbox(self) -> Any:
        return self._reader.store.server_records

    # -- sending -----------------------------------------------------------------------------------------------------

    @cached_property
    def sender(self) -> Sender:
        """The sender of this process. It loads threads and libraries, so it is made when something is sent."""
        from mulligan.service.server.notices import sender

        return sender.Sender(self._outbox, sender.send, url=self.config().server.public_url, buttons=self._make_buttons)

    def _make_buttons(self, notice: NoticeRecord, body: NoticeBody) -> tuple[Button, ...]:
        from mulligan.service.server.notices.buttons import make_buttons

        return make_buttons(self.config(), notice, body)

    def config(self) -> ServerConfig:
        """The configuration with the targets. It is read again each time, so that a change counts at once."""
        return find_config(self._reader.home.folder)

    def send_due(self, now: datetime) -> datetime | None:
        """Send what is due; when to call again if that is near. Otherwise None: more may be written at any time."""
        if not self._reader.home.is_there:
            return None
        if now - self._removed_at >= REMOVE_EVERY:
            self._outbox.remove_notices(now - KEEP)
            self._removed_at = now
        due = self.next_due(now)
        # What is being sent is claimed, so it is due later; its results are written all the same.
        is_sending = "sender" in self.__dict__ and self.sender.is_sending
        if is_sending or (due is not None and due <= now):
            due = self.sender.send_due(self.config().targets, now)
        return due if due is not None and due - now < NEAR else None

    def next_due(self, now: datetime) -> datetime | None:
        """When something may be sent next; None if nothing waits."""
        waiting: list[WaitingTarget] = self._outbox.waiting_targets(now)
        return min((one.next_at for one in waiting), default=None)

    def send_all(self) -> SentNotices:
        """Send what waits, also what would be tried later, and wait for it."""
        if not self._reader.home.is_there:
            return SentNotices(0, 0)
        self.sender.finish(self.config().targets, _now, SEND_SECONDS_MAX, is_all_due=True)
        return SentNotices(self.sender.sent, len(self._outbox.notices(status="waiting", limit=1000)))

    def close(self, *, is_hurried: bool = False) -> None:
        """Wait for what is being sent; in a hurry, for one message per target. What is not written is sent again."""
        if "sender" in self.__dict__:
            with suppress(MulliganError):
                self.sender.close(_now(), is_hurried=is_hurried)

    def test(self, target: str) -> TestResult:
        """Send a test message to a target, now and once."""
        if self._reader.home.is_remote:
            raise Refused(
                "the targets are in the configuration of the server, which is not read from here",
                hint=f"on its machine: mulligan notices test {target[:60]}, with its --home",
            )
        found = self.config()
        if target not in found.targets:
            raise self._unknown(target, found.targets)
        from mulligan.history import notice_text as text
        from mulligan.service.server.notices import messages, sender

        now = _now()
        sender.refuse_missing_library(found.targets[target])
        body = text.NoticeBody(
            event="test", title=f"a test of target '{target}' by {self._by or 'mulligan'}", at=now, details=(_TEST,)
        )
        notice = NoticeRecord(
            key=f"test_{os.urandom(16).hex()}", target=target, body=msgspec.json.encode(body), created_at=now
        )
        try:
            delivery = sender.send(found.targets[target], messages.make_message(notice, found.server.public_url), now)
        except InputInvalid as error:
            return TestResult(target, is_sent=False, reason=error.message)
        return TestResult(target, is_sent=not delivery.problem, reason=delivery.problem)

    def _unknown(self, target: str, targets: Iterable[str]) -> UnknownTarget:
        known = ", ".join(sorted(targets))
        hint = (
            did_you_mean(target, targets)
            or f"add [targets.{target}] to '{os.environ.get(CONFIG_VARIABLE) or self._reader.home.folder / FILE}'"
        )
        there = f"it has {known}" if known else "it has none"
        return UnknownTarget(f"target '{target[:60]}' is not in the configuration: {there}", hint=hint)

    def unknown_targets(self, rules: Iterable[NoticeRule]) -> list[str]:
        """The targets of these rules that the configuration does not know. None in a shared store: a server knows."""
        names = dict.fromkeys(name for rule in rules for name in rule.to)
        if not names or self._reader.home.store_url:
            return []
        found = self.config().targets
        return [name for name in names if name not in found]

    # -- the rules of a project --------------------------------------------------------------------------------------

    def hooks(self) -> Hooks:
        """The rules for all workflows of the project."""
        if not self._reader.home.is_there:
            return Hooks()
        document = self._outbox.document(self._project or "", HOOKS, HOOKS)
        return _hooks_of(document) if document is not None else Hooks()

    def set_hooks(self, rules: Sequence[HookRule], expected: int | None = None) -> Hooks:
        """Replace the rules of the project. `RevisionMismatch` if they are not at `expected`."""
        _rules_of_runs(rules)
        if self._project and any(WORKER_TROUBLE in rule.on for rule in rules):
            raise InputInvalid(
                f"'{WORKER_TROUBLE}' is not an event of a project: workers run tasks of all of them",
                hint="set it with a token that is for no project",
            )
        if not self._reader.home.store_url:
            (self._reader.home.folder / HOOKS_MARK).touch(0o600)
        document = Document(
            kind=HOOKS,
            name=HOOKS,
            data=msgspec.json.encode(tuple(rules)),
            updated_at=_now(),
            updated_by=self._by,
            project=self._project or "",
        )
        return _hooks_of(self._outbox.put_document(document, expected=expected))

    def rules_for_new_runs(self) -> tuple[NoticeRule, ...]:
        """The rules that are pinned with a run when it starts."""
        return _rules_of_runs(self.hooks().rules)

    # -- workers -----------------------------------------------------------------------------------------------------

    def announce_workers(self, now: datetime) -> datetime | None:
        """Write notices about workers that take no more tasks, or do so again. When to look next."""
        if self._reader.home.is_there:
            rules = (rule for rule in self.hooks().rules if WORKER_TROUBLE in rule.on)
            targets = tuple(dict.fromkeys(target for rule in rules for target in rule.to))
            if targets:
                announce_troubles(self._reader.store, targets, now, self._by)
        return now + WORKERS_EVERY


_TEST = "if you read this, notices reach you"


def _hooks_of(document: Document) -> Hooks:
    rules = msgspec.json.decode(document.data, type=tuple[HookRule, ...])
    return Hooks(rules, document.revision, document.updated_by, document.updated_at)


def _rules_of_runs(rules: Sequence[HookRule]) -> tuple[NoticeRule, ...]:
    """What the rules of a server say about runs. `InputInvalid` as below."""
    if len(rules) > RULES_MAX:
        raise InputInvalid(f"{len(rules)} rules are too many: there may be at most {RULES_MAX}")
    return tuple(rule for rule in map(_rule_of_runs, rules) if rule.on)


def _rule_of_runs(rule: HookRule) -> NoticeRule:
    """What the rule says about runs: without events if it is about workers alone. `InputInvalid` as below."""
    if not rule.on or not rule.to:
        raise InputInvalid("a rule says 'on' which events and 'to' which targets it sends")
    if len(rule.to) > TARGETS_MAX:
        raise InputInvalid(f"{len(rule.to)} targets are too many: a rule has at most {TARGETS_MAX}")
    for name in rule.to:
        check_name(name)
    if ("late" in rule.on) != (rule.late_after is not None):
        raise InputInvalid("'late' and 'late_after' belong together", hint='add both: "late_after": "2h"')
    seconds = None
    if rule.late_after is not None:
        try:
            seconds = parse_duration(rule.late_after)
        except ValueError:
            seconds = 0.0
        if not seconds:
            raise InputInvalid(f"'{rule.late_after[:40]}' is not a duration", hint="write it like 30m or 2h")
    kinds = tuple(kind for kind in rule.on if kind != WORKER_TROUBLE)
    return NoticeRule(on=kinds, to=rule.to, late_after=seconds)


def read_rules(rules: Sequence[HookRule]) -> tuple[NoticeRule, ...]:
    """The rules as a run has them. `InputInvalid` if they cannot be meant, or are too many."""
    if any(WORKER_TROUBLE in rule.on for rule in rules):
        raise InputInvalid(f"'{WORKER_TROUBLE}' is not an event of a run", hint="name it in the hooks of the server")
    return _rules_of_runs(rules)


def parse_notify(words: Sequence[str]) -> tuple[NoticeRule, ...]:
    """The rules of `--notify ops` and `--notify ops=failed,needs_person`."""
    return tuple(_parse(word) for word in words)


def _parse(word: str) -> NoticeRule:
    name, sign, given = word.partition("=")
    check_name(name)
    kinds = [kind.strip() for kind in given.split(",")] if sign else list(USUAL_KINDS)
    for kind in kinds:
        if kind == "late":
            raise InputInvalid(
                "'late' needs a time", hint="write it in the workflow: notify: [{on: late, late_after: 2h, to: ops}]"
            )
        if kind not in NOTICE_KINDS:
            hint = did_you_mean(kind, NOTICE_KINDS) or f"the events are {', '.join(USUAL_KINDS)}"
            raise InputInvalid(f"'{kind[:40]}' is not an event that is announced", hint=hint)
    return NoticeRule(on=tuple(kinds), to=(name,))  # type: ignore[arg-type]


def unknown_target_note(name: str) -> str:
    """What is said when a run starts whose notices have nowhere to go yet."""
    return (
        f"target '{name}' is not in the configuration; notices to it are kept and sent once [targets.{name}] "
        f"is in {FILE}"
    )


def notice_line(notice: NoticeRecord) -> NoticeLine:
    body = _summary(notice.body)
    return combine(NoticeLine, notice, event=body.event, title=body.title, run_id=notice.run_id or None)


class _Summary(msgspec.Struct):
    event: str = ""
    title: str = ""


def _summary(body: bytes) -> _Summary:
    try:
        return msgspec.json.decode(body, type=_Summary)
    except msgspec.MsgspecError:
        return _Summary(title="(cannot be read)")


def _now() -> datetime:
    return datetime.now(UTC)
