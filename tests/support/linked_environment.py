"""An environment with a wheel, what it needs, and nothing else: the packages are links to those of this environment.

So an import that the metadata of the wheel does not promise fails in there, as it would where pip installed it.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import Distribution, PathDistribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROGRAM = """#!{python}
import sys
from {module} import {name}
sys.exit({name}())
"""


def unpack(wheel: Path, folder: Path) -> PathDistribution:
    """The distribution of a wheel, unpacked in a folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return PathDistribution((folder / metadata).parent)


def link_environment(folder: Path, unpacked: Sequence[PathDistribution], extra: str = "") -> Path:
    """Make an environment with what was unpacked, the last with an extra; the folder of its programs."""
    programs = folder / "bin"
    packages = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    programs.mkdir(parents=True)
    packages.mkdir(parents=True)
    interpreter = os.path.realpath(sys.executable)
    (folder / "pyvenv.cfg").write_text(
        f"home = {os.path.dirname(interpreter)}\ninclude-system-site-packages = false\n", encoding="utf-8"
    )
    (programs / "python").symlink_to(interpreter)
    for one in unpacked:
        for path in one._path.parent.iterdir():  # type: ignore[attr-defined]
            (packages / path.name).symlink_to(path)
        for entry in one.entry_points.select(group="console_scripts"):
            text = PROGRAM.format(python=programs / "python", module=entry.module, name=entry.attr)
            (programs / entry.name).write_text(text, encoding="utf-8")
            (programs / entry.name).chmod(0o755)
    shared = _shared_folders()
    for one in needed({canonicalize_name(one.name): one for one in unpacked}, extra):
        for source, name in _installed(one, shared):
            (packages / name).parent.mkdir(parents=True, exist_ok=True)
            (packages / name).symlink_to(source)
    return programs


def needed(unpacked: dict[str, PathDistribution], extra: str) -> Iterator[Distribution]:
    """The distributions of this environment that the metadata of the others asks for."""
    last = next(reversed(unpacked))
    waiting = [(name, extra if name == last else "") for name in unpacked]
    seen = set(waiting)
    linked: set[str] = set()
    for name, chosen in waiting:
        found = unpacked.get(name) or distribution(name)
        if name not in unpacked and name not in linked:
            linked.add(name)
            yield found
        for requirement in map(Requirement, found.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": chosen}):
                asked = canonicalize_name(requirement.name)
                for one in {(asked, ""), *((asked, wanted) for wanted in requirement.extras)} - seen:
                    seen.add(one)
                    waiting.append(one)


@cache
def _shared_folders() -> set[str]:
    """Folders in which several distributions have files: namespace packages."""
    owners = Counter(top for one in distributions() for top in {path.parts[0] for path in one.files or ()})
    return {top for top, count in owners.items() if count > 1}


def _installed(one: Distribution, shared: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each file or folder of a distribution that is to be linked, and its name in an environment."""
    tops: set[str] = set()
    for path in one.files or ():
        top = path.parts[0]
        if top in ("..", "__pycache__") or "__pycache__" in path.parts:
            continue
        if top in shared:
            yield str(path.locate()), str(path)
        elif top not in tops:
            tops.add(top)
            yield str(one.locate_file(top)), top
