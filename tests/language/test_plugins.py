"""Actions that packages add: found by their entry points, read like ours, refused by the name of their package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import mulligan
from mulligan.core.model.workflow import Action, Expression, Template
from mulligan.errors import LanguageError, Refused
from mulligan.language import load_text
from mulligan.language.python.builder import Workflow
from mulligan.language.schema import schema
from mulligan.language.text.document import decode, parse
from mulligan.language.text.nodes import plain as as_value
from mulligan.plugins import ActionPlugin

from .reading import step

GREET = """
from mulligan import ActionPlugin

greet = ActionPlugin(
    "greeting.run:main",
    about="says hello",
    keys={"whom": "who is greeted", "times": "how often", "style": "how"},
    required=["whom"],
    text_key="whom",
)
polite = ActionPlugin("greeting.run:main", keys={"whom": "who", "how": "how"}, required=["whom", "how"])
other = "no plugin"
"""
BROKEN = """
from mulligan import ActionPlugin

greet = ActionPlugin("greeting", keys={})
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package on the path, as a package manager would, with these entry points."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(package: str = "mulligan-greeting", *, text: str = GREET, **entry_points: str) -> None:
        module = f"greeting_{tmp_path.name}".replace("-", "_")
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{value}" for name, value in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[mulligan.actions]", *lines]))

    return put


def refused(text: str) -> str:
    with pytest.raises(LanguageError) as caught:
        load_text(text, "w.yaml")
    return caught.value.render()


def action(args: dict[str, Any], bindings: dict[str, Template] | None = None) -> Action:
    said = {"call": "greeting.run:main", "package": "mulligan-greeting", "args": args}
    return Action("greet", said, bindings or {})


# -- reading ---------------------------------------------------------------------------------------------------------


def test_its_keys_are_read_with_their_values_kept_apart(install: Install) -> None:
    install(greet="greet")

    found = step("greet: {whom: '${inputs.x}', style: {colours: [red, 'light ${inputs.x}']}}", "inputs: {x: string}")

    reads = Expression("inputs.x", ("inputs",))
    assert found.action == action(
        {"whom": {"${}": "b0"}, "style": {"colours": ["red", {"${}": "b1"}]}},
        {"b0": Template((reads,)), "b1": Template(("light ", reads))},
    )


def test_a_text_stands_for_the_key_that_it_says(install: Install) -> None:
    install(greet="greet")

    assert step("greet: you").action == action({"whom": "you"})


@pytest.mark.parametrize(
    "text",
    [
        "{step: a, shell: make, on_failure: {greet: you}}",
        "{step: a, shell: make, on_failure: [{greet: you}]}",
        "{step: a, shell: make, on_failure: {commands: {greet: you}}}",
        "{step: a, shell: make, on_success: {greet: you}}",
        "{step: a, shell: make, undo: {greet: you}}",
        "{step: a, shell: make, validate: {greet: you}}",
        "{step: a, map: {over: [1]}, do: {greet: you}}",
        "{step: a, map: {over: {greet: you}}, do: make}",
        "{step: a, greet: you, retry: 3, timeout: 5s, on_failure: make clean}",
    ],
)
def test_it_may_stand_wherever_an_action_may(install: Install, text: str) -> None:
    install(greet="greet")

    load_text(f"steps: [{text}]")

    assert [error.message for error in Draft202012Validator(schema()).iter_errors({"steps": [plain(text)]})] == []


def plain(text: str) -> Any:
    return as_value(parse(decode(f"a: {text}".encode(), "w.yaml")))["a"]


def test_it_may_be_the_end(install: Install) -> None:
    install(greet="greet")

    assert load_text("steps: [{step: a, shell: make}]\nend: {greet: all}").end.action == action({"whom": "all"})


def test_python_says_it_in_the_same_way(install: Install) -> None:
    install(greet="greet")

    found = Workflow("hello").step("a", greet={"whom": "you", "times": 2}).check()

    assert found.steps[0].action == action({"whom": "you", "times": 2})


# -- refusals --------------------------------------------------------------------------------------------------------


def test_its_keys_are_checked_as_ours_are(install: Install) -> None:
    install(greet="greet", polite="polite")

    assert refused("steps: [{step: a, greet: {wohm: you}}, {step: b, greet: [you]}, {step: c, polite: you}]") == (
        "error[language.unknown_key]: w.yaml:1:27: 'wohm' is not a key of 'greet'\n"
        "  1 | steps: [{step: a, greet: {wohm: you}}, {step: b, greet: [you]}, {step: c, polite: you}]\n"
        "    |                           ^^^^ did you mean 'whom'?\n"
        "error[language.type]: w.yaml:1:57: 'greet' is a list, a text, or a mapping with 'whom' is expected\n"
        "  1 | steps: [{step: a, greet: {wohm: you}}, {step: b, greet: [you]}, {step: c, polite: you}]\n"
        "    |                                                         ^\n"
        "error[language.type]: w.yaml:1:83: 'polite' is 'you', a mapping with keys such as 'whom' is expected\n"
        "  1 | steps: [{step: a, greet: {wohm: you}}, {step: b, greet: [you]}, {step: c, polite: you}]\n"
        "    |                                                                                   ^^^"
    )


def test_what_it_requires_must_be_there(install: Install) -> None:
    install(polite="polite")

    assert refused("steps: [{step: a, polite: {whom: you}}]") == (
        "error[language.missing_key]: w.yaml:1:27: 'polite' has no 'how'\n"
        "  1 | steps: [{step: a, polite: {whom: you}}]\n"
        "    |                           ^ add 'how: …'"
    )


