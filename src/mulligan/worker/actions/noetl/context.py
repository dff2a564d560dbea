"""What the templates of a step read: the workload, what steps gave and set, the item, and what has just happened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mulligan import StepError
from mulligan.worker.actions.noetl import versions
from mulligan.worker.actions.noetl.answers import answer
from mulligan.worker.actions.noetl.call import filled_with_marks, over
from mulligan.worker.actions.noetl.credentials import Credentials
from mulligan.worker.actions.noetl.file_texts import FileText, of_file
from mulligan.worker.actions.noetl.sandbox import Absent, Nothing
from mulligan.worker.actions.noetl.templates import Names, filled
from mulligan.worker.actions.noetl.tools import SECRET
from mulligan.worker.actions.noetl.versions import ARGS, CTX, VARS, Settings

_ENVELOPE = frozenset({"result", "ctx", "next", "status"})
_END = "end"
_PREFIXES = {"ctx": CTX, "workload": CTX, "step": CTX, "vars": VARS}


class Context:
    """The names of one step, as they are now: what is set is seen by the next template."""

    def __init__(
        self,
        *,
        name: str | None = None,
        workload: dict[str, Any] | None = None,
        derived: dict[str, Any] | None = None,
        seen: dict[str, Any] | None = None,
        item: dict[str, Any] | None = None,
        auth: dict[str, Any] | None = None,
        input: dict[str, Any] | None = None,
        defaults: dict[str, Any] | None = None,
        trust_templates: bool = False,
    ) -> None:
        self.step = name or os.environ.get("MULLIGAN_STEP", "")
        self.credentials = Credentials(auth or {})
        self.trusts_templates = trust_templates
        self._workload = self._with_derived(_marked(workload or {}, defaults or {}), derived or {})
        self._seen = seen or {}
        self._item = _marked_item(item or {}, defaults or {})
        before = versions.merged(_entries(envelope) for envelope in self._seen.values())
        self._settings = Settings(before, self.step, self._item.get("index", 0))
        self._iter = self._of_item()
        self._own: dict[str, Any] = {}
        self.given: dict[str, Any] = {}
        handed = versions.values(before, ARGS).get(self.step, {})
        self.given = over(handed, filled_with_marks(input or {}, self.names()))

    @property
    def set_here(self) -> versions.Entries:
        """What this step has set, for its envelope."""
        return self._settings.own

    def names(self, **now: Any) -> dict[str, Any]:
        """All names; `now` is what is known at this moment only."""
        ctx = {**self._workload, **versions.values(self._settings.all, CTX)}
        seen = {name: self._result(name, envelope) for name, envelope in self._seen.items()}
        steps = {**seen, **self._own}
        return {
            **ctx,
            **{name.replace("-", "_"): result for name, result in steps.items()},
            **steps,
            **self._of_loop(),
            **self.given,
            **self._of_run(),
            "ctx": ctx,
            "workload": ctx,
            "vars": versions.values(self._settings.all, VARS),
            "iter": self._iter,
            "input": self.given,
            "args": self.given,
            "steps": {name: result for name, result in steps.items() if not isinstance(result, Absent)},
            "keychain": self.credentials.by_name(),
            **now,
        }

    def know(self, result: Any) -> None:
        """What the step gave: from now on it is read by the step's own name, as by those that follow."""
        self._own = {self.step: answer(result)}

    def set(self, said: Any, names: Names) -> None:
        """Fill in and keep what is to be set: `ctx.x`, `vars.x`, `iter.x`; a bare name is of ctx."""
        for key, value in _flat(filled(said or {}, names)):
            prefix, dot, name = key.partition(".")
            if prefix == "iter" and dot:
                self._iter[name] = value
            elif dot and prefix in _PREFIXES:
                self._settings.put(_PREFIXES[prefix], name, value)
            else:
                self._settings.put(CTX, key, value)

    def put(self, name: str, value: Any) -> None:
        """Set `ctx.name` to a value that is no template."""
        self._settings.put(CTX, name, value)

    def hand(self, step: str, args: dict[str, Any]) -> None:
        """Give arguments to a step that follows."""
        self._settings.put(ARGS, step, args)

    def take_over(self, outputs: list[Any]) -> None:
        """What the items of a loop have set is set by the loop."""
        self._settings.take_over(versions.merged(_entries(output) for output in outputs))

    def event(self, name: str, payload: Any) -> dict[str, Any]:
        at = datetime.now(UTC).isoformat()
        return {"name": name, "payload": payload, "step": self.step, "timestamp": at}

    def _with_derived(self, workload: dict[str, Any], derived: dict[str, Any]) -> dict[str, Any]:
        """The workload with its own templates filled in: only those of the file, never a value that a run was given.

        One that cannot be filled in is not there: who reads it says so.
        """
        found = dict(workload)
        for key in [key for key, template in derived.items() if workload.get(key) == template]:
            names = {**self._of_run(), **found, "workload": found, "ctx": found, "payload": found}
            del found[key]
            try:
                found[key] = filled_with_marks(derived[key], names)
            except StepError:
                continue
        return found

    def _result(self, step: str, envelope: Any) -> Any:
        if envelope is None:
            kind = Nothing if os.environ.get("MULLIGAN_STEP") == _END else Absent
            return kind(hint=f"step '{step}' has not run", obj=None, name=step)
        result = result_of(envelope)
        if isinstance(result, dict) and result.keys() == {SECRET}:
            value = self.credentials.of(result[SECRET])
            return answer({"value": value, "secret_value": value, "data": value})
        return answer(result)

    def _of_item(self) -> dict[str, Any]:
        if not self._item:
            return {}
        index, length = self._item.get("index", 0), self._item.get("length")
        place = {"_index": index, "_first": index == 0, "_last": length is not None and index == length - 1}
        return {self._item.get("name", "item"): self._item.get("value"), **place}

    def _of_loop(self) -> dict[str, Any]:
        if not self._item:
            return {}
        index = self._item.get("index", 0)
        count = {"index": index, "first": index == 0, "length": self._item.get("length"), "done": False}
        name = self._item.get("name", "item")
        old = {"index": index, "count": index + 1, "size": self._item.get("length"), "item": self._item.get("value")}
        return {"loop": count, "loop_index": index, "_loop": old, name: self._item.get("value")}

    def _of_run(self) -> dict[str, Any]:
        run_id = os.environ.get("MULLIGAN_RUN_ID", "")
        if run_id.isdecimal():
            run_id = FileText(run_id)
        job = {"uuid": run_id, "execution_id": run_id, "id": run_id}
        return {"execution_id": run_id, "job": job, "catalog_id": os.environ.get("MULLIGAN_WORKFLOW", "")}


