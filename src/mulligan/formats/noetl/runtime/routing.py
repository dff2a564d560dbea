"""Decide which steps follow: by the cases, then by the arcs of `next`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mulligan import StepError
from mulligan.formats.noetl.runtime.context import Context
from mulligan.formats.noetl.runtime.credentials import invalid_input
from mulligan.formats.noetl.runtime.policy import Decision, seconds
from mulligan.formats.noetl.runtime.templates import holds, render_text, render_value
from mulligan.formats.noetl.runtime.tools.paging import CHANGEABLE, collect_into, collection_name
from mulligan.formats.noetl.runtime.tools.sinks import write_sinks

# The events after a call, in this order. The first that leads to a step counts.
AFTER_SUCCESS = ("call.done", "step.exit")
AFTER_LOOP = ("loop.done", "call.done", "step.exit")
AFTER_FAILURE = ("call.error", "call.done", "step.exit")
_ENTER = "step.enter"
# What the documents of NoETL call the events that arcs are evaluated for; no NoETL ever emitted those.
_OTHER_NAMES = {"call.done": "step.done", "loop.done": "step.done", "call.error": "step.failed"}
# The keys of an arc with arguments for its target, in the words of all dialects.
_ARGUMENTS = ("args", "input", "data")


class Routes:
    """The cases and arcs of one step, evaluated when its outcome is known."""

    def __init__(self, context: Context, cases: list[dict[str, Any]] | None, following: dict[str, Any] | None) -> None:
        self._context = context
        self._cases = cases or []
        self._next = following or {}
        self._walks_pages = any("next_call" in _page_rule(case) for case in self._cases)

    def enter(self) -> None:
        """Set what the cases about `step.enter` set, before the tool is called."""
        for case in self._cases:
            names = self._names(_ENTER, {})
            if _ENTER in str(case.get("when")) and holds(case["when"], names):
                for action in _case_actions(case):
                    self._context.set(action.get("set"), names)

    def follow(
        self, events: tuple[str, ...], now: dict[str, Any], is_failure: bool = False, of_items: Iterable[str] = ()
    ) -> list[str]:
        """The steps that follow, each once. After a loop also those that its items lead to: `of_items`."""
        links = {
            str(arc.get("step"))
            for case in self._cases
            for one in _case_actions(case)
            for arc in _arcs(one.get("next"))
        }
        found = [*self._of_cases(events, now, is_failure), *(step for step in of_items if step in links)]
        found = found or list(self._of_arcs(events[0], now, is_failure))
        return list(dict.fromkeys(found))

    @property
    def decide_retries(self) -> bool:
        """Whether the cases decide about retries: then nothing else does."""
        return any(_retries(case) for case in self._cases)

    @property
    def write_sinks(self) -> bool:
        """Whether a case may write to a sink after the call."""
        return any("sink" in action for case in self._cases for action in _case_actions(case))

    def retry(self, events: tuple[str, ...], now: dict[str, Any]) -> Decision | None:
        """The retry that the first matching case of an event asks for; None where it asks for none."""
        for event in events:
            names = self._names(event, now)
            case = next((case for case in self._cases if holds(case.get("when", True), names)), {})
            if retries := _retries(case):
                return _retry_decision(retries[0], names)
        return None

    def with_pages(self, tool: Any) -> Any:
        """The tool, with rules for pages where cases say how it is called again."""
        if not self._walks_pages:
            return tool
        if isinstance(tool, list):
            raise invalid_input("a list of tools cannot have pages: use a rule of the last tool that jumps back")
        rules = [rule for case in self._cases if (rule := _page_rule(case))]
        return {**tool, "pages": rules, "are_of_cases": True}

    def collected(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """The result of the step after its pages were collected, and the collected values by name."""
        deeds = [action for case in self._cases for action in _case_actions(case)]
        into = [collection_name(action["collect"]) for action in deeds if "collect" in action]
        names = {name: result[name] for name in into if isinstance(result, dict) and name in result}
        wanted = next((action["result"].get("from") for action in deeds if isinstance(action.get("result"), dict)), "")
        return names.get(str(wanted), result), names

    def _of_cases(self, events: tuple[str, ...], now: dict[str, Any], is_failure: bool) -> list[str]:
        """The steps that the cases lead to, for the first event with any. Each case acts once."""
        done: set[int] = set()
        for event in events:
            at = next((at for at in range(len(self._cases)) if self._holds(at, event, now, is_failure)), None)
            if at is None or at in done or "next_call" in _page_rule(self._cases[at]):
                continue  # rules for pages were applied when the page was there
            done.add(at)
            if found := [name for action in _case_actions(self._cases[at]) for name in self._act(action, event, now)]:
                return found
        return []

    def _holds(self, at: int, event: str, now: dict[str, Any], is_failure: bool) -> bool:
        """After a failure, a case for another event counts only if it would not hold without the failure."""
        when = self._cases[at].get("when", True)
        if not holds(when, self._names(event, now)):
            return False
        return not is_failure or event == AFTER_FAILURE[0] or not holds(when, self._names(event, {}))

    def _act(self, action: dict[str, Any], event: str, now: dict[str, Any]) -> Iterator[str]:
        names = self._names(event, now)
        self._context.set(action.get("set"), names)
        self._context.set({f"vars.{name}": value for name, value in (action.get("vars") or {}).items()}, names)
        if "collect" in action and not self._walks_pages:
            self._collect(action["collect"], self._names(event, now))
        names = self._names(event, now)
        if "sink" in action:
            write_sinks(action["sink"], self._context.call(names, {}))
        if "fail" in action:
            raise _refusal(action["fail"], names)
        for arc in _arcs(action.get("next")):
            yield self._follow(arc, names)

    def _collect(self, collect: dict[str, Any], names: dict[str, Any]) -> None:
        """Without pages: collect over all steps, in `ctx`."""
        into = collection_name(collect)
        self._context.put(into, collect_into(names["ctx"].get(into), collect, names.get("result"), names))

    def _of_arcs(self, event: str, now: dict[str, Any], is_failure: bool) -> Iterator[str]:
        """The steps of the arcs that hold. An arc without a condition holds only after a success."""
        is_first = self._next.get("mode", "exclusive") == "exclusive"
        for arc in self._next.get("arcs") or []:
            if is_failure and arc.get("when") is None:
                continue
            names = self._names(_meant(event, arc.get("when")), now)
            if holds(True if arc.get("when") is None else arc["when"], names):
                yield self._follow(arc, names)
                if is_first:
                    return

    def _follow(self, arc: dict[str, Any], names: dict[str, Any]) -> str:
        step = render_text(str(arc["step"]), names)
        self._context.set(arc.get("set"), names)
        for args in (arc[key] for key in _ARGUMENTS if arc.get(key)):
            self._context.hand(step, render_value(args, names))
        return step

    def _names(self, event: str, now: dict[str, Any]) -> dict[str, Any]:
        payload = now.get("output") or {}
        return self._context.names(**{**now, "event": self._context.event(event, payload)})


def _meant(event: str, when: Any) -> str:
    """The event for a condition. One that names it only by a name that NoETL documents and never uses means that."""
    other = _OTHER_NAMES.get(event, "")
    return other if other and isinstance(when, str) and other in when and event not in when else event


def _case_actions(case: dict[str, Any]) -> list[dict[str, Any]]:
    then = case.get("then") or []
    return then if isinstance(then, list) else [then]


def _retries(case: dict[str, Any]) -> list[Any]:
    """The retries of a case. A `retry` that changes the call is not one: it asks for the next page."""
    retries = [action["retry"] for action in _case_actions(case) if "retry" in action]
    return [one for one in retries if not _changes(one)]


def _changes(retry: Any) -> dict[str, Any]:
    return {key: retry[key] for key in CHANGEABLE if key in retry} if isinstance(retry, dict) else {}


def _page_rule(case: dict[str, Any]) -> dict[str, Any]:
    """The rule for pages of a case: a `call` without a step, or a `retry` that changes the call."""
    together = {key: value for action in _case_actions(case) for key, value in action.items()}
    found = {"when": case.get("when", True)}
    if "collect" in together:
        found["collect"] = together["collect"]
    call, retry = together.get("call"), together.get("retry")
    if isinstance(call, dict) and "step" not in call:
        found["next_call"] = call
    elif changed := _changes(retry):
        found |= {"next_call": changed, "max_attempts": dict(retry or {}).get("max_attempts")}
    if "next_call" in found:
        found |= {key: together[key] for key in ("set", "sink") if key in together}
    return found if len(found) > 1 else {}


def _arcs(value: Any) -> list[dict[str, Any]]:
    entries = value if isinstance(value, list) else [value] if value else []
    return [entry if isinstance(entry, dict) else {"step": entry} for entry in entries]


def _refusal(fail: Any, names: dict[str, Any]) -> StepError:
    rendered = render_value(fail, names)
    message = rendered.get("message") if isinstance(rendered, dict) else rendered
    return StepError("VALIDATION_FAILED", str(message or "a case of the step failed it"), retryable=False)


# The same as in `formats.noetl.retries`, which workers do not load.
DELAY_DEFAULT, FACTOR_DEFAULT = 1, 2


def _retry_decision(retry: Any, names: dict[str, Any]) -> Decision:
    """A retry of a case: `max_attempts` counts all calls; short forms are a number, or true."""
    fields = render_value(retry, names)
    if not isinstance(fields, dict):
        fields = {"max_attempts": 3 if isinstance(fields, bool) or fields is None else fields}
    delay = fields.get("initial_delay", fields.get("delay", DELAY_DEFAULT))
    factor = fields.get("backoff_multiplier", fields.get("backoff", FACTOR_DEFAULT))
    most = fields.get("max_delay")
    return Decision(
        "retry",
        attempts=int(fields.get("max_attempts", 3)),
        backoff="exponential",
        delay=seconds(delay),
        factor=float(factor) if isinstance(factor, int | float) else 2.0,
        max_delay=None if most is None else seconds(most),
    )
