"""What differs between two texts."""

from __future__ import annotations

from mulligan.service.server.catalogue.text_diff import MATCHED_LINES_MAX, PAIRS_MAX, diff_texts


def shown(old: str, new: str) -> list[tuple[str, str, int | None, int | None]]:
    return [(one.kind, one.text, one.old, one.new) for one in diff_texts(old, new)]


def test_equal_texts_have_no_difference() -> None:
    assert shown("a\nb\n", "a\nb\n") == []


def test_a_changed_line_stands_among_its_neighbours() -> None:
    old = "".join(f"{number}\n" for number in range(1, 11))

    found = shown(old, old.replace("6\n", "six\n6b\n"))

    assert found == [
        ("gap", "", None, None),
        *(("same", str(number), number, number) for number in (3, 4, 5)),
        ("removed", "6", 6, None),
        ("added", "six", None, 6),
        ("added", "6b", None, 7),
        *(("same", str(number), number, number + 1) for number in (7, 8, 9)),
        ("gap", "", None, None),
    ]


def test_lines_at_both_ends_may_differ() -> None:
    assert [one[0] for one in shown("a\nb\n", "b\nc\n")] == ["removed", "same", "added"]
    assert [one[0] for one in shown("", "b\n")] == ["added"]


def test_texts_that_are_too_long_to_be_matched_are_replaced_as_a_whole() -> None:
    old = "".join(f"a{number}\n" for number in range(MATCHED_LINES_MAX))

    found = diff_texts(old, old.replace("a", "b"))

    assert len(found) == 2 * MATCHED_LINES_MAX


def test_lines_that_are_repeated_often_are_matched_beside_those_that_are_not() -> None:
    steps = [f"- step: s{number}\n  shell: make\n" for number in range(150)]
    assert len(steps) ** 2 > PAIRS_MAX

    found = shown("".join(steps), "".join(["- new\n", *steps[:70], *steps[71:], "- last\n"]))

    assert [one[:2] for one in found if one[0] not in ("same", "gap")] == [
        ("added", "- new"),
        ("removed", "- step: s70"),
        ("removed", "  shell: make"),
        ("added", "- last"),
    ]
