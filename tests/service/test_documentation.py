"""Our own pages: found by their words, read in parts."""

from __future__ import annotations

import pytest

from mulligan.service.rendering.documentation import Documentation, UnknownPage

PAGES = {
    "README.md": "# Index\n\nretry retry retry backoff\n",
    "concepts/ladder.md": "# The ladder\n\nFive rungs.\n\n## Retry\n\nA rule with `max_retries` and a backoff.\n\n"
    "### Delays\n\nHow long.\n\n## Triage\n\nA person decides.\n\n```sh\n# not a heading\n```\n",
    "how-to/triage.md": "# Triage\n\nWho decides about a parked step.\n",
    "long.md": "# Long\n\n" + "word " * 5000,
}


@pytest.fixture
def pages() -> Documentation:
    return Documentation(PAGES)


def test_the_section_that_is_about_the_words_comes_first(pages: Documentation) -> None:
    found = [(one.page, one.section) for one in pages.search("retries backoff")]

    assert found[0] == ("concepts/ladder.md", "Retry")
    assert ("README.md", "") in found[1:]
    assert [one.page for one in pages.search("parked")] == ["how-to/triage.md"]
    assert pages.search("max_retries")[0].excerpt == "A rule with `max_retries` and a backoff."


@pytest.mark.parametrize("query", ["", "   ", "?!", "nosuchword"])
def test_a_query_without_a_known_word_finds_nothing(pages: Documentation, query: str) -> None:
    assert pages.search(query) == []


@pytest.mark.parametrize("name", ["concepts/ladder.md", "concepts/ladder", "ladder", "docs/concepts/ladder.md#retry"])
def test_a_page_is_found_by_every_name_that_people_use(pages: Documentation, name: str) -> None:
    found = pages.read(name)

    assert (found.page, found.title) == ("concepts/ladder.md", "The ladder")
    assert found.sections == ["Retry", "Delays", "Triage"]


def test_a_section_has_the_smaller_ones_in_it(pages: Documentation) -> None:
    text = pages.read("ladder", "retry").text

    assert text.startswith("## Retry") and "### Delays" in text and "Triage" not in text
    assert "# not a heading" in pages.read("ladder", "Triage").text


def test_a_long_page_is_read_in_parts(pages: Documentation) -> None:
    parts, start = [], 0
    while start is not None:
        part = pages.read("long", start=start)
        parts.append(part.text)
        start = part.next

    assert "".join(parts) == PAGES["long.md"] and len(parts) > 1


@pytest.mark.parametrize(("page", "section"), [("nowhere", ""), ("../secrets", ""), ("ladder", "nowhere"), ("", "")])
def test_what_is_not_there_is_refused(pages: Documentation, page: str, section: str) -> None:
    with pytest.raises(UnknownPage):
        pages.read(page, section)
