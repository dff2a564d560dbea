"""Routes of a step: arcs, `next` and `case` of all dialects as one list of arcs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.formats.noetl.keys import TARGET, THEN
from mulligan.formats.noetl.texts import any_of, foreign, texts
from mulligan.formats.noetl.tool_keys import MISSING_TOOLS, SINKS
from mulligan.formats.translation import Translation, made, mapping, scalar
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source, describe, shorten
from mulligan.language.text.suggestions import quote_list

# Words in a condition that is about failures. A condition without any of them is about successes.
_FAILURE_WORDS = re.compile(r"\b(?:error|errors|failed|failure)\b")
_STATUS_WORDS = re.compile(r"\b(?:status\w*|http)\b")
_SUCCESS_WORDS = re.compile(r"\b(?:call\.done|loop\.done|step\.exit)\b|==\s*['\"](?:ok|success|completed)\b")
_WHOLE = re.compile(r"\s*\{\{-?(.*?)-?\}\}\s*", re.DOTALL)


class Arc(msgspec.Struct, frozen=True, eq=False):
    """A link to another step. `at` is where the target is named."""

    to: str
    at: Node
    when: Node | None = None
    set: Node | None = None
    args: Node | None = None

    @property
    def plain(self) -> dict[str, Node | str | None]:
        """The arc as the action takes it."""
        return {"step": scalar(self.to, self.at), "when": self.when, "set": self.set, "args": self.args}


class Router(msgspec.Struct, frozen=True, eq=False):
    """The routes of a step. `cases` come first: `arcs` count only where no case leads anywhere."""

    arcs: tuple[Arc, ...] = ()
    mode: str = "inclusive"
    must_match: bool = False
    cases: tuple[Mapping, ...] = ()
    # The steps that the cases lead to.
    case_arcs: tuple[Arc, ...] = ()

    @property
    def targets(self) -> tuple[Arc, ...]:
        """All arcs, those of the cases first."""
        return (*self.case_arcs, *self.arcs)

    @property
    def is_plain(self) -> bool:
        """Whether all arcs are taken after every success."""
        return not self.cases and all(arc.when is None for arc in self.arcs)

    def after_failure(self) -> Router:
        """The routes with conditions about failures: an arc without a condition is not taken after one."""
        cases = tuple(case for case in self.cases if _is_about_failure(case.get("when")))
        case_arcs = tuple(arc for case in cases for arc in _case_arcs(case))
        arcs = tuple(arc for arc in self.arcs if arc.when is not None and _is_about_failure(arc.when))
        return Router(arcs, self.mode, cases=cases, case_arcs=case_arcs)


def _is_about_failure(when: Node | None) -> bool:
    text = " ".join(texts(when))
    if _FAILURE_WORDS.search(text):
        return True
    return bool(_STATUS_WORDS.search(text)) and not _SUCCESS_WORDS.search(text)


# -- the newer dialect -------------------------------------------------------------------------------------------------


def read_router(form: Fields, translation: Translation) -> Router:
    """Read `next: {spec, arcs}`."""
    spec = form.get("spec")
    mode = spec.get("mode", "exclusive") if spec else "exclusive"
    arcs = [
        Arc(str(arc["step"]), arc.at("step"), when=arc.node.get("when"), set=arc.node.get("set"))
        for arc in form.get("arcs", ())
        if "step" in arc
    ]
    if spec and "policy" in spec:
        translation.source.warn("noetl", "'policy' of 'next.spec' is not honoured", spec.key("policy"))
    for arc in form.get("arcs", ()):
        if "spec" in arc:
            translation.source.warn("noetl", "'spec' of an arc is not honoured", arc.key("spec"))
    if mode == "exclusive":
        arcs = _without_unreachable(arcs, translation)
    return Router(tuple(arcs), mode, must_match=bool(spec) and spec.get("on_no_match") == "fail")


def _without_unreachable(arcs: list[Arc], translation: Translation) -> list[Arc]:
    """Drop, with a warning, exclusive arcs after one without a condition."""
    first = next((index for index, arc in enumerate(arcs) if arc.when is None), len(arcs))
    for arc in arcs[first + 1 :]:
        message = f"the arc to '{arc.to}' is never taken: the one to '{arcs[first].to}' before it has no 'when'"
        translation.source.warn("noetl", message, arc.at, hint="move it up, or write 'mode: inclusive'")
    return arcs[: first + 1]


# -- the older dialects ------------------------------------------------------------------------------------------------


def read_next(node: Node | None, cases: tuple[Fields, ...], source: Source) -> Router:
    """Read `next`, which is a name, or a list of names, `{step, args}` and `{when, then}`; and the cases."""
    arcs = tuple(_targets(node, source)) if node is not None else ()
    kept = tuple(case.node for case in cases if "when" in case and "then" in case)
    for then in [then for case in kept for then in _then_entries(case)]:
        with source.noting:
            form = THEN.read(then, "'then'", source)
            if "sink" in form:
                check_sink(form.at("sink"), source)
    case_arcs = tuple(arc for case in kept for arc in _case_arcs(case))
    return Router(arcs, "inclusive", cases=kept, case_arcs=case_arcs)


def _targets(node: Node, source: Source) -> Iterator[Arc]:
    conditions: list[str] = []
    for entry in node.items if isinstance(node, Sequence) else [node]:
        with source.noting:
            yield from _entry(entry, conditions, source)


def _entry(node: Node, conditions: list[str], source: Source) -> Iterator[Arc]:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        yield Arc(node.value, node)
        return
    if not isinstance(node, Mapping):
        message = f"an entry of 'next' is {describe(node)}, the name of a step or a mapping is expected"
        raise source.refuse("type", message, node)
    form: Fields = TARGET.read(node, "an entry of 'next'", source)
    when = node.get("when")
    if when is not None:
        conditions.append(_bare(when))
    if "step" in form:
        yield Arc(str(form["step"]), form.at("step"), when=when, args=_arguments(node))
    if "then" in form:
        yield from (_under(arc, when) for arc in _targets(form.at("then"), source))
    if "else" in form:
        otherwise = scalar(f"{{{{ not ({any_of(conditions)}) }}}}", form.at("else")) if conditions else None
        yield from (_under(arc, otherwise) for arc in _targets(form.at("else"), source))
    if not any(key in form for key in ("step", "then", "else")):
        raise source.refuse("missing_key", "the entry of 'next' names no step", node, hint="add 'step: …'")


def _under(arc: Arc, when: Node | None) -> Arc:
    return msgspec.structs.replace(arc, when=when) if arc.when is None else arc


def _bare(when: Node) -> str:
    """The condition without its braces."""
    text = when.text if isinstance(when, Scalar) else "false"
    found = _WHOLE.fullmatch(text)
    return found[1].strip() if found else text


def _arguments(node: Mapping) -> Node | None:
    return next((found for key in ("args", "input", "data") if (found := node.get(key)) is not None), None)


def check_sink(node: Node, source: Source) -> None:
    """Refuse a sink that is not one of the tools that can be one."""
    for sink in node.items if isinstance(node, Sequence) else [node]:
        if not isinstance(sink, Mapping):
            raise source.refuse("type", f"a sink is {describe(sink)}, a mapping with 'tool' is expected", sink)
        tool = sink.get("tool")
        inner = tool.get("kind") if isinstance(tool, Mapping) else tool
        kind = inner or sink.get("kind") or sink.get("backend")
        if not isinstance(kind, Scalar):
            raise source.refuse("missing_key", "the sink has no 'tool'", sink, hint="add 'tool: …'")
        if kind.value not in SINKS:
            hint = MISSING_TOOLS.get(kind.text) or f"there are {quote_list(SINKS, 'and')}"
            raise source.refuse("noetl", f"there is no sink '{shorten(kind.text)}'", kind, hint=hint)


def _then_entries(case: Mapping) -> list[Node]:
    then = case.get("then")
    return then.items if isinstance(then, Sequence) else [then] if then is not None else []


def actions_of_case(case: Mapping) -> list[Mapping]:
    """The mappings under `then`; other entries were refused."""
    return [then for then in _then_entries(case) if isinstance(then, Mapping)]


def _case_arcs(case: Mapping) -> Iterator[Arc]:
    """The steps that a case leads to, with `next` or `call`."""
    for then in actions_of_case(case):
        for key in ("next", "call"):
            node = then.get(key)
            if node is not None:
                yield from _case_targets(node)


def _case_targets(node: Node) -> Iterator[Arc]:
    for entry in node.items if isinstance(node, Sequence) else [node]:
        if isinstance(entry, Scalar) and isinstance(entry.value, str):
            yield Arc(entry.value, entry)
        elif isinstance(entry, Mapping) and isinstance(named := entry.get("step"), Scalar):
            yield Arc(named.text, named)


# What a condition reads of the result of one item. The loop has `results` and `stats`, and nothing else.
_READS_ITEM = re.compile(r"\b(?:iter|(?:response|result|this|output\.data)(?!\.(?:results|stats)\b))\s*[.\[]")


def is_about_item(case: Mapping, iterator: str) -> bool:
    """Whether the case leads to other steps, and its condition can hold for an item only, not for the whole loop."""
    _, links = _split_case(case)
    found = list(texts(case.get("when")))
    if not links or any("loop.done" in text for text in found):
        return False
    return any(_READS_ITEM.search(text) or re.search(rf"\b{re.escape(iterator)}\b", text) for text in found)


def split_loop_cases(router: Router, iterator: str) -> tuple[tuple[Mapping, ...], Router]:
    """Split the cases of a loop: those for each item (retry, collect, sink), and those for the end of the loop.

    A case about `loop.done` is not evaluated for an item. One that only an item can fulfil is evaluated there; at the
    end it holds where it held for an item, so here it is only an edge.
    """
    items: list[Mapping] = []
    after: list[Mapping] = []
    for case in router.cases:
        is_of_loop = any("loop.done" in text for text in texts(case.get("when")))
        own, links = _split_case(case)
        if is_about_item(case, iterator):
            items.append(_with_then(case, [*own, *links]))
            after.append(_with_then(case, links, "{{ false }}"))
            continue
        if is_of_loop or links:
            after.append(case if is_of_loop else _with_then(case, links))
        if own and not is_of_loop:
            items.append(_with_then(case, own))
    return tuple(items), msgspec.structs.replace(router, cases=tuple(after))


def _split_case(case: Mapping) -> tuple[list[Any], list[Any]]:
    """What a case does itself, and the links to other steps."""
    own: list[Any] = []
    links: list[Any] = []
    for entry in _following(case):
        for word, value in entry.items():
            (links if word == "next" else own).append({word: value})
    return own, links


def _with_then(case: Mapping, then: list[Any], when: str | None = None) -> Mapping:
    return mapping({"when": when or case.get("when"), "then": then}, case)


def cases_for_action(router: Router) -> list[Node]:
    """The cases as the action takes them: a `call` of a step becomes `next`."""
    return [foreign(made({"when": case.get("when"), "then": _following(case)}, case)) for case in router.cases]


def _following(case: Mapping) -> list[dict[str, Node]]:
    return [{_word(key.text, value): value for key, value in entry.items()} for entry in actions_of_case(case)]


def _word(key: str, value: Node) -> str:
    """A `call` of a step is a link; one without a step calls the tool again."""
    is_own = isinstance(value, Mapping) and "step" not in value.entries
    return "next" if key == "call" and not is_own else key


def router_for_action(router: Router, at: Node) -> Node:
    """The arcs as the action takes them."""
    return foreign(made({"mode": router.mode, "arcs": [arc.plain for arc in router.arcs]}, at))
