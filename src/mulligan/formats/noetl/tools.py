"""Read the tools of a step: one, or a list of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.formats.noetl.keys import OLDER_STEP, WORKBOOK
from mulligan.formats.noetl.oldest import kind_of
from mulligan.formats.noetl.retries import policy_for_rules, read_retry, then_of
from mulligan.formats.noetl.texts import is_word
from mulligan.formats.noetl.tool_keys import MISSING_TOOLS, TOOLS
from mulligan.formats.translation import Translation, made, only, renewed, scalar, without
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, describe, plain, shorten
from mulligan.language.text.suggestions import did_you_mean, quote_list

# Keys that the action does not get: they are honoured elsewhere, or ignored.
_NOT_FOR_ACTION = ("desc", "output", "retry", "pool", "version")
# Keys of a step of the oldest dialect that belong to its tool.
_TOOL_KEYS = frozenset(OLDER_STEP.keys) - {
    *("step", "desc", "args", "loop", "tool", "vars", "case", "next", "retry", "timeout", "input", "type", "data"),
    *("assert", "save", "sink"),
}
# Names that older files have for the input of a tool.
_INPUTS = ("args", "data", "with", "input")


class Tool(msgspec.Struct, eq=False):
    """One tool: its kind, and its mapping as the action takes it."""

    kind: str
    node: Mapping
    fields: Fields
    # Whether the file has it as an agent, which is a called playbook whose result is in an envelope.
    is_agent: bool = False


class Tools(msgspec.Struct, eq=False):
    """The tools of a step. `retry` is the retry policy of the step, where its only tool asks for one."""

    all: tuple[Tool, ...] = ()
    is_pipeline: bool = False
    retry: dict[str, Any] | None = None
    timeout: Node | None = None

    @property
    def child(self) -> Tool | None:
        """The tool that calls another playbook, if there is one."""
        return self.all[0] if len(self.all) == 1 and self.all[0].kind == "playbook" else None

    @property
    def parts(self) -> list[tuple[Tool, ...]]:
        """A list of tools, divided at each playbook that it calls; the last part calls none, and may be empty."""
        found: list[tuple[Tool, ...]] = []
        waiting: tuple[Tool, ...] = ()
        for tool in self.all:
            if tool.kind == "playbook":
                found += [part for part in (waiting, (tool,)) if part]
                waiting = ()
            else:
                waiting = (*waiting, tool)
        return [*found, waiting]

    @property
    def node(self) -> Node | None:
        """The tools as the action takes them."""
        if not self.all:
            return None
        return made([tool.node for tool in self.all], self.all[0].node) if self.is_pipeline else self.all[0].node


class Workbook:
    """Tools that steps call by name."""

    def __init__(self, entries: tuple[Node, ...], translation: Translation) -> None:
        self._translation = translation
        self._source = translation.source
        self._tools: dict[str, Node] = {}
        for entry in entries:
            with translation.source.noting:
                self._read(entry)
        self._is_complete = len(self._tools) == len(entries)

    def _read(self, node: Node) -> None:
        source = self._source
        if not isinstance(node, Mapping):
            raise source.refuse("type", f"an entry of 'workbook' is {describe(node)}, a mapping is expected", node)
        is_oldest = kind_of(node) is not None
        own = only(node, WORKBOOK.keys) if is_oldest else node
        form: Fields = WORKBOOK.read(own, "an entry of 'workbook'", source)
        if "tool" not in form and not is_oldest:
            raise source.refuse("missing_key", "the entry of 'workbook' has no 'tool'", node, hint="add 'tool: …'")
        if "desc" in form and "name" in form:
            self._translation.remark(form.node, f"'{form['name']}' of the workbook: {plain(form.at('desc'))}")
        if "assert" in form:
            source.warn("noetl", "'assert' of the workbook is not honoured", form.key("assert"))
        if "name" in form:
            self._tools[str(form["name"])] = _in_workbook(node) if is_oldest else form.at("tool")

    def tools(self, step: Mapping, label: str) -> Tools:
        """Read `tool` of a step, or its equivalent in the oldest dialect."""
        node = step.get("tool")
        if isinstance(node, Sequence):
            return self._pipeline(node, label)
        if not isinstance(node, Mapping):
            node = _oldest_tool(step, node)
        if node is None:
            return Tools()
        return self._single(node, step, label)

    def _single(self, node: Mapping, step: Mapping, label: str) -> Tools:
        tool = self._tool(node, label)
        written = node.get("retry") or step.get("retry")
        retries = read_retry(written, self._source) if written is not None else None
        if retries is not None and retries.rules:
            tool.node = _with(tool.node, "spec", made({"policy": {"rules": list(retries.rules)}}, tool.node))
        if retries is not None and retries.pages:
            tool.node = _with(tool.node, "pages", made(list(retries.pages), tool.node))
        retry = (retries and retries.policy) or policy_for_rules(_rules(tool.node))
        return Tools((tool,), retry=retry, timeout=_timeout(tool))

    def _pipeline(self, node: Sequence, label: str) -> Tools:
        source = self._source
        found: list[Tool] = []
        for item in node.items:
            with source.noting:
                if not isinstance(item, Mapping):
                    raise source.refuse("type", f"a tool of {label} is {describe(item)}, a mapping is expected", item)
                found.append(self._tool(_without_label(item), label))
        self._refuse_rules_beside_playbooks(found)
        for tool in found:
            if "retry" in tool.fields:
                message, hint = "'retry' is not allowed in a list of tools", "write it as a rule of 'spec.policy'"
                source.note(source.refuse("noetl", message, tool.fields.key("retry"), hint=hint))
        names: set[str] = set()
        for tool in found:
            name = str(tool.fields.get("name", ""))
            if name and name in names:
                message = f"there are two tools called '{name}' in this list"
                source.note(source.refuse("noetl", message, tool.fields.at("name")))
            names.add(name)
        for at, tool in enumerate(found):
            if any(one.kind == "playbook" for one in found) and "name" not in tool.fields:
                tool.node = _with(tool.node, "name", made(f"task_{at}", tool.node))
        return Tools(tuple(found), is_pipeline=True)

    def _refuse_rules_beside_playbooks(self, found: list[Tool]) -> None:
        """A called playbook divides a list of tools: no rule can leave its part, nor decide about the playbook."""
        calls = [tool for tool in found if tool.kind == "playbook"]
        source, hint = self._source, "write the playbook as a separate step"
        for tool in calls:
            if next(_rules(tool.node), None) is not None:
                message = "a playbook in a list of tools cannot have rules"
                source.note(source.refuse("noetl", message, tool.fields.key("spec"), hint=hint))
        if not calls:
            return
        for rule in (rule for tool in found for rule in _rules(tool.node)):
            then = then_of(rule)
            if then is not None and (is_word(then.get("do"), "jump") or is_word(then.get("do"), "break")):
                message = "a list of tools with a playbook cannot jump or break"
                source.note(source.refuse("noetl", message, then, hint=hint))

    # -- one of them ---------------------------------------------------------------------------------------------------

    def _tool(self, node: Mapping, label: str) -> Tool:
        kind, at = self._kind(node, label)
        if kind == "agent":
            found = self._tool(self._playbook_of_agent(node, label), label)
            return msgspec.structs.replace(found, is_agent=True)
        fields: Fields = TOOLS[kind].read(node, f"the tool '{kind}' of {label}", self._source)
        self._warn(fields, label)
        if kind == "workbook":
            return self._from_workbook(fields, at, label)
        return Tool(kind, _action_keys(fields.node, kind), fields)

    def _playbook_of_agent(self, node: Mapping, label: str) -> Mapping:
        """The call of a playbook that an agent of NoETL's own framework is. Others are refused."""
        source = self._source
        fields: Fields = TOOLS["agent"].read(node, f"the tool 'agent' of {label}", source)
        if not is_word(node.get("framework"), "noetl"):
            at = node.get("framework") or node.get("kind") or node
            message = f"the tool 'agent' of {label} is not one of NoETL's own framework"
            hint = "use 'python' with the agent's package; or convert the file, and write the step with 'agent:'"
            raise source.refuse("noetl", message, at, hint=hint)
        if "on_failure" in fields:
            message = "'on_failure' of an agent is not honoured: its failure is that of the step"
            self._source.warn("noetl", message, fields.key("on_failure"), hint="add an arc for its failure")
        names = {"entrypoint": "path", "payload": "args"}
        kept = without(node, "framework", "entrypoint_mode", "on_failure")
        kept = _with(kept, "kind", scalar("playbook", kept.entries["kind"][1]))
        renamed = [(scalar(names.get(key.text, key.text), key), value) for key, value in kept.items()]
        return renewed({key.text: (key, value) for key, value in renamed}, node)

    def _kind(self, node: Mapping, label: str) -> tuple[str, Node]:
        source, written = self._source, node.get("kind")
        if not isinstance(written, Scalar) or not isinstance(written.value, str):
            raise source.refuse("missing_key", f"the tool of {label} has no 'kind'", node, hint="add 'kind: …'")
        kind = written.value.strip().lower()
        if kind in MISSING_TOOLS:
            message = f"the tool '{kind}' is not supported"
            raise source.refuse("noetl", message, written, hint=MISSING_TOOLS[kind])
        if kind not in TOOLS:
            hint = did_you_mean(kind, TOOLS) or f"there are {quote_list(TOOLS, 'and')}"
            raise source.refuse("noetl", f"there is no tool '{shorten(written.text)}'", written, hint=hint)
        return kind, written

    def _warn(self, fields: Fields, label: str) -> None:
        output = fields.get("output")
        if output is not None and "select" in output:
            message = "'output.select' is not honoured: the whole result is available"
            self._source.warn("noetl", message, output.key("select"))
        if "desc" in fields:
            self._translation.remark(fields.node, f"the tool of {label}: {plain(fields.at('desc'))}")
        policy = fields["spec"].get("policy") if "spec" in fields else None
        for key in ("before", "after", "finally"):
            if policy is not None and key in policy:
                self._source.warn("noetl", f"'{key}' of a policy is not honoured", policy.key(key))
        for rule in policy.get("rules", ()) if policy is not None else ():
            if "else" in rule and "do" in rule["else"]:
                message = "'else' without 'then' is taken as it is meant; NoETL skips it"
                self._source.warn("noetl", message, rule["else"].key("do"), hint="write 'else: {then: {do: …}}'")

    def _from_workbook(self, fields: Fields, at: Node, label: str) -> Tool:
        source = self._source
        key = "task" if "task" in fields else "name"
        if key not in fields and key in fields.node.entries and source.problems:
            raise Refusal(source.problems[0])  # noted: it is not a name
        if key not in fields:
            message = f"the tool 'workbook' of {label} has no 'name'"
            raise source.refuse("missing_key", message, fields.node, hint="add 'name: …'")
        name = str(plain(fields.at(key)))
        book = self._tools.get(name)
        if book is None and not self._is_complete and source.problems:
            raise Refusal(source.problems[0])  # it may be the entry that was refused
        if book is None:
            hint = did_you_mean(name, self._tools) or "add it under 'workbook:'"
            raise source.refuse("noetl", f"there is no '{shorten(name)}' in the workbook", fields.at(key), hint=hint)
        if not isinstance(book, Mapping) or _is_workbook(book):
            raise source.refuse("noetl", "an entry of the workbook must be one tool, and not a 'workbook' tool", book)
        tool = self._tool(book, f"'{name}' of the workbook")
        given = merged(input_of(book), input_of(fields.node))
        if given is not None:
            tool.node = _with(without(tool.node, *_INPUTS), "input", given)
        return tool


