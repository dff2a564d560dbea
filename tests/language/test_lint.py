"""What is lawful and most likely a slip: warned about, at its place, and never refused."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from mulligan.core.model.failure import CODES
from mulligan.errors import LanguageError
from mulligan.language import examine, lint
from mulligan.language.checks.error_codes import suggest_code


def warnings(text: str) -> str:
    """What is said about a good file, as a terminal shows it."""
    return "\n".join(warning.render() for warning in examine("w.yaml", text=dedent(text).lstrip("\n")).warnings)


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("TIMEOUTS", "TIMEOUT"),
        ("TIME_OUT", "TIMEOUT"),
        ("EXIT_NON_ZERO", "EXIT_NONZERO"),
        ("CANCELED", "CANCELLED"),
        # a status that we sum up
        ("HTTP_503", "HTTP_5XX"),
        ("HTTP_404", "HTTP_4XX"),
        # codes of a step's own that only look a little like ours
        ("DB_TIMEOUT", None),
        ("CONNECTION_LOST", None),
        ("QUOTA_EXCEEDED", None),
    ],
)
def test_a_code_that_is_nearly_ours_is_told_apart_from_one_of_a_steps_own(code: str, meant: str | None) -> None:
    assert suggest_code(code) == meant


def test_a_misspelt_code_is_warned_about_wherever_codes_stand() -> None:
    text = """
    breakers: {llm: {ignore: [HTTP_404]}}
    steps:
      - step: a
        shell: make
        breaker: llm
        retry: {codes: TIMEOUTS}
        next: [{to: b, on: failure, codes: [DISK_FULL, CANCELED]}]
      - {step: b, shell: make}
    """

    said = warnings(text)

    assert said == (
        "warning[language.misspelt_code]: w.yaml:1:27: no failure has the code 'HTTP_404' unless a step reports it\n"
        "  1 | breakers: {llm: {ignore: [HTTP_404]}}\n"
        "    |                           ^^^^^^^^ did you mean 'HTTP_4XX'?\n"
        "warning[language.misspelt_code]: w.yaml:6:20: no failure has the code 'TIMEOUTS' unless a step reports it\n"
        "  6 |     retry: {codes: TIMEOUTS}\n"
        "    |                    ^^^^^^^^ did you mean 'TIMEOUT'?\n"
        "warning[language.misspelt_code]: w.yaml:7:52: no failure has the code 'CANCELED' unless a step reports it\n"
        "  7 |     next: [{to: b, on: failure, codes: [DISK_FULL, CANCELED]}]\n"
        "    |                                                    ^^^^^^^^ did you mean 'CANCELLED'?"
    )


def test_a_policy_that_many_steps_use_is_warned_about_once() -> None:
    steps = "".join(f"  - {{step: s{i}, shell: make, retry: p}}\n" for i in range(5))

    found = examine("w.yaml", text=f"retry_policies: {{p: {{codes: TIMEOUTS}}}}\nsteps:\n{steps}").warnings

    assert [warning.code for warning in found] == ["warning.language.misspelt_code"]


def test_none_of_our_own_codes_is_warned_about() -> None:
    assert warnings(f"steps: [{{step: a, shell: make, retry: {{codes: [{', '.join(sorted(CODES))}]}}}}]") == ""


def test_what_is_declared_and_never_used_is_warned_about() -> None:
    text = """
    inputs: {target: string}
    secrets: {token: {env: TOKEN}}
    files: {mesh: out/mesh}
    retry_policies: {patient: {max_retries: 9}}
    handlers: {tidy: make clean}
    steps:
      - {step: a, shell: make}
    """

    said = warnings(text)

    assert said == (
        "warning[language.unused_input]: w.yaml:1:10: the input 'target' is declared and never read\n"
        "  1 | inputs: {target: string}\n"
        "    |          ^^^^^^ remove it, or use it\n"
        "warning[language.unused_secret]: w.yaml:2:11: the secret 'token' is declared and never read\n"
        "  2 | secrets: {token: {env: TOKEN}}\n"
        "    |           ^^^^^ remove it, or use it\n"
        "warning[language.unused_file]: w.yaml:3:9: the file 'mesh' is declared and never read or written\n"
        "  3 | files: {mesh: out/mesh}\n"
        "    |         ^^^^ remove it, or use it\n"
        "warning[language.unused_policy]: w.yaml:4:18: the retry policy 'patient' is declared and never used\n"
        "  4 | retry_policies: {patient: {max_retries: 9}}\n"
        "    |                  ^^^^^^^ remove it, or use it\n"
        "warning[language.unused_handler]: w.yaml:5:12: the handler 'tidy' is declared and never used\n"
        "  5 | handlers: {tidy: make clean}\n"
        "    |            ^^^^ remove it, or use it"
    )


@pytest.mark.parametrize(
    "text",
    [
        # an input, in each kind of place that reads one
        "inputs: {x: string}\nsteps: [{step: a, shell: 'echo ${inputs.x}'}]",
        "inputs: {x: string}\nsteps: [{step: a, shell: make, when: \"inputs['x'] == '1'\"}]",
        "inputs: {x: string}\nsteps: [{step: a, shell: make}]\noutputs: {y: '${inputs.x}'}",
        "inputs: {x: string}\nsteps: [{step: a, shell: make}]\nend: {shell: 'echo ${inputs.x}'}",
        "inputs: {x: string}\ndefaults: {env: {X: '${inputs.x}'}}\nsteps: [{step: a, shell: make}]",
        # all inputs at once, and one that is computed
        "inputs: {x: string, y: string}\nsteps: [{step: a, shell: make, when: size(inputs) > 1}]",
        "inputs: {x: string}\nsteps: [{step: a, map: {over: [x]}, do: 'echo ${inputs[item]}'}]",
        "secrets: {t: {env: T}}\nsteps: [{step: a, shell: make, env: {T: '${secrets.t}'}}]",
        "files: {f: x}\nsteps: [{step: a, shell: make, writes: f}]",
        "files: {f: x}\nsteps: [{step: a, shell: 'cat ${files.f}'}]",
        "retry_policies: {p: {max_retries: 1}}\nsteps: [{step: a, shell: make, retry: p}]",
        "retry_policies: {p: {max_retries: 1}}\ndefaults: {retry: p}\nsteps: [{step: a, shell: make}]",
        "handlers: {h: make clean}\nsteps: [{step: a, shell: make, on_failure: {use: h}}]",
        # a handler that another one uses
        "handlers: {h: {shell: make, on_failure: {use: g}}, g: make}\n"
        "steps: [{step: a, shell: make, on_failure: {use: h}}]",
    ],
)
def test_what_is_used_anywhere_is_not_warned_about(text: str) -> None:
    assert warnings(text) == ""


def test_a_handler_that_only_an_unused_one_uses_is_unused() -> None:
    text = "handlers: {g: make, h: {shell: make, on_failure: {use: g}}}\nsteps: [{step: a, shell: make}]"

    found = examine("w.yaml", text=text).warnings

    assert [warning.message for warning in found] == [
        "the handler 'g' is declared and never used",
        "the handler 'h' is declared and never used",
    ]


def test_a_file_that_is_refused_has_errors_and_no_warnings(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("inputs: {x: string}\nsteps: [{step: a, shel: make}]\n", encoding="utf-8")

    with pytest.raises(LanguageError) as refused:
        lint(path)

    assert [problem.code for problem in refused.value.problems] == ["language.unknown_key"]


def test_a_loop_that_starts_where_one_would_not_look_for_it_is_warned_about() -> None:
    text = """
        steps:
          - {step: build, shell: make, next: [deploy]}
          - {step: deploy, shell: make, next: [{to: build, on: failure}]}
    """

    assert warnings(text) == (
        "warning[language.loop_start]: w.yaml:3:12: the run starts at 'deploy' and not at 'build', "
        "since a failure edge leads to 'build'\n"
        "  3 |   - {step: deploy, shell: make, next: [{to: build, on: failure}]}\n"
        "    |            ^^^^^^ add 'start: true' to the step that should run first"
    )


def test_a_loop_whose_start_is_marked_or_the_first_is_as_expected() -> None:
    marked = """
        steps:
          - {step: build, start: true, shell: make, next: [deploy]}
          - {step: deploy, shell: make, next: [{to: build, on: failure}]}
    """
    first = """
        steps:
          - {step: poll, shell: make, next: [{to: nap, on: failure}]}
          - {step: nap, wait: 1m, next: [poll]}
    """

    assert (warnings(marked), warnings(first)) == ("", "")


@pytest.mark.parametrize(
    "command",
    [
        # the templates of other programs
        "docker ps --format '{{.Names}}'",
        "helm template '{{ index .Values 0 }}'",
        "echo '{{ user.name }}'",
        # a root without a field is a word like any other
        "echo '{{ output }}'",
        # a text that was meant
        "echo '$${{ inputs.n }}'",
        "echo '{{ inputs.n }}'",
    ],
)
def test_braces_that_are_quoted_or_name_nothing_of_ours_are_text(command: str) -> None:
    assert warnings(f"steps:\n  - step: a\n    shell: {command}\n") == ""


def test_an_items_name_where_there_is_no_item_is_warned_about() -> None:
    text = """
        steps:
          - {step: a, shell: "rm -rf /data/${item}"}
          - {step: b, map: {over: [1], as: pkg}, do: "echo ${pkg.x} ${index} ${item%.json}"}
          - {step: c, shell: "echo ${run.id} ${pkg}"}
    """
    why = "so the shell expands its own variable, which is probably empty"

    assert warnings(text) == (
        f"warning[language.unbound_item]: w.yaml:2:38: '${{item}}' is not known here, {why}\n"
        '  2 |   - {step: a, shell: "rm -rf /data/${item}"}\n'
        "    |                                      ^^^^\n"
        f"warning[language.unbound_item]: w.yaml:3:72: '${{item}}' is not known here, {why}\n"
        '  3 |   - {step: b, map: {over: [1], as: pkg}, do: "echo ${pkg.x} ${index} ${item%.json}"}\n'
        "    |                                                                        ^^^^\n"
        f"warning[language.unbound_item]: w.yaml:4:40: '${{pkg}}' is not known here, {why}\n"
        '  4 |   - {step: c, shell: "echo ${run.id} ${pkg}"}\n'
        "    |                                        ^^^"
    )


@pytest.mark.parametrize(
    "keys",
    [
        # set by the script itself
        "shell: 'item=1; echo ${item}'",
        "shell: 'for item in a b; do echo ${item}; done'",
        "shell: 'while read -r key item; do echo ${item}; done'",
        "shell: 'local item; echo ${item}'",
        # set by the step
        "shell: 'echo ${item}', env: {item: x}",
        # what holds where it is not set is said, or it is not the shell's to expand
        "shell: 'echo ${item:-none}'",
        "shell: 'echo $${item}'",
        "shell: \"echo '${item}'\"",
        "shell: \"cat <<'EOF'\\n${item}\\nEOF\\n\"",
        "shell: 'echo \\${item}'",
        # bound
        "map: {over: [1]}, do: {shell: 'echo ${item} ${index}', on_failure: 'echo ${item}'}",
    ],
)
def test_a_variable_of_the_shell_that_is_called_like_an_item_is_not_warned_about(keys: str) -> None:
    assert warnings(f"steps:\n  - {{step: a, {keys}}}\n") == ""


def test_an_alert_on_an_edge_that_handles_is_warned_about() -> None:
    text = """
    steps:
      - step: deploy
        shell: make
        next: [{to: page-someone, on: failure}]
      - {step: page-someone, shell: make}
    """

    said = warnings(text)

    assert said == (
        "warning[language.handling_alert]: w.yaml:4:17: "
        "when 'page-someone' completes, the failure counts as handled and the run does not fail\n"
        "  4 |     next: [{to: page-someone, on: failure}]\n"
        "    |                 ^^^^^^^^^^^^ if it only sends an alert, add 'handles: false'"
    )


@pytest.mark.parametrize(
    "edge",
    [
        "{to: page, on: failure, handles: false}",
        "{to: page, on: failure, handles: true}",
        "{to: page, on: failure, then: continue}",
        "{to: page, on: always}",
        "{to: rollback, on: failure}",
        "{to: webpage, on: failure}",
    ],
)
def test_an_edge_that_says_what_it_means_is_not_warned_about(edge: str) -> None:
    to = edge.partition(": ")[2].partition(",")[0]

    assert warnings(f"steps: [{{step: a, shell: make, next: [{edge}]}}, {{step: {to}, shell: make}}]") == ""


def test_triage_on_a_map_that_never_fails_for_its_items_is_warned_about() -> None:
    text = """
    steps:
      - step: a
        map: {over: [1, 2], on_item_failure: collect}
        triage: true
        do: [make]
    """

    said = warnings(text)

    assert said == (
        "warning[language.idle_triage]: w.yaml:4:5: failed items do not reach triage: "
        "with 'on_item_failure: collect' the step completes without them\n"
        "  4 |     triage: true\n"
        "    |     ^^^^^^ set 'max_failures' or 'failure_threshold', or remove 'collect'"
    )


@pytest.mark.parametrize("bound", ["max_failures: 1", "failure_threshold: 0.5", "on_item_failure: fail"])
def test_triage_on_a_map_that_may_fail_for_its_items_is_not(bound: str) -> None:
    collect = "" if "on_item" in bound else "on_item_failure: collect, "

    assert warnings(f"steps: [{{step: a, map: {{over: [1], {collect}{bound}}}, triage: true, do: [make]}}]") == ""


def test_a_value_of_a_matrix_written_as_in_a_name_is_warned_about_where_it_is_text() -> None:
    said = warnings(
        """
        steps:
          - step: "sim_{i}"
            matrix: {i: 1..2, mode: [a]}
            shell: |
              ./sim.sh {i:02d} ${matrix.i} {other} ${i} '{{mode}}' '{"i": 1}'
            env: {MODE: "{mode}"}
            needs: ["prep_{i}"]
            reads: "out/part_{i}.csv"
          - step: "prep_{i}"
            matrix: {i: 1..2}
            python: "def main(i): return {i}"
            args: {i: 1}
            writes: "out/part_{i}.csv"
          - {step: alone, shell: "echo {i}"}
        """
    )

    place = "warning[language.matrix_placeholder]: w.yaml"
    text = "is replaced by a matrix value only in names: here it is plain text"
    assert [line for line in said.splitlines() if line.startswith("warning")] == [
        f"{place}:5:16: '{{i:02d}}' {text}",
        f"{place}:6:18: '{{mode}}' {text}",
    ]
    assert "write ${matrix.i}" in said
