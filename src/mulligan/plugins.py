"""What packages add to Mulligan, actions and formats, and how they are found: by entry points.

Our own plugins are found here, too, by the table `BUILT_IN`. Only the standard library: warm children load this module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from keyword import iskeyword
from typing import Any

from mulligan.core.model.text.lazy_regex import lazy_regex

# The groups of entry points: the name of an entry is the key of the action in a file, or the word for `--format`.
ACTIONS = "mulligan.actions"
FORMATS = "mulligan.formats"
_CALL = lazy_regex(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)

# The plugins of our own distribution, as its entry points would name them. They are not entry points because a search
# through all installed packages takes time, and because a checkout that is not installed has none.
BUILT_IN = {ACTIONS: {"noetl": "mulligan.formats.noetl.action:NOETL"}}
OWN_PACKAGE = "mulligan"

# By action: the function of ours for a step that runs no code of its file. Its processes may keep what is secret, such
# as a connection to a database, for the next such step of the same workflow.
CODE_FREE_CALLS = {"noetl": "mulligan.formats.noetl.runtime:run_without_code"}

# Functions of ours that moved, and what they are called now: stored runs and converted files have the former names.
_PRODIGY, _ALPHRED = "mulligan.formats.prodigy", "mulligan.formats.alphred.subtasks"
MOVED_CALLS = {
    "mulligan.worker.actions.noetl:run": "mulligan.formats.noetl.runtime:run",
    f"{_PRODIGY}.changes:since": f"{_PRODIGY}.runtime:changes_since",
    f"{_PRODIGY}.changes:found": f"{_PRODIGY}.runtime:find_outputs",
    f"{_PRODIGY}.files:write": f"{_PRODIGY}.runtime:write_file",
    f"{_PRODIGY}.listing:items": f"{_PRODIGY}.runtime:list_items",
    f"{_PRODIGY}.setup_outputs:captured": f"{_PRODIGY}.runtime:capture_variables",
    f"{_PRODIGY}.validation:judge": f"{_PRODIGY}.runtime:judge_completion",
    f"{_PRODIGY}.validation:check": f"{_PRODIGY}.runtime:run_checks",
    f"{_PRODIGY}.worktrees:say_where": f"{_PRODIGY}.runtime:report_worktree",
    **{
        f"{_PRODIGY}.worktrees:{name}": f"{_PRODIGY}.runtime:{name}"
        for name in "open_run open_item merge_item merge_run close_run".split()
    },
    f"{_ALPHRED}:check": f"{_ALPHRED}:check_answer",
    f"{_ALPHRED}:listed": f"{_ALPHRED}:list_subtasks",
    f"{_ALPHRED}:told": f"{_ALPHRED}:summarize_subtasks",
}


class PluginError(Exception):
    """A package offers a plugin that cannot be used; the message says which package and why."""


class ActionPlugin:
    """An action that a package adds: its keys with a line of help each, and the function that carries it out.

        slack = ActionPlugin(
            "mulligan_slack.post:run",
            keys={"text": "what is posted", "channel": "where (default: general)"},
            required=["text"],
            text_key="text",
        )

    The function gets the keys that the file has as keyword arguments. Only workers import it, each in a separate
    process, so its dependencies slow down nothing else. `text_key` is the key that a plain text stands for.
    `program_keys` are those whose texts the function evaluates itself: a `${…}` is refused there. `waits`: it waits for
    the network most of the time, so by default a step reserves no processor. `traits` says more about it, to coverage,
    to what-if and to caches: docs/reference/actions.md lists them.
    """

    def __init__(
        self,
        call: str,
        *,
        keys: Mapping[str, str],
        required: Iterable[str] = (),
        text_key: str | None = None,
        program_keys: Iterable[str] = (),
        waits: bool = False,
        traits: Mapping[str, Any] | None = None,
        about: str = "",
    ) -> None:
        self.call = _checked_call(call)
        self.waits = waits
        self.traits = dict(traits or {})
        self.keys = dict(keys)
        self.required = tuple(required)
        self.text_key = text_key
        self.program_keys = tuple(program_keys)
        self.about = about
        if problem := self._problem():
            raise ValueError(problem)

    def call_for(self, args: Mapping[str, Any]) -> str:
        """The function for a step with these keys."""
        return self.call

    def waits_with(self, args: Mapping[str, Any]) -> bool:
        """Whether a step with these keys waits for the network most of the time."""
        return self.waits

    def _problem(self) -> str:
        """What is wrong with the definition; "" if nothing is."""
        for key in self.keys:
            if not isinstance(key, str) or not (key.isascii() and key.isidentifier()) or iskeyword(key):
                return f"{key!r} cannot be the name of an argument"
        if unknown := [key for key in self.required if key not in self.keys]:
            return f"{unknown[0]!r} is in 'required' and not in 'keys'"
        if unknown := [key for key in self.program_keys if key not in self.keys]:
            return f"{unknown[0]!r} is in 'program_keys' and not in 'keys'"
        if self.text_key is not None and self.text_key not in self.keys:
            return f"{self.text_key!r} is 'text_key' and not in 'keys'"
        if self.text_key is not None and (others := [key for key in self.required if key != self.text_key]):
            return f"{others[0]!r} is required as well, so a plain text cannot stand for {self.text_key!r} alone"
        return ""


class FormatPlugin:
    """Another system whose files can be read: what it is called, and the functions that read its files.

        argo = FormatPlugin(
            "Argo",
            recognize="mulligan_argo.files:is_argo",
            translate="mulligan_argo.files:translate",
        )

    `recognize(root)` says whether the tree of a file is that of a file of the system. `translate(root, translation)`
    makes the tree of a Mulligan workflow of it. `syntaxes` maps the ending of a file name to the function that parses
    such files where they are not YAML or JSON: `parse(source)` returns the tree. `yaml(source)` parses its YAML files
    where they are not to be read as YAML 1.2. `log(entries)` yields the events of a run as the system would have
    written them, as JSON values. All functions are given by name, and imported when they are needed. `install` is what
    to install where a module that they need is missing. `options` are the options of `mulligan run` that are only for
    its files: the translation has them in `translation.options`.
    """

    def __init__(
        self,
        title: str,
        *,
        recognize: str,
        translate: str,
        syntaxes: Mapping[str, str] | None = None,
        yaml: str | None = None,
        log: str | None = None,
        install: str = "",
        options: Iterable[str] = (),
    ) -> None:
        if not isinstance(title, str) or not title:
            raise ValueError(f"{title!r} is not the name of a system")
        self.title = title
        self.recognize = _checked_call(recognize)
        self.translate = _checked_call(translate)
        self.syntaxes = {suffix.lower(): _checked_call(call) for suffix, call in (syntaxes or {}).items()}
        self.yaml = None if yaml is None else _checked_call(yaml)
        self.log = None if log is None else _checked_call(log)
        self.install = install
        self.options = tuple(options)
        if wrong := [suffix for suffix in self.syntaxes if not suffix.startswith(".")]:
            raise ValueError(f"{wrong[0]!r} is not the ending of a file name, such as '.toml'")


def _checked_call(call: str) -> str:
    if not isinstance(call, str) or not _CALL.fullmatch(call):
        raise ValueError(f"{call!r} does not name a function, such as 'package.module:function'")
    return call


def load_object(call: str) -> Any:
    """Import what `package.module:name` names. Whatever the import raises goes through."""
    module, _, path = call.partition(":")
    found: Any = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def offered(group: str) -> dict[str, tuple[Any, ...]]:
    """The entry points of the group that installed packages have, by name. None of them is loaded."""
    return _entry_points(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
    """What is found along `sys.path`: searched once for each path."""
    found: dict[str, tuple[Any, ...]] = {}
    # Imported on demand: it takes as long as all of a small command.
    from importlib import metadata

    for entry in metadata.entry_points(group=group):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def load_plugin(group: str, name: str, kind: type[Any]) -> tuple[str, Any] | None:
    """The package and the plugin of that name; None where no package offers one, PluginError where it is unusable."""
    if built_in := BUILT_IN.get(group, {}).get(name):
        return OWN_PACKAGE, load_object(built_in)
    return _load_entry(group, name, kind, tuple(sys.path))  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def _load_entry(group: str, name: str, kind: type[Any], path: tuple[str, ...]) -> tuple[str, Any] | None:
    entries = _entry_points(group, path).get(name)
    if entries is None:
        return None
    what = group.removeprefix("mulligan.").removesuffix("s")
    first, *others = sorted(entries, key=_package)
    if others:
        raise PluginError(f"two packages offer the {what} '{name}': {_package(first)} and {_package(others[0])}")
    try:
        plugin = first.load()
    except Exception as error:  # code of another package may raise anything
        raise PluginError(f"the {what} '{name}' of {_package(first)} does not load: {describe_error(error)}") from None
    if not isinstance(plugin, kind):
        found = type(plugin).__name__
        raise PluginError(f"the {what} '{name}' of {_package(first)} is a {found}, not a mulligan.{kind.__name__}")
    return first.dist.name if first.dist else first.module, plugin


def _package(entry: Any) -> str:
    return f"'{entry.dist.name} {entry.dist.version}'" if entry.dist else f"the module '{entry.module}'"


def describe_error(error: Exception) -> str:
    """The class and the message of an exception, in one bounded line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(": ")
