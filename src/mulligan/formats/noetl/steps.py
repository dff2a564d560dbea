"""Read the steps of a playbook of any dialect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from mulligan.formats.noetl.keys import OLDER_STEP, STEP
from mulligan.formats.noetl.oldest import in_newer_dialect, kind_of
from mulligan.formats.noetl.retries import policy_for_requests, read_retry, seconds
from mulligan.formats.noetl.routes import (
    Router,
    actions_of_case,
    check_sink,
    is_about_item,
    read_next,
    read_router,
    split_loop_cases,
)
from mulligan.formats.noetl.texts import has_key, has_templates, is_word, texts, words
from mulligan.formats.noetl.tool_keys import CASE_PAGES, NEXT_CALL
from mulligan.formats.noetl.tools import Tools, Workbook, input_of, keys_of_oldest_tool
from mulligan.formats.translation import Translation, made, mapping, only, renewed, without
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, describe, shorten


class Step(msgspec.Struct, eq=False):
    """A step of a playbook. `at` is the node of its name."""

    name: str
    at: Node
    node: Mapping
    tools: Tools
    router: Router
    description: str = ""
    input: Node | None = None
    loop: Loop | None = None
    set: Node | None = None
    # In a loop: what is set after each item. `set` is then what is set after the last.
    set_of_items: Node | None = None
    # In a loop whose items run at the same time: what is set for each of them in turn, when all are done.
    set_in_turn: Node | None = None
    timeout: Node | None = None
    # The value of `spec.policy.failure`: best_effort, fail_fast or "".
    after_failure: str = ""
    retry: dict[str, Any] | None = None
    # The cases for the result of each item of a loop.
    item_cases: tuple[Mapping, ...] = ()
    # The parts of its list of tools before this one, which called playbooks divide.
    before: tuple[Step, ...] = ()
    # For such a part: the name of its step. `name` is then one that no other step has.
    part_of: str = ""

    @property
    def is_setter(self) -> bool:
        """Whether it may set values that other steps read."""
        arcs = any(arc.set is not None or arc.args is not None for arc in self.router.arcs)
        cases = not {"set", "args", "collect"}.isdisjoint(words(*self.router.cases))
        return self.set is not None or self.set_in_turn is not None or arcs or cases or self.sets_in_items

    @property
    def sets_in_items(self) -> bool:
        """Whether its tools, or what follows each item of its loop, may set values."""
        if self.set_of_items is not None or any(has_key(tool.node.get("spec"), "set") for tool in self.tools.all):
            return True
        return any(not {"set", "collect"}.isdisjoint(action.entries) for action in self.item_actions)

    @property
    def item_actions(self) -> list[Mapping]:
        """What its cases do after an item."""
        return [action for case in self.item_cases for action in actions_of_case(case)]

    @property
    def acts_after_items(self) -> bool:
        """Whether something is done after each item of its loop."""
        return self.set_of_items is not None or bool(self.item_cases)

    @property
    def can_be_end(self) -> bool:
        """Whether our `end` can do it: one action without successors."""
        return not (self.router.targets or self.before) and self.loop is None and self.tools.child is None


# The keys of `save` that name what it is stored by, in the words of the oldest files.
_STORAGE = ("storage", "type")


class Reader:
    """Reads the steps of one playbook."""

    def __init__(self, is_newer: bool, book: Workbook, translation: Translation) -> None:
        self._is_newer = is_newer
        self._book = book
        self._translation = translation
        self._source = translation.source

    def read(self, node: Node) -> Step | None:
        """Read a step; None where it has no name."""
        if not isinstance(node, Mapping):
            message = f"an entry of 'workflow' is {describe(node)}, a mapping with 'step: NAME' is expected"
            raise self._source.refuse("type", message, node)
        if not self._is_newer:
            node = in_newer_dialect(node, self._source)
        named = node.get("step")
        name = named.text if isinstance(named, Scalar) else ""
        label = f"step '{shorten(name)}'" if name else "the step"
        form = STEP.read(node, label, self._source) if self._is_newer else self._read_older(node, label)
        if "step" not in form or named is None:
            return None
        step = self._newer(form, named, label) if self._is_newer else self._older(form, named, label)
        if form.get("desc"):
            step.description = str(form["desc"])
        if "loop" in form:
            self._read_loop(form["loop"], step)
        if step.tools.is_pipeline and any(tool.kind == "playbook" for tool in step.tools.all):
            _divide(step)
        return step

    def _read_older(self, node: Mapping, label: str) -> Fields:
        """The keys of a step. In the oldest dialect some belong to its tool, and are checked with it."""
        kind = kind_of(node)
        of_tool = keys_of_oldest_tool(kind.text) if kind is not None else frozenset()
        form: Fields = OLDER_STEP.read(without(node, *of_tool), label, self._source)
        form.node.entries |= only(node, of_tool).entries
        return form

    def _read_loop(self, form: Fields, step: Step) -> None:
        """Read the loop of a step, and divide what is done for each item from what is done at its end."""
        step.loop = read_loop(form, self._source)
        how = form.get("spec", form)
        if "max_in_flight" in how and "mode" not in how:
            message = "items run one after the other, as in NoETL: 'max_in_flight' counts only with 'mode: parallel'"
            self._source.warn("noetl", message, how.key("max_in_flight"))
        iterator = step.loop.iterator if step.loop is not None else ""
        for case in step.router.cases:
            if iterator and is_about_item(case, iterator):
                message = "the step that follows runs once, when all items are done, with what the last item gives it"
                hint = f"for each item: loop over '{step.name}.results' there"
                self._source.warn("noetl", message, case.key("then"), hint=hint)
        own, step.router = split_loop_cases(step.router, iterator)
        step.item_cases = (*own, *step.item_cases)
        step.set_of_items, step.set = _split_set(step)
        step.set_in_turn, step.set_of_items = _split_gathered(step)
        if step.loop is None or step.loop.max_parallel == 1:
            return
        collecting = [action for action in step.item_actions if "collect" in action.entries]
        if collecting:
            message = "items run at the same time, so only what the last item collects is kept"
            hint = "write 'mode: sequential', or read the results of the step"
            self._source.warn("noetl", message, collecting[0].key("collect"), hint=hint)
        self._warn_about_rules(step)

    def _warn_about_rules(self, step: Step) -> None:
        """Warn where a rule adds to a value that the items of a loop would have to share."""
        entries = [
            entry for tool in step.tools.all for found in _sets(tool.node.get("spec")) for entry in found.items()
        ]
        begun = {key.text for key, value in entries if not has_templates(value)}
        for key, value in entries:
            name = key.text.removeprefix("ctx.")
            if key.text not in begun and any(re.search(rf"\bctx\.{re.escape(name)}\b", text) for text in texts(value)):
                message = f"items run at the same time, so only what the last item adds to '{name}' is kept"
                hint = "write it in 'set' of the step, or write 'mode: sequential'"
                self._source.warn("noetl", message, key, hint=hint)
                return

    def _newer(self, form: Fields, named: Node, label: str) -> Step:
        tools = self._book.tools(form.node, label)
        router = read_router(form["next"], self._translation) if "next" in form else Router()
        step = self._step(form, named, tools, router)
        step.input, step.set = form.node.get("input"), form.node.get("set")
        if "output" in form:
            self._source.warn("noetl", "'output' of a step is not honoured", form.key("output"))
        if "spec" in form:
            self._read_spec(form["spec"], step)
        return step

    def _step(self, form: Fields, named: Node, tools: Tools, router: Router) -> Step:
        timeout = duration(tools.timeout, self._source) if tools.timeout is not None else None
        return Step(str(form["step"]), named, form.node, tools, router, retry=tools.retry, timeout=timeout)

    def _read_spec(self, spec: Fields, step: Step) -> None:
        if "timeout" in spec:
            step.timeout = duration(spec.at("timeout"), self._source)
        policy = spec.get("policy")
        if policy is None:
            return
        for key in ("admit", "lifecycle", "emit"):
            if key in policy:
                self._source.warn("noetl", f"'{key}' of a step's policy is not honoured", policy.key(key))
        if "failure" in policy:
            step.after_failure = self._after_failure(policy.at("failure"))

    def _after_failure(self, node: Node) -> str:
        mode = node.get("mode") if isinstance(node, Mapping) else node
        if isinstance(mode, Scalar) and mode.value in ("best_effort", "fail_fast"):
            return str(mode.value)
        message = f"'failure' is {describe(node)}; 'best_effort' or 'fail_fast' is expected"
        raise self._source.refuse("choice", message, node)

    def _older(self, form: Fields, named: Node, label: str) -> Step:
        tools = self._book.tools(form.node, label)
        router = read_next(form.node.get("next"), form.get("case", ()), self._source)
        step = self._step(form, named, tools, router)
        self._read_sink(form, step)
        step.input = input_of(form.node)
        if (kept := form.node.get("vars")) is not None:
            step.set = self._set(kept)
        if "timeout" in form:
            step.timeout = duration(form.at("timeout"), self._source)
        if "assert" in form:
            self._source.warn("noetl", "'assert' is not honoured", form.key("assert"))
        self._read_case_retry(step)
        return step

    def _read_sink(self, form: Fields, step: Step) -> None:
        """Make a case of `save` and `sink` that holds after every success; in a loop, after each item."""
        key = next((key for key in ("save", "sink") if key in form), None)
        if key is None:
            return
        node = _without_storage(form[key].node)
        if any(is_word(node.get(word), event) for word in _STORAGE for event in ("event_log", "event")):
            return  # the log has the result of every step anyway
        if step.router.cases and "loop" not in form:
            message = f"'{key}' cannot stand beside 'case'"
            raise self._source.refuse("noetl", message, form.key(key), hint="put 'sink' into the 'then' of a case")
        sink = made({("tool" if word.text in _STORAGE else word.text): value for word, value in node.items()}, node)
        check_sink(sink, self._source)
        case = mapping({"when": "{{ event.name == 'call.done' }}", "then": {"sink": sink}}, node)
        if "loop" in form:
            step.item_cases = (case,)
        else:
            step.router = msgspec.structs.replace(step.router, cases=(case,))

    def _set(self, node: Node) -> Node:
        """`vars` of the older dialects: `vars.NAME` in templates."""
        if not isinstance(node, Mapping):
            raise self._source.refuse("type", f"'vars' is {describe(node)}, a mapping is expected", node)
        return made({f"vars.{key.text}": value for key, value in node.items()}, node)

    def _read_case_retry(self, step: Step) -> None:
        """Allow the retries of cases: the action asks for each, and the policy of the step grants it and waits."""
        allowed: list[int] = []
        actions = [action for case in step.router.cases for action in actions_of_case(case)]
        for node in [action.entries["retry"][1] for action in actions if "retry" in action.entries]:
            if isinstance(node, Mapping) and not node.entries.keys().isdisjoint(NEXT_CALL.keys):
                # It changes the call, so it is not a retry: it asks for the next page.
                CASE_PAGES.read(node, "'retry'", self._source)
            elif (retries := read_retry(node, self._source)) is not None and retries.policy:
                allowed.append(retries.policy["max_retries"])
        if allowed:
            step.retry = policy_for_requests(1 + max(allowed))


def _without_storage(node: Mapping) -> Mapping:
    """A `save` with the keys of its `storage`, where that is a mapping, beside its own."""
    storage = node.get("storage")
    return (
        renewed({**storage.entries, **without(node, "storage").entries}, node) if isinstance(storage, Mapping) else node
    )


def _divide(step: Step) -> None:
    """Make a part of each called playbook in the list of tools, and of the tools before it."""
    *parts, rest = step.tools.parts
    step.tools = Tools(rest, is_pipeline=True)
    for number, tools in enumerate(parts, start=1):
        is_call = tools[0].kind == "playbook"
        part = Step(f"{step.name} {number}", step.at, step.node, Tools(tools, is_pipeline=not is_call), Router())
        part.input, part.timeout, part.part_of, part.before = step.input, step.timeout, step.name, step.before
        part.after_failure = "" if step.after_failure == "best_effort" else step.after_failure
        step.before = (*step.before, part)


def _sets(node: Node | None) -> Iterator[Mapping]:
    """All `set` in the rules of a tool."""
    if isinstance(node, Sequence):
        for item in node.items:
            yield from _sets(item)
    for key, value in node.items() if isinstance(node, Mapping) else ():
        if key.text == "set" and isinstance(value, Mapping):
            yield value
        else:
            yield from _sets(value)


# Names in a template that mean the results of all items of a loop.
_OF_ALL_ITEMS = frozenset({"results", "stats"})
# What templates read that steps set.
_SET_BEFORE = frozenset({"ctx", "workload", "vars"})


def _divide_set(node: Mapping, belongs: Callable[[Node], bool]) -> tuple[Node | None, Node | None]:
    """The values that belong, and the others."""
    chosen = [key for key, (_, value) in node.entries.items() if belongs(value)]
    parts = (only(node, chosen), without(node, *chosen))
    return parts[0] if parts[0].entries else None, parts[1] if parts[1].entries else None


def _split_set(step: Step) -> tuple[Node | None, Node | None]:
    """Split `set` of a loop: values for each item, as NoETL sets them, and values made of the results of all items."""
    loop = step.loop
    if not isinstance(step.set, Mapping) or loop is None:
        return None, step.set
    return _divide_set(step.set, lambda value: _is_of_item(value, step, loop))


def _split_gathered(step: Step) -> tuple[Node | None, Node | None]:
    """Split what is set for each item: what adds to a value that is set already, and the rest.

    Items that run at the same time do not see what the others set. NoETL sets the values of a step on its server, one
    item after the other, so that sums and lists there are complete.
    """
    found = step.set_of_items
    if not isinstance(found, Mapping) or step.loop is None or step.loop.max_parallel == 1 or step.item_cases:
        return None, found
    own = _SET_BEFORE | {name for key in found.entries for name in key.split(".")}
    return _divide_set(found, lambda value: not own.isdisjoint(words(value)))


def _is_of_item(value: Node, step: Step, loop: Loop) -> bool:
    read = words(value)
    if not {"iter", loop.iterator}.isdisjoint(read):
        return True
    return has_templates(value) and _OF_ALL_ITEMS.isdisjoint(read) and step.name not in read


def duration(node: Node, source: Source) -> Node:
    """A duration of ours. NoETL counts in seconds."""
    if not isinstance(node, Scalar) or isinstance(node.value, bool) or "{{" in node.text:
        message = f"a time is {describe(node)}, a number of seconds is expected"
        raise source.refuse("type", message, node)
    if isinstance(node.value, int | float):
        return made(seconds(node.value), node)
    return made(f"{node.text}s" if node.text.strip().isdecimal() else node.text, node)


class Loop(msgspec.Struct, frozen=True, eq=False):
    """A loop of a playbook."""

    over: Node
    iterator: str
    # None: no limit, or that of the template `parallel`, which is rendered when the loop starts.
    max_parallel: int | None = 1
    parallel: Node | None = None
    max_items: int | None = None


def read_loop(form: Fields, source: Source) -> Loop | None:
    """Read a loop of either dialect. Notes missing keys."""
    over = form.node.get("in") or form.node.get("collection")
    iterator = form.get("iterator") or form.get("element")
    for found, word in ((over, "in"), (iterator, "iterator")):
        # With other keys it most likely has a misspelled name, which was noted.
        if found is None and not form.has_unknown_keys:
            source.note(source.refuse("missing_key", f"'loop' has no '{word}'", form.node, hint=f"add '{word}: …'"))
    if over is None or iterator is None:
        return None
    how = form.get("spec", form)
    limit = form.get("limit")
    key = next((key for key in ("max_in_flight", "concurrency") if key in how), None)
    mode = how.get("mode", "parallel" if key == "concurrency" else "sequential")
    if mode == "sequential" or key is None:
        return Loop(over, iterator, 1 if mode == "sequential" else None, max_items=limit)
    node = how.at(key)
    if has_templates(node):
        return Loop(over, iterator, None, parallel=node, max_items=limit)
    number = _number(node)
    if number is None or number < 1:
        message = f"'{key}' is {describe(node)}, a whole number of at least 1 is expected"
        raise source.refuse("type", message, node, hint="write a number, or a template that gives one")
    return Loop(over, iterator, number, max_items=limit)


def _number(node: Node) -> int | None:
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    return value if type(value) is int else None
