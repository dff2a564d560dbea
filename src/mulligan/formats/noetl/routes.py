"""Where a step goes on: arcs, `next` and `case` of the dialects as one list of arcs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from mulligan.formats.noetl.keys import TARGET, THEN
from mulligan.formats.noetl.texts import foreign, joined_or, texts
from mulligan.formats.noetl.tool_keys import MISSING_TOOLS, SINKS
from mulligan.formats.translation import Translation, made, scalar
from mulligan.language.nodes import Mapping, Node, Scalar, Sequence, Source, describe, shorten
from mulligan.language.shapes import Fields
from mulligan.language.suggestions import quote_list

# What a condition reads that is asked after a failure. One that reads none of it is about successes.
_OF_FAILURES = re.compile(r"\b(?:error|errors|failed|failure)\b")
_OF_EITHER = re.compile(r"\b(?:status\w*|http)\b")
_OF_SUCCESSES = re.compile(r"\b(?:call\.done|loop\.done|step\.exit)\b|==\s*['\"](?:ok|success|completed)\b")
_WHOLE = re.compile(r"\s*\{\{-?(.*?)-?\}\}\s*", re.DOTALL)


class Arc(msgspec.Struct, frozen=True, eq=False):
    """A way on. `at` is where its target is named."""

    to: str
    at: Node
    when: Node | None = None
    set: Node | None = None
    args: Node | None = None

    @property
    def plain(self) -> dict[str, Node | str | None]:
        """As the action takes it."""
        return {"step": scalar(self.to, self.at), "when": self.when, "set": self.set, "args": self.args}


class Router(msgspec.Struct, frozen=True, eq=False):
    """The ways on of a step. `cases` come first, and what they decide is decided."""

    arcs: tuple[Arc, ...] = ()
    mode: str = "inclusive"
    must_match: bool = False
    cases: tuple[Mapping, ...] = ()
    # Whom the cases lead to.
    called: tuple[Arc, ...] = ()

    @property
    def targets(self) -> tuple[Arc, ...]:
        """All ways on, those of the cases first."""
        return (*self.called, *self.arcs)

    @property
    def is_plain(self) -> bool:
        """Whether all its ways are taken after every success."""
        return not self.cases and all(arc.when is None for arc in self.arcs)

    def after_failure(self) -> Router:
        """The ways that speak of failures: an arc without a condition is not taken after one."""
        cases = tuple(case for case in self.cases if _speaks_of_failure(case.get("when")))
        called = tuple(arc for case in cases for arc in _called(case))
        arcs = tuple(arc for arc in self.arcs if arc.when is not None and _speaks_of_failure(arc.when))
        return Router(arcs, self.mode, cases=cases, called=called)


def _speaks_of_failure(when: Node | None) -> bool:
    said = " ".join(texts(when))
    if _OF_FAILURES.search(said):
        return True
    return bool(_OF_EITHER.search(said)) and not _OF_SUCCESSES.search(said)


# -- the newer dialect -------------------------------------------------------------------------------------------------


def read_router(form: Fields, translation: Translation) -> Router:
    """`next: {spec, arcs}`."""
    spec = form.get("spec")
    mode = spec.get("mode", "exclusive") if spec else "exclusive"
    arcs = [_arc(arc) for arc in form.get("arcs", ()) if "step" in arc]
    if spec and "policy" in spec:
        translation.warn("noetl", "'policy' of 'next.spec' is not honoured", spec.key("policy"))
    for arc in form.get("arcs", ()):
        if "spec" in arc:
            translation.warn("noetl", "'spec' of an arc is not honoured", arc.key("spec"))
    if mode == "exclusive":
        arcs = _up_to_the_first_without(arcs, translation)
    return Router(tuple(arcs), mode, must_match=bool(spec) and spec.get("on_no_match") == "fail")


def _arc(form: Fields) -> Arc:
    at = form.at("step")
    return Arc(str(form["step"]), at, when=form.node.get("when"), set=form.node.get("set"))


def _up_to_the_first_without(arcs: list[Arc], translation: Translation) -> list[Arc]:
    """Of exclusive arcs nobody asks those after one that always holds."""
    first = next((index for index, arc in enumerate(arcs) if arc.when is None), len(arcs))
    for arc in arcs[first + 1 :]:
        message = f"the arc to '{arc.to}' is never taken: the one to '{arcs[first].to}' before it has no 'when'"
        translation.warn("noetl", message, arc.at, hint="move it up, or write 'mode: inclusive'")
    return arcs[: first + 1]


# -- the older dialects ------------------------------------------------------------------------------------------------


def read_next(node: Node | None, cases: tuple[Fields, ...], source: Source) -> Router:
    """`next: NAME`, a list of them, or of `{step, args}` and `{when, then}`; and the cases before it."""
    arcs = tuple(_targets(node, source)) if node is not None else ()
    kept = tuple(case.node for case in cases if "when" in case and "then" in case)
    for case in kept:
        _check_then(case, source)
    called = tuple(arc for case in kept for arc in _called(case))
    return Router(arcs, "inclusive", cases=kept, called=called)


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
        otherwise = scalar(f"{{{{ not ({joined_or(conditions)}) }}}}", form.at("else")) if conditions else None
        yield from (_under(arc, otherwise) for arc in _targets(form.at("else"), source))
    if not any(key in form for key in ("step", "then", "else")):
        raise source.refuse("missing_key", "the entry of 'next' names no step", node, hint="add 'step: …'")


def _under(arc: Arc, when: Node | None) -> Arc:
    return msgspec.structs.replace(arc, when=when) if arc.when is None else arc


def _bare(when: Node) -> str:
    """What stands between the braces of a condition."""
    text = when.text if isinstance(when, Scalar) else "false"
    found = _WHOLE.fullmatch(text)
    return found[1].strip() if found else text


def _arguments(node: Mapping) -> Node | None:
    return next((found for key in ("args", "input", "data") if (found := node.get(key)) is not None), None)


def _check_then(case: Mapping, source: Source) -> None:
    for then in _thens(case):
        with source.noting:
            form = THEN.read(then, "'then'", source)
            if "sink" in form:
                check_sink(form.at("sink"), source)


def check_sink(node: Node, source: Source) -> None:
    """Refused where a sink is no tool that is there."""
    for sink in node.items if isinstance(node, Sequence) else [node]:
        if not isinstance(sink, Mapping):
            raise source.refuse("type", f"a sink is {describe(sink)}, a mapping with 'tool' is expected", sink)
        kind = _sink_kind(sink)
        if not isinstance(kind, Scalar):
            raise source.refuse("missing_key", "the sink has no 'tool'", sink, hint="add 'tool: …'")
        if kind.value not in SINKS:
            hint = MISSING_TOOLS.get(kind.text) or f"there are {quote_list(SINKS, 'and')}"
            raise source.refuse("noetl", f"there is no sink '{shorten(kind.text)}'", kind, hint=hint)


def _sink_kind(sink: Mapping) -> Node | None:
    tool = sink.get("tool")
    inner = tool.get("kind") if isinstance(tool, Mapping) else tool
    return inner or sink.get("kind") or sink.get("backend")


def _thens(case: Mapping) -> list[Node]:
    then = case.get("then")
    return then.items if isinstance(then, Sequence) else [then] if then is not None else []


def deeds_of(case: Mapping) -> list[Mapping]:
    """What a case says is to be done; what is none was refused."""
    return [then for then in _thens(case) if isinstance(then, Mapping)]


def _called(case: Mapping) -> Iterator[Arc]:
    """The steps that a case leads to, with `next` or `call`."""
    for then in deeds_of(case):
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


def of_items(router: Router) -> tuple[tuple[Mapping, ...], Router]:
    """The cases of a loop: what they do with each item (try again, gather, put away), and where they lead when all
    are done. One that speaks of `loop.done` is not asked for an item."""
    items: list[Mapping] = []
    after: list[Mapping] = []
    for case in router.cases:
        is_of_loop = any("loop.done" in text for text in texts(case.get("when")))
        own, led = _parted(case)
        if is_of_loop or led:
            after.append(case if is_of_loop else _with_then(case, led))
        if own and not is_of_loop:
            items.append(_with_then(case, own))
    return tuple(items), msgspec.structs.replace(router, cases=tuple(after))


def _parted(case: Mapping) -> tuple[list[Any], list[Any]]:
    """What a case does itself, and the steps that it leads to."""
    own: list[Any] = []
    led: list[Any] = []
    for deed in _following(case):
        for word, value in deed.items():
            (led if word == "next" else own).append({word: value})
    return own, led


def _with_then(case: Mapping, then: list[Any]) -> Mapping:
    node = made({"when": case.get("when"), "then": then}, case)
    assert isinstance(node, Mapping)
    return node


def written_cases(router: Router) -> list[Node]:
    """The cases as the action takes them, in which a step that is called is one that follows."""
    return [foreign(made({"when": case.get("when"), "then": _following(case)}, case)) for case in router.cases]


def _following(case: Mapping) -> list[dict[str, Node]]:
    return [{_word(key.text, value): value for key, value in deed.items()} for deed in deeds_of(case)]


def _word(key: str, value: Node) -> str:
    """A `call` of a step is a way on; one of no step is the tool's own, again."""
    is_own = isinstance(value, Mapping) and "step" not in value.entries
    return "next" if key == "call" and not is_own else key


def written(router: Router, at: Node) -> Node:
    """The ways on as the action takes them."""
    return foreign(made({"mode": router.mode, "arcs": [arc.plain for arc in router.arcs]}, at))
