"""Steps that say only what they run are read at once: they mean what they mean when they are read at length."""

from __future__ import annotations

import pytest

from mulligan.core.model.workflow import Workflow
from mulligan.errors import LanguageError
from mulligan.language import load_text

HEADS = [
    "inputs: {a: {default: x}}\n",
    "inputs: {a: {default: x}}\ndefaults: {shell: zsh, python: python3, timeout: 5m, capture: json, cwd: /tmp}\n",
    "inputs: {a: {default: x}}\ndefaults: {retry: {rules: [{any: true, recovery_script: './mend ${inputs.a}'}]}}\n",
    "inputs: {a: {default: x}}\ndefaults: {env: {B: '${inputs.a}'}, strict: false, on_lost: fail}\n",
]
ACTIONS = [
    "shell: echo hello",
    'shell: \'echo ${inputs.a} "${inputs.a + "1"}" ${ inputs.a } ${HOME}\'',
    "shell: 'bash -c ${inputs.a}'",
    "shell: 'eval ${inputs.nothing}'",
    "shell: 'echo ${steps.first.output} ${item} ${secrets.k}'",
    "shell: ''",
    "shell: 7",
    "shell: {text: 'echo ${inputs.a}', strict: false}",
    "shell: {}",
    "python: 'def main(): return 1'",
    "python: 'def main(a): return 1'",
    "python: 'def'",
    "python: {program: true, code: 'def main(): pass'}",
    "python: {call: 'm:f', program: true}",
    "shell: ls, python: 'def main(): return 1'",
    "shell: ls, needs: []",
    "shell: ls, needs: [nothing]",
    "shell: ls, needs: {match: 'fir.*'}",
]
NAMES = ["plain", "'7'", "7", "'not a name'", "true", "first"]


def read(head: str, name: str, keys: str) -> Workflow | list[tuple[str, str]]:
    """What a text means, or why it is refused. Places differ, since one of two texts has a key more."""
    text = f"{head}steps:\n  - {{step: first, shell: ls}}\n  - {{step: {name}, needs: [first], {keys}}}\n"
    if "needs" in keys:
        text = text.replace("needs: [first], ", "")
    try:
        return load_text(text)
    except LanguageError as error:
        return [(problem.code, problem.message) for problem in error.problems]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", NAMES)
def test_a_step_that_is_read_at_once_means_what_it_means_at_length(head: str, name: str) -> None:
    for action in ACTIONS:
        assert read(head, name, action) == read(head, name, f"{action}, description: it is read at length"), action
