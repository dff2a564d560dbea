"""What is installed: the wheel has every file that the program opens, and what it prints is what is in there."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from email.message import Message
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from tests.support.forked_cli import forked_cli
from tests.support.linked_environment import link_environment, unpack

from mulligan.service.rendering.documentation import read_pages
from tools.packaging.check_installed import collector
from tools.packaging.first_commands import (
    EXTRAS,
    FIRST,
    NL2SQL_EXTRAS,
    NL2SQL_FIRST,
    NL2SQL_WITHOUT,
    Command,
    FirstCommandFailed,
    run_command,
    write_files,
)

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "mulligan"
# Made by the build.
PAGES = {"mulligan/pages.json"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed."""
    return built(ROOT, "build_backend", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def nl2sql_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT / "packages/nl2sql", "flit_core.buildapi", tmp_path_factory.mktemp("nl2sql"))


def built(project: Path, backend: str, folder: Path) -> Path:
    build = f"from {backend} import build_wheel; build_wheel({str(folder)!r})"
    environ = {"PYTHONPATH": str(ROOT / "tools/packaging")}
    subprocess.run([sys.executable, "-c", build], cwd=project, env=environ, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    ours = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }

    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())

    assert {"mulligan/py.typed", "mulligan/workflow.schema.json"} <= ours - PAGES
    assert {name for name in found if ".dist-info/" not in name} == ours | PAGES
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in found)


def test_the_packages_are_released_together_under_one_licence(wheel: Path, nl2sql_wheel: Path) -> None:
    ours, other = metadata(wheel), metadata(nl2sql_wheel)

    with zipfile.ZipFile(nl2sql_wheel) as archive:
        (licence,) = [archive.read(name) for name in archive.namelist() if name.endswith("/licenses/LICENSE")]

    assert licence == (ROOT / "LICENSE").read_bytes()
    assert f"mulligan>={ours['Version']}" in other.get_all("Requires-Dist", ())
    for key in ("Version", "Requires-Python", "License-Expression", "Classifier"):
        assert ours.get_all(key) == other.get_all(key)


def test_every_extra_has_commands_that_show_what_it_is_for(wheel: Path, nl2sql_wheel: Path) -> None:
    assert set(metadata(wheel).get_all("Provides-Extra", ())) == set(EXTRAS)
    assert set(metadata(nl2sql_wheel).get_all("Provides-Extra", ())) == set(NL2SQL_EXTRAS)


def test_every_extra_that_is_named_in_a_message_or_on_a_page_exists() -> None:
    files = [path for top in ("src", "docs", "deploy", "packages/nl2sql/src") for path in (ROOT / top).rglob("*.*")]
    texts = [path.read_text("utf-8") for path in files if path.suffix in (".py", ".md", ".yaml")]
    named = {
        extra for text in texts for names in re.findall(r"mulligan\[([\w,-]+)\]", text) for extra in names.split(",")
    }

    assert named == set(EXTRAS)


def test_the_wheel_has_the_pages_for_users_and_a_record_of_every_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        pages = json.loads(archive.read("mulligan/pages.json"))
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        record = {row[0]: row[1:] for row in csv.reader(archive.read(name).decode().splitlines())}
        found = {name: archive.read(name) for name in archive.namelist()}

    assert pages == read_pages(ROOT / "docs")
    assert "concepts/ladder.md" in pages and not any(name.startswith("project/") for name in pages)
    assert set(record) == set(found)
    for path, data in found.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert path == name or record[path] == [f"sha256={digest}", str(len(data))]


# -- the first commands, in an environment that has what the metadata asks for ----------------------------------------


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> PathDistribution:
    return unpack(wheel, tmp_path_factory.mktemp("unpacked"))


def type_in(programs: Path, folder: Path, commands: Iterable[Command]) -> None:
    with collector() as address:
        write_files(folder, {"collector": address})
        for command in commands:
            if not command.nightly:
                run_command(command, programs, folder, {"collector": address})


@pytest.mark.nightly
def test_the_package_alone_runs_and_names_the_extra_for_all_that_it_cannot_do(
    unpacked: PathDistribution, tmp_path: Path
) -> None:
    programs = link_environment(tmp_path / "environment", [unpacked])
    without = [command for extra in EXTRAS.values() for command in extra.without]
    schema = Command("mulligan schema", (PACKAGE / "workflow.schema.json").read_text("utf-8"))

    type_in(programs, tmp_path, FIRST)
    with forked_cli({"LANG": "C.UTF-8"}, str(programs / "python")) as text:
        (programs / "mulligan").write_text(text, encoding="utf-8")
        type_in(programs, tmp_path, [schema, *without])


# By day the one that most people install.
@pytest.mark.parametrize(
    "extra",
    [
        pytest.param(name, marks=() if name == "server" else pytest.mark.nightly)
        for name, extra in EXTRAS.items()
        if not all(command.nightly for command in extra.with_it)
    ],
)
def test_an_extra_brings_all_that_its_commands_need(unpacked: PathDistribution, tmp_path: Path, extra: str) -> None:
    programs = link_environment(tmp_path / "environment", [unpacked], extra)

    try:
        type_in(programs, tmp_path, EXTRAS[extra].with_it)
    except FirstCommandFailed as failed:
        # It found all that the extra brings: fonts belong to the machine.
        if "a PNG needs a font" not in str(failed):
            raise
        pytest.skip("this machine has no font")


@pytest.mark.nightly
def test_nl2sql_alone_answers_from_sqlite_and_names_the_extra_of_other_databases(
    unpacked: PathDistribution, nl2sql_wheel: Path, tmp_path: Path
) -> None:
    nl2sql = unpack(nl2sql_wheel, tmp_path / "unpacked")
    programs = link_environment(tmp_path / "environment", [unpacked, nl2sql])

    type_in(programs, tmp_path, [*NL2SQL_FIRST, *NL2SQL_WITHOUT])
