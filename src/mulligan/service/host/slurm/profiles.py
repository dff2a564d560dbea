"""Profiles of pilots: `[slurm.NAME]` in a TOML file, and the key `slurm` of a workflow file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from mulligan.core.model.clusters.slurm_profile import DEFAULT_PROFILE, SlurmProfile
from mulligan.core.model.text.formatting import error_reason
from mulligan.errors import InputInvalid, LanguageError
from mulligan.language.keys.value_schemas import Key, Record
from mulligan.language.readers.slurm_profiles import PROFILE, PROFILES, read_profiles
from mulligan.language.text import nodes
from mulligan.language.text.nodes import Refusal, Source, TooManyProblems
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.server.toml_positions import config_error, position, refuse_syntax

# The file in the folder of the runs, the variable that names another one, and the user's own.
FILE, VARIABLE, USER_FILE = "mulligan.toml", "MULLIGAN_SLURM_PROFILES", Path("mulligan") / "slurm.toml"
_FILE_KEYS = Record("profiles", {"slurm": Key(PROFILES)})


class Profiles(msgspec.Struct, frozen=True):
    """The profiles that were found, and the files that have them: "" for the built-in one."""

    by_name: dict[str, SlurmProfile]
    files: dict[str, str]

    def get(self, name: str) -> SlurmProfile:
        """The profile of this name. `InputInvalid`, with what was probably meant."""
        if name in self.by_name:
            return self.by_name[name]
        known = ", ".join(f"'{one}'" for one in self.by_name)
        hint = did_you_mean(name, self.by_name) or f"there are: {known}; others go into {FILE}, as [slurm.{name}]"
        raise InputInvalid(f"there is no Slurm profile '{name}'", hint=hint)


def find_profiles(
    folder: Path, workflow: Mapping[str, SlurmProfile], workflow_file: str = "", environ: Mapping[str, str] = os.environ
) -> Profiles:
    """The profiles of the first file that is there, and those of a workflow file, which count more.

    If there is none at all, there is the profile `default`, for which the cluster decides everything.
    """
    path = _find_file(folder, environ)
    found = read_file(path) if path is not None else {}
    if not found and not workflow:
        return Profiles({DEFAULT_PROFILE: SlurmProfile()}, {DEFAULT_PROFILE: ""})
    files = {**dict.fromkeys(found, str(path)), **dict.fromkeys(workflow, workflow_file)}
    return Profiles({**found, **workflow}, files)


def _find_file(folder: Path, environ: Mapping[str, str]) -> Path | None:
    if named := environ.get(VARIABLE):
        if not Path(named).is_file():
            raise InputInvalid(f"{VARIABLE} names '{named}', which is not a file", hint="correct it, or unset it")
        return Path(named)
    config = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".config")
    return next((path for path in (folder / FILE, config / USER_FILE) if path.is_file()), None)


def refusal_hint(about: str, name: str, file: str) -> str:
    """What to do if sbatch refuses pilots of the profile."""
    if about == "limit":
        return "a limit of the cluster is reached: submit fewer, or try again when other jobs have ended"
    if not file:
        return f"no profile is written, so the cluster decides: write {FILE} with [slurm.{name}]"
    see = "; what the cluster has: sinfo -o '%P %c %m %l'" if about == "shape" else ""
    return f"change the profile '{name}' in '{file}'{see}"


def read_file(path: Path) -> dict[str, SlurmProfile]:
    """The profiles of a TOML file. `LanguageError` with all its problems."""
    try:
        return parse_profiles(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise InputInvalid(f"'{path}' is not UTF-8", hint="save it as UTF-8") from None
    except OSError as error:
        raise InputInvalid(f"'{path}' cannot be read: {error_reason(error)}") from None


def parse_profiles(text: str, file: str) -> dict[str, SlurmProfile]:
    """The profiles of a TOML text, checked as those of a workflow file are."""
    source = Source(text, file)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refuse_syntax(error, text, file) from None
    except RecursionError:
        raise config_error(file, "the values are nested too deeply") from None
    profiles: dict[str, SlurmProfile] = {}
    try:
        _refuse_bare_keys(tree, text, source)
        fields = _FILE_KEYS.read(_node(tree, text, []), "a file of profiles", source)
        profiles = read_profiles(fields.get("slurm", {}), source)
    except Refusal as refusal:
        source.note(refusal)
    except TooManyProblems:
        pass  # the problems so far are reported
    if source.problems:
        raise LanguageError(source.problems)
    return profiles


def _refuse_bare_keys(tree: Mapping[str, Any], text: str, source: Source) -> None:
    """Keys of a profile directly below `[slurm]`: the name of the profile is missing."""
    table = tree.get("slurm")
    for name, value in table.items() if isinstance(table, dict) else ():
        if name in PROFILE.keys and not isinstance(value, dict):
            node = _node(value, text, ["slurm", name])
            hint = f"write [slurm.{DEFAULT_PROFILE}] above it"
            raise source.refuse("slurm", f"'{name}' belongs to a profile, and [slurm] names none", node, hint=hint)


def _node(value: Any, text: str, path: list[str]) -> nodes.Node:
    """A value of TOML as a node of our language, at the position of its key."""
    line, column = (max(0, number - 1) for number in position(text, path)) if path else (0, 0)
    if isinstance(value, dict):
        mapping = nodes.Mapping(line, column)
        for name, below in value.items():
            inner = [*path, str(name)]
            at, start = (max(0, number - 1) for number in position(text, inner))
            key = nodes.Scalar(str(name), str(name), "", at, start, start + len(str(name)))
            mapping.entries[str(name)] = (key, _node(below, text, inner))
        return mapping
    if isinstance(value, list):
        items = nodes.Sequence(line, column)
        items.items = [_node(one, text, path) for one in value]
        return items
    plain = value if isinstance(value, str | int | float) else str(value)
    shown = str(plain).lower() if isinstance(plain, bool) else str(plain)
    name_length = len(path[-1]) if path else 1
    return nodes.Scalar(plain, shown, "", line, column, column + name_length)
