"""The rest of a file: resources, the order of jobs, what is for a cluster, and what is refused at the top."""

from __future__ import annotations

from typing import Any

import pytest

from .reading import job, loaded, names, ours, refusal, warned, warnings

# -- the top -------------------------------------------------------------------------------------------------------


def test_a_workflow_of_one_job_is_one_of_one_step() -> None:
    found = ours("""
        name: my workflow
        description: what it is for
        jobs: [{name: a, command: echo hi}]
    """)

    assert found == {
        "name": "my workflow",
        "description": "what it is for",
        "steps": [{"step": "a", "shell": "echo hi"}],
    }


def test_a_key_that_is_optional_may_be_null() -> None:
    found = ours("""
        name: w
        user: ~
        description:
        files: null
        user_data: ~
        failure_handlers: ~
        resource_requirements: ~
        actions: ~
        slurm_defaults: ~
        resource_monitor: ~
        use_pending_failed: ~
        jobs_sort_method: ~
        jobs:
          - {name: a, command: x, depends_on: , input_files: ~, failure_handler: ~, invocation_script: , parameters: }
    """)

    assert found == {"name": "w", "steps": [{"step": "a", "shell": "x"}]}


def test_an_empty_description_is_none() -> None:
    assert "description" not in ours("name: w\ndescription: ''\njobs: [{name: a, command: x}]\n")


def test_a_command_of_several_lines_stays_as_it_is() -> None:
    found = job("""
        - name: a
          command: |
            set -e
            for i in 1 2; do echo ${i}; done
    """)

    assert found["shell"] == "set -e\nfor i in 1 2; do echo ${i}; done\n"


def test_what_is_for_torcs_server_is_kept_as_it_was_written() -> None:
    found = ours("""
        name: w
        user: me
        project: p
        metadata: '{"a": 1}'
        jobs: [{name: a, command: x}]
    """)

    assert found["x-torc"] == {"user": "me", "project": "p", "metadata": '{"a": 1}'}


# -- resources -----------------------------------------------------------------------------------------------------

RESOURCES = [
    ("num_cpus: 4, memory: 2g", {"cpus": 4, "memory": "2GiB"}),
    ("num_cpus: 1, memory: 512m, num_gpus: 2", {"cpus": 1, "memory": "512MiB", "gpus": 2}),
    ("num_cpus: 1, memory: 65536k, num_gpus: 0, num_nodes: 1", {"cpus": 1, "memory": "65536KiB"}),
    ("num_cpus: 1, memory: 1.5G, runtime: P0DT1H30M", {"cpus": 1, "memory": "1.5GiB"}),
    ("num_cpus: 1, memory: 1t, num_gpus: ~, num_nodes: ~, runtime: ~", {"cpus": 1, "memory": "1TiB"}),
    ("num_cpus: 1, memory: 2GB", {"cpus": 1, "memory": "2GiB"}),
    ("num_cpus: 1, memory: '67108864'", {"cpus": 1, "memory": "67108864B"}),
    # nothing is the least there is, and no limit
    ("num_cpus: 0, memory: 0m", {"cpus": 0.001}),
]


@pytest.mark.parametrize(("written", "meant"), RESOURCES)
def test_a_job_asks_for_what_its_requirements_say(written: str, meant: dict[str, Any]) -> None:
    found = job("- {name: a, command: x, resource_requirements: r}", f"resource_requirements: [{{name: r, {written}}}]")

    assert found["resources"] == meant


@pytest.mark.parametrize("said", ["", ", resource_requirements: default", ", resource_requirements: ~"])
def test_a_job_without_requirements_asks_for_what_every_step_does(said: str) -> None:
    assert job(f"- {{name: a, command: x{said}}}") == {"shell": "x"}


def test_requirements_that_no_job_names_are_told_of() -> None:
    said = warned("""\
        name: w
        resource_requirements: [{name: r, num_cpus: 1, memory: 1g}]
        jobs: [{name: a, command: x}]
    """)

    assert said == (
        "warning[language.unused_requirements]: w.yaml:2:32: "
        "the resource requirements 'r' are declared and never used\n"
        "  2 | resource_requirements: [{name: r, num_cpus: 1, memory: 1g}]\n"
        "    |                                ^ remove or use them"
    )


def test_a_runtime_is_no_limit() -> None:
    """Torc itself lets a job run on: only a cluster ends it."""
    found = loaded("""
        name: w
        resource_requirements: [{name: r, num_cpus: 1, memory: 1g, runtime: PT1M}]
        jobs: [{name: a, command: x, resource_requirements: r}]
    """)

    assert found.steps[0].timeout is None


