"""Regular workflows and their parameters, and the choice between regular and MapReduce."""

from __future__ import annotations

from mulligan.formats.prodigy.composition import compose
from mulligan.formats.prodigy.context import Context, StepSlots
from mulligan.formats.prodigy.environment import translate_environment
from mulligan.formats.prodigy.frame import build_workflow, wrap_steps
from mulligan.formats.prodigy.iterations import Passes
from mulligan.formats.prodigy.keys import COMPOSITION_KEYS, ENVIRONMENT_KEYS, LISTS, MERGE_KEY, STEP_LIST
from mulligan.formats.prodigy.mapreduce import is_mapreduce, translate_mapreduce
from mulligan.formats.prodigy.parameters import PARAMETERS_KEY, translate_parameters
from mulligan.formats.prodigy.steps import translate_step
from mulligan.formats.translation import Translation, mapping
from mulligan.formats.value_schemas import LenientRecord
from mulligan.language.keys.action_keys import ANY_TEXT, as_node
from mulligan.language.keys.value_schemas import Choice, Fields, Json, Key
from mulligan.language.text.nodes import Mapping, Node, Refusal, Sequence, Source

_SUB_WORKFLOWS = ("workflows", "sub_workflows")


# -- regular workflows -----------------------------------------------------------------------------------------------


REGULAR = LenientRecord(
    "regular",
    {
        "name": Key(ANY_TEXT, "the name of the workflow"),
        "description": Key(ANY_TEXT, "what it is for"),
        "mode": Key(Choice(("standard", "sequential")), "a regular workflow; no effect"),
        "commands": Key(STEP_LIST, "the steps, one after the other"),
        "steps": Key(STEP_LIST, "the same, under another name"),
        "tasks": Key(STEP_LIST, "the same, under another name"),
        "parameters": PARAMETERS_KEY,
        **ENVIRONMENT_KEYS,
        "merge": MERGE_KEY,
        **COMPOSITION_KEYS,
        **{key: Key(as_node(Json()), "refused: import the steps of the other files") for key in _SUB_WORKFLOWS},
    },
    one_of=tuple((key,) for key in LISTS),
    needed=LISTS,
    may_extend=True,
)


def translate_regular(root: Node, translation: Translation) -> Mapping:
    """Translate a regular workflow: a mapping with a list of steps."""
    source = translation.source
    form = REGULAR.read(root, "the workflow", source)
    for key in _SUB_WORKFLOWS:
        if key in form:
            message, where = f"'{key}' runs other workflows, which is not supported", form.key(key)
            hint = (
                "write 'imports: [FILE]' to run their steps here, or convert both files and write 'workflow: {file: …}'"
            )
            source.note(source.refuse("prodigy", message, where, hint=hint))
    start = Context(StepSlots(), translation, translate_step, is_regular=True)
    inputs, context, checks = translate_parameters(form, start)
    steps, environment = _step_list(form, source), translate_environment(form, context)
    passes = Passes(steps, {**environment.inputs, **inputs})
    head, found = wrap_steps(form, context=context, environment=environment, body=passes.translated)
    return build_workflow({**head, "inputs": passes.inputs}, [*checks, *passes.closed(found)], start, form.node)


def _step_list(form: Fields, source: Source) -> Sequence:
    root = form.node
    found = [key for key in LISTS if key in root.entries]
    if form.has_unknown_keys and not found:
        raise Refusal(source.problems[-1])  # an unknown key was meant as one of them, which is noted
    if len(found) != 1:
        message = "the workflow has no steps" if not found else f"the workflow has both '{found[0]}' and '{found[1]}'"
        at = root if not found else root.key(found[1])
        raise source.refuse("prodigy", message, at, hint="write all steps in one list, 'commands:'")
    node = root.entries[found[0]][1]
    if not isinstance(node, Sequence):
        raise source.refuse("type", f"'{found[0]}' has no steps, a list of steps is expected", node)
    return node


def translate(root: Node, translation: Translation) -> Mapping:
    """Translate the tree of a Prodigy file to the tree of a workflow file."""
    root = compose(root, translation)
    if isinstance(root, Sequence):
        root = mapping({"commands": root}, root)
    if not isinstance(root, Mapping) or not is_mapreduce(root):
        return translate_regular(root, translation)
    for name in translation.options:
        message = f"--{name.replace('_', '-')} is for regular workflows, and this is a MapReduce workflow"
        hint = "its 'map' says what its steps run for"
        raise translation.source.refuse("prodigy", message, root, hint=hint)
    return translate_mapreduce(root, translation)
