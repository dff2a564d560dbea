"""Text that needs no lexer: what is found in it is what the lexer finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nightly import examples

from mulligan.language.cel.cel_analysis import analyse, analyse_simple, is_surely_valid
from mulligan.language.cel.cel_tokens import tokens
from mulligan.language.shell.shell_lexer import scan
from mulligan.language.shell.shell_placeholders import ROOTS, Names
from mulligan.language.shell.shell_safety import REEVALUATING_WORDS
from mulligan.language.shell.simple_commands import find_safe_values

NAMES = Names(frozenset({"item", "index"}), ROOTS)
VALUES = [
    "${inputs.a}", "${item}", "${steps.b.output}", "${ inputs.a }", '${inputs.a + "x"}', '${inputs.a == "sh"}',
    "${item.x && true}", "${index+1}", '${inputs.a + "declare -i n"}', "${inputs.in}", "${files}", "${inputs.a-b}",
    "${secrets.k}", "${secrets.k + inputs.a}", "${item%.json}", "${x.y}", "${HOME}", "${inputs.a", '${inputs.a + "}"}',
    '${inputs.a + "/sh"}', "$${inputs.a}", "${item < 3}", "${inputs.a + '1'}", "${steps.a - b.c}",
]  # fmt: skip
PIECES = [
    *" \t\n;&|>\"'`\\#<()[]{}!=*?~$+/.,:@%^-é\r\x0b",
    *"&& || >> 2>&1 &> << <<< <( (( [[ ]] $( $x $SHELL $1 make echo printf test x= n= --opt= ./test.sh /bin/".split(),
    *"-c -v -i -S -x ba sh e val EOF case in esac if for function { time sudo nice find -exec ::: PS1= ENV=".split(),
    *("  ", "timeout 5 ", "env -S ", "flock f -c ", "printf -v ", "bash -c "),
    *sorted(REEVALUATING_WORDS),
]


@pytest.mark.parametrize(
    "text",
    [
        "echo ${inputs.a}",
        'make -C "parts/${item}" TARGET=${inputs.target} all > $HOME/log 2>&1',
        "set -eu\n./test.sh --part 7 --result ${steps.build.output} | tee out.txt && echo 'done'".replace("'", '"'),
        'echo ${inputs.target + "17"} ${inputs.region == "17"}',
    ],
)
def test_an_ordinary_command_needs_no_lexer(text: str) -> None:
    assert find_safe_values(text, NAMES)


@pytest.mark.parametrize("word", sorted(REEVALUATING_WORDS))
def test_a_command_with_a_word_that_may_evaluate_values_goes_to_the_lexer(word: str) -> None:
    in_parts = f'{word[:1]}"{word[1:]}"'

    assert find_safe_values(f"{word} ${{inputs.a}}", NAMES) is None
    assert find_safe_values(f"{in_parts} ${{inputs.a}}", NAMES) is None
    assert find_safe_values(f"{word[:1]}${{inputs.a}}{word[1:]} ${{inputs.a}}", NAMES) is None


@settings(max_examples=examples(100, 300))
@given(st.lists(st.one_of(st.sampled_from(VALUES), st.sampled_from(PIECES), st.just(" ")), max_size=12))
def test_what_is_found_without_the_lexer_is_what_the_lexer_finds(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = find_safe_values(text, NAMES)

    if found is None:
        return
    scanned = scan(text, NAMES)

    assert [(site.placeholder.source, site.placeholder.offset, site.placeholder.end) for site in scanned.sites] == [
        (value.source, value.offset, value.end) for value in found
    ]
    assert [site.quoting for site in scanned.sites] == ["quoted" if value.is_quoted else "bare" for value in found]
    assert all(site.danger is None and site.close is None for site in scanned.sites)
    assert not scanned.escapes


WORDS = [
    *"a inputs.x steps.b.output true false null in as string size( ) ( [ ] { } . , ? : ! 1 1.5 1. .5 0x1 1u".split(),
    *'"x" "" "}" \'y\' r"x" """z""" "\\n" "é" // && || == != <= >= < > + - * / % = & a.b.c.d.e.f.g.h.i.j'.split(),
    *" \n\t",
]


@settings(max_examples=examples(100, 300))
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), st.sampled_from(["", " "]))
def test_an_expression_that_needs_no_tokens_is_analysed_as_its_tokens_are(words: list[str], space: str) -> None:
    source = space.join(words).strip()
    simple = analyse_simple(source)

    if simple is not None:
        found = tokens(source)

        assert simple == analyse(found)
        assert is_surely_valid(found)


def test_an_ordinary_condition_needs_no_tokens() -> None:
    assert analyse_simple("steps.a.status == 'completed' && inputs.target != \"none\"")
