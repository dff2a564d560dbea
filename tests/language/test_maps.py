"""Map steps and matrices."""

from __future__ import annotations

import pytest

from mulligan.core.model.workflow import Action, Command, Expression, Map, Need, Resources, Rule, Template

from .reading import sources, step, steps, workflow

MAKE = Action("shell", {"text": "make", "strict": True})


def test_an_expression_may_say_how_many_items_run_at_the_same_time() -> None:
    found = step("map: {over: [1], max_parallel: '${inputs.width}'}\ndo: make", "inputs: {width: number}").map

    assert found is not None
    assert (found.max_parallel, found.parallel) == (None, Expression("inputs.width", ("inputs",)))


def test_commands_with_the_files_of_a_map_need_its_labels() -> None:
    """They have no attempt whose host they could go to."""
    there, nothing = Resources(labels=("there",)), None

    found = step(
        """
        map: {over: {file: list.txt}}
        do: make
        resources: {labels: [there], cpus: 4}
        writes: [made.txt]
        on_success: [count]
        undo: rm made.txt
        on_failure: [elsewhere]
        """
    )

    assert found.map is not None
    assert found.map.lister is not None
    assert found.validator is not None
    assert found.undo is not None
    assert found.on_failure is not None
    assert [found.map.lister.resources, found.validator.resources, found.undo.resources] == [there] * 3
    assert [one.resources for one in found.on_success] == [there]
    assert [one.resources for one in found.on_failure.commands] == [nothing]


def test_the_list_of_a_map_may_be_made_anywhere() -> None:
    found = step(
        "map: {over: {shell: ls, resources: {cpus: 2}}}\ndo: [{shell: make, resources: {labels: [there]}}]"
    ).map

    assert found is not None
    assert found.lister is not None
    assert found.lister.resources == Resources(cpus=2)


def test_worktrees_are_opened_where_the_tasks_in_them_run() -> None:
    mapped = """
        - step: m
          resources: {labels: [there, big]}
          map: {over: [1]}
          workspace: {git: worktree}
          do: make
          writes: [made.txt]
    """
    there = Resources(labels=("there",))

    found = workflow(
        f"""
        workspace: {{git: worktree, merge: merge}}
        steps:
        - {{step: a, shell: make, resources: {{labels: [there], cpus: 2}}}}
        {mapped.strip()}
        - {{step: ask, approve: may it?, needs: [a, m]}}
        """
    )
    free = workflow("workspace: {git: worktree}\nsteps: [{step: a, shell: make}]")

    opening, closing = found.steps[0], found.steps[-1]
    assert [opening.resources, closing.resources] == [there, there]
    (made,) = (step for step in found.steps if step.name == "m")
    assert made.do[0].resources == Resources(labels=("there", "big"))
    assert made.validator is not None
    assert made.validator.resources == Resources(labels=("there", "big"))
    assert free.steps[0].resources is None


def test_a_map_says_everything_about_its_items() -> None:
    found = step(
        """
        map:
          over: "${inputs.list}"
          as: pkg
          max_parallel: 4
          filter: pkg.size > 3
          sort_by: {by: pkg.name, descending: true}
          distinct: pkg.name
          offset: 1
          max_items: 10
          on_item_failure: collect
          max_failures: 2
          failure_threshold: 0.2
        do: ["./check.sh ${pkg.name} ${index}", {shell: 'echo ${output}'}]
        """,
        "inputs: {list: array}",
    )

    assert found.map == Map(
        over=Expression("inputs.list", ("inputs",)),
        name="pkg",
        max_parallel=4,
        filter=Expression("pkg.size > 3", ("pkg",)),
        sort_by=Expression("pkg.name", ("pkg",)),
        sort_descending=True,
        distinct=Expression("pkg.name", ("pkg",)),
        offset=1,
        max_items=10,
        on_item_failure="collect",
        max_failures=2,
        failure_threshold=0.2,
    )
    assert found.action is None
    assert [command.action.params["text"] for command in found.do if command.action] == [
        './check.sh "${_pkg_name}" "${_index}"',
        'echo "${_output}"',
    ]


OVERS = [
    # a list is an expression too
    ("[1, two, true, null, {a: 1.5}]", '[1, "two", true, null, {"a": 1.5}]'),
    ('["${inputs.x}", \'say "hi" \\ there\']', '[(inputs.x), "say \\u0022hi\\u0022 \\u005c there"]'),
    ("inputs.list", "inputs.list"),
    ("'${inputs.list}'", "inputs.list"),
]


@pytest.mark.parametrize(("written", "source"), OVERS)
def test_a_map_runs_over_a_list_or_an_expression(written: str, source: str) -> None:
    found = step(f"map: {{over: {written}}}\ndo: make", "inputs: {x: string, list: array}")

    assert found.map is not None
    assert found.map.over is not None
    assert found.map.over.source == source


