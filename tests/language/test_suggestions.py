"""What is said about a key that we do not know: a hint that is wrong would be worse than none."""

from __future__ import annotations

import pytest

from mulligan.language.keys.action_keys import AGENT, HTTP, SQL
from mulligan.language.keys.value_schemas import Record
from mulligan.language.keys.workflow_keys import DEFAULTS, MAP, RESOURCES, STEP, WORKFLOW
from mulligan.language.text.suggestions import did_you_mean, key_hint, quote_list

UNDER_RESOURCES = "put it under 'resources'"
IN_MAP = "put it into 'map' as 'max_parallel'"
TO_END = "write it as 'end' at the top of the file"
ON_A_NEED = "write it as 'on' of an entry of 'needs'"
WHO_STARTS = "write it under 'schedules', such as {nightly: {cron: '30 2 * * *'}}"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        # what belongs elsewhere
        *((word, UNDER_RESOURCES) for word in ("threads", "cpus", "memory", "mem_mb", "gpus")),
        *((word, IN_MAP) for word in ("parallel", "concurrency", "max_parallel")),
        *((word, TO_END) for word in ("finally", "always")),
        *((word, ON_A_NEED) for word in ("trigger_rule", "run_if")),
        ("max_attempts", "put it under 'retry'"),
        *((word, "put it under 'retry' as 'delay'") for word in ("retry_delay", "retry_delay_seconds")),
        ("log_prints", "leave it out: what a step prints is in its log"),
        # what we call otherwise
        *((word, "did you mean 'cwd'?") for word in ("directory", "dir", "working_dir", "working-dir")),
        *((word, "did you mean 'shell'?") for word in ("bash", "bash_command")),
        ("stdout", "did you mean 'capture'?"),
        ("input", "did you mean 'reads'?"),
        ("output", "did you mean 'writes'?"),
        ("env_vars", "did you mean 'env'?"),
        ("then", "did you mean 'next'?"),
        ("walltime", "did you mean 'timeout'?"),
        # what has no equal here
        *((word, "") for word in ("container", "image", "partition", "tags")),
        # a slip
        ("tiemout", "did you mean 'timeout'?"),
        ("xyzzy", ""),
    ],
)
def test_a_word_of_another_system_on_a_step_is_told_where_it_belongs(word: str, hint: str) -> None:
    assert key_hint(word, STEP.keys) == hint


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        *((word, "put it under 'defaults'") for word in DEFAULTS.keys if word != "timeout"),
        *((word, "did you mean 'steps'?") for word in ("jobs", "tasks", "rules")),
        *((word, WHO_STARTS) for word in ("schedule", "cron", "on")),
        ("resource_requirements", "put it under 'defaults' as 'resources'"),
        ("on_failure", "write it on a step, or name it under 'handlers'"),
        ("dag_id", "did you mean 'name'?"),
        ("start_date", ""),
    ],
)
def test_a_word_of_another_system_at_the_top_is_told_where_it_belongs(word: str, hint: str) -> None:
    assert key_hint(word, WORKFLOW.keys) == hint


@pytest.mark.parametrize("word", ["time", "runtime", "walltime"])
def test_time_is_no_resource_and_has_its_place_beside_them(word: str) -> None:
    assert key_hint(word, RESOURCES.keys) == "put 'timeout' next to 'resources'"


@pytest.mark.parametrize("action", [HTTP, SQL, AGENT], ids=lambda action: action.name)
def test_what_belongs_to_a_step_is_sent_out_of_its_action(action: Record) -> None:
    name, known = action.name, action.keys

    assert key_hint("timeout", known) == key_hint("retry", known) == f"put it next to '{name}'"
    assert key_hint("retries", known) == f"put it next to '{name}' as 'retry'"


def test_the_same_word_means_something_else_at_another_place() -> None:
    assert key_hint("finally", WORKFLOW.keys) == "did you mean 'end'?"
    assert key_hint("parallel", MAP.keys) == "did you mean 'max_parallel'?"
    assert key_hint("tags", RESOURCES.keys) == "did you mean 'labels'?"
    assert key_hint("threads", RESOURCES.keys) == "did you mean 'cpus'?"


@pytest.mark.parametrize(
    ("words", "said"), [((), ""), (("a",), "'a'"), (("a", "b"), "'a' or 'b'"), (("a", "b", "c"), "'a', 'b' or 'c'")]
)
def test_words_are_listed_as_one_says_them(words: tuple[str, ...], said: str) -> None:
    assert quote_list(words) == said


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("job_1", [f"job_{number}" for number in range(10, 90)], "job_10"),
        ("train_7", ["train_70", "train_17", "strain_7"], "train_70"),
        ("fetsh", ["fetch", "flesh"], "fetch"),
        ("Load", ["load", "loads"], "load"),
    ],
)
def test_of_names_that_are_equally_similar_the_one_that_begins_alike_is_meant(
    word: str, known: list[str], meant: str
) -> None:
    assert did_you_mean(word, known) == f"did you mean '{meant}'?"
    assert did_you_mean(word, known[::-1]) == f"did you mean '{meant}'?"