def _in_workbook(entry: Mapping) -> Node:
    """The tool of a workbook entry of the oldest dialect: its kind is a text, its keys are those of the entry."""
    kind = kind_of(entry)
    assert kind is not None, "checked before"
    return renewed({**without(entry, *WORKBOOK.keys).entries, "kind": (scalar("kind", kind), kind)}, entry)


def _is_workbook(node: Mapping) -> bool:
    return is_word(node.get("kind"), "workbook")


def _without_label(node: Mapping) -> Mapping:
    """A tool of a list. `- label: {kind: …}` is a tool with that name."""
    if len(node.entries) != 1:
        return node
    ((key, value),) = node.items()
    if not isinstance(value, Mapping) or "kind" not in value.entries:
        return node
    return renewed({"name": (scalar("name", key), key), **value.entries}, value)


def _oldest_tool(step: Mapping, tool: Node | None) -> Mapping | None:
    """The tool of a step of the oldest dialect: its kind is a text, its keys are those of the step."""
    kind = tool if isinstance(tool, Scalar) and isinstance(tool.value, str) else step.get("type")
    if not isinstance(kind, Scalar) or not isinstance(kind.value, str):
        return None
    own = only(step, _TOOL_KEYS | keys_of_oldest_tool(kind.value))
    return renewed({"kind": (scalar("kind", kind), kind), **own.entries}, kind)


