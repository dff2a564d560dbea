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

# What to do about a package that cannot be used.
BROKEN_PACKAGE = "update or remove the package"
# The word for our own files.
OURS = "mulligan"
NOETL = "noetl"

FORMATS = {
    "torc": FormatPlugin(
        "Torc",
        recognize="mulligan.formats.recognition:is_torc",
        translate="mulligan.formats.torc:translate",
        syntaxes={".kdl": "mulligan.formats.torc.kdl:parse"},
    ),
    NOETL: FormatPlugin(
        "NoETL",
        recognize="mulligan.formats.recognition:is_noetl",
        translate="mulligan.formats.noetl.workflow:translate",
        log="mulligan.formats.noetl.log:noetl_events",
        install="mulligan[noetl]",
    ),
    "alphred": FormatPlugin(
        "Alphred",
        recognize="mulligan.formats.recognition:is_alphred",
        translate="mulligan.formats.alphred:translate",
    ),
    "prodigy": FormatPlugin(
        "Prodigy",
        recognize="mulligan.formats.recognition:is_prodigy",
        translate="mulligan.formats.prodigy:translate",
    ),
}


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
    try:
        system = find_format(name)
    except PluginError:
        system = None
    return system.title if system else name


def log_writer(name: str) -> Callable[[Iterable[Entry]], Iterator[Any]] | None:
    """The function that writes the log of a run as the system would have written it; None where there is none."""
    try:
        system = find_format(name)
    except PluginError as problem:
        raise InputInvalid(str(problem), hint=BROKEN_PACKAGE) from None
    return load_object(system.log) if system is not None and system.log else None