def test_a_map_runs_over_what_a_command_prints() -> None:
    found = step("map: {over: {shell: make, capture: lines, timeout: 5s}}\ndo: make\ncwd: /tmp")

    assert found.map is not None
    assert found.map.lister == Command(action=MAKE, capture="lines", timeout=5.0, cwd=Template(("/tmp",)))


@pytest.mark.parametrize(("file", "capture"), [("a b.txt", "lines"), ("items.json", "json")])
def test_a_map_runs_over_a_file(file: str, capture: str) -> None:
    found = step(f"map: {{over: {{file: '{file}'}}}}\ndo: make")

    assert found.map is not None
    assert found.map.lister is not None
    action = found.map.lister.action
    assert action is not None
    assert (action.kind, action.bindings) == ("shell", {"_items_file": Template((file,))})
    assert action.params["text"].endswith('\ncat -- "$_items_file"')
    assert found.map.lister.capture == capture


def test_a_file_with_a_value_in_its_path_is_known_as_a_path() -> None:
    found = step("map: {over: {file: 'lists/${run.id}'}}\ndo: make")

    assert found.map and found.map.lister and found.map.lister.action
    assert found.map.lister.action.paths == {"_items_file": "_items_file"}


def test_retry_timeout_and_resources_of_a_map_are_those_of_its_commands() -> None:
    found = step(
        """
        map: {over: [1]}
        do: [make, {shell: make, timeout: 1s, retry: 0}]
        retry: {max_retries: 2, max_attempts: 4, deadline: 1h}
        timeout: 5s
        resources: {cpus: 2}
        deadline: 2h
        """
    )

    rules = (Rule(any=True, max_retries=2),)
    assert found.do == (
        Command(action=MAKE, rules=rules, max_attempts=4, deadline=3600.0, timeout=5.0, resources=Resources(cpus=2.0)),
        Command(action=MAKE, timeout=1.0, resources=Resources(cpus=2.0)),
    )
    assert (found.rules, found.max_attempts, found.timeout, found.resources) == ((), None, None, None)
    assert found.deadline == 7200.0


def test_the_default_timeout_reaches_the_commands_that_a_worker_runs() -> None:
    found = steps(
        """
        - {step: a, map: {over: [1]}, do: [make, {wait: 1h}]}
        - {step: b, map: {over: [1]}, do: [make, {wait: 1h}], timeout: 2h}
        """,
        "defaults: {timeout: 10m}",
    )

    assert [command.timeout for command in found["a"].do] == [600.0, None]
    assert [command.timeout for command in found["b"].do] == [7200.0, 7200.0]


def test_the_breaker_of_a_map_is_that_of_its_commands_unless_they_name_another() -> None:
    found = steps(
        """
        - step: a
          map: {over: [1]}
          breaker: llm
          do: [make, {shell: make, breaker: db, on_failure: make clean}, {wait: 3s}]
        """,
        "breakers: {llm: {failures: 2}, db: {}}",
    )["a"]

    assert [command.breaker for command in found.do] == ["llm", "db", None]
    assert found.breaker is None
    assert found.do[1].on_failure is not None
    assert found.do[1].on_failure.commands[0].breaker is None


def test_a_map_has_a_handler_and_so_has_each_command() -> None:
    found = step("map: {over: [1]}\ndo: [{shell: make, on_failure: 'echo ${item} ${error.code}'}]\non_failure: make")

    assert found.on_failure is not None
    assert found.do[0].on_failure is not None


def test_distinct_may_be_the_item_itself() -> None:
    found = step("map: {over: [1], as: n, distinct: true}\ndo: make")

    assert found.map is not None
    assert found.map.distinct == Expression("n", ("n",))


MATRICES = [
    ("s_{i}", "{i: 1..3}", ["s_1", "s_2", "s_3"]),
    ("s_{i:03d}", "{i: 9..10}", ["s_009", "s_010"]),
    ("s_{a:.2f}", "{a: '0..1 step 0.25'}", ["s_0_00", "s_0_25", "s_0_50", "s_0_75", "s_1_00"]),
    ("s_{a}", "{a: {from: 0.1, to: 0.3, step: 0.1}}", ["s_0_1", "s_0_2", "s_0_3"]),
    ("s_{a}", "{a: 5..1 step -2}", ["s_5", "s_3", "s_1"]),
    ("s_{a}", "{a: {from: 1, to: 0, step: -0.5}}", ["s_1_0", "s_0_5", "s_0_0"]),
    # one value, and a last one that is not met exactly
    ("s_{a}", "{a: 3..3}", ["s_3"]),
    ("s_{a}", "{a: 1..6 step 4}", ["s_1", "s_5"]),
    # the same value twice in a name, in two formats
    ("s_{i}_{i:03d}", "{i: [7]}", ["s_7_007"]),
    # without a parameter in the name the values are appended
    ("s", "{a: [x, y], b: [1, true]}", ["s_x_1", "s_x_true", "s_y_1", "s_y_true"]),
    ("s_{a}_{b}", "{zip: {a: [1, 2], b: [x, y]}}", ["s_1_x", "s_2_y"]),
    ("s_{a}_{b}", "{product: {a: [1, 2], b: [x]}}", ["s_1_x", "s_2_x"]),
    # a list, and a range, may be called as a form is
    ("s_{zip}", "{zip: [1, 2]}", ["s_1", "s_2"]),
    ("s_{product}", "{product: {from: 1, to: 2}}", ["s_1", "s_2"]),
    # values that make no name are counted
    ("s", "{a: [{x: 1}, {x: 2}]}", ["s_1", "s_2"]),
    # nothing is called what JSON calls it
    ("s", "{a: [null, 1]}", ["s_null", "s_1"]),
    # what a name cannot have becomes _
    ("s", "{a: [a b, c/d]}", ["s_a_b", "s_c_d"]),
]