def test_so_little_memory_that_nothing_runs_on_it_is_no_limit_and_that_is_said() -> None:
    text = """\
        name: w
        resource_requirements: [{name: r, num_cpus: 1, memory: 1m}]
        jobs: [{name: a, command: x, resource_requirements: r}]
    """

    assert loaded(text).steps[0].resources is not None
    assert loaded(text).steps[0].resources.memory is None  # type: ignore[union-attr]
    assert warned(text) == (
        "warning[language.memory]: w.yaml:2:56: 'r' asks for 1MiB, too little for any program: the limit is ignored\n"
        "  2 | resource_requirements: [{name: r, num_cpus: 1, memory: 1m}]\n"
        "    |                                                        ^^ "
        "memory is a hard limit here: write what the program needs"
    )


def test_several_nodes_are_for_a_cluster_and_that_is_said() -> None:
    said = warned("""\
        name: w
        resource_requirements: [{name: r, num_cpus: 1, memory: 1g, num_nodes: 4}]
        jobs: [{name: a, command: x, resource_requirements: r}]
    """)

    assert said == (
        "warning[language.cluster]: w.yaml:2:71: 'r' asks for 4 nodes, but each of its steps runs on one machine\n"
        "  2 | resource_requirements: [{name: r, num_cpus: 1, memory: 1g, num_nodes: 4}]\n"
        "    |                                                                       ^"
    )


SIZES = """
resource_requirements:
  - {name: long, num_cpus: 1, memory: 1g, runtime: PT2H}
  - {name: large, num_cpus: 1, memory: 9g, runtime: PT1H}
  - {name: gpu, num_cpus: 1, memory: 1g, num_gpus: 1, runtime: PT1M}
"""
SIZED = """
- {name: plain, command: x}
- {name: large, command: x, resource_requirements: large}
- {name: long, command: x, resource_requirements: long}
- {name: gpu, command: x, resource_requirements: gpu}
- {name: long2, command: x, resource_requirements: long}
"""
ORDERS = [
    ("jobs_sort_method: gpus_runtime_memory", ["gpu", "long", "long2", "large", "plain"]),
    ("jobs_sort_method: gpus_memory_runtime", ["gpu", "large", "long", "long2", "plain"]),
    ("jobs_sort_method: none", ["plain", "large", "long", "gpu", "long2"]),
    # where nothing is said, as they stand in the file
    ("", ["plain", "large", "long", "gpu", "long2"]),
]


@pytest.mark.parametrize(("said", "order"), ORDERS)
def test_jobs_stand_in_the_order_in_which_torc_takes_them(said: str, order: list[str]) -> None:
    assert names(SIZED, f"{said}\n{SIZES}") == order


# -- for a cluster -------------------------------------------------------------------------------------------------

CLUSTER = """\
name: w
slurm_schedulers:
  - {name: s, account: a, partition: p, nodes: 2, walltime: '02:00:00', mem: 1g, gres: 'gpu:1', qos: q, \
ntasks_per_node: 4, tmp: 1g, extra: '--exclusive'}
slurm_defaults: {account: a, exclusive: true, ntasks: 4}
compute_node_expiration_buffer_seconds: 60
compute_node_wait_for_new_jobs_seconds: 90
compute_node_ignore_workflow_completion: true
compute_node_wait_for_healthy_database_minutes: 20
jobs: [{name: a, command: x, scheduler: s, supports_termination: true}]
"""


def test_a_scheduler_is_a_profile_of_pilots_and_its_jobs_ask_for_its_label() -> None:
    found = ours(CLUSTER)

    said = {
        "account": "a",
        "partition": "p",
        "qos": "q",
        "walltime": "02:00:00",
        "nodes": 2,
        "memory": "1GiB",
        "gpus": 1,
        "options": ["--exclusive", "--ntasks=4", "--ntasks-per-node=4", "--tmp=1g", "--exclusive"],
    }
    assert found["slurm"] == {"s": {**said, "labels": ["s"]}, "default": said}
    assert found["steps"] == [{"step": "a", "shell": "x", "resources": {"labels": ["s"]}}]