def keys_of_oldest_tool(kind: str) -> frozenset[str]:
    """The keys of a tool that a step of the oldest dialect may have as well, beside those of all steps."""
    tool = TOOLS.get(kind.strip().lower())
    return frozenset(tool.keys) - frozenset(OLDER_STEP.keys) if tool is not None else frozenset()


def _action_keys(node: Mapping, kind: str) -> Mapping:
    """The mapping that the action gets: without the keys that it ignores, and with one name for the input."""
    found = renewed({}, node)
    renamed = {"data": "args", "with": "args"} if kind in ("python", "postgres") else {}
    for key, (place, value) in without(node, *_NOT_FOR_ACTION).entries.items():
        named = renamed.get(key, key)
        if key != "spec":
            found.entries[named] = (scalar(named, place), value)
        elif (rules := _rules_node(value)) is not None:
            found.entries[key] = (scalar(key, place), made({"policy": {"rules": rules}}, value))
    return found


def _rules_node(spec: Node | None) -> Node | None:
    policy = spec.get("policy") if isinstance(spec, Mapping) else None
    return policy.get("rules") if isinstance(policy, Mapping) else None


def _with(node: Mapping, key: str, value: Node) -> Mapping:
    return renewed({**node.entries, key: (scalar(key, value), value)}, node)


def _rules(node: Mapping) -> Iterator[Mapping]:
    rules = _rules_node(node.get("spec"))
    yield from (rule for rule in (rules.items if isinstance(rules, Sequence) else ()) if isinstance(rule, Mapping))


def input_of(node: Mapping) -> Node | None:
    """The input of a tool or a step, under any of its names."""
    found: Node | None = None
    for key in _INPUTS:
        found = merged(found, node.get(key))
    return found


def merged(first: Node | None, second: Node | None) -> Node | None:
    """Both mappings as one; the second wins."""
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return second if second is not None else first
    return renewed({**first.entries, **second.entries}, first)


def _timeout(tool: Tool) -> Node | None:
    spec: Fields | None = tool.fields.get("spec")
    if spec is not None and "timeout" in spec:
        return spec.at("timeout")
    return tool.fields.node.get("timeout") if tool.kind == "playbook" else None
