"""Checks of the whole graph: cycles, steps that are read before they ran, remediations that could never run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from mulligan.core.model.actions import traits_of
from mulligan.core.model.graph import Arc, Graph
from mulligan.core.model.workflow import END, Backoff, Need, Step, Workflow
from mulligan.language.checks.links import forward_links, group_links, need_links, readable, success_links, vertex
from mulligan.language.checks.reachability import Reachability, find_cycle
from mulligan.language.keys.retry_keys import BACKOFF
from mulligan.language.readers.groups import output_name
from mulligan.language.resolve import Resolved
from mulligan.language.scope import MATRIX_FIELDS, STEP_FIELDS, Use
from mulligan.language.text.nodes import Node, Refusal, Source
from mulligan.language.text.suggestions import closest, did_you_mean, quote_list


def check_graph(workflow: Workflow, resolved: Resolved, source: Source) -> None:
    """Note the problems of the links between steps."""
    try:
        _check_needs(resolved, source)
        _check_loops(workflow, resolved, source)
    except Refusal as refusal:
        source.note(refusal)
    _check_remediations(resolved, source)


def _check_needs(resolved: Resolved, source: Source) -> None:
    cycle = find_cycle(need_links(resolved))
    if cycle:
        cycle = _from_a_step(cycle)
        node = _need_node(cycle[0], cycle[1], resolved)
        shown = " → ".join(map(readable, cycle))
        raise source.refuse("cycle", f"these steps need each other and could never start: {shown}", node)


def _from_a_step(cycle: list[str]) -> list[str]:
    """The same cycle, starting with a step instead of a group."""
    start = next(index for index, name in enumerate(cycle) if ":" not in name)
    return [*cycle[start:-1], *cycle[:start], cycle[start]]


def _need_node(step: str, needed: str, resolved: Resolved) -> Node:
    """The node where `step` needs `needed`; the step's name if the need is implied."""
    draft = resolved.drafts[step]
    names = (readable(needed), resolved.drafts[needed].name_node.text if needed in resolved.drafts else "")
    found = (need.node for need in draft.needs or () if need.name in names or f"match {need.name}" == names[0])
    return next(found, draft.name_node)


def _check_loops(workflow: Workflow, resolved: Resolved, source: Source) -> None:
    """A cycle must be closed by a `next` edge. Only such an edge may have a delay, and it may not have `then`."""
    graph = Graph(workflow)
    links = group_links(resolved)
    for name, node in graph.nodes.items():
        links[name] += [arc.to for arc in node.arcs if arc.to != END and not arc.is_loop]
        for need in node.step.needs:
            links[vertex(need)].append(name)
        for arc in node.arcs:
            _check_edge(name, arc, resolved, source)
    cycle = find_cycle(links)
    if cycle:
        raise _refuse_closed_by_need(cycle, resolved, source)
    _warn_surprising_starts(graph, resolved, source)


def _warn_surprising_starts(graph: Graph, resolved: Resolved, source: Source) -> None:
    """Warn if a loop does not start at its first step, because a failure edge leads to that step."""
    entered = {arc.to for node in graph.nodes.values() for arc in node.arcs if arc.is_loop}
    for name in graph.starts:
        if name not in entered or graph.nodes[name].step.is_start:
            continue
        ahead = graph.region(name)
        first = next(
            other for other in graph.nodes if other == name or (other in ahead and _leads_to(graph, other, name))
        )
        if first != name:
            message = f"the run starts at '{name}' and not at '{first}', since a failure edge leads to '{first}'"
            hint = "add 'start: true' to the step that should run first"
            source.warn("loop_start", message, resolved.drafts[name].name_node, hint=hint)


def _leads_to(graph: Graph, step: str, name: str) -> bool:
    return any(arc.is_loop and arc.to == name for member in graph.region(step) for arc in graph.nodes[member].arcs)


def _check_edge(step: str, arc: Arc, resolved: Resolved, source: Source) -> None:
    """Refuse a delay on an edge that does not close a loop, and `then` on one that does."""
    draft = resolved.edges.get((step, arc.edge.index))
    if draft is None:  # written as a name: it has no delay and no `then`
        return
    if not arc.is_loop and arc.edge.backoff != Backoff():
        key = next((key for key in BACKOFF if draft.fields is not None and key in draft.fields), "delay")
        message = f"'{key}' is for edges that close a loop, and the one to '{draft.edge.to}' does not"
        hint = "for a pause, put a step with 'wait' between them"
        source.note(source.refuse("edge", message, draft.at(key), hint=hint))
    if arc.is_loop and arc.edge.then:
        message = f"'then' says what follows a repair, but the edge to '{draft.edge.to}' closes a loop"
        if arc.to == step:
            message = f"'then' says what follows a repair, but step '{step}' cannot repair itself"
        hint = "remove 'then': the loop runs the steps again anyway"
        source.note(source.refuse("edge", message, draft.at("then"), hint=hint))


