"""What a newcomer meets first: the commands work as written, the pins are whole, nothing of a machine leaked in."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tools.site.pages import read_navigation
from tools.site.stage import navigation_problems

ROOT = Path(__file__).parent.parent
PINS = (
    "requirements/runtime.txt",
    "requirements/dev.txt",
    "requirements/image.txt",
    "requirements/bare.txt",
    "requirements/docs.txt",
)
PROSE = ("README.md", "CONTRIBUTING.md")

DOCUMENTED_TARGETS = tuple(
    "help demo nl2sql-demo quick test test-times nightly steady browser slurm objects pictures check lint format "
    "bench growth simulate crashes chaos soak fuzz attacks mutants generated docs pins dist dist-check clean".split()
)
ADDRESS = re.compile(r"://|--(extra-)?index-url|--default-index|--find-links|^-[if]\s| @ ", re.MULTILINE)
POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+")
PERSONAL_PATH = re.compile(r"(?<![\w.~-])/(home|root|work|Users)/\w")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pyproject() -> dict[str, Any]:
    return tomllib.loads(read("pyproject.toml"))


def requirements(text: str) -> list[str]:
    """The logical lines of a requirements file, comments left out and continued lines joined."""
    kept = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join(kept).replace("\\\n", " ").splitlines()


def pinned_versions(name: str) -> dict[str, str]:
    pairs = (line.split()[0].split("==", 1) for line in requirements(read(name)))
    return dict(pairs)


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))


def tracked_texts() -> dict[str, str]:
    """Every file under version control that is text, by name."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8", errors="ignore") for p in paths if p.is_file()}


def test_what_runs_on_a_change_and_at_night_is_made_of_commands_that_there_are() -> None:
    texts = [file.read_text(encoding="utf-8") for file in sorted((ROOT / ".github/workflows").glob("*.yml"))]
    commands = " ".join(texts)
    called = set(re.findall(r"\bmake ([a-z]+)", commands))
    pythons = {name.rpartition(" ")[2] for name in pyproject()["project"]["classifiers"] if " :: 3." in name}

    assert len(texts) == 4
    assert called <= makefile_targets() and {"browser", "docs", "simulate", "slurm"} <= called
    assert commands.count("run: .ci/run") == 2
    assert set(re.findall(r'"(3\.\d+)"', texts[0])) == pythons


@pytest.mark.parametrize("name", PINS)
def test_every_pin_has_a_version_and_a_hash(name: str) -> None:
    lines = requirements(read(name))

    unpinned = [line.split()[0] for line in lines if not re.match(r"\S+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)]

    assert lines
    assert unpinned == []


@pytest.mark.parametrize("name", PINS)
def test_pins_name_no_index_and_no_address(name: str) -> None:
    assert ADDRESS.findall(read(name)) == []


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://index.example/simple",
        "--extra-index-url file:///srv",
        "-f wheels",
        "-i mirror",
        "mulligan @ ../mulligan",
    ],
)
def test_an_address_among_the_pins_would_be_found(line: str) -> None:
    assert ADDRESS.search(f"rich==15.0.0\n{line}\n")


def test_the_development_pins_contain_the_runtime_pins() -> None:
    assert pinned_versions("requirements/runtime.txt").items() <= pinned_versions("requirements/dev.txt").items()


def test_the_pins_of_the_image_are_those_of_the_tests() -> None:
    assert pinned_versions("requirements/image.txt").items() <= pinned_versions("requirements/dev.txt").items()


def test_the_demo_installs_the_package_with_the_pins_of_the_tests_and_no_extra() -> None:
    bare, rule = pinned_versions("requirements/bare.txt"), read("Makefile").partition("\ndemo: ")[2].partition(" ")[0]

    assert rule == "$(BARE_STAMP)"
    assert bare.items() <= pinned_versions("requirements/dev.txt").items()
    extras = {name for extra in pyproject()["project"]["optional-dependencies"].values() for name in names(extra)}
    assert names(pyproject()["project"]["dependencies"]) <= bare.keys()
    assert bare.keys() & (extras - {"mulligan"}) == set()


def test_every_dependency_is_pinned() -> None:
    project = pyproject()
    groups = project["dependency-groups"]

    assert (
        names([*project["project"]["dependencies"], *groups["dev"]]) <= pinned_versions("requirements/dev.txt").keys()
    )
    assert names(groups["docs"]) <= pinned_versions("requirements/docs.txt").keys()


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", requirement)[0].lower().replace("_", "-") for requirement in requirements}


def test_the_version_has_one_home() -> None:
    project = pyproject()["project"]

    versions = re.findall(r'^__version__ = "(\d+\.\d+\.\d+)"$', read("src/mulligan/__init__.py"), re.MULTILINE)

    assert len(versions) == 1
    assert "version" not in project
    assert project["dynamic"] == ["version"]


def test_the_first_commands_of_the_readme_are_demo_and_test() -> None:
    commands = re.findall(r"^make (\w+)", read("README.md"), re.MULTILINE)

    assert commands[:2] == ["demo", "test"]


@pytest.mark.parametrize("name", PROSE)
def test_every_make_command_that_is_written_down_exists(name: str) -> None:
    written = set(re.findall(r"(?:^|`)make ([a-z]+)", read(name), re.MULTILINE))

    assert written
    assert written - makefile_targets() == set()


@pytest.mark.parametrize("arguments", [["help"], []], ids=["make help", "make"])
def test_make_help_lists_every_documented_target_with_a_sentence(arguments: list[str]) -> None:
    command = ["make", "--no-print-directory", *arguments]

    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout

    assert re.findall(r"^  make ([\w-]+) +\w.*$", shown, re.MULTILINE) == list(DOCUMENTED_TARGETS)


def test_the_pipeline_runs_the_test_command_of_the_readme_and_the_checks() -> None:
    commands = re.findall(r"^make (\w+)$", read(".ci/run"), re.MULTILINE)

    assert commands == ["lint", "test"]


def test_every_page_of_the_documentation_stands_in_the_navigation_of_the_site_once() -> None:
    assert list(navigation_problems(read_navigation())) == []


def test_no_group_of_a_regular_expression_is_possessive() -> None:
    """Before Python 3.11.5, `(?:ab*c)*+` goes on behind a last `ab` without its `c`; `(?>(?:ab*c)*)` does not."""
    code = {name: text for name, text in tracked_texts().items() if name.endswith(".py") and "tests/" not in name}

    found = [
        f"{name}: {line.strip()}"
        for name, text in code.items()
        for line in text.splitlines()
        if POSSESSIVE_GROUP.search(line) and "(a++)+" not in line
    ]

    assert code
    assert found == []


@pytest.mark.parametrize("pattern", ["(?:a|b)*+", "(ab)++c", "(?:a)?+", "(?:a){2,3}+"])
def test_a_possessive_group_would_be_found(pattern: str) -> None:
    assert POSSESSIVE_GROUP.search(pattern)


def test_the_types_are_shipped() -> None:
    assert (ROOT / "src/mulligan/py.typed").is_file()


def test_no_tracked_file_names_a_path_of_somebodys_machine() -> None:
    texts = tracked_texts()

    named = {name: match[0] for name, text in texts.items() if (match := PERSONAL_PATH.search(text))}

    assert texts
    assert named == {}


@pytest.mark.parametrize("folder", ["home", "root", "work", "Users"])
def test_a_path_of_somebodys_machine_would_be_found(folder: str) -> None:
    assert PERSONAL_PATH.search(f'open("/{folder}/somebody/file")')
