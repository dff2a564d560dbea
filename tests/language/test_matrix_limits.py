"""Resources and timeouts that differ from one step of a matrix to the next."""

from __future__ import annotations

from mulligan.core.model.workflow import Resources
from mulligan.language import load_text

MIB = 1024**2

SIM = """\
defaults: {resources: {cpus: 8}, timeout: 1h}
steps:
  - step: "sim_{n}"
    matrix: {zip: {n: [1, 2], mem: [64MiB, 1GiB]}}
    resources: RESOURCES
    timeout: TIMEOUT
    shell: make
"""


def read(resources: str = "{cpus: 1}", timeout: str = "30s") -> list[tuple[Resources | None, float | None]]:
    workflow = load_text(SIM.replace("RESOURCES", resources).replace("TIMEOUT", timeout), "w.yaml")
    return [(step.resources, step.timeout) for step in workflow.steps]


def test_memory_processors_and_labels_come_from_the_values_of_each_combination():
    assert read("{memory: '${matrix.mem}', cpus: '${matrix.n * 2}', gpus: 1, labels: ['size-${matrix.n}']}") == [
        (Resources(cpus=2.0, memory=64 * MIB, gpus=1, labels=("size-1",)), 30.0),
        (Resources(cpus=4.0, memory=1024 * MIB, gpus=1, labels=("size-2",)), 30.0),
    ]


def test_a_timeout_comes_from_the_values_of_each_combination():
    assert [timeout for _, timeout in read(timeout="'${matrix.n * 5}m'")] == [300.0, 600.0]


def test_what_does_not_vary_is_read_as_ever():
    assert read("{memory: 1GiB}") == [(Resources(memory=1024 * MIB), 30.0)] * 2


def test_a_retry_may_give_more_than_a_combination_began_with():
    text = SIM.replace("RESOURCES", "{memory: '${matrix.mem}'}").replace("TIMEOUT", "1m")
    grown = text.replace("shell: make", "shell: make\n    retry: {any: true, adjust: {memory: x2, max_memory: 4GiB}}")

    steps = load_text(grown, "w.yaml").steps

    assert [step.resources and step.resources.memory for step in steps] == [64 * MIB, 1024 * MIB]
    assert all(step.rules[0].adjust for step in steps)
