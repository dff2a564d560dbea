"""The names that templates of a step read: the workload, results and settings of steps, the item, the last event."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mulligan import StepError
from mulligan.formats.noetl.runtime import versions
from mulligan.formats.noetl.runtime.answers import mark_answer
from mulligan.formats.noetl.runtime.call import Call, merge_inputs, render_marked
from mulligan.formats.noetl.runtime.credentials import Credentials
from mulligan.formats.noetl.runtime.file_texts import FileText, mark_file_texts
from mulligan.formats.noetl.runtime.parts import Parts
from mulligan.formats.noetl.runtime.sandbox import Absent, Nothing
from mulligan.formats.noetl.runtime.templates import Names, render_value
from mulligan.formats.noetl.runtime.tools.tools import SECRET
from mulligan.formats.noetl.runtime.versions import ARGS, CTX, VARS, Settings

_ENVELOPE = frozenset({"result", "ctx", "next", "status"})
_END = "end"
_PREFIXES = {"ctx": CTX, "workload": CTX, "step": CTX, "vars": VARS}


class Context:
    """The names of one step. The next template sees what is set."""

    def __init__(
        self,
        *,
        name: str | None = None,
        workload: dict[str, Any] | None = None,
        derived: dict[str, Any] | None = None,
        seen: dict[str, Any] | None = None,
        item: dict[str, Any] | None = None,
        previous: dict[str, Any] | None = None,
        before: list[dict[str, Any]] | None = None,
        auth: dict[str, Any] | None = None,
        input: dict[str, Any] | None = None,
        defaults: dict[str, Any] | None = None,
        trust_templates: bool = False,
    ) -> None:
        self.step = name or os.environ.get("MULLIGAN_STEP", "")
        self.credentials = Credentials(auth or {})
        self.trusts_templates = trust_templates
        # Where the outcomes of calls are recorded, if the step makes several.
        self.parts: Parts | None = None
        self._workload = self._with_derived(_mark_defaults(workload or {}, defaults or {}), derived or {})
        self._seen = seen or {}
        # Whether no item of a sequential loop was before it, whose values are passed on.
        self.is_first = previous is None
        self._item = _mark_item(item or {}, defaults or {})
        passed_on = versions.merge_entries([_entries(previous), *(part.get("ctx") or {} for part in before or [])])
        set_before = versions.merge_entries([*map(_entries, self._seen.values()), passed_on])
        self._settings = Settings(set_before, self.step, self._item.get("index", 0), passed_on)
        self._iter = _of_item(self._item)
        # In a list of tools that called playbooks divide: the results of the tools before, by name, and the last one.
        self.results, self.last = _results_before(before or [])
        self._own: dict[str, Any] = {}
        # The arguments from the step before: the input of this step may read them.
        self.given: dict[str, Any] = versions.values(set_before, ARGS).get(self.step, {})
        self.given = merge_inputs(self.given, render_marked(input or {}, self.names()))

    @property
    def set_here(self) -> versions.Entries:
        """The values that this step set, for its envelope; in a loop also those that earlier items passed on."""
        return self._settings.own

    def names(self, **now: Any) -> dict[str, Any]:
        """All names; `now` are those of this moment only."""
        ctx = {**self._workload, **versions.values(self._settings.all, CTX)}
        seen = {name: self._result(name, envelope) for name, envelope in self._seen.items()}
        steps = {**seen, **self._own}
        return {
            **ctx,
            **{name.replace("-", "_"): result for name, result in steps.items()},
            **steps,
            **self._of_tools_before(),
            **_of_loop(self._item),
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
        """Make the result available under the name of the step, as for the steps that follow."""
        self._own = {self.step: mark_answer(result)}

    def set(self, values: Any, names: Names) -> None:
        """Render and set values: `ctx.x`, `vars.x`, `iter.x`; a bare name is in ctx."""
        for key, value in _flat(render_value(values or {}, names)):
            prefix, dot, name = key.partition(".")
            if prefix == "iter" and dot:
                self._iter[name] = value
            elif dot and prefix in _PREFIXES:
                self._settings.put(_PREFIXES[prefix], name, value)
            else:
                self._settings.put(CTX, key, value)

    def put(self, name: str, value: Any) -> None:
        """Set `ctx.name` to a value that is not a template."""
        self._settings.put(CTX, name, value)

    def hand(self, step: str, args: dict[str, Any]) -> None:
        """Set the arguments of a step that follows."""
        self._settings.put(ARGS, step, args)

    def take_over(self, outputs: list[Any]) -> None:
        """Set for the loop what its items have set."""
        self._settings.take_over(versions.merge_entries(_entries(output) for output in outputs))

    def call(self, names: Names, given: dict[str, Any]) -> Call:
        """A call of a tool of this step."""
        return Call(self.step, names, self.credentials, given, self.trusts_templates, self.parts)

    def event(self, name: str, payload: Any) -> dict[str, Any]:
        at = datetime.now(UTC).isoformat()
        return {"name": name, "payload": payload, "step": self.step, "timestamp": at}

    def _with_derived(self, workload: dict[str, Any], derived: dict[str, Any]) -> dict[str, Any]:
        """The workload with its default templates rendered; values that the run was given are not templates.

        A default that cannot be rendered is left out: a template that reads it fails with its name.
        """
        found = dict(workload)
        for key in [key for key, template in derived.items() if workload.get(key) == template]:
            names = {**self._of_run(), **found, "workload": found, "ctx": found, "payload": found}
            del found[key]
            try:
                found[key] = render_marked(derived[key], names)
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
            return mark_answer({"value": value, "secret_value": value, "data": value})
        return mark_answer(result)

    def _of_tools_before(self) -> dict[str, Any]:
        if not self.results:
            return {}
        results = {name: mark_answer(result) for name, result in self.results.items()}
        return {**results, "results": results, "_prev": mark_answer(self.last)}

    def names_of_item(self, item: dict[str, Any]) -> dict[str, Any]:
        """The names for an item of the loop before this step."""
        return {**_of_loop(item), "iter": _of_item(item)}

    def _of_run(self) -> dict[str, Any]:
        run_id = os.environ.get("MULLIGAN_RUN_ID", "")
        if run_id.isdecimal():
            run_id = FileText(run_id)
        job = {"uuid": run_id, "execution_id": run_id, "id": run_id}
        return {"execution_id": run_id, "job": job, "catalog_id": os.environ.get("MULLIGAN_WORKFLOW", "")}


def _results_before(before: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    """The results of tools and called playbooks, by name, and the last of them."""
    results: dict[str, Any] = {}
    last: Any = None
    for part in before:
        found = part.get("result")
        if "name" in part:
            results[part["name"]] = last = found
        elif isinstance(found, dict):  # the result of a list of tools
            results |= found.get("results") or {}
            own = {key: value for key, value in found.items() if key != "results"}
            last = own["data"] if own.keys() == {"data"} else own
    return results, last


def _mark_defaults(workload: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The workload; defaults that the run does not override are marked as text of the file."""
    are_same = {key for key, value in defaults.items() if key in workload and _is_same(workload[key], value)}
    return {key: mark_file_texts(value) if key in are_same else value for key, value in workload.items()}


