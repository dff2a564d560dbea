"""`slurm`: how jobs are submitted in which workers run. A file of profiles has the same keys, and is read here too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mulligan.core.model.clusters.slurm_profile import (
    SLURM_TIME,
    TASKS_MAX,
    WALLTIME_SECONDS_MIN,
    SlurmProfile,
    parse_walltime,
)
from mulligan.language.keys.value_schemas import (
    SIZE,
    DurationSchema,
    Fields,
    Key,
    ListOf,
    MapOf,
    Record,
    Value,
    text_that,
    whole,
)
from mulligan.language.text.nodes import Scalar, Sequence, Source
from mulligan.language.text.quantities import DURATION_PATTERN

NAMES = r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}"
NAMES_IN_WORDS = "letters, digits, '_' and '-', at most 40"
_CPUS_MAX = 1_000_000


def _is_word(text: str) -> bool:
    return bool(text.strip()) and text.isprintable() and "${" not in text


def _walltime(value: Any) -> float:
    seconds = parse_walltime(value) if isinstance(value, str) else 0.0
    if seconds < WALLTIME_SECONDS_MIN:
        raise ValueError(value)
    return seconds


class _Walltime(DurationSchema, frozen=True):
    """A time as we or as Slurm writes it. A bare number is refused: for Slurm it means minutes, for us seconds."""

    def hint(self, node: Scalar) -> str:
        if node.text.isdecimal():
            return f"add a unit: {node.text}m or {node.text}h"
        try:
            parse_walltime(node.text)
        except ValueError:
            return super().hint(node)
        return "Slurm counts in minutes: write 1m or more"


_WORD_SCHEMA = {"type": "string", "pattern": r"\S"}
_WORD = Value("a text on one line without '${…}'", text_that(_is_word), _WORD_SCHEMA)
_LABEL = Value("a label without ','", text_that(lambda text: _is_word(text) and "," not in text), _WORD_SCHEMA)
_SETUP = Value("a line of shell", text_that(lambda text: text.strip() and "\0" not in text), _WORD_SCHEMA)
_OPTION = Value("an option of sbatch such as --exclusive", text_that(_is_word), _WORD_SCHEMA)
_WALLTIME = _Walltime(
    "a time of at least a minute, such as 4h, 04:00:00 or 2-12:00:00",
    _walltime,
    {"anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"type": "string", "pattern": f"^{SLURM_TIME}$"}]},
)
PROFILE = Record(
    "slurm_profile",
    {
        "partition": Key(_WORD, "the partition, or several, separated by commas (default: what the cluster has)"),
        "account": Key(_WORD, "the account that is charged"),
        "qos": Key(_WORD, "the quality of service"),
        "constraint": Key(_WORD, "features that the nodes must have"),
        "walltime": Key(_WALLTIME, "how long a pilot may run: 4h, or as Slurm writes it, 04:00:00 or 2-12:00:00"),
        "nodes": Key(
            whole(1, 100_000), "how many nodes a pilot has, for steps with 'resources: {nodes: N}' (default 1)"
        ),
        "cpus": Key(whole(1, _CPUS_MAX), "how many processors a pilot has on each node"),
        "memory": Key(SIZE, "how much memory a pilot has on each node"),
        "gpus": Key(whole(0, 1_000), "how many graphics processors a pilot has on each node"),
        "pilots": Key(whole(1, 10_000), "how many pilots 'mulligan slurm submit' submits if it is given no number"),
        "tasks": Key(whole(1, TASKS_MAX), "a pilot ends after so many tasks; with 1 a task has the pilot for itself"),
        "labels": Key(
            ListOf(_LABEL, or_one=True),
            "labels of its workers, which steps ask for under 'resources'",
        ),
        "setup": Key(
            ListOf(_SETUP, or_one=True),
            "lines of shell that run before the worker, such as 'module load python'",
        ),
        "options": Key(
            ListOf(_OPTION, or_one=True),
            "further options of sbatch, such as --exclusive; they count more than the other keys",
        ),
    },
)
PROFILES = MapOf(PROFILE, NAMES, names=NAMES_IN_WORDS)

# Options of sbatch that a pilot needs for itself, with what to write instead.
OWN_OPTIONS = {
    **dict.fromkeys(("--time", "-t"), "write 'walltime'"),
    **dict.fromkeys(("--nodes", "-N"), "write 'nodes'"),
    **dict.fromkeys(("--job-name", "-J"), "a pilot is found again by its name"),
    **dict.fromkeys(("--array", "-a"), "say how many pilots to submit: mulligan slurm submit N"),
    **dict.fromkeys(("--signal",), "the signal before the end of the time is part of every pilot"),
    **dict.fromkeys(("--output", "-o", "--error", "-e"), "the output of pilots is in the folder 'slurm' of the home"),
    **dict.fromkeys(("--export", "--export-file"), "set variables in 'setup': a pilot inherits those of its caller"),
    **dict.fromkeys(("--wrap", "--parsable", "--test-only", "--wait", "-W", "--help", "--version"), "remove it"),
    **dict.fromkeys(("--clusters", "-M", "--hold", "-H", "--begin", "-b"), "pilots are submitted to this cluster, now"),
}


# Short options of sbatch without a value: `-QJx` is `-Q -Jx`.
_SHORT_FLAGS = "HIkOQsvVW"


def _own_option(option: str) -> str | None:
    """The option that a pilot needs for itself, if this is one: `-N4`, `-QN 4`, `--nodes=4` and `--nod=4` are the same.

    sbatch takes the beginning of a long option for the whole.
    """
    if option.startswith("--"):
        written = option.partition("=")[0].split()[0]
        return next((one for one in OWN_OPTIONS if one.startswith(written)), None) if len(written) > 2 else None
    letters = option[1:]
    while letters:
        if f"-{letters[0]}" in OWN_OPTIONS:
            return f"-{letters[0]}"
        letters = letters[1:] if letters[0] in _SHORT_FLAGS else ""
    return None


def read_profiles(forms: Mapping[str, Fields], source: Source) -> dict[str, SlurmProfile]:
    """The profiles of a file. Options that a pilot needs for itself are noted as problems."""
    return {name: _read(form, source) for name, form in forms.items()}


def _read(form: Fields, source: Source) -> SlurmProfile:
    written = form.at("options") if "options" in form else None
    nodes = written.items if isinstance(written, Sequence) else [written]
    for option, node in zip(form.get("options", ()), nodes, strict=False):
        assert node is not None
        if not option.startswith("-"):
            message = f"'{option}' is not an option: it does not begin with '-'"
            hint = "write the option and its value as one text: --gres=gpu:a100:1"
            source.note(source.refuse("slurm", message, node, hint=hint))
        name = _own_option(option)
        if name is not None:
            message = f"'{name}' cannot be among the options of a profile"
            source.note(source.refuse("slurm", message, node, hint=OWN_OPTIONS[name]))
    return SlurmProfile(**form.values)