def _refuse_closed_by_need(cycle: list[str], resolved: Resolved, source: Source) -> Refusal:
    cycle = _from_a_step(cycle)
    order = {name: index for index, name in enumerate(resolved.steps)}
    needed = [
        (a, b) for a, b in pairwise(cycle) if b in order and any(vertex(need) == a for need in resolved.steps[b].needs)
    ]
    # Readers expect the closing edge to be the one that leads to the earliest step of the file.
    first, second = min(needed, key=lambda pair: order[pair[1]])
    shown = " → ".join(map(readable, cycle))
    message = f"a need closes this cycle, and only a 'next' edge may close one: {shown}"
    node = _need_node(second, first, resolved)
    hint = f"let '{readable(first)}' lead to '{second}' with 'next'"
    return source.refuse("cycle", message, node, hint=hint)


def _check_remediations(resolved: Resolved, source: Source) -> None:
    """Refuse a remediation that needs a step which waits for the step it repairs."""
    questions = [
        (step.name, resolved.steps[edge.to], need, edge.then is not None)
        for step in resolved.steps.values()
        for edge in step.edges
        if edge.on == "failure" and edge.to != END and edge.handles
        for need in resolved.steps[edge.to].needs
    ]
    if not questions:
        return
    connected = Reachability(success_links(resolved)).connected(
        (failed, vertex(need)) for failed, _, need, _ in questions
    )
    for failed, repair, need, is_awaited in questions:
        if need.of == failed and not need.is_group:
            never_runs = need.on != "always" or is_awaited
        else:
            never_runs = (failed, vertex(need)) in connected and (is_awaited or need.on == "success")
        if never_runs:
            node, hint = _need_node(repair.name, vertex(need), resolved), "remove the need"
            if (reads := _reads_node(repair, need, resolved)) and node is resolved.drafts[repair.name].name_node:
                node, hint = reads, "a reader needs the writer: leave the file out of its 'reads'"
            what = f"needs '{need.of}'" + ("" if need.of == failed else f", which waits for '{failed}'")
            message = f"step '{repair.name}' repairs '{failed}' and {what}: it could never run"
            source.note(source.refuse("remediation", message, node, hint=hint))


def _reads_node(step: Step, need: Need, resolved: Resolved) -> Node | None:
    """The `reads` node if the step reads a file that the needed step writes."""
    writer = resolved.steps.get(need.of)
    is_read = writer is not None and not need.is_group and not set(step.reads).isdisjoint(writer.writes)
    return resolved.drafts[step.name].node.get("reads") if is_read else None


def check_approvals(uses: Iterable[Use], resolved: Resolved, source: Source) -> None:
    """Refuse an approval that gates nothing: steps run beside it, and none waits for it or reads the answer.

    With `next: end` the file says that only the end of the run waits for it.
    """
    gates = [step for step in resolved.steps.values() if traits_of(step.action).asks_person]
    if not gates:
        return
    links = forward_links(resolved)
    read = {use.step for use in uses}
    idle = [
        step.name for step in gates if not (links[step.name] or step.edges or resolved.drafts[step.name].name in read)
    ]
    if not idle:
        return
    asking = {step.name for step in gates}
    # The last ones first: what is published stands below what was prepared.
    usual = [name for name in _without_failures(resolved) if name not in asking][::-1]
    before = Reachability(links).connected((name, gate) for gate in idle for name in usual)
    for gate in idle:
        beside = next((name for name in usual if (name, gate) not in before), None)
        if beside is not None:
            message = f"nothing waits for the approval '{gate}': '{beside}' runs beside it"
            hint = f"let '{beside}' need '{gate}'; with 'next: end' it holds up the end of the run alone"
            found = source.refuse("idle_approval", message, resolved.drafts[gate].name_node, hint=hint)
            if source.origin:
                source.warn_as(found)
            else:
                source.note(found)


def _without_failures(resolved: Resolved) -> Iterator[str]:
    """The steps that run when nothing fails, in file order: without repairs and what follows from them."""
    links = success_links(resolved)
    for step in resolved.steps.values():
        links[step.name] += [edge.to for edge in step.edges if edge.on == "always" and edge.to != END]
    entered = {edge.to for step in resolved.steps.values() for edge in step.edges}
    ahead = [name for name in resolved.steps if name not in entered and not resolved.steps[name].needs]
    found = set(ahead)
    while ahead:
        targets = [target for target in links[ahead.pop()] if target not in found]
        found.update(targets)
        ahead += targets
    return (name for name in resolved.steps if name in found)


def check_uses(uses: Iterable[Use], resolved: Resolved, source: Source, *, is_graph_sound: bool) -> None:
    """Check that every step that an expression reads exists and lies on a path to its reader."""
    first_of = {draft.name_node.text: name for name, draft in reversed(resolved.drafts.items())}
    drafts = (draft for draft in resolved.drafts.values() if draft.combinations and draft.name not in ("", END))
    matrices = {draft.name: draft.names for draft in drafts}
    questions: list[tuple[Use, str]] = []
    for use in uses:
        if use.step == use.reader == END:
            continue  # outputs are evaluated after it has run
        refusal = _field_problem(use, resolved, matrices, source)
        if refusal:
            source.note(refusal)
        elif use.reader is not None and use.reader in first_of:
            reader = first_of[use.reader]
            if not (use.may_be_itself and reader == use.step):
                questions.append((use, reader))
    if questions and is_graph_sound:
        _check_reached(questions, matrices, resolved, source)


