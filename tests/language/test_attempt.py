"""`attempt` and `logs`: where they may stand, and what is said where they may not."""

from __future__ import annotations

import pytest

from mulligan.errors import LanguageError
from mulligan.language import load_text

from .reading import sources, step, steps

PLACES = [
    # what an attempt is given
    ("env: {N: '${attempt}'}", lambda found: found.env["N"]),
    ("cwd: 'try-${attempt}'", lambda found: found.cwd),
    ("stdin: 'try ${attempt}'", lambda found: next(iter(found.action.bindings.values()))),
    ("logs: {stdout: 'a-${attempt}.o'}", lambda found: found.logs["stdout"]),
]


@pytest.mark.parametrize(("text", "where"), PLACES)
def test_the_number_of_the_attempt_is_known_in_what_it_is_given(text, where) -> None:
    found = step(f"shell: make\n{text}")

    assert "${attempt}" in "".join(sources(where(found)))


def test_defaults_may_give_it_to_all_steps() -> None:
    found = steps("- {step: a, shell: make}", top="defaults: {env: {N: '${attempt}'}}")

    assert sources(found["a"].env["N"]) == ["${attempt}"]


def test_the_logs_of_defaults_are_for_steps_and_not_for_the_items_of_a_map() -> None:
    top = "defaults: {logs: {stdout: 'logs/${step.name}-${attempt}'}}"

    found = steps("- {step: a, shell: b}\n- {step: m, map: {over: [1]}, do: c}\n- {step: w, wait: 1s}", top)

    assert sources(found["a"].logs["stdout"]) == ["logs/", "${step.name}", "-", "${attempt}"]
    assert found["m"].logs == found["m"].do[0].logs == found["w"].logs == {}


def test_a_step_may_have_other_logs_than_defaults_say_or_none() -> None:
    top = "defaults: {logs: {stdout: all.log}}"

    found = steps("- {step: a, shell: b, logs: {stderr: a.err}}\n- {step: c, shell: d, logs: {}}", top)

    assert [*found["a"].logs] == ["stderr"]
    assert found["c"].logs == {}


def test_in_shell_text_the_word_is_the_scripts_own() -> None:
    found = step("shell: 'for attempt in 1 2; do echo ${attempt}; done'")

    assert found.action is not None
    assert found.action.bindings == {}
    assert found.action.params["text"] == "for attempt in 1 2; do echo ${attempt}; done"


def refused(text: str) -> str:
    with pytest.raises(LanguageError) as caught:
        load_text(text, "w.yaml")
    return caught.value.render()


REFUSALS = [
    # a condition is no part of an attempt
    ("steps: [{step: a, shell: b, when: attempt > 1}]", "error[language.unknown_name]: w.yaml:1:35: 'attempt' is not "
     "known here\n  1 | steps: [{step: a, shell: b, when: attempt > 1}]\n"
     "    |                                   ^^^^^^^ 'attempt' is known in what an attempt is given: its action, "
     "'env', 'cwd' and 'logs'"),
    # the step itself, and another one
    ("steps: [{step: a, shell: b, env: {X: '${step.build}'}}]", "error[language.unknown_field]: w.yaml:1:46: 'step' "
     "has no 'build'\n  1 | steps: [{step: a, shell: b, env: {X: '${step.build}'}}]\n"
     "    |                                              ^^^^^ did you mean 'steps.build'?"),
    ("steps: [{step: a, shell: b, env: {X: '${step.nam}'}}]", "error[language.unknown_field]: w.yaml:1:46: 'step' has "
     "no 'nam'\n  1 | steps: [{step: a, shell: b, env: {X: '${step.nam}'}}]\n"
     "    |                                              ^^^ did you mean 'name'?"),
    # it would hide the item
    ("steps: [{step: a, map: {over: [1], as: attempt}, do: b}]", "error[language.name]: w.yaml:1:40: an item cannot be "
     "called 'attempt', which is a reserved name\n  1 | steps: [{step: a, map: {over: [1], as: attempt}, do: b}]\n"
     "    |                                        ^^^^^^^"),
    ("steps: [{step: a, shell: b, logs: {out: c}}]", "error[language.unknown_key]: w.yaml:1:36: 'out' is not a key of "
     "'logs'\n  1 | steps: [{step: a, shell: b, logs: {out: c}}]\n    |                                    ^^^ "
     "did you mean 'stdout'?"),
    ("steps: [{step: a, shell: b, logs: out.log}]", "error[language.type]: w.yaml:1:35: 'logs' is 'out.log', a mapping "
     "with keys such as 'stdout' is expected\n  1 | steps: [{step: a, shell: b, logs: out.log}]\n"
     "    |                                   ^^^^^^^"),
    ("steps: [{step: a, wait: 1s, logs: {stdout: c}}]", "error[language.stray_key]: w.yaml:1:29: 'logs' is for "
     "actions that workers run, and 'wait' is run by the engine\n"
     "  1 | steps: [{step: a, wait: 1s, logs: {stdout: c}}]\n"
     "    |                             ^^^^ remove it"),
    ("steps: [{step: a, map: {over: [1]}, do: b, logs: {stdout: c}}]", "error[language.stray_key]: w.yaml:1:44: 'logs' "
     "is for actions that workers run, and 'map' is run by the engine\n"
     "  1 | steps: [{step: a, map: {over: [1]}, do: b, logs: {stdout: c}}]\n"
     "    |                                            ^^^^ move it into 'do'"),
    ("secrets: {s: {env: S}}\nsteps: [{step: a, shell: b, logs: {stdout: 'x${secrets.s}'}}]", "error[language.secret]: "
     "w.yaml:2:44: a path cannot contain a secret: paths are recorded\n"
     "  2 | steps: [{step: a, shell: b, logs: {stdout: 'x${secrets.s}'}}]\n"
     "    |                                            ^^^^^^^^^^^^^^^"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), REFUSALS)
def test_a_place_that_has_none_is_refused(text: str, said: str) -> None:
    assert refused(text) == said
