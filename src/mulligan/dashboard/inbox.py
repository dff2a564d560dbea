"""What waits for a person: the list by error, and everything that helps to decide about one entry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import msgspec

from mulligan.api.http.paging import Count, decode_cursor, encode_cursor
from mulligan.api.http.routing import Answer, Call, Query, Route
from mulligan.core.state.state import Suggestion
from mulligan.dashboard.components.parts import action_button
from mulligan.dashboard.components.shell import empty, heading, may, page, page_route, shortened
from mulligan.errors import UnknownRun, UnknownStep
from mulligan.service.decisions.earlier_decisions import EarlierDecision
from mulligan.service.decisions.inbox import GivenAnswer, LogTail, PendingDetails
from mulligan.service.decisions.pending import PendingEntry, describe_earlier_run
from mulligan.service.rendering.descriptions import message_lines, summarize_failure
from mulligan.service.rendering.formatting import NOT_APPLIED, PARKED_FOR, describe_suggested_limits, pluralize
from mulligan.service.rendering.json_output import to_json
from mulligan.service.rendering.page import ui
from mulligan.service.rendering.page.failures import rungs_list
from mulligan.service.rendering.page.markup import Html, element, join_html
from mulligan.service.rendering.page.styles import time_element

# How many entries a page has.
ENTRIES_MAX = 200
# The kinds in their order, with their titles; and since when an entry of each waits.
_DIFF_TONES = {"+": "added", "-": "removed"}
_KINDS = {"parked": "Parked steps", "approval": "Approvals", "paused": "Pauses"}
_SINCE = {"parked": "parked", "approval": "asked", "paused": "paused"}
# How many characters of what a handler returned are shown.
_OUTPUT_MAX = 2_000


class InboxQuery(Query, frozen=True):
    """The entry that is shown, by default the first; and the page of the list."""

    run: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    step: str = ""
    cursor: str = ""


def show_inbox(call: Call) -> Answer:
    asked: InboxQuery = call.query
    found = call.service.decisions.pending_page(after=decode_cursor(asked.cursor, tuple[Count, str]), limit=ENTRIES_MAX)
    groups = _grouped(found.entries)
    first = _key(groups[0].entries[0]) if groups else None
    shown = _Shown(asked.run, asked.step) if asked.run is not None else first
    content: object
    if not found.entries and shown is None:
        words = "Steps that no rule helped, approvals and pauses come here."
        content = empty("Nothing waits for a person.", ui.note(words))
    else:
        parts = (_list(call, groups, shown, asked.cursor), _pane(call, found.entries, shown))
        content = element("div", *parts, class_="inbox")
    return page(
        call,
        f"Inbox ({found.total})" if found.total else "Inbox",
        heading("Inbox", over=_summary(found.entries, found.total)),
        element("div", content, id="inbox", data_decides=may(call, "decide")),
        _more(found.next, found.total, len(found.entries)),
        section="inbox",
        live="pending",
        modules=("inbox.js",),
        styles=("inbox.css",),
    )


class _Shown(NamedTuple):
    """The entry that is shown in full. A run that is paused as a whole has no step."""

    run_id: int
    step: str


def _key(entry: PendingEntry) -> _Shown:
    return _Shown(entry.run_id, entry.step or "")


# -- the list --------------------------------------------------------------------------------------------------------


class _Group(NamedTuple):
    """Entries with the same error in the same workflow; approvals and pauses of a workflow."""

    kind: str
    workflow: str
    error: str
    entries: Sequence[PendingEntry]


def _grouped(entries: Sequence[PendingEntry]) -> list[_Group]:
    """Parked steps first; in each kind the largest group first, in each group the oldest entry first."""

    def about(one: PendingEntry) -> tuple[int, str, str]:
        return [*_KINDS].index(one.kind), one.workflow or "", _error(one)

    found = [
        _Group([*_KINDS][kind], workflow, error, [*some])
        for (kind, workflow, error), some in groupby(sorted(entries, key=about), key=about)
    ]
    return sorted(found, key=lambda one: ([*_KINDS].index(one.kind), -len(one.entries)))


def _error(entry: PendingEntry) -> str:
    """`EXIT_NONZERO 74`: the exit code says more than the code."""
    failure = entry.failure
    if failure is None:
        return ""
    return str(failure["code"]) if failure["exit_code"] is None else f"{failure['code']} {failure['exit_code']}"


def _summary(entries: Sequence[PendingEntry], total: int) -> str:
    """`3 parked steps, 1 approval`."""
    if total > len(entries):
        return f"{total:,} wait for a person"
    counts = {kind: sum(one.kind == kind for one in entries) for kind in _KINDS}
    words = {"parked": "parked step", "approval": "approval", "paused": "pause"}
    return ", ".join(pluralize(counts[kind], words[kind]) for kind in _KINDS if counts[kind])


def _list(call: Call, groups: Sequence[_Group], shown: _Shown | None, cursor: str) -> Html:
    decides = may(call, "decide")
    sections = []
    for kind, some in groupby(groups, key=lambda one: one.kind):
        sections.append(element("h2", _KINDS[kind]))
        sections += [_group(one, shown, cursor, decides=decides) for one in some]
    return element("div", join_html(sections), class_="entries", id="entries", role="region", aria_label="Entries")


def _group(group: _Group, shown: _Shown | None, cursor: str, *, decides: bool) -> Html:
    name = quote(f"group-{group.kind}-{group.workflow}-{group.error}", safe="")
    title = join_html(
        [
            element("b", group.workflow or "unreadable"),
            element("code", group.error) if group.error else "",
            element("span", len(group.entries), class_="n") if len(group.entries) > 1 else "",
        ],
        " ",
    )
    box = ""
    if decides and group.kind != "paused" and len(group.entries) > 1:
        label = f"Select all of {group.workflow} {group.error}".strip()
        box = element("input", type="checkbox", class_="all", aria_label=label)
    rows = join_html(_row(one, shown, cursor, decides=decides) for one in group.entries)
    head = element("h3", box, title)
    return element("section", head, element("ul", rows, data_rows=True), class_="group", id=name)


def _row(entry: PendingEntry, shown: _Shown | None, cursor: str, *, decides: bool) -> Html:
    key = _key(entry)
    link = element(
        "a",
        entry.name or entry.step or f"run {entry.run_id}",
        href=ui.link_with("/inbox", run=key.run_id, step=key.step, cursor=cursor),
        aria_current="true" if key == shown else None,
    )
    box = ""
    if decides and entry.kind != "paused" and not entry.error:
        label = f"Select {entry.name} of run {entry.run_id}"
        box = element("input", type="checkbox", class_="one", aria_label=label)
    return element(
        "li",
        link,
        box,
        ui.muted(f"run {entry.run_id}" if entry.step else "whole run"),
        element("span", time_element(entry.since) if entry.since else "", class_="time"),
        id=quote(f"entry-{entry.run_id}-{entry.step or ''}", safe=""),
        data_run=entry.run_id,
        data_step=entry.step or None,
        data_name=entry.name,
        data_kind=entry.kind,
        data_attempt=entry.attempt,
        data_current=key == shown,
    )


def _more(after: tuple[int, str] | None, total: int, shown: int) -> Html:
    if after is None:
        return Html("")
    following = ui.button_link("Next", ui.link_with("/inbox", cursor=encode_cursor(after)))
    return element("p", f"{shown:,} of {total:,} are listed, the oldest runs first. ", following, class_="note more")


# -- one entry -------------------------------------------------------------------------------------------------------


def _pane(call: Call, entries: Sequence[PendingEntry], shown: _Shown | None) -> Html:
    if shown is None:
        return element("section", id="detail", class_="detail")
    inside = join_html(_details(call, entries, shown))
    label = f"{shown.step or 'run'} of run {shown.run_id}"
    # An entry that the list does not have on this page can be decided all the same.
    about = {"data_run": shown.run_id, "data_step": shown.step or None}
    return element("section", inside, id="detail", class_="detail", tabindex="-1", aria_label=label, **about)


def _details(call: Call, entries: Sequence[PendingEntry], shown: _Shown) -> Iterator[object]:
    if not shown.step:
        entry = next((one for one in entries if _key(one) == shown), None)
        yield from _paused_run(call, shown.run_id, entry)
        return
    try:
        details = call.service.decisions.details(shown.run_id, shown.step)
    except (UnknownRun, UnknownStep) as error:
        yield element("p", f"{error.message}: it may have been removed.", class_="sentence")
        return
    entry = details.entry
    if entry is None:
        yield from _answered(details)
        return
    yield _head(call, entry)
    if entry.error:
        yield element("p", f"The run cannot be read: {entry.error}", class_="problem")
    elif entry.kind == "approval":
        yield element("p", shortened(entry.message or "The step asks for an approval."), class_="asked")
        yield from _evidence(entry)
    elif entry.kind == "paused":
        yield element("p", _paused_words(entry), class_="sentence")
    else:
        yield from _failure(entry, details.log)
        yield from _agents_part(call, entry)
        yield from _tried(entry)
        yield from _earlier(entry, details.decisions)
    yield from _where(entry)


def _evidence(entry: PendingEntry) -> Iterator[object]:
    """What is shown with the question. All of it is text of the run: nothing of it becomes part of the page."""
    for one in entry.evidence:
        yield element("h3", one.name)
        if one.kind == "table":
            yield from map(ui.note, one.lines)
            yield ui.table(one.columns, [ui.Row(row, {}) for row in one.rows], label=one.name)
        elif one.kind == "diff":
            marked = (element("span", f"{line}\n", class_=_DIFF_TONES.get(line[:1])) for line in one.lines)
            yield element("pre", *marked, tabindex="0", class_="diff", aria_label=one.name)
        else:
            yield ui.text_block("\n".join(one.lines), aria_label=one.name)
        if one.image:
            src = ui.path_to("runs", entry.run_id, "images", one.image)
            yield element("img", src=src, alt=one.name, loading="lazy", class_="picture")
        yield ui.left_out(one.left_out, f"more {'rows' if one.kind == 'table' else 'lines'}")


def _head(call: Call, entry: PendingEntry) -> Html:
    """What waits, since when, what happens without a decision, and the buttons."""
    workflow = ui.link(entry.workflow, "workflows", entry.workflow or "")
    where: list[object] = [ui.link(f"run {entry.run_id}", "runs", entry.run_id), " of ", workflow]
    if entry.parent_run_id:
        where += [", a child of ", ui.link(f"run {entry.parent_run_id}", "runs", entry.parent_run_id)]
    since: list[object] = []
    if entry.since:
        since = [f", {_SINCE[entry.kind]} ", time_element(entry.since)]
    if entry.attempt and entry.kind == "parked":
        since.append(f", after attempt {entry.attempt}")
    if entry.due:
        since += ["; without a decision: ", element("b", entry.default or "fail"), " ", time_element(entry.due)]
    step = ui.step_link(entry.run_id, entry.step or "", entry.name)
    title = element("div", element("h2", step), element("p", *where, *since, class_="muted"))
    buttons = "" if entry.error else _buttons(call, entry)
    about = {"data_kind": entry.kind, "data_attempt": entry.attempt, "data_step": entry.step, "data_name": entry.name}
    return element("header", title, element("div", buttons, class_="actions"), class_="detail-head", **about)


def _buttons(call: Call, entry: PendingEntry) -> Html:
    if entry.kind == "paused":
        return _resume(call, entry.run_id, entry.step or "") if may(call, "run") else Html("")
    if not may(call, "decide"):
        return Html("")
    first, second = (("approve", "Approve", "a"), ("fail", "Refuse", "f"))
    if entry.kind == "parked":
        first, second = (("retry", "Retry", "r"), ("fail", "Let it fail", "f"))
    return join_html(
        element("button", label, " ", element("kbd", key), type="button", class_=tone or None, data_decide=verdict)
        for (verdict, label, key), tone in ((first, "primary"), (second, ""))
    )


def _resume(call: Call, run_id: int, step: str) -> Html:
    title = f"Resume '{step}' of run {run_id}" if step else f"Resume run {run_id}"
    more: dict[str, Any] = {"body": {"step": step} if step else {}, "reason": "optional", "preview": True}
    return action_button("Resume", f"runs/{run_id}:resume", title, done="resumed", kind="primary", **more)


def _failure(entry: PendingEntry, log: LogTail | None) -> Iterator[object]:
    failure = entry.failure
    if failure is None:
        return
    yield element("p", ui.status("failed", summarize_failure(failure)), class_="failure")
    message = message_lines(failure)
    if log is None and len(message) > 1:
        yield ui.text_block("\n".join(message[-40:]), aria_label="the message of the failure")
    if log is not None:
        before = "the end of " if log.is_cut else ""
        href = f"{ui.link_with(ui.path_to('runs', entry.run_id, 'steps', entry.step), attempt=entry.attempt or 1)}#logs"
        caption = element("figcaption", before, log.stream, ", ", element("a", "whole log", href=href))
        about = {"tabindex": "0", "role": "region", "aria_label": log.stream}
        yield element("figure", caption, element("div", element("pre", log.text), class_="log", **about))


def _agents_part(call: Call, entry: PendingEntry) -> Iterator[object]:
    """What the triager suggests, and why that was not applied. An agent wrote it: it is shown as text."""
    found = entry.suggestion
    if found is None:
        return
    yield element("h3", f"What agent '{found.agent}' suggests")
    why = NOT_APPLIED.get(found.why_not, found.why_not)
    detail = f" ({found.detail})" if found.detail else ""
    if found.verdict is None:
        yield element("p", f"It gave no answer: {why}{detail}.", class_="sentence suggestion")
        return
    sure = f", confidence {found.confidence:.0%}" if found.confidence is not None else ""
    asks = describe_suggested_limits(found)
    accept = _accept(entry, found) if may(call, "decide") else ""
    yield element(
        "div",
        element("p", element("b", _VERDICTS[found.verdict]), asks, sure, " ", accept),
        element("p", element("q", found.reason)),
        ui.note(f"Not applied: {why}{detail}."),
        class_="suggestion",
    )
    if found.rule:
        yield element("figure", element("figcaption", "a rule that it proposes"), ui.text_block(found.rule))


def _accept(entry: PendingEntry, found: Suggestion) -> Html:
    """One button: the ordinary decision, as the agent suggests it."""
    decision = {
        "run_id": entry.run_id,
        "step": entry.step,
        "verdict": found.verdict,
        "reason": f"agreed with agent '{found.agent}': {found.reason}",
        "attempt": entry.attempt,
        **({"memory": f"{found.memory}B"} if found.memory is not None else {}),
        **({"timeout": found.timeout} if found.timeout is not None else {}),
    }
    text = ("Accept the suggestion ", element("kbd", "y"))
    return element("button", *text, type="button", class_="primary", data_accept=json.dumps(decision))


def _tried(entry: PendingEntry) -> Iterator[object]:
    """The rungs of the ladder, and why none helped."""
    yield element("h3", "What was tried")
    why = PARKED_FOR.get(entry.parked_for or "", "no rule helped")
    rules = ("passed", why) if entry.rules else ("absent", "the step has no rules")
    handler = ("tried", entry.handler) if entry.handler else ("absent", "the step has no handler")
    yield rungs_list((("Retry", *rules), ("Handle", *handler), ("Triage", "waits", "waits for a decision")))
    if entry.rules:
        heads = (ui.Column("rule", "dim"), "looks for", "why it granted no retry")
        yield ui.table(heads, (ui.row(one.rule, one.looks_for, one.reason) for one in entry.rules), label="Rules")
    yield from _handler_output(entry.handler_output)


def _handler_output(output: Any) -> Iterator[object]:
    """What the handler returned; for an agent that is what it suggests, with its confidence if it gave one."""
    if output is None or output == "" or output == {}:
        return
    confidence = output.get("confidence") if isinstance(output, dict) else None
    sure = ""
    if isinstance(confidence, int | float) and not isinstance(confidence, bool) and 0 <= confidence <= 1:
        sure = f", confidence {confidence:.0%}"
    text = (
        output
        if isinstance(output, str)
        else msgspec.json.format(msgspec.json.encode(to_json(output)), indent=2).decode()
    )
    cut = text if len(text) <= _OUTPUT_MAX else f"{text[:_OUTPUT_MAX]} …"
    yield element("figure", element("figcaption", f"what its handler returned{sure}"), ui.text_block(cut))


def _earlier(entry: PendingEntry, decisions: Sequence[EarlierDecision]) -> Iterator[object]:
    """What was decided about the same error, and how it ended."""
    yield element("h3", "Decided earlier about the same error")
    if not decisions and not entry.earlier:
        yield ui.note("Nobody has decided about this error before.")
        return
    for about, title in (("same_step", ""), ("same_error", "In other steps")):
        some = [one for one in decisions if one.about == about]
        if some and title:
            yield element("h4", title)
        if some:
            yield element("ul", *(_decision(one, with_step=about != "same_step") for one in some), class_="past")
    if not any(one.about == "same_step" for one in decisions) and entry.earlier:
        yield element("h4", "This step in earlier runs")
        # `run 7: …` with a link.
        lines = ((one.run_id, describe_earlier_run(one).partition(": ")[2]) for one in entry.earlier)
        runs = (join_html([ui.link(f"run {run_id}", "runs", run_id), f": {text}"]) for run_id, text in lines)
        yield ui.bullets(runs, "past")


def _decision(one: EarlierDecision, *, with_step: bool) -> Html:
    tone = {True: "good", False: "bad", None: "idle"}[one.worked]
    where = ui.step_link(one.run_id, one.step, f"run {one.run_id}")
    who = "nobody in time" if one.is_default else one.by or "somebody"
    place = f", {one.step} of {one.workflow}" if with_step else ""
    return element(
        "li",
        element("p", element("b", one.verdict), " by ", who, ", ", time_element(one.at), " (", where, place, ")"),
        "" if one.is_default or not one.reason else element("q", one.reason),
        element("p", ui.status("", one.ended, tone=tone)),
    )


def _where(entry: PendingEntry) -> Iterator[object]:
    if entry.workspace:
        worktree, branch = entry.workspace.get("worktree"), entry.workspace.get("branch")
        gone = " (which is gone)" if entry.workspace.get("worktree_exists") is False else ""
        where = ("Its work is in ", element("code", worktree), f"{gone} on branch ", element("code", branch), ".")
        yield element("p", *where)


# -- pauses, and what does not wait any more -------------------------------------------------------------------------


def _paused_words(entry: PendingEntry) -> str:
    by = f" by {entry.paused_by}" if entry.paused_by else ""
    return f"Paused{by}{f': {shortened(entry.message)}' if entry.message else ''}"


def _paused_run(call: Call, run_id: int, entry: PendingEntry | None) -> Iterator[object]:
    title = element("h2", ui.link(f"Run {run_id}", "runs", run_id))
    if entry is None:
        yield element("header", element("div", title), class_="detail-head")
        yield element("p", "This run is not paused any more.", class_="sentence")
        return
    since: list[object] = [f"{entry.workflow}, paused "]
    since += [time_element(entry.since)] if entry.since else []
    button = _resume(call, run_id, "") if may(call, "run") else ""
    head = element("div", title, element("p", *since, class_="muted"))
    yield element("header", head, element("div", button, class_="actions"), class_="detail-head")
    yield element("p", _paused_words(entry), class_="sentence")


_VERDICTS = {"retry": "retry", "fail": "let it fail", "approve": "approved", "refuse": "refused"}


def _answered(details: PendingDetails) -> Iterator[object]:
    """For whoever looks at something that somebody else has answered meanwhile."""
    step = ui.step_link(details.run_id, details.step, details.name)
    run = ui.link(f"run {details.run_id}", "runs", details.run_id)
    head = element("div", element("h2", step), element("p", run, class_="muted"))
    yield element("header", head, class_="detail-head")
    answer: GivenAnswer | None = details.answer
    if answer is None:
        yield element("p", "This step does not wait for a person any more.", class_="sentence")
        return
    who = f" by {answer.by}" if answer.by else ""
    verdict = element("b", _VERDICTS.get(answer.verdict, answer.verdict))
    when: list[object] = [", ", time_element(answer.at)] if answer.at else []
    yield element("p", "Decided: ", verdict, who, *when, ".", class_="sentence")
    if answer.reason:
        yield element("p", element("q", answer.reason))


def show_image(call: Call) -> Answer:
    """A picture that the run refers to. Only an element of a page shows it: opened by itself it is a download."""
    found = call.service.details.image(int(call.path["run_id"]), call.path["sha256"])
    headers = {"ETag": f'"{found.sha256}"', "Content-Disposition": "attachment"}
    return Answer(found.data, headers=headers, media=found.media)


ROUTES = (
    page_route("/inbox", show_inbox, "What waits for a person.", query=InboxQuery),
    Route("GET", "/runs/{run_id:int}/images/{sha256}", show_image, "read", "A PNG or JPEG of a run.", media="*/*"),
)
