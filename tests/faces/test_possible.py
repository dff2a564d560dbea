"""`mulligan run` says no to what this version cannot do: by name, and before anything has started."""

from __future__ import annotations

from pathlib import Path

import pytest

from .commands import mulligan, workflow

REFUSED = {
    # at any depth: in the command of an item
    "secrets: {key: {env: KEY}}\nsteps: [{step: a, map: {over: [1]}, do: ['sign ${secrets.key}']}]": (
        "error[refused]: this version looks up no secrets yet, and step 'a' reads one\n"
        "  hand it over as an environment variable: ${env.NAME}\n"
    ),
}


@pytest.mark.parametrize(("text", "told"), REFUSED.items(), ids=["secret"])
def test_what_this_version_cannot_do_is_refused_before_anything_is_made(text: str, told: str, folder: Path):
    said = mulligan("run", workflow(text))

    assert tuple(said) == (2, "", told)
    assert sorted(path.name for path in folder.iterdir()) == ["flow.yaml"]


def test_a_file_that_is_read_and_never_written_must_be_there(folder: Path):
    text = "files: {mesh: mesh.vtk}\nsteps: [{step: solve, shell: ./solve, reads: [mesh]}]"

    said = mulligan("run", workflow(text))

    told = "error[input.invalid]: 'mesh.vtk' is read and no step writes it, and it is not there\n"
    assert tuple(said) == (2, "", f"{told}  looked in {folder}\n")
