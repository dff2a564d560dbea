"""Whatever stands in a file of Torc's, it is read or refused in words; and what it becomes says the same as a file."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan.errors import LanguageError, render_warnings
from mulligan.formats import convert, examine, load

EVERYTHING: dict[str, Any] = {
    "name": "everything",
    "user": "me",
    "description": "every key once",
    "project": "p",
    "metadata": "{}",
    "parameters": {"i": "1:12", "lr": "[0.1,0.01]"},
    "use_pending_failed": True,
    "jobs_sort_method": "gpus_runtime_memory",
    "compute_node_expiration_buffer_seconds": 60,
    "resource_monitor": {"enabled": True, "granularity": "summary", "metrics": ["cpu"]},
    "slurm_defaults": {"account": "a"},
    "slurm_schedulers": [{"name": "s", "account": "a"}],
    "files": [
        {"name": "out-{i}", "path": "out/{i:03d}.txt", "use_parameters": ["i"]},
        {"name": "raw", "path": "raw.txt"},
        {"name": "sum", "path": "sum.txt"},
    ],
    "user_data": [{"name": "u", "data": {"a": ["it's", "${x}"]}, "is_ephemeral": False}, {"name": "v"}],
    "resource_requirements": [
        {"name": "big", "num_cpus": 2, "memory": "2g", "num_gpus": 1, "num_nodes": 2, "runtime": "P0DT1H"},
        {"name": "small", "num_cpus": 1, "memory": "1m"},
    ],
    "failure_handlers": [
        {
            "name": "h",
            "rules": [
                {"exit_codes": [1, -1, 10], "recovery_script": "./fix.sh ${TORC_JOB_NAME}", "max_retries": 3},
                {"match_all_exit_codes": True, "max_retries": 2},
            ],
        }
    ],
    "jobs": [
        {
            "name": "work {i:03d}",
            "command": "x '${files.input.raw}' > ${files.output.out-{i}}; echo ${HOME} {i} '{\"a\": \"$x\"}'",
            "invocation_script": "srun",
            "resource_requirements": "big",
            "failure_handler": "h",
            "scheduler": "s",
            "use_parameters": ["i"],
        },
        {
            "name": "zip_{i}_{k}",
            "command": "y\n{i} {k:.2f}\n",
            "parameters": {"i": [1, 2], "k": "0.5:1.0:0.5"},
            "parameter_mode": "zip",
            "depends_on": ["work 001", "zip_1_0.5", "zip_2_1"][:1],
            "output_user_data": ["v"],
        },
        {
            "name": "gather",
            "command": "cat ${user_data.input.u}",
            "depends_on_regexes": ["^zip_\\d"],
            "input_file_regexes": ["^out-"],
            "input_user_data_regexes": ["^v$"],
            "output_files": ["sum"],
            "cancel_on_blocking_job_failure": False,
            "supports_termination": True,
            "resource_requirements": "small",
        },
        {"name": "end", "command": "z", "depends_on": ["gather"], "input_files": ["sum"]},
    ],
    "actions": [
        {"trigger_type": "on_workflow_start", "action_type": "run_commands", "commands": ["echo hi"]},
        {
            "trigger_type": "on_jobs_complete",
            "action_type": "run_commands",
            "job_name_regexes": ["^work"],
            "commands": ["echo done"],
        },
    ],
}
# What may stand anywhere by mistake.
ODD: list[Any] = [
    *(None, True, False, 0, -1, 10**18, 1.5, "", " ", "x", "{i}", "{i:03d}", "${i}", "${files.input.raw}", "(", "1:3"),
    *("[", "[]", "{", "ü\u2028", "a\nb", "1:10:0", "1e999", "-", "${", "'", [], {}, [[]], [None], [1], ["x"], {"x": 1}),
    *({"name": "x"}, [{"name": "x"}], [{"name": "work 001", "command": "x"}], "x" * 5000),
]


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands, of a tree: the keys that lead there."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


PLACES = places(EVERYTHING)[1:]


def mutated(chance: random.Random) -> dict[str, Any]:
    """The file with something odd in one to three places, something missing, or a key of no use."""
    tree = copy.deepcopy(EVERYTHING)
    for _ in range(chance.randint(1, 3)):
        *way, last = chance.choice(PLACES)
        parent: Any = tree
        try:
            for key in way:
                parent = parent[key]
            if chance.random() < 0.15:
                del parent[last]
            elif chance.random() < 0.1 and isinstance(parent, dict):
                parent[chance.choice(["nmae", "depends", "step", ""])] = chance.choice(ODD)
            else:
                parent[last] = chance.choice(ODD)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    return tree


@pytest.mark.parametrize("seed", range(4))
def test_a_file_with_anything_in_it_is_read_or_refused_in_words(seed: int) -> None:
    chance = random.Random(seed)

    for _ in range(40):
        text = json.dumps(mutated(chance))
        try:
            examine(Path("w.json"), text=text, named="torc")
        except LanguageError as refused:
            assert all(problem.line > 0 for problem in refused.problems), refused.render()


def test_what_a_file_becomes_says_the_same_as_a_file(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.json", tmp_path / "ours.yaml"
    theirs.write_text(json.dumps(EVERYTHING), encoding="utf-8")

    ours.write_text(convert(theirs).text, encoding="utf-8")

    assert load(ours) == msgspec.structs.replace(load(theirs), origin="")


def test_every_syntax_says_the_same(tmp_path: Path) -> None:
    for name in ("w.json", "w.json5", "w.yaml"):
        (tmp_path / name).write_text(json.dumps(EVERYTHING), encoding="utf-8")

    first, *others = (load(tmp_path / name) for name in ("w.json", "w.json5", "w.yaml"))

    assert others == [first, first]


def test_a_file_with_thousands_of_warnings_prints_a_few_of_each_kind(tmp_path: Path) -> None:
    files = "\n".join(f"- {{name: f{number}, path: f{number}}}" for number in range(3000))
    (tmp_path / "w.yaml").write_text(f"name: w\njobs: [{{name: a, command: x}}]\nfiles:\n{files}\n")

    found = convert(tmp_path / "w.yaml")

    assert len(found.warnings) == 3000
    assert len("\n".join(render_warnings(found.warnings))) < 5000
    assert "# and 2,900 more warnings of the kind language.unused_file" in found.text
