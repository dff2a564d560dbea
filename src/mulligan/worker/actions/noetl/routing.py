"""Where a step goes on: G2's `case`, then the arcs of `next`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mulligan import StepError
from mulligan.worker.actions.noetl.call import Call
from mulligan.worker.actions.noetl.context import Context
from mulligan.worker.actions.noetl.credentials import refused
from mulligan.worker.actions.noetl.paging import CHANGEABLE, into_of, with_collected
from mulligan.worker.actions.noetl.policy import Deed, seconds
from mulligan.worker.actions.noetl.sinks import put
from mulligan.worker.actions.noetl.templates import filled, filled_text, holds

# What happens after a call, in this order. What comes first and leads somewhere counts.
AFTER_SUCCESS = ("call.done", "step.exit")
AFTER_LOOP = ("loop.done", "call.done", "step.exit")
AFTER_FAILURE = ("call.error", "call.done", "step.exit")
# What a step is handed by what leads to it, in the words of all dialects.
_ARGUMENTS = ("args", "input", "data")


class Routes:
    """The cases and arcs of one step, asked once it is known how it went."""

    def __init__(self, context: Context, cases: list[dict[str, Any]] | None, following: dict[str, Any] | None) -> None:
        self._context = context
        self._cases = cases or []
        self._next = following or {}
        self._walks_pages = any("next_call" in _page_rule(case) for case in self._cases)

    def taken(self, events: tuple[str, ...], now: dict[str, Any], is_failure: bool = False) -> list[str]:
        """The steps that follow, each once."""
        found = self._of_cases(events, now, is_failure) or self._of_arcs(events[0], now, is_failure)
        return list(dict.fromkeys(found))

    @property
    def decide_retries(self) -> bool:
        """Whether it is for the cases to say what is tried again: then nothing else is."""
        return any(_retries(case) for case in self._cases)

    def retry(self, events: tuple[str, ...], now: dict[str, Any]) -> Deed | None:
        """What a case says of trying again, where the first that holds for an event says so."""
        for event in events:
            names = self._names(event, now)
            case = next((case for case in self._cases if holds(case.get("when", True), names)), {})
            if said := _retries(case):
                return _deed(said[0], names)
        return None

    def with_pages(self, tool: Any) -> Any:
        """The tool, which walks its pages by itself where cases say that it is called again, and how."""
        if not self._walks_pages:
            return tool
        if isinstance(tool, list):
            raise refused("a list of tools has no pages: let a rule of the last one jump back")
        rules = [rule for case in self._cases if (rule := _page_rule(case))]
        return {**tool, "pages": rules, "are_of_cases": True}

    def gathered(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """What the step gives once its pages are gathered, and these by the names that cases have for them."""
        deeds = [deed for case in self._cases for deed in _deeds(case)]
        into = [into_of(deed["collect"]) for deed in deeds if "collect" in deed]
        names = {name: result[name] for name in into if isinstance(result, dict) and name in result}
        wanted = next((deed["result"].get("from") for deed in deeds if isinstance(deed.get("result"), dict)), "")
        return names.get(str(wanted), result), names

    def _of_cases(self, events: tuple[str, ...], now: dict[str, Any], is_failure: bool) -> list[str]:
        """The first event for which a case leads somewhere. A case acts once, whatever else happens."""
        done: set[int] = set()
        for event in events:
            at = next((at for at in range(len(self._cases)) if self._holds(at, event, now, is_failure)), None)
            if at is None or at in done or "next_call" in _page_rule(self._cases[at]):
                continue  # what is said of a page was done when it was there
            done.add(at)
            if found := [name for deed in _deeds(self._cases[at]) for name in self._act(deed, event, now)]:
                return found
        return []

    def _holds(self, at: int, event: str, now: dict[str, Any], is_failure: bool) -> bool:
        """After a failure a case of another event than that counts only if it would not hold without one."""
        when = self._cases[at].get("when", True)
        if not holds(when, self._names(event, now)):
            return False
        return not is_failure or event == AFTER_FAILURE[0] or not holds(when, self._names(event, {}))

    def _act(self, deed: dict[str, Any], event: str, now: dict[str, Any]) -> Iterator[str]:
        names = self._names(event, now)
        self._context.set(deed.get("set"), names)
        self._context.set({f"vars.{name}": value for name, value in (deed.get("vars") or {}).items()}, names)
        if "collect" in deed and not self._walks_pages:
            self._collect(deed["collect"], self._names(event, now))
        names = self._names(event, now)
        if "sink" in deed:
            put(deed["sink"], self._call(names))
        if "fail" in deed:
            raise _refusal(deed["fail"], names)
        for arc in _arcs(deed.get("next")):
            yield self._follow(arc, names)

    def _call(self, names: dict[str, Any]) -> Call:
        context = self._context
        return Call(context.step, names, context.credentials, trusts_templates=context.trusts_templates)

    def _collect(self, collect: dict[str, Any], names: dict[str, Any]) -> None:
        """Without pages: gathered over all that runs, as `ctx` under that name."""
        into = into_of(collect)
        self._context.put(into, with_collected(names["ctx"].get(into), collect, names.get("result")))

    def _of_arcs(self, event: str, now: dict[str, Any], is_failure: bool) -> Iterator[str]:
        """An arc without a condition is for what went well."""
        is_first = self._next.get("mode", "exclusive") == "exclusive"
        for arc in self._next.get("arcs") or []:
            if is_failure and arc.get("when") is None:
                continue
            names = self._names(event, now)
            if holds(True if arc.get("when") is None else arc["when"], names):
                yield self._follow(arc, names)
                if is_first:
                    return

    def _follow(self, arc: dict[str, Any], names: dict[str, Any]) -> str:
        step = filled_text(str(arc["step"]), names)
        self._context.set(arc.get("set"), names)
        for args in (arc[key] for key in _ARGUMENTS if arc.get(key)):
            self._context.hand(step, filled(args, names))
        return step

    def _names(self, event: str, now: dict[str, Any]) -> dict[str, Any]:
        payload = now.get("output") or {}
        return self._context.names(**{**now, "event": self._context.event(event, payload)})


def _deeds(case: dict[str, Any]) -> list[dict[str, Any]]:
    then = case.get("then") or []
    return then if isinstance(then, list) else [then]


def _retries(case: dict[str, Any]) -> list[Any]:
    """What a case says of trying again; one that changes something of the tool is its next page."""
    said = [deed["retry"] for deed in _deeds(case) if "retry" in deed]
    return [one for one in said if not _changes(one)]


def _changes(retry: Any) -> dict[str, Any]:
    return {key: retry[key] for key in CHANGEABLE if key in retry} if isinstance(retry, dict) else {}


def _page_rule(case: dict[str, Any]) -> dict[str, Any]:
    """What a case says of pages: a `call` of no other step, or a `retry` with something changed, is the next one."""
    together = {key: value for deed in _deeds(case) for key, value in deed.items()}
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


def _arcs(said: Any) -> list[dict[str, Any]]:
    entries = said if isinstance(said, list) else [said] if said else []
    return [entry if isinstance(entry, dict) else {"step": entry} for entry in entries]


def _refusal(said: Any, names: dict[str, Any]) -> StepError:
    told = filled(said, names)
    message = told.get("message") if isinstance(told, dict) else told
    return StepError("VALIDATION_FAILED", str(message or "a case of the step says that it failed"), retryable=False)


# As of a tool's own `retry` (`formats.noetl.retries`, which no worker loads).
DELAY_DEFAULT, FACTOR_DEFAULT = 1, 2


def _deed(said: Any, names: dict[str, Any]) -> Deed:
    """G2's words for a retry: `max_attempts` counts all calls; short forms are a number, or true."""
    told = filled(said, names)
    if not isinstance(told, dict):
        told = {"max_attempts": 3 if isinstance(told, bool) or told is None else told}
    delay = told.get("initial_delay", told.get("delay", DELAY_DEFAULT))
    factor = told.get("backoff_multiplier", told.get("backoff", FACTOR_DEFAULT))
    most = told.get("max_delay")
    return Deed(
        "retry",
        attempts=int(told.get("max_attempts", 3)),
        backoff="exponential",
        delay=seconds(delay),
        factor=float(factor) if isinstance(factor, int | float) else 2.0,
        max_delay=None if most is None else seconds(most),
    )
