"""What a flow says while its function runs: steps with their arguments, routes, secrets."""

from __future__ import annotations

import re

from mulligan.flows.context import Site, call_site, refuse
from mulligan.flows.literals import plain, text_key
from mulligan.flows.references import (
    SHOWN,
    SUCCESS,
    TERNARY,
    Reference,
    merge,
    reads_of,
    source_of,
    step_path,
    steps_in,
)
from mulligan.flows.retries import Retry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mulligan.flows.references import Reads

# An expression without braces of its own.
_TOKEN = r"\$\{[^{}]*\}"
# The output of a flow that returns one value.
RESULT = "result"
END = "end"
# As deep as an output may be.
DEPTH_MAX = 100


class Record:
    """One step of the flow."""

    __slots__ = ("action", "edges", "group", "is_matrix", "keys", "keys_site", "name", "reads", "site")

    def __init__(self, name: str, site: Site, keys_site: Site) -> None:
        self.name = name
        # Where it was called, and where its keys were written.
        self.site = site
        self.keys_site = keys_site
        self.action: dict[str, Any] = {}
        self.keys: dict[str, Any] = {}
        self.reads: Reads = {}
        self.edges: list[tuple[dict[str, Any] | str, Site]] = []
        self.is_matrix = False
        self.group: Group | None = None


class Group:
    """Steps that are retried together: they are a step of the flow, and a flow inside it."""

    def __init__(self, record: Record, order: str = "") -> None:
        self.record = record
        self.order = order
        self.records: list[Record] = []
        self.keys: dict[str, Any] = {}
        # What its steps read of steps outside, as inputs of the group.
        self.inputs: dict[str, str] = {}


