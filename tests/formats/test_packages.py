"""Systems that packages add: found by their entry points, and asked only where nothing of ours recognizes a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands import mulligan as command

import mulligan
from mulligan.errors import InputInvalid, LanguageError
from mulligan.formats import convert, examine, title_of
from mulligan.formats.recognition import check_system
from mulligan.formats.table import FORMATS, log_writer
from mulligan.plugins import FormatPlugin

ACME = """
from mulligan import FormatPlugin
from mulligan.formats import mapping
from mulligan.language.text.nodes import Mapping, plain

acme = FormatPlugin(
    "Acme",
    recognize=__name__ + ":is_acme",
    translate=__name__ + ":translate",
    syntaxes={".acme": __name__ + ":parse"},
    log=__name__ + ":log",
)
other = "not a plugin"
careless = FormatPlugin("Careless", recognize=__name__ + ":fail", translate=__name__ + ":fail")
empty = FormatPlugin("Empty", recognize=__name__ + ":is_acme", translate=__name__ + ":nothing")
absent = FormatPlugin("Absent", recognize=__name__ + ":is_acme", translate=__name__ + "_missing:translate")


def is_acme(root):
    return isinstance(root, Mapping) and "acme" in root.entries


def translate(root, translation):
    commands = root.get("acme")
    if commands is None:
        raise translation.source.refuse("acme", "the file has no 'acme'", root)
    translation.warn("acme", "acme files have no names", commands)
    steps = [{"step": f"s{n}", "shell": text} for n, text in enumerate(plain(commands))]
    return mapping({"steps": steps}, commands)


def parse(source):
    return mapping({"acme": source.text.split()}, mapping({}, At))


class At:
    line = column = 0


def log(entries):
    return ({"acme": entry.seq} for entry in entries)


def fail(*args):
    raise RuntimeError("no idea")


def nothing(root, translation):
    return None
"""
FILE = "acme: [echo a, echo b]\n"
OURS = "steps: [{step: a, shell: echo}]\n"
TORC = "name: x\njobs: [{name: a, command: echo}]\n"

Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with such entry points on the path, as a package manager would; returns the name of its module."""
    folder = tmp_path / "installed"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)

    def put(package: str = "mulligan-acme", *, text: str = ACME, **entries: str) -> str:
        module = f"{package}_{tmp_path.name}".replace("-", "_")
        (folder / f"{module}.py").write_text(text)
        info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[mulligan.formats]", *lines]))
        return module

    return put


def refused(text: str, **options: Any) -> tuple[str, str, str]:
    """The code, message and hint of the one problem."""
    with pytest.raises(LanguageError) as caught:
        examine("w.yaml", text=text, **options)
    (problem,) = caught.value.problems
    return problem.code, problem.message, problem.hint


def test_its_files_are_recognized_and_translated(install: Install) -> None:
    install(acme="acme")

    workflow, warnings = examine("w.yaml", text=FILE)

    assert (workflow.origin, [step.name for step in workflow.steps]) == ("acme", ["s0", "s1"])
    assert [(warning.code, warning.line) for warning in warnings] == [("warning.language.acme", 1)]
    assert title_of("acme") == "Acme"


def test_its_refusals_are_shown_in_its_file(install: Install) -> None:
    install(acme="acme")

    with pytest.raises(LanguageError) as caught:
        examine("w.yaml", text="steps: []\n", named="acme")

    (problem,) = caught.value.problems
    assert (problem.code, problem.line, problem.message) == ("language.acme", 1, "the file has no 'acme'")


def test_its_files_may_have_a_syntax_of_their_own(install: Install, tmp_path: Path) -> None:
    install(acme="acme")
    (tmp_path / "flow.acme").write_text("true false")

    assert [step.name for step in examine(tmp_path / "flow.acme").workflow.steps] == ["s0", "s1"]
    assert [step.name for step in examine(tmp_path / "flow.acme", named="acme").workflow.steps] == ["s0", "s1"]


def test_its_files_are_converted_and_run(install: Install, tmp_path: Path) -> None:
    install(acme="acme")
    (tmp_path / "flow.yaml").write_text(FILE)

    text, origin, _ = convert(tmp_path / "flow.yaml")

    assert origin == "acme"
    assert text.startswith("# Converted from flow.yaml (Acme) by `mulligan convert`.\n")
    assert command("validate", "flow.yaml").out == "flow.yaml: ok, an Acme file: 2 steps\n"
    assert command("graph", "flow.yaml", "--format", "acme").code == 0
    assert command("run", "flow.yaml").code == 0
    assert command("events", "1", "--as", "acme").out.startswith('{"acme": 1}\n')


def test_systems_of_ours_come_first(install: Install) -> None:
    install(torc="careless", mulligan="careless", other="careless")

    assert examine("w.yaml", text=TORC).workflow.origin == "torc"
    assert examine("w.yaml", text=OURS).workflow.origin == ""
    assert examine("w.yaml", text=OURS, named="mulligan").workflow.origin == ""