def test_a_step_has_one_action_whoever_adds_it(install: Install) -> None:
    install(greet="greet")

    assert refused("steps: [{step: a, greet: you, shell: make}]") == (
        "error[language.several_actions]: w.yaml:1:31: step 'a' has 2 actions: 'greet' and 'shell'\n"
        "  1 | steps: [{step: a, greet: you, shell: make}]\n"
        "    |                               ^^^^^ make each a separate step"
    )
    assert refused("steps: [{step: a, shell: x, on_failure: {commands: [y], greet: you}}]") == (
        "error[language.stray_key]: w.yaml:1:57: 'greet' is next to 'commands', but belongs in one of them\n"
        "  1 | steps: [{step: a, shell: x, on_failure: {commands: [y], greet: you}}]\n"
        "    |                                                         ^^^^^ move it into a command"
    )
    assert refused("steps: [{step: a, map: {over: [1]}, do: x, greet: you}]") == (
        "error[language.several_actions]: w.yaml:1:44: step 'a' has 'map', so its actions stand in 'do'\n"
        "  1 | steps: [{step: a, map: {over: [1]}, do: x, greet: you}]\n"
        "    |                                            ^^^^^ move 'greet' into 'do'"
    )


def test_a_typo_is_told_what_was_meant(install: Install) -> None:
    install(greet="greet")

    assert refused("steps: [{step: a, gret: you}]") == (
        "error[language.unknown_key]: w.yaml:1:19: 'gret' is not a key of step 'a'\n"
        "  1 | steps: [{step: a, gret: you}]\n"
        "    |                   ^^^^ did you mean 'greet'?"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("other", "the action 'greet' of 'mulligan-greeting 1.0' is a str, not a mulligan.ActionPlugin"),
        (
            "absent",
            "the action 'greet' of 'mulligan-greeting 1.0' does not load: "
            "AttributeError: module 'MODULE' has no attribute 'absent'",
        ),
    ],
)
def test_one_that_cannot_be_used_is_refused_by_the_name_of_its_package(
    install: Install, tmp_path: Path, value: str, message: str
) -> None:
    install(greet=value)
    module = f"greeting_{tmp_path.name}".replace("-", "_")

    assert refused("steps: [{step: a, greet: you}]") == (
        f"error[language.plugin]: w.yaml:1:19: {message.replace('MODULE', module)}\n"
        "  1 | steps: [{step: a, greet: you}]\n"
        "    |                   ^^^^^"
    )


def test_a_package_that_breaks_when_it_is_loaded_is_refused(install: Install) -> None:
    install(text=BROKEN, greet="greet")
    message = (
        "the action 'greet' of 'mulligan-greeting 1.0' does not load: "
        "ValueError: 'greeting' does not name a function, such as 'package.module:function'"
    )

    assert refused("steps: [{step: a, greet: you}]").startswith(f"error[language.plugin]: w.yaml:1:19: {message}\n")
    with pytest.raises(Refused) as caught:
        schema()
    assert caught.value.message == message


def test_two_packages_with_the_same_action_are_refused(install: Install) -> None:
    install("first", greet="greet")
    install("second", greet="greet")

    assert refused("steps: [{step: a, greet: you}]").startswith(
        "error[language.plugin]: w.yaml:1:19: two packages offer the action 'greet': 'first 1.0' and 'second 1.0'\n"
    )


def test_a_name_of_ours_is_refused_where_all_of_them_are_told(install: Install) -> None:
    install(shell="greet")

    with pytest.raises(Refused) as caught:
        schema()

    assert (caught.value.message, caught.value.hint) == (
        "the action 'shell' of 'mulligan-greeting' has the name of a built-in key",
        "the package must rename it",
    )


# -- what it costs, and what may be said -----------------------------------------------------------------------------


def test_a_file_with_our_keys_alone_looks_for_none() -> None:
    code = (
        "import sys; from mulligan.language import load_text; load_text('steps: [{step: a, shell: make}]'); "
        "print('importlib.metadata' in sys.modules)"
    )
    path = {"PYTHONPATH": str(Path(mulligan.__file__).parents[1])}

    assert subprocess.check_output([sys.executable, "-c", code], env=path, text=True) == "False\n"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"call": "run", "keys": {}}, "'run' does not name a function, such as 'package.module:function'"),
        ({"call": 3, "keys": {}}, "3 does not name a function, such as 'package.module:function'"),
        ({"call": "a:b", "keys": {"a-b": ""}}, "'a-b' cannot be the name of an argument"),
        ({"call": "a:b", "keys": {"class": ""}}, "'class' cannot be the name of an argument"),
        ({"call": "a:b", "keys": {}, "required": ["x"]}, "'x' is in 'required' and not in 'keys'"),
        ({"call": "a:b", "keys": {}, "text_key": "x"}, "'x' is 'text_key' and not in 'keys'"),
        (
            {"call": "a:b", "keys": {"x": "", "y": ""}, "required": ["x", "y"], "text_key": "x"},
            "'y' is required as well, so a plain text cannot stand for 'x' alone",
        ),
    ],
)
def test_a_definition_that_makes_no_sense_says_so(said: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        ActionPlugin(said.pop("call"), **said)

    assert str(caught.value) == message


def test_it_is_there_under_the_name_of_the_package() -> None:
    assert mulligan.ActionPlugin is ActionPlugin
    with pytest.raises(AttributeError, match=r"^module 'mulligan' has no attribute 'absent'$"):
        mulligan.absent  # noqa: B018