@pytest.mark.parametrize(
    ("scheduler", "key", "value"),
    [
        ("walltime: '30'", "walltime", "00:30:00"),
        ("walltime: '90:30'", "walltime", "01:30:30"),
        ("walltime: 2-12", "walltime", "60:00:00"),
        ("walltime: '7-00:00:00'", "walltime", "7-00:00:00"),
        ("partition: p", "walltime", "01:00:00"),
        ("walltime: soon", "walltime", None),
        ("mem: '4000'", "memory", "4000MiB"),
        ("mem: 4000MB", "memory", "4000MiB"),
        ("mem: much", "options", ["--mem=much"]),
        ("gres: 'gpu:2'", "options", None),
        ("gres: 'gpu:a100:2'", "gpus", 2),
        ("gres: 'gpu:a100:2'", "options", ["--gres=gpu:a100:2"]),
        ("gres: 'lustre:1'", "options", ["--gres=lustre:1"]),
        (
            "extra: '-C fast --reservation maint --exclusive'",
            "options",
            ["-Cfast", "--reservation=maint", "--exclusive"],
        ),
        ("extra: '--output x -N2 --exclusive'", "options", ["--exclusive"]),
    ],
)
def test_what_a_scheduler_says_is_said_by_its_profile(scheduler: str, key: str, value: object) -> None:
    text = f"name: w\nslurm_schedulers: [{{name: s, account: a, {scheduler}}}]\njobs: [{{name: a, command: x}}]\n"

    assert ours(text)["slurm"]["s"].get(key) == value
    assert loaded(text).slurm["s"].account == "a"


def test_the_names_of_schedulers_become_names_of_profiles() -> None:
    text = "name: w\nslurm_schedulers: [{name: 'gpu nodes', account: a}, {name: gpu-nodes, account: b}, {account: c}]\n"
    text += "jobs: [{name: a, command: x, scheduler: gpu-nodes}, {name: b, command: x, scheduler: gpu nodes}]\n"

    found = ours(text)

    assert {name: one["account"] for name, one in found["slurm"].items()} == {
        "gpu-nodes": "a",
        "gpu-nodes-2": "b",
        "default": "a",
    }
    assert [step["resources"]["labels"] for step in found["steps"]] == [["gpu-nodes-2"], ["gpu-nodes"]]
    assert warnings(text) == ["a slurm scheduler without a name cannot be used: no profile is made of it"]


def test_settings_of_torcs_workers_are_kept_with_one_warning() -> None:
    assert list(ours(CLUSTER)["x-torc"]) == [
        "compute_node_expiration_buffer_seconds",
        "compute_node_wait_for_new_jobs_seconds",
        "compute_node_ignore_workflow_completion",
        "compute_node_wait_for_healthy_database_minutes",
    ]
    assert warnings(CLUSTER) == [
        "'compute_node_expiration_buffer_seconds', 'compute_node_wait_for_new_jobs_seconds', "
        "'compute_node_ignore_workflow_completion' and 'compute_node_wait_for_healthy_database_minutes' "
        "are for a cluster: kept but not used",
    ]


def test_a_resource_monitor_is_kept_and_words_that_it_has_not_are_told_of() -> None:
    text = """\
        name: w
        resource_monitor:
          {enabled: true, granularity: time_series, sample_interval_seconds: 1, metrics: [cpu], generate_plot: true}
        jobs: [{name: a, command: x}]
    """

    assert ours(text)["x-torc"]["resource_monitor"]["granularity"] == "time_series"
    assert warnings(text) == [
        "'metrics' in 'resource_monitor' has no effect",
        "'generate_plot' in 'resource_monitor' has no effect",
    ]


def test_what_is_wrong_with_a_job_of_parameters_is_said_once() -> None:
    said = refusal("name: w\njobs: [{name: 'a{i}', command: x, failure_handler: h, parameters: {i: 1:50}}]\n")

    assert said.count("error[") == 1


# -- what is refused -----------------------------------------------------------------------------------------------