def _marked(workload: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The workload; what the run does not override is marked as the file's."""
    are_same = {key for key, value in defaults.items() if key in workload and _is_same(workload[key], value)}
    return {key: of_file(value) if key in are_same else value for key, value in workload.items()}


def _marked_item(item: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The item of a loop; marked, where the file has the list, or the workload of the file."""
    value, listed = item.get("value"), defaults.get(item.get("of", ""))
    is_of_file = item.get("is_written") or (isinstance(listed, list) and any(_is_same(value, one) for one in listed))
    return {**item, "value": of_file(value)} if is_of_file else item


def _is_same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _flat(said: Any) -> Iterator[tuple[str, Any]]:
    """What is to be set, by its whole name: `ctx: {x: …}` is `ctx.x`, a list of {name, value} is of vars."""
    if isinstance(said, list):
        yield from ((f"vars.{one['name']}", one.get("value")) for one in said)
        return
    for key, value in said.items():
        if key in ("iter", *_PREFIXES) and isinstance(value, dict):
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield str(key), value


def result_of(output: Any) -> Any:
    """What a step gave: what is in its envelope, or all of it where it has none, as of a playbook that was called."""
    return output["result"] if _is_envelope(output) else output


def _entries(output: Any) -> versions.Entries:
    found: versions.Entries = output.get("ctx", {}) if _is_envelope(output) else {}
    return found


def _is_envelope(output: Any) -> bool:
    return isinstance(output, dict) and "result" in output and output.keys() <= _ENVELOPE