class Recorder:
    """Collects the steps of one flow."""

    def __init__(self, name: str, *, order: str = "") -> None:
        self.name = name
        self.order = order
        self.records: list[Record] = []
        self.by_name: dict[str, Record] = {}
        # The last record that each step object made, for `after=[fetch]` and `latest(improve)`.
        self.last: dict[int, Record] = {}
        self.sections: dict[str, dict[str, Any]] = {}
        # The flows that this one calls, by the name under which the step calls them.
        self.children: dict[str, Any] = {}
        # Routes, in the order in which they were said. The target is a record, or a step to be made for the source.
        self.routes: list[tuple[Record, Any, dict[str, Any], Site]] = []
        # The steps with what belongs to their function, and the routes that this flow alone gives to a step.
        self.recoveries: list[tuple[Record, Any]] = []
        self.step_routes: dict[int, list[tuple[Any, dict[str, Any], Site]]] = {}
        # The source of functions of a session, which may have changed when the next flow is built.
        self.pinned: dict[Any, dict[str, str]] = {}
        self.formatted: dict[str, Reads] = {}
        self.conditions: list[Reference] = []
        # The groups that are open, and all of them by the names of their steps.
        self.groups: list[Group] = []
        self.group_of: dict[str, Group] = {}
        self._numbers: dict[str, int] = {}
        # Rules by their identity: a step that is called often has the same one each time.
        self._rules: dict[int, tuple[Retry, Any]] = {}

    def add(self, name: str, *, is_chosen: bool, site: Site, keys_site: Site) -> Record:
        """A new step. A name that is not chosen gets a number if it is taken."""
        record = Record(self._free_name(name, is_chosen, site), site, keys_site)
        self.by_name[record.name] = record
        self.records.append(record)
        if self.groups:
            record.group = self.groups[-1]
            record.group.records.append(record)
        return record

    def _free_name(self, name: str, is_chosen: bool, site: Site) -> str:
        if name == END:
            refuse("name", "a step cannot be called 'end', which runs last", hint="give it another name", site=site)
        if name not in self.by_name:
            return name
        if is_chosen:
            first = self.by_name[name].site.line
            message = f"there are two steps '{name}': first in line {first}"
            refuse("duplicate_step", message, hint="choose another name", word=name, site=site)
        number = self._numbers.get(name, 1)
        while True:
            number += 1
            if f"{name}_{number}" not in self.by_name:
                self._numbers[name] = number
                return f"{name}_{number}"

    def result(self, record: Record, shape: int | None = None) -> Reference:
        """A reference to what the step returns."""
        return Reference(f"{step_path(record.name)}.output", {record.name: SUCCESS}, shape=shape)

    def declare(self, section: str, name: str, value: Any, site: Site) -> None:
        """Declare a secret or a file. The same declaration may be repeated."""
        known = self.sections.setdefault(section, {})
        if known.setdefault(name, value) != value:
            refuse("duplicate_key", f"'{name}' is declared twice, in different ways", word=name, site=site)

    # Values

    def value(self, value: Any, reads: Reads, depth: int = 0) -> Any:
        """The value as a file has it, with `${…}` for references; the steps that it reads are added to `reads`."""
        if isinstance(value, Reference):
            merge(reads, reads_of(value))
            return f"${{{source_of(value)}}}"
        if isinstance(value, str):
            if "${" in value:
                self._read_text(value, reads)
            if SHOWN in value:
                hint = 'write f"{rows}" for a text with it; a list or a mapping is a text in a step only'
                refuse("reference", "a text contains the 'repr' of a reference, not its value", hint=hint)
            return plain(value)
        if depth > DEPTH_MAX:
            refuse("value", "a value is nested too deep, or contains itself", hint="make it in a step")
        if isinstance(value, list | tuple):
            return [self.value(item, reads, depth + 1) for item in value]
        if isinstance(value, dict):
            found = {text_key(key): self.value(one, reads, depth + 1) for key, one in value.items()}
            if len(found) < len(value):
                refuse("value", "two keys of a mapping are the same text", hint="keys are texts: 1 and '1' are one key")
            return found
        if isinstance(value, Retry):
            return self.value(value.keys, reads)
        if _holds_reference(value):
            return {name: self.value(getattr(value, name), reads, depth + 1) for name in _fields_of(value)}
        return plain(value)

    def rule(self, retry: Retry, reads: Reads) -> Any:
        """The same for a rule, which is converted once however many steps have it."""
        if id(retry) not in self._rules:
            self._rules[id(retry)] = (retry, self.value(retry.keys, reads))
        return self._rules[id(retry)][1]

    def condition(self, value: Any) -> Reference:
        """A condition, given as a reference, or as a text as in a file."""
        if isinstance(value, Reference):
            return value
        if isinstance(value, bool):
            return Reference(str(value).lower(), {})
        if not isinstance(value, str):
            hint = "compare what a step returned: when=count > 0"
            refuse("type", f"a condition is expected, and this is {value!r}", hint=hint)
        bare = value.strip()
        if bare.startswith("${") and bare.endswith("}") and bare.count("${") == 1:
            bare = bare[2:-1].strip()
        reads = self._known(bare)
        self._read_text(value, reads)
        return Reference(bare, reads, TERNARY)

    def _known(self, text: str) -> Reads:
        return {name: SUCCESS for name in steps_in(text) if name in self.by_name}

    def _read_text(self, text: str, reads: Reads) -> None:
        for token in re.findall(_TOKEN, text):
            merge(reads, self.formatted.get(token) or self._known(token))
        rest = re.sub(_TOKEN, "", text)
        if "${" in rest:  # an expression with braces of its own
            for formatted, read in self.formatted.items():
                if formatted in text:
                    merge(reads, read)
            merge(reads, self._known(rest))

    def record_of(self, value: Any, what: str, site: Site | None = None) -> Record:
        """The step that a reference, a step function or a name stands for."""
        if isinstance(value, str) and value in self.by_name:
            return self.by_name[value]
        if isinstance(value, Reference):
            [*names] = reads_of(value)
            if len(names) == 1 and names[0] in self.by_name:
                return self.by_name[names[0]]
        elif id(value) in self.last:
            return self.last[id(value)]
        name = getattr(value, "__name__", None)
        shown = f"'{name}' is not called before it" if name else f"{value!r} is no step"
        refuse(
            "unknown_step",
            f"{what} names a step of this flow, and {shown}",
            hint="name what a step returned",
            site=site,
        )

    def route(self, source: Record, target: Any, keys: dict[str, Any], site: Site | None = None) -> None:
        self.routes.append((source, target, keys, site or call_site()))


def _fields_of(value: Any) -> list[str]:
    """The fields of a dataclass; none of anything else."""
    fields = {} if isinstance(value, type) else getattr(type(value), "__dataclass_fields__", {})
    return [name for name, field in fields.items() if field._field_type.name == "_FIELD"]


def _holds_reference(value: Any, depth: int = 0) -> bool:
    """Whether it is a dataclass with a reference in it: its fields are written one by one."""
    return any(_is_or_holds(getattr(value, name, None), depth + 1) for name in _fields_of(value))


def _is_or_holds(value: Any, depth: int) -> bool:
    if isinstance(value, Reference):
        return True
    if depth > DEPTH_MAX:
        return False
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(_is_or_holds(one, depth + 1) for one in inner) or _holds_reference(value, depth)
