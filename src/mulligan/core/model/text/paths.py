"""Templated paths: the folder that such a path must stay in, and whether its text leaves that folder.

What the author of a file wrote may lead anywhere. A value (an input, an item, an output of a step) only chooses
something below the folder that is written before it: `out/${item}.txt` stays in `out`, `${inputs.dir}` in the folder
that it is relative to. Symbolic links are checked by the worker: see `worker.path_containment`.
"""

from __future__ import annotations

import msgspec

from mulligan.core.model.workflow import Expression, Template

# These names come from the environment of the worker or from the file itself: both are trusted.
_TRUSTED_NAMES = frozenset({"env", "files"})
_TEXT_CHARS_SHOWN = 200


class TemplatedPath(msgspec.Struct, frozen=True):
    """A path with a value in it. `folder` is what the author wrote before the value: "", or it ends with a slash."""

    text: str
    folder: str

    @property
    def rest(self) -> str:
        """The part after the folder."""
        return self.text[len(self.folder) :]

    @property
    def shown(self) -> str:
        return self.text if len(self.text) <= _TEXT_CHARS_SHOWN else f"{self.text[:_TEXT_CHARS_SHOWN]}…"


def literal_prefix(template: Template) -> Template | None:
    """What the author wrote before the first value, as a template; None without a value."""
    for index, part in enumerate(template.parts):
        if isinstance(part, Expression) and not (part.any_path or _TRUSTED_NAMES.issuperset(part.reads)):
            return Template(("", *template.parts[:index]))
    return None


def folder_of(beginning: str) -> str:
    """The folder in the beginning of a path, with its slash: `out/` of `out/run-`, "" of `run-`."""
    return beginning[: beginning.rfind("/") + 1]


def path_problem(path: TemplatedPath) -> str:
    """Why the text of a path leaves its folder, regardless of the file system; "" if it does not.

    An absolute path without a folder before it is checked by the worker.
    """
    if not path.text.startswith(path.folder):
        return "it does not begin with the folder written before its value"
    if "\0" in path.text:
        return "it contains a NUL"
    if ".." in path.rest.split("/"):
        return "it contains '..'"
    # With a lone `/` before it the author allows any path.
    if path.rest.startswith("/") and path.folder.strip("/"):
        return "its value is an absolute path"
    return ""