def _check_reached(
    questions: list[tuple[Use, str]], matrices: Mapping[str, list[str]], resolved: Resolved, source: Source
) -> None:
    """Check that a path leads from each step that is read (of a matrix: from all its steps) to the reader."""
    read = {use.step: tuple(matrices.get(use.step, (use.step,))) for use, _ in questions}
    reach = Reachability(forward_links(resolved))
    connected = reach.connected((name, reader) for use, reader in questions for name in read[use.step])
    unreached = [
        (use, reader) for use, reader in questions if any((name, reader) not in connected for name in read[use.step])
    ]
    ahead = reach.connected((reader, name) for use, reader in unreached for name in read[use.step])
    for use, reader in unreached:
        names = read[use.step]
        if use.step in matrices and reader in names:
            message = f"step '{reader}' reads '{use.step}', the matrix that it is a part of"
            source.note(
                use.refuse("unreachable_step", message, source, hint=f"name one of its steps, such as '{names[0]}'")
            )
            continue
        comes_after = any((reader, name) in ahead for name in names)
        source.note(_refuse_unreachable(use, reader, source, comes_after=comes_after))


def _field_problem(use: Use, resolved: Resolved, matrices: Mapping[str, list[str]], source: Source) -> Refusal | None:
    """The problem with the step or matrix that is read, or with the field, if there is one."""
    field = next(iter(use.path[2:]), "")
    if use.step in matrices:
        return _matrix_field_problem(use, field, matrices[use.step][0], source)
    if use.step not in resolved.steps:
        return _refuse_unknown(use, resolved, matrices, source)
    if field and field not in STEP_FIELDS:
        hint = did_you_mean(field, STEP_FIELDS) or f"it has {quote_list(STEP_FIELDS, 'and')}"
        message = f"a step has no '{field}': only a matrix as a whole has it"
        return use.refuse("unknown_field", message, source, depth=2, hint=hint)
    return None


def _matrix_field_problem(use: Use, field: str, first: str, source: Source) -> Refusal | None:
    """The problem with a field of a matrix as a whole, whose fields are lists with an entry per step."""
    written = f"steps.{use.step}.{field}"
    if field and field not in MATRIX_FIELDS:
        hint = f'it has {quote_list(MATRIX_FIELDS, "and")}; of one of its steps: steps["{first}"].{field}'
        message = f"'{use.step}' is a matrix, and as a whole it has no '{field}'"
        return use.refuse("unknown_field", message, source, depth=2, hint=hint)
    if len(use.path) > 3:
        inner = use.path[3]
        hint = f"write {written}.map(one, one.{inner}), or {written}[0].{inner}"
        message = f"'{written}' is a list, with an entry for each step of the matrix"
        return use.refuse("unknown_field", message, source, depth=3, hint=hint)
    if use.is_condition and use.position.source.strip() in (written, f"!{written}", f"steps.{use.step}"):
        message = f"a condition is true or false, and '{written.rstrip('.')}' is not"
        return use.refuse("expression", message, source, hint=f"write size(steps.{use.step}.failed) > 0")
    return None


def _refuse_unknown(use: Use, resolved: Resolved, matrices: Mapping[str, list[str]], source: Source) -> Refusal:
    if use.step == END:
        message, hint = "'end' runs last, so only 'outputs' can read it", ""
    else:
        meant = closest(use.step, [*resolved.steps, *matrices]) or ""
        form = f'steps["{meant}"]' if "-" in meant else meant
        message, hint = f"there is no step '{use.step}'", f"did you mean '{form}'?" if meant else ""
    if use.step in resolved.grouped:
        group = resolved.grouped[use.step]
        whole = f'steps["{group}"]' if "-" in group else f"steps.{group}"
        hint = f"it is a step of the group '{group}', whose output has it: {whole}.output.{output_name(use.step)}"
    elif use.step in resolved.outside:
        hint = "it is outside the group: pass its output to the group under 'inputs'"
    if source.may_be_unread(use.step):
        return Refusal(source.problems[0])
    return use.refuse("unknown_step", message, source, hint=hint)


def _refuse_unreachable(use: Use, reader: str, source: Source, *, comes_after: bool) -> Refusal:
    if use.step == reader:
        message = f"step '{reader}' reads its own result before it has one"
        hint = "it can be read in a loop, and after the action"
    else:
        message = f"step '{reader}' reads '{use.step}', but no path leads from it to this step"
        hint = f"'{use.step}' comes after '{reader}'" if comes_after else f"add '{use.step}' to its 'needs'"
    return use.refuse("unreachable_step", message, source, hint=hint)
