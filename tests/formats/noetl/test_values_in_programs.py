"""Values in commands and queries of playbooks: what the file says may be program text, what a run is given never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from .playbooks import mulligan, newer, ran, refused, statuses, translated, written

SHELL = newer("""
    workload: {name: world, command: "echo ran"}
    workflow:
      - step: say
        tool: {kind: shell, cmds: ["echo {{ workload.name }}", "echo '{{ name }}'", "echo \\"{{ name }}\\""]}
        next: {arcs: [{step: again}]}
      - step: again
        tool: {kind: shell, cmds: ["echo {{ say.stdout }}", "printf %s '{{ say.stdout }}'"]}
        next: {arcs: [{step: run}]}
      - {step: run, tool: {kind: shell, cmds: ["{{ workload.command }}"]}}
    """)


ATTACK = "$(touch pwned)`touch pwned`'; touch pwned; '\"; touch pwned; \"; touch pwned #"


def test_what_a_run_is_given_is_never_run_nor_is_what_a_step_printed(folder: Path):
    run = ran(SHELL, "-i", f"name={ATTACK}")

    assert run["status"] == "completed"
    assert run["steps"]["say"]["output"]["result"]["stdout"] == f"{ATTACK}\n" * 3
    assert run["steps"]["again"]["output"]["result"]["stdout"] == f"{ATTACK}\n" * 3 + "\n" + f"{ATTACK}\n" * 3
    assert run["outputs"]["result"]["stdout"] == "ran\n"
    assert not (folder / "pwned").exists()


WHOLE = newer("""
    workload: {command: "echo ran"}
    workflow: [{step: run, tool: {kind: shell, cmds: ["{{ workload.command }}"]}}]
    """)


def test_a_whole_command_that_an_input_says_is_not_run(folder: Path):
    run = ran(WHOLE, "-i", "command=touch pwned")

    assert statuses(run) == {"run": "failed"}
    assert run["steps"]["run"]["failure"]["code"] == "INPUT_INVALID"
    assert run["steps"]["run"]["failure"]["message"] == (
        "'{{ workload.command }}' names a command, and its value comes from an input or a step: "
        "write the command in the file, or run with --trust-templates"
    )
    assert not (folder / "pwned").exists()


def test_an_input_that_says_what_the_file_says_changes_nothing():
    assert mulligan("run", written(WHOLE), "-i", "command=echo ran").code == 0


def test_with_trusted_templates_any_value_is_text_of_the_program_and_what_is_converted_too(folder: Path):
    assert mulligan("run", written(WHOLE), "--trust-templates", "-i", "command=touch pwned").code == 0
    assert (folder / "pwned").exists()

    converted = mulligan("convert", "playbook.yaml", "--trust-templates")

    assert mulligan("run", written(converted.out, "converted.yaml"), "-i", "command=touch again").code == 0
    assert (folder / "again").exists()


def test_a_run_keeps_its_trust_when_it_goes_on(folder: Path):
    text = newer("""
        workload: {command: "true"}
        workflow:
          - step: wait
            tool: {kind: shell, cmds: ["test -e there"]}
            next: {arcs: [{step: run}]}
          - {step: run, tool: {kind: shell, cmds: ["{{ workload.command }}"]}}
        """)
    assert mulligan("run", written(text), "--trust-templates", "-i", "command=touch pwned").code == 1
    (folder / "there").touch()

    said = mulligan("retry", 1, "--follow", "--json")

    assert said.code == 0, said.err
    assert (folder / "pwned").exists()


SQL = newer("""
    workload: {name: tea, table: prices}
    workflow:
      - step: make
        tool:
          kind: duckdb
          commands:
            - "create table {{ workload.table }} (name text, price integer)"
            - "insert into {{ workload.table }} values ('{{ workload.name }}', 3)"
        next: {arcs: [{step: read}]}
      - step: read
        input: {from: "{{ workload.table }}"}
        tool: {kind: duckdb, query: "select name from {{ from }} where name = {{ make.name | default(workload.name) }}"}
    """)


def test_what_a_run_is_given_is_a_value_of_a_query_and_no_statement(folder: Path):
    value = "'); copy (select 1) to 'pwned.csv'; select ('"

    run = ran(SQL, "-i", f"name={value}")

    assert run["outputs"]["result"]["rows"] == [{"name": value}]
    assert not (folder / "pwned.csv").exists()


def test_a_table_is_named_by_the_file_and_not_by_an_input():
    said = mulligan("run", written(SQL), "-i", "table=secrets", "--json")

    assert said.json["steps"]["make"]["failure"]["code"] == "INPUT_INVALID"
    trusting = mulligan("run", "playbook.yaml", "-i", "table=others", "--json", "--trust-templates")
    assert trusting.json["steps"]["make"]["status"] == "completed"


@pytest.mark.parametrize(
    ("over", "codes"),
    [
        # written in the step, and in the workload
        ("[one, two]", []),
        ('"{{ workload.tables }}"', []),
        # made by a step
        ('"{{ tables + [] }}"', ["ITEMS_FAILED"]),
    ],
)
def test_the_items_of_a_list_in_the_file_are_the_files(over: str, codes: list[str]):
    text = newer(f"""
        workload: {{tables: [one, two]}}
        workflow:
          - step: each
            loop: {{in: {over}, iterator: t}}
            tool: {{kind: duckdb, database: ":memory:", command: "create table {{{{ iter.t }}}} (n integer)"}}
        """)

    said = mulligan("run", written(text), "--json")

    assert [failure["code"] for failure in said.json["failures"]] == codes


def test_a_called_playbook_takes_what_it_is_called_with_for_an_input(folder: Path):
    written(
        newer("""
        workload: {command: "true"}
        workflow: [{step: run, tool: {kind: shell, cmds: ["{{ workload.command }}"]}}]
        """),
        "child.yaml",
    )
    parent = newer("""
        workflow: [{step: call, tool: {kind: playbook, path: child, return_step: run, input: {command: touch pwned}}}]
        """)

    assert mulligan("run", written(parent)).code == 1
    assert not (folder / "pwned").exists()
    assert mulligan("run", "playbook.yaml", "--trust-templates").code == 0
    assert (folder / "pwned").exists()


def test_the_action_is_told_the_defaults_that_its_programs_name():
    text = newer("""
        workload: {table: a, other: b, both: "{{ workload.table }}x", many: [1], price: 3}
        workflow:
          - step: query
            tool: {kind: duckdb, query: "select * from {{ workload.both }}"}
            next: {arcs: [{step: code}]}
          - {step: code, tool: {kind: python, input: {n: "{{ workload.other }}"}, code: "result = n"}}
        """)

    query, code = (step["noetl"] for step in translated(text)["steps"])

    assert query["defaults"] == {"table": "a"}
    assert "defaults" not in code


@pytest.mark.parametrize("verb", ["run", "validate", "convert"])
def test_only_templates_of_noetl_can_be_trusted(verb: str):
    written("steps: [{step: a, shell: 'true'}]", "ours.yaml")

    said = mulligan(verb, "ours.yaml", "--trust-templates")

    assert said.code == 2
    assert "error[language.format]: ours.yaml: --trust-templates is for NoETL files, and this is not one" in said.err


def test_a_fork_may_trust_the_file_that_it_is_given():
    mulligan("run", written(WHOLE), "-i", "command=true")

    without = mulligan("fork", 1, "--from", "run", "--trust-templates")

    assert (without.code, without.err.splitlines()[0]) == (2, "error[usage]: --trust-templates needs --file")
    assert mulligan("fork", 1, "--from", "run", "--file", "playbook.yaml", "--trust-templates").code == 0


def test_a_step_alone_may_trust_its_templates():
    file = written(WHOLE)

    assert mulligan("step", file, "run", "-i", "command=echo hi").code == 1
    said = mulligan("step", file, "run", "-i", "command=echo hi", "--trust-templates")
    assert (said.code, said.out) == (0, "hi\n")


def test_a_command_that_is_what_a_step_gave_is_refused_when_the_file_is_read():
    text = newer("""
        workflow:
          - {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
          - {step: b, INPUT tool: {kind: shell, cmds: ["{{ a.command }}"]}}
        """)

    assert "is the whole of a command" in refused(text.replace("INPUT", ""))
    # another name that is called so: known when it runs
    assert mulligan("validate", written(text.replace("INPUT", "input: {a: {command: ls}},"))).code == 0
    assert mulligan("validate", written(text.replace("INPUT", "")), "--trust-templates").code == 0


def test_a_file_that_was_trusted_is_compared_as_one_that_is():
    failing = WHOLE.replace("echo ran", "exit 3")
    mulligan("run", written(failing), "--trust-templates")

    written("# the same again\n" + failing)
    same = mulligan("retry", 1, "--dry-run")
    written(WHOLE)
    changed = mulligan("retry", 1, "--dry-run")

    assert "has changed" not in same.err
    assert "has changed" in changed.err


# -- code --------------------------------------------------------------------------------------------------------------

CODE = newer("""
    workload: {n: 2, name: world, call: "len([1, 2, 3])"}
    workflow:
      - step: make
        tool: {kind: python, code: "result = {'rows': [{{ workload.n }}, '{{ name }}'], 'all': {{ workload.call }}}"}
        next: {arcs: [{step: read}]}
      - step: read
        tool:
          kind: python
          code: |
            rows = {{ make.rows }}
            {% if workload.n > 1 %}
            rows = rows + [f"{len(rows)} of {{ make.all }}"]
            {% endif %}
            result = rows
    """)


def test_templates_in_code_are_rendered_and_no_value_of_a_run_becomes_code(folder: Path):
    assert ran(CODE)["outputs"]["result"] == [2, "world", "2 of 3"]

    attack = "'+open('pwned','w').name+'"
    run = mulligan("run", written(CODE), "--json", "-i", f"name={attack}", "-i", "call=open('pwned','w')").json
    assert run["steps"]["make"]["failure"]["code"] == "INPUT_INVALID"
    assert not (folder / "pwned").exists()


def test_code_that_is_invalid_whatever_its_templates_give_is_refused_when_the_file_is_read():
    text = 'workflow: [{step: a, tool: {kind: python, code: "x = {{ n | int }}\\nresult = ("}}]'

    assert "playbook.yaml:4:49: this Python code is invalid: '(' was never closed" in refused(newer(text))