REFUSED = [
    # all problems at once
    (
        "jobs: [{name: a}, {command: x}, 3, {name: 5, command: x}]\nfiles: 3\nuse_pending_failed: 1",
        "error[language.missing_key]: w.yaml:2:8: job 'a' has no 'command'\n"
        "  2 | jobs: [{name: a}, {command: x}, 3, {name: 5, command: x}]\n"
        "    |        ^ add 'command: …'\n"
        "error[language.missing_key]: w.yaml:2:19: a job has no 'name'\n"
        "  2 | jobs: [{name: a}, {command: x}, 3, {name: 5, command: x}]\n"
        "    |                   ^ add 'name: …'\n"
        "error[language.type]: w.yaml:2:33: a job is '3', a mapping with keys such as 'name' is expected\n"
        "  2 | jobs: [{name: a}, {command: x}, 3, {name: 5, command: x}]\n"
        "    |                                 ^\n"
        "error[language.type]: w.yaml:2:43: 'name' is '5', a text is expected\n"
        "  2 | jobs: [{name: a}, {command: x}, 3, {name: 5, command: x}]\n"
        "    |                                           ^\n"
        "error[language.type]: w.yaml:3:8: 'files' is '3', a list is expected\n"
        "  3 | files: 3\n"
        "    |        ^\n"
        "error[language.type]: w.yaml:4:21: 'use_pending_failed' is '1', true or false is expected\n"
        "  4 | use_pending_failed: 1\n"
        "    |                     ^",
    ),
    # near misses
    (
        "jobs: [{name: a, command: x, depends_on_regex: [a]}]\nfailure_handler: []",
        "error[language.unknown_key]: w.yaml:2:30: 'depends_on_regex' is not a key of job 'a'\n"
        "  2 | jobs: [{name: a, command: x, depends_on_regex: [a]}]\n"
        "    |                              ^^^^^^^^^^^^^^^^ did you mean 'depends_on_regexes'?\n"
        "error[language.unknown_key]: w.yaml:3:1: 'failure_handler' is not a key of the workflow\n"
        "  3 | failure_handler: []\n"
        "    | ^^^^^^^^^^^^^^^ did you mean 'failure_handlers'?",
    ),
    # words of other systems
    (
        "jobs: [{name: a, command: x, needs: [b], retry: 3}]",
        "error[language.unknown_key]: w.yaml:2:30: 'needs' is not a key of job 'a'\n"
        "  2 | jobs: [{name: a, command: x, needs: [b], retry: 3}]\n"
        "    |                              ^^^^^ did you mean 'depends_on'?\n"
        "error[language.unknown_key]: w.yaml:2:42: 'retry' is not a key of job 'a'\n"
        "  2 | jobs: [{name: a, command: x, needs: [b], retry: 3}]\n"
        "    |                                          ^^^^^ did you mean 'failure_handler'?",
    ),
    # words of earlier versions
    (
        "jobs: [{name: a, command: x, blocked_by: [a], resource_requirements_name: r}]",
        "error[language.unknown_key]: w.yaml:2:30: 'blocked_by' is not a key of job 'a'\n"
        "  2 | jobs: [{name: a, command: x, blocked_by: [a], resource_requirements_name: r}]\n"
        "    |                              ^^^^^^^^^^ Torc calls it 'depends_on' now\n"
        "error[language.unknown_key]: w.yaml:2:47: 'resource_requirements_name' is not a key of job 'a'\n"
        "  2 | jobs: [{name: a, command: x, blocked_by: [a], resource_requirements_name: r}]\n"
        "    |                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^ "
        "Torc calls it 'resource_requirements' now",
    ),
    # requirements
    (
        "resource_requirements: [{name: default, num_cpus: 1, memory: 1g}]\njobs: [{name: a, command: x}]",
        "error[language.duplicate_name]: w.yaml:2:32: "
        "'default' is built in, for jobs without requirements, and cannot be declared\n"
        "  2 | resource_requirements: [{name: default, num_cpus: 1, memory: 1g}]\n"
        "    |                                ^^^^^^^ use another name",
    ),
    (
        "resource_requirements: [{name: r, num_cpus: 1, memory: lots}]\njobs: [{name: a, command: x}]",
        "error[language.type]: w.yaml:2:56: 'memory' is 'lots', a size such as 512m or 2g is expected\n"
        "  2 | resource_requirements: [{name: r, num_cpus: 1, memory: lots}]\n"
        "    |                                                        ^^^^",
    ),
    (
        "resource_requirements: [{name: r, num_cpus: 1, memory: 1g, runtime: '01:00:00'}]\n"
        "jobs: [{name: a, command: x}]",
        "error[language.type]: w.yaml:2:69: 'runtime' is '01:00:00', a duration such as PT30M or P0DT1H is expected\n"
        "  2 | resource_requirements: [{name: r, num_cpus: 1, memory: 1g, runtime: '01:00:00'}]\n"
        "    |                                                                     ^^^^^^^^^^",
    ),
    (
        "resource_requirements: [{name: small, num_cpus: 1, memory: 1g}]\n"
        "jobs: [{name: a, command: x, resource_requirements: smal}]",
        "error[language.unknown_requirements]: w.yaml:3:53: there are no resource requirements 'smal'\n"
        "  3 | jobs: [{name: a, command: x, resource_requirements: smal}]\n"
        "    |                                                     ^^^^ did you mean 'small'?",
    ),
    (
        "resource_requirements: [{name: r, num_cpus: 1, memory: 1g}, {name: r, num_cpus: 1, memory: 1g}]\n"
        "jobs: [{name: a, command: x}]",
        "error[language.duplicate_name]: w.yaml:2:68: there are two resource requirements 'r': first in line 2\n"
        "  2 | resource_requirements: [{name: r, num_cpus: 1, memory: 1g}, {name: r, num_cpus: 1, memory: 1g}]\n"
        "    |                                                                    ^",
    ),
    (
        "jobs_sort_method: gpus\njobs: [{name: a, command: x}]",
        "error[language.choice]: w.yaml:2:19: 'jobs_sort_method' is 'gpus'; "
        "one of 'gpus_runtime_memory', 'gpus_memory_runtime' or 'none' is expected\n"
        "  2 | jobs_sort_method: gpus\n"
        "    |                   ^^^^",
    ),
    # schedulers
    (
        "slurm_schedulers: [{name: s, account: a}]\njobs: [{name: a, command: x, scheduler: t}]",
        "error[language.unknown_scheduler]: w.yaml:3:41: there is no scheduler 't'\n"
        "  3 | jobs: [{name: a, command: x, scheduler: t}]\n"
        "    |                                         ^ declare it under 'slurm_schedulers'",
    ),
    (
        "slurm_schedulers: [{name: s}, {name: s, account: a}]\njobs: [{name: a, command: x}]",
        "error[language.missing_key]: w.yaml:2:20: a slurm scheduler has no 'account'\n"
        "  2 | slurm_schedulers: [{name: s}, {name: s, account: a}]\n"
        "    |                    ^ add 'account: …'\n"
        "error[language.duplicate_name]: w.yaml:2:38: there are two schedulers 's'\n"
        "  2 | slurm_schedulers: [{name: s}, {name: s, account: a}]\n"
        "    |                                      ^",
    ),
    (
        "slurm_defaults: {mem: 1g}\njobs: [{name: a, command: x}]",
        "error[language.slurm]: w.yaml:2:18: 'mem' is set by each scheduler and is not allowed in 'slurm_defaults'\n"
        "  2 | slurm_defaults: {mem: 1g}\n"
        "    |                  ^^^",
    ),
    (
        "resource_monitor: {enabled: maybe}\njobs: [{name: a, command: x}]",
        "error[language.type]: w.yaml:2:29: 'enabled' is 'maybe', true or false is expected\n"
        "  2 | resource_monitor: {enabled: maybe}\n"
        "    |                             ^^^^^",
    ),
    (
        "resource_monitor: true\njobs: [{name: a, command: x}]",
        "error[language.type]: w.yaml:2:19: 'resource_monitor' is 'true', a mapping is expected\n"
        "  2 | resource_monitor: true\n"
        "    |                   ^^^^",
    ),
    # a command of nobody's
    (
        "jobs: [{name: a, command: 'echo ${foo.bar}'}]",
        "error[language.shell]: w.yaml:2:35: '${foo.bar}' reads 'foo', which is not known here\n"
        "  2 | jobs: [{name: a, command: 'echo ${foo.bar}'}]\n"
        "    |                                   ^^^ the names here are env, failure, inputs, run, steps",
    ),
]


@pytest.mark.parametrize(("entries", "said"), REFUSED)
def test_what_is_wrong_is_refused_where_it_stands(entries: str, said: str) -> None:
    assert refusal(f"name: w\n{entries}\n") == said


def test_a_workflow_without_a_name_is_refused() -> None:
    assert refusal("jobs: [{name: a, command: x}]\n") == (
        "error[language.missing_key]: w.yaml:1:1: the workflow has no 'name'\n"
        "  1 | jobs: [{name: a, command: x}]\n"
        "    | ^ add 'name: …'"
    )


def test_a_hundred_problems_are_enough() -> None:
    said = refusal("name: w\njobs:\n" + "- {name: a, comand: x}\n" * 300)

    assert said.endswith("and 80 more")


def test_the_steps_of_a_file_keep_their_order() -> None:
    found = names("""
        - {name: b, command: x}
        - {name: a, command: x}
        - {name: 'c{i}', command: x, parameters: {i: 2:1:-1}}
    """)

    assert found == ["b", "a", "c2", "c1"]
