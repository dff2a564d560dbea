"""Nothing is dropped in silence: an example without one of its keys is another workflow, is refused, or is warned of.

Keys of which that is not so are listed here. A key that a reader takes and forgets is found by this.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.nightly import IS_NIGHTLY

from mulligan.errors import LanguageError
from mulligan.formats import FORMATS, convert
from mulligan.formats.loading import parse_file
from mulligan.language.document import decode
from mulligan.language.nodes import plain

from .test_examples import EXAMPLES
from .test_keys import known_keys

# First what makes no difference here, as its page says; then what the examples say although it holds anyway.
SILENT = {
    "torc": {
        *("is_ephemeral", "supports_termination"),
        *("input_files", "input_user_data_regexes", "output_file_regexes", "num_gpus", "num_nodes", "nodes"),
    },
    "alphred": {
        *("contentType", "position", "x", "y"),
        *("auto", "edgeKind", "initialRunnableNodeKeys", "maxInputChars", "type"),
    },
    "noetl": {
        *("profile", "version", "scope", "store", "inline_max_bytes", "preview_max_bytes", "pool", "on_unmatched"),
        *("exec", "auto_renew", "map", "target_audience", "token_field", "ttl_field", "ttl_seconds"),
        *("defaults", "limits", "apiVersion", "backoff_multiplier", "entry_step", "tools", "entrypoint_mode"),
    },
    "prodigy": {
        *("enable_monitoring", "error_collection", "temporary", "duration", "exit_code", "success"),
        *("analysis", "base", "command_type", "continue_on_failure", "half_open_requests", "increment", "max_delay"),
        *("max_retries", "multiplier", "retry_budget", "retry_delay", "retry_original", "sign", "squash", "stderr"),
        *("stdout", "success_threshold", "timeout_action", "timeout_per_agent", "timeout_policy"),
    },
}
Place = tuple[str | int, ...]


def keys_of(tree: Any, above: Place = ()) -> Iterator[Place]:
    """Where a key stands in a tree, for every key of it."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for word, value in entries:
        if isinstance(word, str):
            yield (*above, word)
        yield from keys_of(value, (*above, word))


def without(tree: Any, path: Place) -> Any:
    found = copy.deepcopy(tree)
    inner = found
    for word in path[:-1]:
        inner = inner[word]
    del inner[path[-1]]
    return found


def told(tree: Any, probe: Path, system: str) -> Any:
    """What comes of a file: what it becomes, with its comments, and what is said about it. None where it is refused."""
    probe.write_text(json.dumps(tree), encoding="utf-8")
    try:
        found = convert(probe, named=system)
    except LanguageError:
        return None
    return found.text, [warning.message for warning in found.warnings]


@pytest.mark.parametrize("system", FORMATS)
def test_what_is_read_is_never_dropped_in_silence(system: str, tmp_path: Path) -> None:
    met: set[str] = set()
    heard: set[str] = set()
    known = known_keys(system)
    paths = [one.path for one in EXAMPLES if one.system == system and one.path.suffix != ".kdl"]
    # What was heard in a small file is not asked for in a large one.
    for path in sorted(paths, key=lambda one: one.stat().st_size):
        shutil.copytree(path.parent, tmp_path, dirs_exist_ok=True)
        tree, probe = plain(parse_file(decode(path.read_bytes(), str(path)))), tmp_path / "probe.json"
        whole = told(tree, probe, system)
        for place in keys_of(tree):
            word = str(place[-1])
            met.add(word)
            # By day, those of the list are believed to be silent.
            is_asked = word in known - heard and (IS_NIGHTLY or word not in SILENT[system])
            if is_asked and told(without(tree, place), probe, system) != whole:
                heard.add(word)

    assert (met & known) - heard == SILENT[system]


# What the examples do not have: data that jobs set, more than the machine may have, one file of two writers, a sweep.
TORC = {
    "name": "recent",
    "jobs": [
        {"name": "set", "command": "mulligan data set rate 1", "output_user_data": ["rate"], "output_files": ["log"]},
        {"name": "get", "command": "echo $(mulligan data get rate)", "input_user_data": ["rate"]},
        {"name": "also", "command": "true", "output_files": ["log"], "resource_requirements": "large"},
        {"name": "sweep_{n}", "command": "echo {n}", "parameters": {"n": "1:3"}, "depends_on": ["set"]},
    ],
    "files": [{"name": "log", "path": "log.txt"}],
    "user_data": [{"name": "rate", "data": {"start": 0}}],
    "resource_requirements": [{"name": "large", "num_cpus": 2, "num_gpus": 1, "memory": "64g"}],
}


def test_no_recent_part_of_torc_is_dropped_in_silence(tmp_path: Path) -> None:
    probe = tmp_path / "probe.json"
    whole = told(TORC, probe, "torc")

    assert whole is not None
    assert [place for place in keys_of(TORC) if told(without(TORC, place), probe, "torc") == whole] == []
