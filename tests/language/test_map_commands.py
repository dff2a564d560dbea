"""What a command of `do` may say beyond other commands: a condition, and the outputs of those before it."""

from __future__ import annotations

import pytest

from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError
from mulligan.language.loading import load_text


def loaded(*lines: str) -> Workflow:
    return load_text("\n".join(("steps:", "  - step: m", "    map: {over: [1, 2]}", *lines)), "w.yaml")


def test_a_command_of_an_item_has_a_condition() -> None:
    flow = loaded("    do: [{shell: a, when: item > 1}, {shell: b, when: '${output == null}'}, c]")

    conditions = [command.when and command.when.source for command in flow.steps[0].do]
    assert conditions == ["item > 1", "output == null", None]


def test_a_command_reads_the_outputs_of_those_before_it() -> None:
    flow = loaded("    do: [a, {shell: 'echo ${outputs[0]}', when: 'outputs[0] != null'}]")

    action = flow.steps[0].do[1].action
    assert action is not None
    assert [template.reads for template in action.bindings.values()] == [("outputs",)]


def test_a_command_reads_what_the_item_before_gave_where_items_have_an_order() -> None:
    text = "steps: [{step: m, map: {over: [1], max_parallel: 1}, do: {shell: a, when: 'previous == null'}}]"

    flow = load_text(text, "w.yaml")

    when = flow.steps[0].do[0].when
    assert when is not None
    assert when.reads == ("previous",)


REFUSED = {
    # Other commands have none: a handler runs because something failed.
    "    do: {shell: a, on_failure: {commands: [{shell: b, when: item > 1}]}}": (
        "error[language.unknown_key]: w.yaml:4:55: 'when' is not a key of a command in 'commands'\n"
        "  4 |     do: {shell: a, on_failure: {commands: [{shell: b, when: item > 1}]}}\n"
        "    |                                                       ^^^^"
    ),
    # A condition reads what there is.
    "    do: {shell: a, when: thing > 1}": (
        "error[language.unknown_name]: w.yaml:4:26: 'thing' is not known here\n"
        "  4 |     do: {shell: a, when: thing > 1}\n"
        "    |                          ^^^^^ the names here are env, failure, index, item, output, outputs, run, steps"
    ),
    # Of items that run at the same time none is before another.
    "    do: {shell: a, when: previous == 1}": (
        "error[language.unknown_name]: w.yaml:4:26: 'previous' is not known here\n"
        "  4 |     do: {shell: a, when: previous == 1}\n"
        "    |                          ^^^^^^^^ 'previous' is known in 'do' of a map with 'max_parallel: 1', but not "
        "in shell text: pass it in 'env'"
    ),
    # … and is one.
    "    do: {shell: a, when: [x]}": (
        "error[language.type]: w.yaml:4:26: a condition is expected, and this is a list\n"
        "  4 |     do: {shell: a, when: [x]}\n"
        "    |                          ^"
    ),
    # Outside of `do` there are no outputs of commands.
    "    do: a\n  - {step: n, needs: [m], when: 'outputs[0] == 1', shell: x}": (
        "error[language.unknown_name]: w.yaml:5:34: 'outputs' is not known here\n"
        "  5 |   - {step: n, needs: [m], when: 'outputs[0] == 1', shell: x}\n"
        "    |                                  ^^^^^^^ 'outputs' is known in 'do' of a map: what the item's commands "
        "so far have given"
    ),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_a_refusal_says_where_what_and_what_to_do(text: str, said: str) -> None:
    with pytest.raises(LanguageError) as caught:
        loaded(text)

    assert caught.value.render() == said
