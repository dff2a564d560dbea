"""No reader takes more work than its input deserves: twice the input is about twice the work, whatever it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.growth import COPIES_MAX, GROWTH_MAX, growth_of_lines, share_of_copies
from tests.support.nightly import sample

from mulligan.analysis.coverage.explore import explore
from mulligan.core.deciding.bounded_regex import is_found
from mulligan.core.effects.run_lists import search_words
from mulligan.errors import MulliganError
from mulligan.formats import convert, examine, json5_text
from mulligan.formats.noetl.runtime.template_reads import paths_read
from mulligan.formats.noetl.runtime.templates import render_text
from mulligan.formats.prodigy.queries import parse_filter
from mulligan.formats.torc import kdl
from mulligan.language import load_text
from mulligan.language.checks.regular_expressions import may_backtrack_exponentially
from mulligan.language.expressions import Cel, ExpressionRefused, check, template
from mulligan.language.shell.shell import rewrite
from mulligan.language.text.nodes import Refusal, Source
from mulligan.language.text.suggestions import did_you_mean
from mulligan.service.rendering.drawing import draw_mermaid, draw_page_svg
from mulligan.service.runs.views.run_list import parse_statuses
from mulligan.service.server.catalogue.text_diff import diff_texts
from mulligan.service.server.catalogue.text_edits import StepEdit, edit_text
from mulligan.service.server.catalogue.texts import WorkflowText
from mulligan.service.server.schedules.cron import check_cron
from mulligan.worker.databases.statements import Dialect, statements
from mulligan.worker.secrets.redactor import Redactor

pytestmark = pytest.mark.one_by_one

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VALUE = '"${inputs.x}"'


class Case(NamedTuple):
    """A reader, and an input of a size."""

    name: str
    read: Callable[[str], object]
    make: Callable[[int], str]
    # The smallest size for lines, and the one for copies.
    size: int = 12
    copied: int = 70


def refusing(read: Callable[[str], object]) -> Callable[[str], object]:
    """A refusal is an answer, too."""

    def reads(text: str) -> None:
        with suppress(MulliganError, Refusal, ExpressionRefused):
            read(text)

    return reads


def of(file: str) -> Callable[[str], object]:
    """Reads a file of any system."""
    return lambda text: examine(Path(file), text=text, is_alone=True)


def converted(file: str) -> Callable[[str], object]:
    """Reads a file of another system, and writes it as ours."""
    return lambda text: convert(file, text=text, is_alone=True)


def drawn(draw: Callable[..., str]) -> Callable[[str], object]:
    return lambda text: draw(load_text(text), **({"nodes_max": 1 << 30} if draw is draw_page_svg else {}))


def edited(text: str) -> object:
    return edit_text(WorkflowText(text, "w.yaml"), StepEdit("s0", {"shell": "b"}))


def shell(pattern: str, before: str = "[a] ", after: str = "") -> Callable[[int], str]:
    """A pattern again and again; the words before it are not simple, so that the lexer decides."""
    return lambda n: before + pattern * n + after


def steps(pattern: str, head: str = "") -> Callable[[int], str]:
    """A file with a step for each number; `{before}` is the number before."""
    return lambda n: (
        f"name: w\n{head}steps:\n" + "".join(f"- {pattern.format(n=i, before=max(i - 1, 0))}\n" for i in range(n))
    )


def list_of(pattern: str, head: str, sep: str = "", tail: str = "") -> Callable[[int], str]:
    return lambda n: head + sep.join(pattern.format(n=i, before=max(i - 1, 0)) for i in range(n)) + tail


def alphred(n: int) -> str:
    nodes = [
        {"nodeKey": f"n{i}", "provider": "claude", "sequenceIndex": i, "promptTemplate": {"content": "do"}}
        for i in range(n)
    ]
    edges = [{"sourceNodeKey": f"n{i}", "targetNodeKey": f"n{i + 1}", "auto": True} for i in range(n - 1)]
    return json.dumps({"treeKey": "w", "nodes": nodes, "edges": edges})


MATRIX = "name: w\nsteps: [{step: a, shell: 'echo ${matrix.a}', matrix:"
JOB = "  - {{name: j{n}, command: a}}\n"
NEEDING = "  - {{name: j{n}, command: a, depends_on: [j0]}}\n"
NOOP = "  - {{step: s{n}, tool: {{kind: noop}}}}\n"
ARC = "  - {{step: s{n}, tool: {{kind: noop}}, next: {{arcs: [{{step: s{before}, when: '{{{{{{{{ a }}}}}}}}'}}]}}}}\n"
PLAYBOOK = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: w}\nworkflow:\n"
STEP = "{{step: s{n}, shell: make}}"


def _chain(n: int) -> str:
    return "name: w\nsteps:\n- {step: s0, shell: make}\n" + "".join(
        f"- {{step: s{i}, needs: [s{i - 1}], shell: make}}\n" for i in range(1, n)
    )


def _fan(n: int) -> str:
    names = ", ".join(f"s{i}" for i in range(n))
    return steps(STEP)(n) + f"- {{step: last, needs: [{names}], shell: make}}\n"


SHELL = [
    ("values", shell(f"{VALUE} ")),
    ("assignments", shell(f"A=1 {VALUE} ")),
    ("assignments and no command", shell(f"A={VALUE} ", "")),
    ("wrappers", shell(f"sudo env {VALUE} ", "a=(1); ")),
    ("wrappers alone", shell("sudo ", "a=(1); ", VALUE)),
    ("options of a script", shell(f"-c {VALUE} ", "[a] x ")),
    ("words that end options", shell(f"-- {VALUE} ", "[a] su ")),
    ("declarations", shell(f"-r a={VALUE} ", "declare ")),
    ("one long word", shell(VALUE, "[a] x=")),
    ("one long quoted word", shell("${inputs.x}", '[a] " ', '"')),
    ("output in one long word", shell("$(a)", "[a] x=", f" {VALUE}")),
    ("a word of brackets", shell("[", "x", VALUE)),
    ("a file for sh", shell("${inputs.x}", 'sh a; ENV="')),
    ("single quotes", shell("${ ", "'", "'")),
    ("here-strings", shell(f"a <<<{VALUE} ")),
    ("here-documents", shell(f"cat <<EOF\n{VALUE}\nEOF\n", "")),
    ("output in a here-document", shell("$(a)\n", "cat <<EOF\n", "${inputs.x}\nEOF\n")),
    ("shells on a line", shell("sh ", "x -s <<<a; ", "-c a <<EOF\n${inputs.x}\nEOF\n")),
    ("scripts of xargs", shell("sh -c a -Ib ", "xargs ", "<<EOF\n${inputs.x}\nEOF\n")),
    ("lines that print", shell(f"echo {VALUE} | cat\n", "[a]\n")),
    ("arithmetic that is none", shell('$((a "(" ) )\n', "", VALUE)),
    ("arithmetic", shell("((a)) ", "", VALUE)),
    ("elements", shell(f"{VALUE} ", "a=(", ")")),
    ("tests", shell(f"[[ a == {VALUE} ]]; ", "")),
    ("one long test", shell(f"a == {VALUE} && ", "[[ ", "a ]]")),
    ("cases", shell(f"case a in a) b {VALUE};; esac\n", "")),
    ("redirections", shell(f"2>{VALUE} ", "A=1 ")),
    ("substitutions", shell(f"<(a {VALUE}) ", "eval cat ")),
    ("backticks", shell("`a` ", "", VALUE)),
    ("expansions", shell("${a:-b} ", "", VALUE)),
    ("files of a remote shell", shell(f"-o {VALUE} ", "ssh ")),
    ("arguments of parallel", shell("a ", "parallel ::: ", VALUE)),
]
# Braces are counted, and the beginning of a word is looked at, up to a limit.
SIZES = {"single quotes": (100, 70), "output in one long word": (12, 500)}
FILES = [
    Case("steps", load_text, steps(STEP)),
    Case("steps in a chain", load_text, _chain),
    Case("steps that need all", load_text, _fan),
    Case("edges back", load_text, steps("{{step: s{n}, shell: make, next: [{{to: s{n}, on: failure, then: rerun}}]}}")),
    # A file is refused after a hundred problems; each is compared with all names.
    Case("needs of nobody", load_text, lambda n: steps(STEP)(n) + "- {step: a, needs: [t1, t2], shell: make}\n"),
    Case("unknown keys", load_text, list_of("kez{n}: 1\n", "name: w\n"), 12, 40),
    Case("unknown values", load_text, lambda n: steps(STEP)(n) + "- {step: a, shell: 'echo ${steps.t1.output}'}\n"),
    Case(
        "values of steps",
        load_text,
        steps(
            "{{step: s{n}, env: {{A: '${{inputs.x}}'}}, shell: make}}", "inputs: {x: {type: string, required: true}}\n"
        ),
    ),
    Case(
        "inputs",
        load_text,
        list_of(
            "  i{n}: {{type: string, default: a}}\n", "name: w\ninputs:\n", "", "steps: [{step: a, shell: make}]\n"
        ),
    ),
    Case(
        "a matrix",
        load_text,
        list_of("v{n}", "name: w\nsteps: [{step: a, shell: 'echo ${matrix.a}', matrix: {a: [", ", ", "]}}]\n"),
    ),
    Case(
        "matrices",
        load_text,
        list_of(
            "{n}", "name: w\nsteps: [{step: a, shell: 'echo ${matrix.a}', matrix: {b: [1, 2], a: [", ", ", "]}}]\n"
        ),
    ),
    Case(
        "steps with a matrix",
        load_text,
        steps("{{step: s{n}, matrix: {{a: [1, 2]}}, shell: 'echo ${{matrix.a}}'}}"),
        12,
        40,
    ),
    Case(
        "items", load_text, list_of("v{n}", "name: w\nsteps: [{step: a, shell: 'echo ${item}', map: [", ", ", "]}]\n")
    ),
    Case(
        "retry rules",
        load_text,
        list_of(
            "{{exit_codes: [{n}], max_retries: 1}}",
            "name: w\nsteps: [{step: a, shell: make, retry: {rules: [",
            ", ",
            "]}}]\n",
        ),
    ),
    Case("comments", load_text, list_of("# a {n}\n", "", "", "name: w\nsteps: [{step: a, shell: make}]\n"), 200),
    Case("quotes", load_text, list_of("'a''b' ", "name: w\nsteps: [{step: a, shell: make, env: {A: ", "", "}}]")),
    Case(
        "a long text", load_text, list_of("word ", "name: w\nsteps: [{step: a, shell: make}]\ndescription: ", ""), 200
    ),
    Case("aliases", load_text, list_of("- *a\n", "x: &a [1]\nsteps:\n")),
    Case("flow lists", load_text, list_of("[1], ", "a: [", "", "]")),
    Case(
        "schedules",
        load_text,
        list_of("  s{n}: {{cron: '0 {n} * * *'}}\n", "name: w\nsteps: [{step: a, shell: make}]\nschedules:\n"),
    ),
]
OTHERS = [
    Case("JSON5", lambda text: json5_text.parse(Source(text, "w")), list_of("'a{n}': [1], // c\n", "{x: {", "", "}}")),
    Case("JSON", lambda text: json5_text.parse_json(Source(text, "w")), list_of('{{"a": "b"}}', "[", ", ", "]")),
    Case("KDL", lambda text: kdl.parse(Source(text, "w")), list_of('job "j{n}" {{\n  command "a"\n}}\n', 'name "w"\n')),
    Case("KDL that is refused", lambda text: kdl.parse(Source(text, "w")), list_of("jib{n} 1\n", 'name "w"\n')),
    Case("placeholders", template, list_of("${{inputs.x}} a ", "")),
    Case("escaped placeholders", template, list_of("$${{a ", "")),
    Case("braces", template, list_of("${{ ", "")),
    Case("a pattern", may_backtrack_exponentially, list_of("(a|b{n})*c", "")),
    Case("a message", lambda text: is_found(r"a+b", text), list_of("a ", ""), 200),
    Case("statements", lambda text: statements(text, Dialect.POSTGRES), list_of("select ':a', :b; -- c\n", "")),
    Case("statements that are not closed", lambda text: statements(text, Dialect.POSTGRES), list_of("/* $a$ ' ", "")),
    # Each has hundreds of encodings.
    Case("secrets", lambda text: Redactor(text.split()), list_of("secret-number-{n} ", ""), 5, 0),
    Case("a log", lambda text: Redactor(["abcdefgh"]).redact_bytes(text.encode()), list_of("abcdefg abc ", ""), 100),
    Case("a name that is none", lambda text: did_you_mean(text, ["name", "steps"]), lambda n: "name" * n, 200, 0),
    Case("names", lambda text: did_you_mean("nam", text.split()), list_of("name{n} ", ""), 200, 0),
    Case("an edit", edited, steps(STEP), 12, 40),
    Case("a drawing of a list", drawn(draw_page_svg), steps(STEP), 24),
    Case("a drawing of a chain", drawn(draw_page_svg), _chain, 5, 40),
    Case("a diagram", drawn(draw_mermaid), _chain),
    Case("Torc", of("w.yaml"), list_of(NEEDING, "name: w\njobs:\n"), 12, 40),
    Case("Torc converted", converted("w.yaml"), list_of(JOB, "name: w\njobs:\n"), 12, 40),
    Case("NoETL", of("w.yaml"), list_of(NOOP, PLAYBOOK), 12, 40),
    Case("Prodigy", of("w.yaml"), list_of("- shell: 'echo {n}'\n", ""), 12, 40),
    Case("Alphred", of("w.json"), alphred, 12, 40),
    Case("Torc in KDL", of("w.kdl"), list_of('job "j{n}" {{\n  command "a"\n}}\n', 'name "w"\n')),
    Case("NoETL converted", converted("w.yaml"), list_of(NOOP, PLAYBOOK), 12, 40),
    Case("Prodigy converted", converted("w.yaml"), list_of("- shell: 'echo {n}'\n", ""), 12, 40),
    Case("Alphred converted", converted("w.json"), alphred, 12, 60),
    Case("templates of NoETL", paths_read, list_of("{{{{ a{n}.b }}}} {{% if c %}}d{{% endif %}} ", ""), 12, 40),
    Case("a template of NoETL", lambda text: render_text(text, {"a": 1}), list_of("{{{{ a }}}} {{# b #}} ", "")),
    Case("routes of NoETL", of("w.yaml"), list_of(ARC, PLAYBOOK)),
    Case("a filter of Prodigy", parse_filter, list_of("item.a == {n}", "", " && ")),
    Case("an expression", check, list_of("inputs.x + ", "", "", "1"), 96),
    Case("code", load_text, list_of("      a{n} = {n}\n", "name: w\nsteps:\n- step: a\n  python:\n    code: |\n")),
    Case("a changed line", lambda text: diff_texts(text, text.replace(" 7", "")), list_of("line {n:03}\n", " 7\n"), 40),
    Case("lines that are equal", lambda text: diff_texts(text, text.replace("b", "a")), list_of("a\nb\na\n", ""), 150),
    Case("a cron expression", lambda text: check_cron(text, "UTC", NOW), list_of("1", "", ",", " * * * *")),
    Case("words to search for", lambda text: search_words([text]), list_of("word{n}, ", "")),
    Case("statuses", lambda text: parse_statuses([text]), list_of("open", "", ",")),
    # Pairs of failures are played up to a limit of events, and on a server of seconds.
    Case("coverage", lambda text: explore(load_text(text), evaluator=Cel({}), pairs=False), _chain, 4, 16),
]  # fmt: skip


CASES = [Case(f"shell: {name}", rewrite, make, *SIZES.get(name, (12, 70))) for name, make in SHELL]
CASES += [one._replace(name=f"file: {one.name}") for one in FILES] + OTHERS


@pytest.mark.parametrize("case", sample(CASES, 46), ids=lambda case: case.name)
def test_twice_the_input_runs_about_twice_the_lines(case: Case) -> None:
    assert growth_of_lines(refusing(case.read), case.make, case.size) < GROWTH_MAX


# One for each reader: the others are the same readers with other words.
COPIED_BY_DAY = {
    *("shell: values", "shell: one long word", "shell: here-strings", "file: steps", "file: flow lists", "JSON5"),
    *("JSON", "KDL", "placeholders", "a pattern", "a message", "statements", "statements that are not closed"),
    *("a log", "NoETL", "a filter of Prodigy", "an expression", "code", "a changed line", "lines that are equal"),
    *("a cron expression", "words to search for", "statuses"),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, id=one.name, marks=() if one.name in COPIED_BY_DAY else pytest.mark.nightly)
        for one in CASES
        if one.copied
    ],
)
def test_no_reader_copies_what_it_has_read_for_each_word(case: Case) -> None:
    assert share_of_copies(refusing(case.read), case.make, case.copied) < COPIES_MAX


def test_a_reader_that_looks_at_all_words_for_each_word_is_found() -> None:
    def searches(text: str) -> None:
        words = text.split()
        for word in words:
            for other in words:
                if other is word:
                    break

    assert growth_of_lines(searches, list_of("a{n} ", ""), 16) > GROWTH_MAX


@pytest.mark.parametrize("copy", [tuple, " ".join], ids=["as a tuple", "as a text"])
def test_a_reader_that_copies_what_it_has_read_for_each_word_is_found(copy: Callable[[list[str]], object]) -> None:
    def add(words: list[str], word: str) -> None:
        words.append(word)
        copy(words)

    def copies(text: str) -> None:
        words: list[str] = []
        for word in text.split():
            add(words, word)

    assert growth_of_lines(copies, list_of("a{n} ", ""), 16) < GROWTH_MAX
    assert share_of_copies(copies, list_of("a{n} ", ""), 90) > COPIES_MAX
