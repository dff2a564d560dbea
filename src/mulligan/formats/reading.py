"""Read the file of any system as a workflow; one of ours that was checked before comes from the cache of the user.

What reads and checks files is loaded only if there is something to check.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from collections.abc import Mapping as Dict
from pathlib import Path
from typing import Any

from mulligan.core.model.actions import TABLE
from mulligan.core.model.workflow import Workflow, all_commands
from mulligan.language.checked_files import LoadResult, digest_of, users_files
from mulligan.language.text.yaml_library import import_yaml

# Files of ours. A Python file is built by a program, which may do anything.
_SUFFIXES = (".yaml", ".yml", ".json", ".json5")
_FILE_BYTES_MAX = 16 * 1024 * 1024


def examine(
    path: str | Path,
    *,
    named: str | None = None,
    text: str | None = None,
    trust_templates: bool = False,
    catalogue: Path | None = None,
    given: Dict[str, Any] | None = None,
    options: Dict[str, Any] | None = None,
    is_alone: bool = False,
) -> LoadResult:
    """The checked workflow in the file of any system, with its warnings; `text` replaces the content of the file.

    `named` is the system that the file belongs to; by default it is recognized. With `trust_templates` any value may
    become part of a command or a query of a NoETL file. `catalogue` is the folder of the playbooks that a NoETL file
    calls, and `given` are the inputs of the run, which may choose one of them. `options` are those of its system:
    `FormatPlugin.options`. With `is_alone` a file that names other files is refused, and none is read.
    """
    # With `given` alone: files of ours do not depend on it.
    is_plain = not (named or trust_templates or catalogue or options or is_alone) and text is None
    data = _content(path) if is_plain else None
    if data is not None and (found := users_files().find(str(path), data)) is not None:
        return found
    import_yaml()
    from mulligan.formats import loading

    digests: dict[str, str] = {}
    result = loading.examine(
        path,
        named=named,
        text=text,
        trust_templates=trust_templates,
        catalogue=catalogue,
        given=given,
        options=options,
        is_alone=is_alone,
        digests=digests,
    )
    # The file may have changed since.
    if (
        data is not None
        and digests.pop(str(Path(path)), "") == digest_of(data)
        and "" not in digests.values()
        and _depends_on_files_alone(result.workflow)
    ):
        users_files().keep(str(path), data, digests, result)
    return result


def load(path: str | Path, **how: Any) -> Workflow:
    """The checked workflow in the file of any system; `how` are the arguments of `examine`."""
    return examine(path, **how).workflow


def _content(path: str | Path) -> bytes | None:
    """The content of a regular file that may be ours, None for any other: a pipe can be read only once."""
    try:
        if not str(path).endswith(_SUFFIXES):
            return None
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _FILE_BYTES_MAX:
            return None
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def _depends_on_files_alone(workflow: Workflow) -> bool:
    """Whether no other package has a part in what the workflow is."""
    return all(
        not each.origin and all(command.action is None or command.action.kind in TABLE for command in _commands(each))
        for each in _with_children(workflow)
    )


def _commands(workflow: Workflow) -> Iterator[Any]:
    return all_commands((*workflow.steps, workflow.end))


def _with_children(workflow: Workflow) -> Iterator[Workflow]:
    yield workflow
    for child in workflow.children.values():
        yield from _with_children(child)
