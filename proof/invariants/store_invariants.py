"""Invariants of a store as a whole, which no single run's log can show.

Each is checked after every step: `promise(history, contents)`, where `contents` is what the store contains now and
`history` is what earlier checks have seen. Those at the bottom are checked at the end.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from urllib.parse import quote

from mulligan.core.model.events import (
    AttemptStarted,
    Entry,
    RunCompleted,
    RunFailed,
    RunLate,
    RunPaused,
    StepParked,
    TriageSuggested,
)
from mulligan.core.model.workflow import NoticeRule
from mulligan.core.state.state import State
from mulligan.core.state.transitions import RUN_ENDED
from proof.invariants.called_runs import CalledRuns
from proof.invariants.store_contents import BreakerRow, NoticeRow, RunRow, StoreContents, TaskKey, TaskRow


class StoreHistory:
    """What earlier checks have seen of leases, turns and messages."""

    def __init__(self) -> None:
        # Every lease that ever existed: task and holder by token, token by task.
        self.leases: dict[int, tuple[TaskKey, str]] = {}
        self.tokens: dict[tuple[TaskKey, int], int] = {}
        self.turns: dict[int, RunRow] = {}
        # Probes that were lost with their holders or their runs: the next lease is the probe.
        self.lost_probes: set[int | None] = set()
        # Messages whose senders wait for an answer; and those that were answered.
        self.asked: set[int] = set()
        self.fetched: set[int] = set()

    def record(self, contents: StoreContents) -> None:
        """Record the contents after they were checked."""
        for lease in contents.leases:
            self.leases[lease.number] = lease.key, lease.worker
            self.tokens[lease.key, lease.turn] = lease.number
        self.turns.update(contents.runs)
        self.lost_probes.update(breaker.probe for breaker in contents.breakers if is_probe_over(breaker, contents))
        self.asked.update(message.id for message in contents.messages if message.is_asking)
        self.asked -= self.fetched


# -- 1, 2, 4: turns, tokens, leases ----------------------------------------------------------------------------------


def promise_1_no_run_goes_back(history: StoreHistory, contents: StoreContents) -> None:
    for run_id, before in history.turns.items():
        now = contents.runs.get(run_id)
        if now is None:
            raise AssertionError(f"promise 1: run {run_id} was there, and is not")
        if (now.seq, now.round) < (before.seq, before.round):
            raise AssertionError(f"promise 1: run {run_id} was at event {before.seq}, and is at {now.seq}")


def promise_2_a_new_holder_has_a_new_fence(history: StoreHistory, contents: StoreContents) -> None:
    for run_id, before in history.turns.items():
        now = contents.runs[run_id]
        if now.fence < before.fence:
            raise AssertionError(f"promise 2: the fence of run {run_id} went back from {before.fence} to {now.fence}")
        if now.fence == before.fence and now.holder not in ("", before.holder):
            was = before.holder or "nobody"
            raise AssertionError(f"promise 2: the turn of run {run_id} went from {was} to {now.holder} with one fence")


def promise_2_no_token_is_used_twice(history: StoreHistory, contents: StoreContents) -> None:
    seen: dict[int, TaskRow] = {}
    for lease in contents.leases:
        if history.leases.get(lease.number, (lease.key, lease.worker)) != (lease.key, lease.worker):
            raise AssertionError(f"promise 2: the token {lease.number} of {lease} was another lease's before")
        if lease.number in seen:
            raise AssertionError(f"promise 2: the token {lease.number} is that of {seen[lease.number]} and of {lease}")
        seen[lease.number] = lease


def promise_2_a_round_belongs_to_one_call(above: CalledRuns, run_id: int, below: CalledRuns) -> None:
    """A further round of a child run was asked for by the attempt that it names, which ends as the round has ended.

    Checked when both have read all their messages.
    """
    for number, attempt in below.own_rounds.items():
        if above.asked.get((run_id, number), ("", 0))[1] != attempt:
            raise AssertionError(f"promise 2: no attempt {attempt} asked for round {number} of run {run_id}")
    for number, is_completed in below.own_ends.items():
        if above.is_completed.get((run_id, number), is_completed) != is_completed:
            raise AssertionError(f"promise 2: the attempt that called round {number} of run {run_id} ended otherwise")


def promise_4_no_attempt_is_leased_twice(history: StoreHistory, contents: StoreContents) -> None:
    """A lost or interrupted task is leased again only as another attempt, after the log says so."""
    for lease in contents.leases:
        before = history.tokens.get((lease.key, lease.turn), lease.number)
        if before != lease.number:
            raise AssertionError(f"promise 4: {lease} was leased with token {before}, and again with {lease.number}")


# -- 6: a run that is stopped stops what it has called ---------------------------------------------------------------


def promise_6_what_is_stopped_stops_its_children(parent: State, child: State, called: RunRow) -> None:
    """Checked when both have read all their messages."""
    place = parent.places.get(called.parent_place)
    is_asked = place is not None and (place.attempt, place.phase) == (called.parent_attempt, "stopping")
    if is_asked and child.run.status not in RUN_ENDED and child.run.stop is None:
        where = f"'{called.parent_place}' of run {called.parent_run_id}"
        raise AssertionError(f"promise 6: {where} was asked to end, and run {called.run_id}, which it calls, was not")


def promise_6_a_pause_goes_down_the_tree(parent: State, child: State, called: RunRow) -> None:
    """Also when it is lifted; checked when both have read all their messages. A stopping run is not paused."""
    above, below = parent.run, child.run
    is_open = RUN_ENDED.isdisjoint((above.status, below.status)) and above.stop is None and below.stop is None
    if is_open and above.status != below.status:
        caller = f"run {called.parent_run_id} is {above.status}"
        raise AssertionError(f"promise 6: {caller}, and run {called.run_id}, which it calls, is {below.status}")


# -- 7: nothing outlives its holder ----------------------------------------------------------------------------------


def promise_7_every_lease_has_a_holder(history: StoreHistory, contents: StoreContents) -> None:
    for lease in contents.leases:
        if lease.worker not in contents.workers:
            raise AssertionError(f"promise 7: {lease} is held by '{lease.worker}', which has expired")


def promise_7_every_turn_has_a_holder(history: StoreHistory, contents: StoreContents) -> None:
    for run in contents.runs.values():
        if run.holder and run.holder not in contents.workers:
            raise AssertionError(
                f"promise 7: the turn of run {run.run_id} is held by '{run.holder}', which has expired"
            )


def promise_7_nothing_is_left_of_a_round_that_is_over(history: StoreHistory, contents: StoreContents) -> None:
    """Except for a task that was leased while the end was decided, and that was asked to stop."""
    for task in contents.tasks:
        is_ending = bool(task.worker and task.is_stopping)
        if task.run_id not in contents.runs or (contents.runs[task.run_id].has_ended and not is_ending):
            raise AssertionError(f"promise 7: {task} is {'leased' if task.worker else 'queued'}, and the run is over")
    for run_id, kind, place, number in contents.timers:
        if run_id not in contents.runs or contents.runs[run_id].has_ended:
            raise AssertionError(f"promise 7: timer {kind} {number} of '{place}' is set, and run {run_id} is over")


def promise_7_one_lease_is_the_probe(history: StoreHistory, contents: StoreContents) -> None:
    """While the probe of a half-open breaker runs, no other task has passed it."""
    leases = {lease.number: lease for lease in contents.leases}
    for breaker in contents.breakers:
        if breaker.status != "half_open" or breaker.probe not in leases:
            continue
        if leases[breaker.probe].breaker != breaker.name:
            raise AssertionError(
                f"promise 7: the probe of '{breaker.name}' is {leases[breaker.probe]}, which is not its"
            )
        behind = [lease for lease in contents.leases if lease.breaker == breaker.name and lease.number > breaker.probe]
        if behind:
            raise AssertionError(f"promise 7: {behind[0]} has passed '{breaker.name}' while its probe is under way")


def is_probe_over(breaker: BreakerRow, contents: StoreContents) -> bool:
    return breaker.probe is not None and all(lease.number != breaker.probe for lease in contents.leases)


def promise_7_a_breaker_counts_its_probe(history: StoreHistory, contents: StoreContents) -> None:
    """The result of a probe counts. Only a probe that was lost with its holder or its run may be left."""
    for breaker in contents.breakers:
        if (
            breaker.probe in history.leases
            and breaker.probe not in history.lost_probes
            and is_probe_over(breaker, contents)
        ):
            (run_id, place, _), worker = history.leases[breaker.probe]
            if worker in contents.workers and not contents.runs[run_id].has_ended:
                raise AssertionError(
                    f"promise 7: the probe of '{breaker.name}', '{place}', is over, and does not count"
                )


def promise_7_only_what_is_half_open_is_probed(history: StoreHistory, contents: StoreContents) -> None:
    for breaker in contents.breakers:
        if (breaker.status == "half_open") != (breaker.probe is not None):
            raise AssertionError(f"promise 7: breaker '{breaker.name}' is {breaker.status} with probe {breaker.probe}")


# -- 10: every message is answered -----------------------------------------------------------------------------------


def promise_10_every_question_is_answered(history: StoreHistory, contents: StoreContents) -> None:
    """A message that asked is in an inbox, or has an answer, or its answer was fetched."""
    waiting = {message.id for message in contents.messages}
    lost = sorted(history.asked - history.fetched - waiting - contents.answers)
    if lost:
        raise AssertionError(f"promise 10: message {lost[0]} asked, was drained, and has no answer")


StorePromise = Callable[[StoreHistory, StoreContents], None]
STORE_PROMISES: tuple[StorePromise, ...] = (
    promise_1_no_run_goes_back,
    promise_2_a_new_holder_has_a_new_fence,
    promise_2_no_token_is_used_twice,
    promise_4_no_attempt_is_leased_twice,
    promise_7_every_lease_has_a_holder,
    promise_7_every_turn_has_a_holder,
    promise_7_nothing_is_left_of_a_round_that_is_over,
    promise_7_one_lease_is_the_probe,
    promise_7_only_what_is_half_open_is_probed,
    promise_7_a_breaker_counts_its_probe,
    promise_10_every_question_is_answered,
)


# -- at the end ------------------------------------------------------------------------------------------------------


def promise_7_dead_workers_are_expired(contents: StoreContents, living: Collection[str]) -> None:
    dead = sorted(contents.workers.keys() - set(living))
    if dead:
        raise AssertionError(f"promise 7: {', '.join(dead)} died, and were not expired")


def promise_7_no_worker_holds_a_finished_run(contents: StoreContents) -> None:
    for run in contents.runs.values():
        if run.has_ended and run.holder:
            raise AssertionError(f"promise 7: run {run.run_id} is over, and '{run.holder}' has its turn")


def promise_10_every_message_is_answered(contents: StoreContents) -> None:
    if contents.messages:
        runs = sorted(contents.run_ids_with_messages)
        raise AssertionError(f"promise 10: {len(contents.messages)} messages to runs {runs} were never read")


def promise_11_every_event_is_announced_once(
    log: Sequence[Entry], rules: Sequence[NoticeRule], notices: Sequence[NoticeRow]
) -> None:
    """Each event that a rule names has one notice for each target of the rule, and no notice is about anything else.

    Whether `recovered` is due, and which attempts ask for an approval, the log alone does not show. What a fork keeps
    was announced in the other run.
    """
    kept = getattr(log[0].fact, "forked_at", 0)
    wanted: dict[str, set[str]] = {}
    for rule in rules:
        for target in rule.to:
            wanted.setdefault(target, set()).update(rule.on)
    found = Counter((notice.seq, notice.target) for notice in notices)
    for (seq, target), count in found.items():
        if count > 1 or target not in wanted or seq <= kept or not isinstance(log[seq - 1].fact, _ANNOUNCED):
            raise AssertionError(f"promise 11: event {seq} has {count} notices for '{target}'")
    for entry in log[kept:]:
        kinds = _kinds_of(entry.fact)
        late = {target for rule in rules if rule.late_after == getattr(entry.fact, "after", 0) for target in rule.to}
        for target, named in wanted.items():
            is_due = target in late if isinstance(entry.fact, RunLate) else bool(kinds & named)
            if is_due and (entry.seq, target) not in found:
                raise AssertionError(f"promise 11: event {entry.seq} has no notice for '{target}'")


_ANNOUNCED = (RunCompleted, RunFailed, RunLate, RunPaused, StepParked, TriageSuggested, AttemptStarted)


def _kinds_of(fact: object) -> set[str]:
    if isinstance(fact, RunCompleted):
        return {"completed", "degraded", "recovered"} if fact.degraded else {"completed"}
    if isinstance(fact, RunFailed):
        return {"failed"}
    asks = isinstance(fact, TriageSuggested) or (isinstance(fact, StepParked) and not fact.agent)
    return {"needs_person"} if asks else set()


def promise_9_no_secret_is_kept(contents: Iterable[bytes], secret: str) -> None:
    """A secret is not stored as it is, nor as base64, nor URL-encoded. The message does not repeat it."""
    plain = secret.encode()
    forms = {"as it is": plain, "as base64": b64encode(plain), "as a URL has it": quote(secret, safe="").encode()}
    kept = list(contents)
    whole = b"\n".join(kept)
    for how, form in forms.items():
        if form in whole:
            size = next(len(data) for data in kept if form in data)
            raise AssertionError(f"promise 9: the store keeps a secret, {how}, in {size} bytes of its contents")