def _mark_item(item: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The item of a loop; marked where its list is in the file, or a default of the workload."""
    value, listed = item.get("value"), defaults.get(item.get("of", ""))
    is_from_file = item.get("is_written") or (isinstance(listed, list) and any(_is_same(value, one) for one in listed))
    return {**item, "value": mark_file_texts(value)} if is_from_file else item


def _of_item(item: dict[str, Any]) -> dict[str, Any]:
    """`iter`: the item by its name, and its place."""
    return {item.get("name", "item"): item.get("value"), **_place(item)} if item else {}


def _place(item: dict[str, Any]) -> dict[str, Any]:
    index, length = item.get("index", 0), item.get("length")
    return {"_index": index, "_first": index == 0, "_last": length is not None and index == length - 1}


def _of_loop(item: dict[str, Any]) -> dict[str, Any]:
    """The names of an item outside of `iter`."""
    if not item:
        return {}
    index, length, value = item.get("index", 0), item.get("length"), item.get("value")
    count = {"index": index, "first": index == 0, "length": length, "done": False}
    old = {"index": index, "count": index + 1, "size": length, "item": value}
    return {**_place(item), "loop": count, "loop_index": index, "_loop": old, item.get("name", "item"): value}


def _is_same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _flat(values: Any) -> Iterator[tuple[str, Any]]:
    """The values to set, by full name: `ctx: {x: …}` is `ctx.x`, a list of {name, value} is in vars."""
    if isinstance(values, list):
        yield from ((f"vars.{one['name']}", one.get("value")) for one in values)
        return
    for key, value in values.items():
        if key in ("iter", *_PREFIXES) and isinstance(value, dict):
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield str(key), value


def result_of(output: Any) -> Any:
    """The result in an envelope; the whole output where it has none, as that of a called playbook."""
    return output["result"] if is_envelope(output) else output


def _entries(output: Any) -> versions.Entries:
    found: versions.Entries = output.get("ctx", {}) if is_envelope(output) else {}
    return found


def is_envelope(output: Any) -> bool:
    """Whether it is the output of a step of a playbook."""
    return isinstance(output, dict) and "result" in output and output.keys() <= _ENVELOPE
