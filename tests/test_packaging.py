"""What is installed: the wheel has every file that the program opens, and what it prints is what is in there."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mulligan.service import read_pages

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "mulligan"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = f"from build_backend import build_wheel; build_wheel({str(folder)!r})"
    backend = {"PYTHONPATH": str(ROOT / "tools/packaging")}
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, env=backend, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    ours = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }

    with zipfile.ZipFile(wheel) as archive:
        assert ours - set(archive.namelist()) == set()


def test_jinja2_is_installed_for_noetl_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()

    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: jinja2")]

    assert needed == ['Requires-Dist: jinja2>=3.1.6 ; extra == "noetl"']


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


def test_the_schema_in_the_wheel_is_what_the_command_prints(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        installed = archive.read("mulligan/workflow.schema.json")
        archive.extractall(tmp_path)

    printed = subprocess.run(
        [sys.executable, "-m", "mulligan", "schema"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        check=True,
        capture_output=True,
    ).stdout

    assert printed == installed