@pytest.mark.parametrize(("name", "matrix", "names"), MATRICES)
def test_a_matrix_is_one_step_per_combination(name: str, matrix: str, names: list[str]) -> None:
    assert list(steps(f"- {{step: '{name}', shell: make, matrix: {matrix}}}")) == names


def test_matrix_values_become_constants_of_their_types() -> None:
    found = steps(
        """
        - step: s
          matrix: {a: [0.5, 2], name: [x y]}
          when: matrix.a > 1 && inputs.go
          shell: ./run ${matrix.a} ${matrix.name}
          env: {A: "${matrix.a}", B: "a=${matrix.a} ${inputs.go}", C: "${matrix['name']}"}
          timeout: 5s
        """,
        "inputs: {go: boolean}",
    )

    first = found["s_0_5_x_y"]
    assert first.matrix == {"a": 0.5, "name": "x y"}
    assert first.when == Expression("0.5 > 1 && inputs.go", ("inputs",))
    assert first.action == Action(
        "shell",
        {"text": './run "${_matrix_a}" "${_matrix_name}"', "strict": True},
        {"_matrix_a": Template((Expression("0.5"),)), "_matrix_name": Template(("x y",))},
    )
    assert sources(first.env["A"]) == ["${0.5}"]
    assert sources(first.env["B"]) == ["a=", "0.5", " ", "${inputs.go}"]
    assert sources(first.env["C"]) == ["x y"]
    assert found["s_2_x_y"].when == Expression("2 > 1 && inputs.go", ("inputs",))


def test_a_step_of_a_matrix_knows_the_name_of_the_whole() -> None:
    found = steps("- {step: 'sim_{i}', matrix: {i: 1..2}, shell: make}\n- {step: alone, shell: make}")

    assert {name: step.sweep for name, step in found.items()} == {"sim_1": "sim", "sim_2": "sim", "alone": ""}


def test_a_matrix_of_constant_steps_shares_them() -> None:
    found = list(steps("- {step: s, matrix: {i: 1..3}, shell: make, env: {A: b}}").values())

    assert found[0].env is found[2].env


def test_the_whole_matrix_can_be_needed_and_led_to() -> None:
    found = workflow(
        """
        steps:
          - {step: start, shell: make, next: 'sim'}
          - {step: 'sim_{i}', shell: make, matrix: {i: 1..2}}
          - {step: a, shell: make, needs: [sim]}
          - {step: b, shell: make, needs: [{matrix: sim, on: always}, sim_1]}
        """
    )

    assert [edge.to for edge in found.steps[0].edges] == ["sim_1", "sim_2"]
    assert [edge.index for edge in found.steps[0].edges] == [0, 1]
    assert found.groups == {"sim": ("sim_1", "sim_2")}
    assert found.steps[3].needs == (Need("sim", is_group=True),)
    assert found.steps[4].needs == (Need("sim", "always", is_group=True), Need("sim_1"))


def test_a_matrix_step_can_name_its_counterpart() -> None:
    found = steps(
        """
        - {step: 'prep_{i:02d}', shell: make, matrix: {i: 1..2}}
        - {step: 'sim_{i}', shell: make, matrix: {i: 1..2}, needs: ['prep_{i:02d}'], next: ['post_{i}']}
        - {step: 'post_{i}', shell: make, matrix: {i: 1..2}}
        """
    )

    assert found["sim_2"].needs == (Need("prep_02"),)
    assert found["sim_1"].edges[0].to == "post_1"


@pytest.mark.parametrize("over", ["steps.s.output", "${steps.s.output}", "steps.s.failed"])
def test_a_map_runs_over_what_a_whole_matrix_gave(over: str) -> None:
    found = workflow(
        f"""
        steps:
          - {{step: s, shell: make, matrix: {{a: [1, 2]}}}}
          - {{step: t, needs: [s], map: {{over: "{over}", sort_by: steps.s.output}}, do: [{{shell: make}}]}}
        """
    )

    listed = found.steps[-1].map
    assert listed is not None and listed.over == Expression(over.strip("${}"), ("steps.s",))