# -- packages that cannot be used


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("other", "the format 'acme' of 'mulligan-acme 1.0' is a str, not a mulligan.FormatPlugin"),
        (
            "missing",
            "the format 'acme' of 'mulligan-acme 1.0' does not load: AttributeError: module 'MODULE' has no attribute "
            "'missing'",
        ),
    ],
)
def test_one_that_does_not_load_is_one_error_where_it_is_wanted(install: Install, value: str, problem: str) -> None:
    message = problem.replace("MODULE", install(acme=value))

    # asked for by name
    with pytest.raises(InputInvalid) as caught:
        examine("w.yaml", text=FILE, named="acme")
    assert (caught.value.message, caught.value.hint) == (message, "update or remove the package")
    with pytest.raises(InputInvalid):
        log_writer("acme")
    # nothing else recognizes the file
    assert refused(FILE) == (
        "language.format",
        f"the file is not recognized, and {message}",
        "update or remove the package; or say which system the file is of, such as --format mulligan",
    )
    # files of ours and of other systems do not need it
    assert examine("w.yaml", text=OURS).workflow.origin == ""
    assert examine("w.yaml", text=TORC).workflow.origin == "torc"
    assert refused("steps: [{step: a, shel: echo}]\n")[0] == "language.unknown_key"
    assert title_of("acme") == "acme"


def test_one_that_fails_to_recognize_is_one_error_where_nothing_else_does(install: Install) -> None:
    install(acme="careless")

    code, message, _ = refused(FILE)

    assert (code, message) == (
        "language.format",
        "the file is not recognized, and the format 'acme' failed to recognize a file: RuntimeError: no idea",
    )


def test_a_broken_package_does_not_keep_another_from_its_files(install: Install) -> None:
    install(acme="acme")
    install("broken", text="import nothing_of_that_name\n", aaa="acme")

    assert examine("w.yaml", text=FILE).workflow.origin == "acme"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("careless", "the package for Careless files failed: RuntimeError: no idea"),
        ("empty", "the package for Empty files returned a NoneType, not a tree"),
        ("absent", "the package for Absent files failed: ModuleNotFoundError: No module named 'MODULE_missing'"),
    ],
)
def test_one_that_fails_to_translate_is_one_error(install: Install, value: str, message: str) -> None:
    module = install(acme=value)

    assert refused(FILE, named="acme") == ("language.format", message.replace("MODULE", module), "")


def test_two_packages_with_the_same_system_are_refused(install: Install) -> None:
    install("first", acme="acme")
    install("second", acme="acme")

    with pytest.raises(InputInvalid) as caught:
        check_system("acme")

    assert caught.value.message == "two packages offer the format 'acme': 'first 1.0' and 'second 1.0'"


def test_an_unknown_word_is_refused_with_all_systems(install: Install) -> None:
    install(acme="acme")

    with pytest.raises(InputInvalid) as caught:
        check_system("airflow")

    assert caught.value.hint == f"known formats: {', '.join(FORMATS)}, acme, and mulligan for our own"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"title": ""}, "'' is not the name of a system"),
        ({"recognize": "a.b"}, "'a.b' does not name a function, such as 'package.module:function'"),
        ({"translate": len}, f"{len!r} does not name a function, such as 'package.module:function'"),
        ({"syntaxes": {"toml": "a:b"}}, "'toml' is not the ending of a file name, such as '.toml'"),
        ({"log": ":b"}, "':b' does not name a function, such as 'package.module:function'"),
    ],
)
def test_a_definition_with_a_mistake_is_refused(fields: dict[str, Any], message: str) -> None:
    fields = {"title": "Acme", "recognize": "a:b", "translate": "a:b", **fields}

    with pytest.raises(ValueError) as caught:
        FormatPlugin(fields.pop("title"), **fields)

    assert str(caught.value) == message


def test_it_is_exported_by_the_package() -> None:
    assert mulligan.FormatPlugin is FormatPlugin


# -- what it costs


@pytest.mark.parametrize("text", [OURS, TORC, "workflow: [{step: start}]", "commands: [{shell: make}]"])
def test_files_of_ours_and_of_the_table_cause_no_search_for_packages(text: str) -> None:
    code = (
        "import sys; from mulligan.formats import examine; "
        f"examine('w.yaml', text={text!r}); print('importlib.metadata' in sys.modules)"
    )
    path = {**os.environ, "PYTHONPATH": str(Path(mulligan.__file__).parents[1])}

    assert subprocess.check_output([sys.executable, "-c", code], env=path, text=True) == "False\n"


# -- what is not installed


BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "jinja2":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run_without_jinja2(code: str, folder: Path) -> str:
    path = {**os.environ, "PYTHONPATH": str(Path(mulligan.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", BLOCKED + code], cwd=folder, env=path, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("text", [TORC, "commands: [{shell: make}]"])
def test_other_files_do_not_need_jinja2(tmp_path: Path, text: str) -> None:
    code = f"from mulligan.formats import load; print(len(load('w.yaml', text={text!r}).steps) > 0)"

    assert run_without_jinja2(code, tmp_path) == "True\n"


def test_the_schema_does_not_need_jinja2(tmp_path: Path) -> None:
    code = "from mulligan.language.schema import schema; print('action_noetl' in schema()['$defs'])"

    assert run_without_jinja2(code, tmp_path) == "True\n"


def test_a_step_in_a_worker_without_jinja2_fails_with_what_to_install(tmp_path: Path) -> None:
    code = (
        "from mulligan import StepError\n"
        "from mulligan.worker.actions.plugin import run\n"
        "try:\n"
        "    run('mulligan.formats.noetl.runtime:run', 'mulligan', {'render': 1})\n"
        "except StepError as error:\n"
        "    print(error.code, error.retryable, error.message)\n"
    )

    assert run_without_jinja2(code, tmp_path) == (
        "INPUT_INVALID False NoETL steps need Jinja2, which this worker does not have: pip install 'mulligan[noetl]'\n"
    )
