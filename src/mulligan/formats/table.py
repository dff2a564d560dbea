"""The systems whose files can be read, one line each. Installed packages add more: see `mulligan.plugins`.

A line only names functions: the package of a system is imported when a file of it is read. The order is that in which
the systems are asked whether a file is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mulligan.errors import InputInvalid
from mulligan.plugins import FORMATS as GROUP
from mulligan.plugins import FormatPlugin, PluginError, load_object, load_plugin, offered

if TYPE_CHECKING:
    from mulligan.core.model.events import Entry
    from mulligan.core.model.workflow import Workflow

# What to do about a package that cannot be used.
BROKEN_PACKAGE = "update or remove the package"
# The word for our own files.
OURS = "mulligan"
NOETL = "noetl"
# How the description of an input begins that has an option of `mulligan run` as its default.
OPTION_MARK = "the option --"

FORMATS = {
    "torc": FormatPlugin(
        "Torc",
        recognize="mulligan.formats.recognition:is_torc",
        translate="mulligan.formats.torc.workflow:translate",
        syntaxes={".kdl": "mulligan.formats.torc.kdl:parse"},
    ),
    NOETL: FormatPlugin(
        "NoETL",
        recognize="mulligan.formats.recognition:is_noetl",
        translate="mulligan.formats.noetl.workflow:translate",
        yaml="mulligan.formats.noetl.yaml_1_1:parse",
        log="mulligan.formats.noetl.log:noetl_events",
        install="mulligan[noetl]",
    ),
    "alphred": FormatPlugin(
        "Alphred",
        recognize="mulligan.formats.recognition:is_alphred",
        translate="mulligan.formats.alphred.workflow:translate",
    ),
    "prodigy": FormatPlugin(
        "Prodigy",
        recognize="mulligan.formats.recognition:is_prodigy",
        translate="mulligan.formats.prodigy.workflow:translate",
        options=("map", "max_iterations"),
    ),
}


def options_of(workflow: Workflow) -> dict[str, Any]:
    """The options of its system with which a workflow was read. They are defaults of its inputs."""
    system = FORMATS.get(workflow.origin)
    given = {name: each for name, each in workflow.inputs.items() if each.description.startswith(OPTION_MARK)}
    return {name: given[name].default for name in (system.options if system else ()) if name in given}


def find_format(name: str) -> FormatPlugin | None:
    """The system of that name, ours or a package's; None where there is none, PluginError where it is unusable."""
    if name in FORMATS or name == OURS:
        return FORMATS.get(name)
    loaded = load_plugin(GROUP, name, FormatPlugin)
    return loaded[1] if loaded else None


def added_names() -> list[str]:
    """The names of the systems that installed packages add, usable or not."""
    return sorted(offered(GROUP).keys() - FORMATS.keys() - {OURS})


def is_system(word: str) -> bool:
    """Whether `--format` takes the word: our own files, a system of the table, or one that a package adds."""
    return word == OURS or word in FORMATS or word in added_names()


def title_of(name: str) -> str:
    """What the system calls itself; the name itself where its package is not installed any more."""
    system = _usable_format(name)
    return system.title if system else name


def systems_with_logs() -> list[str]:
    """The systems as which the events of a run can be written: `mulligan events --as`."""
    return [name for name in (*FORMATS, *added_names()) if (system := _usable_format(name)) and system.log]


def _usable_format(name: str) -> FormatPlugin | None:
    try:
        return find_format(name)
    except PluginError:
        return None


def log_writer(name: str) -> Callable[[Iterable[Entry]], Iterator[Any]]:
    """The function that writes the log of a run as that system would have written it; InputInvalid if there is none."""
    try:
        system = find_format(name)
    except PluginError as problem:
        raise InputInvalid(str(problem), hint=BROKEN_PACKAGE) from None
    if system is None or not system.log:
        raise InputInvalid(f"'{name}' has no names for events")
    writer: Callable[[Iterable[Entry]], Iterator[Any]] = load_object(system.log)
    return writer
