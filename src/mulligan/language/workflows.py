"""Reads a whole file: top-level keys, steps, checks."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from mulligan.core.model.actions import traits_of
from mulligan.core.model.run_data import name_problem, size_problem, value_problem
from mulligan.core.model.workflow import (
    END,
    LABEL_CHARS_MAX,
    LABELS_MAX,
    MAX_PARALLEL_STEPS,
    Breaker,
    Input,
    Secret,
    Step,
    Template,
    Workflow,
)
from mulligan.errors import LanguageError
from mulligan.language.checks.graph_checks import check_approvals, check_graph, check_uses
from mulligan.language.checks.likely_mistakes import (
    item_names,
    refuse_foreign_templates,
    warn_matrix_placeholders,
    warn_unused,
)
from mulligan.language.checks.links import add_needs
from mulligan.language.checks.plaintext_secrets import hide_plaintext_secrets
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.keys.workflow_keys import DEFAULTS, WORKFLOW
from mulligan.language.python.python_limits import LIMIT_ERRORS, refuse_excess
from mulligan.language.readers.budgets import read_budget, warn_of_idle_budget
from mulligan.language.readers.commands import named_handler
from mulligan.language.readers.groups import group_tree, step_names
from mulligan.language.readers.inputs import read_input
from mulligan.language.readers.notices import read_notices
from mulligan.language.readers.program_steps import refuse_program_beside
from mulligan.language.readers.retry_policies import read_policy, read_retry
from mulligan.language.readers.schedules import read_schedules
from mulligan.language.readers.settings import OBJECTS_VARIABLE, Settings, read_logs
from mulligan.language.readers.slurm_profiles import read_profiles
from mulligan.language.readers.steps import StepDraft, default_end, read_end, read_step
from mulligan.language.readers.tool_steps import is_tool, read_tools, warn_unused_tools
from mulligan.language.readers.workspace_steps import with_workspace
from mulligan.language.readers.workspaces import read_workspace, refuse_reserved_names
from mulligan.language.resolve import Resolved, resolve
from mulligan.language.scope import NO_STEPS, Draft, Includes, Scope
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar, Sequence, Source, TooManyProblems, describe
from mulligan.language.value_templates import value_template

Declared = TypeVar("Declared")

# Problems that remove links. After one of them a missing path is not reported, since it may be a consequence.
_LINK_PROBLEMS = frozenset(
    f"language.{code}"
    for code in ("unknown_step", "duplicate_step", "missing_key", "unknown_key", "name", "matrix", "need")
)


def read_workflow(root: Node, source: Source, default_name: str, includes: Includes | None) -> Workflow:
    """The checked workflow in a document, or a LanguageError with all its problems."""
    try:
        workflow, _ = _read(root, source, default_name, includes)
    except Refusal as refusal:
        source.note(refusal)
    except TooManyProblems:
        pass  # the problems so far are reported
    except RecursionError:
        source.note(source.refuse_at("too_deep", "handlers and commands are nested too deeply", 0, 0))
    except LIMIT_ERRORS as error:
        source.note(refuse_excess(error, source))
    if source.problems:
        raise LanguageError(source.problems)
    return workflow


def _group(
    root: Mapping, outer: Draft, group: Mapping, step: str, given: tuple[str, ...], outside: frozenset[str]
) -> Workflow:
    """The workflow of a group. It declares the inputs that are read inside, which count as used by the file."""
    tree = group_tree(root, group, step)
    extra = {name: Input(type="any") for name in given}
    inner = frozenset(step_names(group))
    outer.grouped.update(dict.fromkeys(inner, step))
    workflow, draft = _read(tree, outer.source, step, outer.includes, extra, outside - inner)
    # Inputs of the group have other names than those of the file.
    outer.used |= {(section, name) for section, name in draft.used if section != "inputs" or name not in extra}
    outer.used_handlers.update(draft.used_handlers)
    is_all = ("inputs", "*") in draft.used
    read = {name for name in workflow.inputs if is_all or name in extra or ("inputs", name) in draft.used}
    declared = {name: one for name, one in workflow.inputs.items() if name in read}
    return msgspec.structs.replace(workflow, inputs=declared)


def _read(
    root: Node,
    source: Source,
    default_name: str,
    includes: Includes | None,
    extra: dict[str, Input] | None = None,
    outside: frozenset[str] = frozenset(),
) -> tuple[Workflow, Draft]:
    """The workflow in a tree, and its draft. With `extra` inputs it is a group of another workflow."""
    if not isinstance(root, Mapping):
        hint = "put the list under 'steps:'" if isinstance(root, Sequence) else "a workflow has at least 'steps:'"
        raise source.refuse("type", f"a workflow is a mapping, and this is {describe(root)}", root, hint=hint)
    hide_plaintext_secrets(root, source)
    fields: Fields = WORKFLOW.read(root, "the workflow", source)
    draft = _draft(fields, source, includes)
    draft.inputs.update(extra or {})
    draft.outside = outside
    draft.item_names = item_names(root)
    around = frozenset(step_names(root)) | outside
    draft.read_group = lambda group, step, given: _group(root, draft, group, step, given, around)
    settings = _settings(fields, draft)
    drafts, end = _steps(fields, draft, settings)
    workspace = read_workspace(fields.at("workspace"), draft, settings) if "workspace" in fields else None
    resolved = resolve(drafts, draft, is_sequential=fields.get("order") == "sequential")
    if workspace is not None or len(resolved.steps) + len(draft.tools) > 1:
        _refuse_programs(drafts, fields, source)
    add_needs(resolved, source, allows_unordered=fields.get("unordered_writers") == "warn")
    outputs = _outputs(fields, draft)
    if extra is None:
        _check_for_mistakes(root, fields, draft, settings)
    workflow = Workflow(
        name=fields.get("name", default_name),
        description=fields.get("description", ""),
        steps=tuple(resolved.steps.values()),
        end=end,
        inputs=draft.inputs,
        outputs=outputs,
        groups=resolved.groups,
        files=draft.files,
        secrets=draft.secrets,
        breakers=draft.breakers,
        children=draft.children,
        origin=source.origin,
        data=_data(fields, source),
        labels=_labels(fields, source),
        schedules=read_schedules(fields.get("schedules", {}), source),
        slurm=read_profiles(fields.get("slurm", {}), source),
        notify=read_notices(fields.get("notify", ()), source),
        budget=read_budget(fields["budget"], source) if "budget" in fields else None,
        accepts=fields["coverage"].get("accept", {}) if "coverage" in fields else {},
        **fields.pick("max_parallel", "fail_fast", "timeout", "cancel_grace", "hide_credentials"),
    )
    _check_item_workspaces(fields, drafts, draft)
    if workflow.budget is not None:
        warn_of_idle_budget(fields, (*workflow.steps, workflow.end), "the workflow", source)
    _check_size(workflow, fields, source)
    _check(workflow, resolved, draft)
    if workspace is not None:
        refuse_reserved_names(resolved.steps, fields.key("workspace"), source)
        workflow = workflow if source.problems else with_workspace(workflow, workspace)
    return workflow, draft


def _refuse_programs(drafts: list[StepDraft], fields: Fields, source: Source) -> None:
    """Refuse programs in a workflow that has further steps."""
    workspace = fields.key("workspace") if "workspace" in fields else None
    for step in drafts:
        if traits_of(step.step.action).is_program:
            refuse_program_beside(step.name, step.node, workspace, source)


def _check_item_workspaces(fields: Fields, drafts: list[StepDraft], draft: Draft) -> None:
    """Refuse worktrees of items if the run has none that they could be merged into."""
    for step in drafts:
        if step.step.has_worktrees and "workspace" not in fields:
            message = f"step '{step.name}' has a worktree per item, and the run has none that they are merged into"
            hint = "add 'workspace: {git: worktree}' at the top of the file; in a group it is not possible"
            draft.source.note(draft.source.refuse("missing_key", message, step.node.key("workspace"), hint=hint))


def _check_for_mistakes(root: Mapping, fields: Fields, draft: Draft, settings: Settings) -> None:
    """Check the file with its groups for unused declarations and likely mistakes."""
    warn_unused(fields, draft)
    if not draft.source.origin:
        refuse_foreign_templates(root, draft.source)
        warn_matrix_placeholders(root, draft.source)
    _check_unused(draft, settings)


def _check_size(workflow: Workflow, fields: Fields, source: Source) -> None:
    if workflow.max_parallel is not None and len(workflow.steps) > MAX_PARALLEL_STEPS:
        message = f"'max_parallel' is for workflows of up to {MAX_PARALLEL_STEPS:,} steps, and this one has "
        hint = "set it for the run: mulligan run --parallel N"
        key = fields.key("max_parallel")
        source.note(source.refuse("limit", f"{message}{len(workflow.steps):,}", key, hint=hint))


def _check(workflow: Workflow, resolved: Resolved, draft: Draft) -> None:
    is_sound = not any(problem.code in _LINK_PROBLEMS for problem in draft.source.problems)
    check_graph(workflow, resolved, draft.source)
    check_uses(draft.uses, resolved, draft.source, is_graph_sound=is_sound)
    if is_sound:
        check_approvals(draft.uses, resolved, draft.source)


def _draft(fields: Fields, source: Source, includes: Includes | None) -> Draft:
    draft = Draft(
        source,
        inputs=_fallbacks(fields, "inputs", Input()),
        files=_fallbacks(fields, "files", ""),
        secrets=_fallbacks(fields, "secrets", Secret()),
        breakers=_fallbacks(fields, "breakers", Breaker()),
        includes=includes,
    )
    for name, form in fields.get("inputs", {}).items():
        with source.noting:
            draft.inputs[name] = read_input(name, form, source)
    draft.files.update(fields.get("files", {}))
    for name, form in fields.get("secrets", {}).items():
        draft.secrets[name] = _secret(name, form, source)
    for name, form in fields.get("breakers", {}).items():
        draft.breakers[name] = Breaker(**form.pick("failures", "reset", "ignore", "when_open", "max_parallel"))
    draft.policies = _mapping_at(fields, "retry_policies")
    draft.handlers = _mapping_at(fields, "handlers")
    return draft


def _fallbacks(fields: Fields, section: str, value: Declared) -> dict[str, Declared]:
    """Values for all entries of a section, so that reading a refused entry is not refused as well."""
    node = _mapping_at(fields, section)
    return dict.fromkeys(node.entries, value) if node else {}


def _mapping_at(fields: Fields, key: str) -> Mapping | None:
    node = fields.at(key) if key in fields else None
    return node if isinstance(node, Mapping) else None


def _secret(name: str, form: Fields, source: Source) -> Secret:
    if len(form.node.entries) != 1:
        hint = "write one of 'env', 'file' and 'command'"
        message = f"a secret has one source, and '{name}' has {len(form.node.entries) or 'none'}"
        source.note(source.refuse("secret", message, form.node, hint=hint))
    return Secret(**form.values)


def _settings(fields: Fields, draft: Draft) -> Settings:
    """The settings in `defaults`. They apply to all steps, so their expressions can read none."""
    settings = Settings()
    if "artifacts" in fields:
        settings = Settings(env={OBJECTS_VARIABLE: Template((fields["artifacts"],))})
    if "defaults" not in fields:
        return settings
    scope = Scope(draft, "'defaults'", reader=NO_STEPS)
    with draft.source.noting:
        form: Fields = DEFAULTS.read(fields.at("defaults"), "'defaults'", draft.source)
        draft.shell_interpreter = form.get("shell")
        draft.is_shell_strict = form.get("strict", True)
        draft.python_interpreter = form.get("python")
        draft.requirements = form.get("requirements", ())
        draft.agent_provider = form.get("agent")
        settings = settings.merge(form, scope)
        if "logs" in form:
            settings = msgspec.structs.replace(settings, logs=read_logs(form["logs"], scope))
        read_retry(settings.retry, scope, settings)
        return msgspec.structs.replace(settings, timeout=None, default_timeout=settings.timeout)
    return settings


def _steps(fields: Fields, draft: Draft, settings: Settings) -> tuple[list[StepDraft], Step]:
    """The steps in file order, and the end: from the list, from the top level, or the default."""
    source = draft.source
    node = fields.at("steps") if "steps" in fields else None
    if node is None:
        return [], default_end()
    if not isinstance(node, Sequence):
        message = f"'steps' is {describe(node)}, a list of steps is expected"
        raise source.refuse("type", message, node, hint="write each as '- step: NAME'")
    if not node.items:
        raise source.refuse("type", "'steps' is an empty list", node, hint="add '- step: NAME'")
    ends: list[Node] = []
    tools: list[Node] = []
    steps: list[Node] = []
    names: set[str] = set()
    for item in node.items:
        name = _written_name(item)
        kind = ends if name == END else tools if is_tool(item) else steps
        kind.append(item)
        if kind is steps and name:
            names.add(name)
    draft.step_names = frozenset(names)
    read_tools(tools, draft, settings)
    drafts = [read_step(item, draft, settings) for item in steps]
    warn_unused_tools(draft, tools)
    top = fields.at("end") if "end" in fields else None
    return [each for each in drafts if each], _end([*ends, *([top] if top else [])], draft, settings)


def _written_name(node: Node) -> str:
    name = node.get("step") if isinstance(node, Mapping) else None
    return name.text if isinstance(name, Scalar) else ""


def _end(found: list[Node], draft: Draft, settings: Settings) -> Step:
    if not found:
        return default_end()
    with draft.source.noting:
        if len(found) > 1:
            message = f"'end' appears twice: first in line {draft.source.number(found[0])}"
            raise draft.source.refuse("duplicate_step", message, found[1], hint="remove one of them")
        return read_end(found[0], draft, settings)
    return default_end()


def _outputs(fields: Fields, draft: Draft) -> dict[str, Template]:
    outputs: dict[str, Template] = {}
    scope = Scope(draft, "'outputs'", reader=END)
    for name, node in fields.get("outputs", {}).items():
        with draft.source.noting:
            outputs[name] = value_template(node, scope)
            if any(read.startswith("secrets.") for read in outputs[name].reads):
                message = "an output cannot contain a secret: only workers know secrets"
                raise draft.source.refuse("secret", message, node)
    return outputs


def _data(fields: Fields, source: Source) -> dict[str, Any]:
    """The data of a run when it starts. It is small, since every attempt gets it."""
    values: dict[str, Any] = fields.get("data", {})
    node = _mapping_at(fields, "data")
    for name, value in values.items():
        if problem := name_problem(name) or value_problem(value):
            assert node is not None
            source.note(source.refuse("data", f"the data '{name}' is not valid: {problem}", node.key(name)))
    if problem := size_problem({}, values):
        source.note(source.refuse("data", problem, fields.key("data")))
    return values


def _labels(fields: Fields, source: Source) -> dict[str, str]:
    """The labels of its runs: short, so that runs can be found by them."""
    labels: dict[str, str] = fields.get("labels", {})
    node = _mapping_at(fields, "labels")
    for name, value in labels.items():
        if len(value) > LABEL_CHARS_MAX or not value.isprintable():
            assert node is not None
            message = f"the label '{name}' must be one line of at most {LABEL_CHARS_MAX} characters"
            source.note(source.refuse("labels", message, node.key(name)))
    if len(labels) > LABELS_MAX:
        message = f"{len(labels)} labels are too many: a run has at most {LABELS_MAX}"
        source.note(source.refuse("labels", message, fields.key("labels")))
    return labels


def _check_unused(draft: Draft, settings: Settings) -> None:
    """Read unused handlers and policies as well, to find their problems."""
    scope = Scope(draft, "", reader=None, names=frozenset({"item", "index"}))
    for name, (key, node) in (draft.handlers.entries if draft.handlers else {}).items():
        if name not in draft.used_handlers:
            with draft.source.noting:
                named_handler(name, node, key, scope, settings)
    for name, (key, _) in (draft.policies.entries if draft.policies else {}).items():
        if ("retry_policies", name) not in draft.used:
            with draft.source.noting:
                read_policy(name, key, scope, settings)
