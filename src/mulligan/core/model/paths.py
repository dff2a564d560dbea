"""Paths that are made with values: the folder such a path must stay in, and whether its text leaves that folder.

What the author of a file wrote may lead anywhere. A value (an input, an item, an output of a step) only chooses
something below the folder that is written before it: `out/${item}.txt` stays in `out`, `${inputs.dir}` in the folder
that it is relative to. Where a path really leads, through links, only the file system can say: see `worker.inside`.
"""

from __future__ import annotations

from typing import NamedTuple

from mulligan.core.model.workflow import Expression, Template

# What these names give comes from the environment of the worker or from the file itself: both are trusted.
_TRUSTED_NAMES = frozenset({"env", "files"})
_TEXT_CHARS_SHOWN = 200


class TemplatedPath(NamedTuple):
    """A path that a value took part in. `folder` is what the author wrote before it: "", or it ends with a slash."""

    text: str
    folder: str

    @property
    def rest(self) -> str:
        """What follows the folder."""
        return self.text[len(self.folder) :]

    @property
    def shown(self) -> str:
        return self.text if len(self.text) <= _TEXT_CHARS_SHOWN else f"{self.text[:_TEXT_CHARS_SHOWN]}…"


def literal_prefix(template: Template) -> Template | None:
    """What the author wrote before the first value, as a template that gives text; None where there is no value."""
    for index, part in enumerate(template.parts):
        if not _is_trusted(part):
            return Template(("", *template.parts[:index]))
    return None


def _is_trusted(part: str | Expression) -> bool:
    return isinstance(part, str) or part.any_path or _TRUSTED_NAMES.issuperset(part.reads)


def folder_of(beginning: str) -> str:
    """The folder in the beginning of a path, with its slash: `out/` of `out/run-`, "" of `run-`."""
    return beginning[: beginning.rfind("/") + 1]


def path_problem(path: TemplatedPath) -> str:
    """Why the text of a path leaves its folder, whatever the file system holds; "" where it does not.

    An absolute path that no folder was written before may still lead to where it may: that is not judged here.
    """
    if not path.text.startswith(path.folder):
        return "it does not begin with the folder that is written before its value"
    if "\0" in path.text:
        return "it has a NUL in it"
    if ".." in path.rest.split("/"):
        return "it has a '..' in it"
    # Behind a lone `/` the author lets the value name any path.
    if path.rest.startswith("/") and path.folder.strip("/"):
        return "its value is an absolute path"
    return ""
