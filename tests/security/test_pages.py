"""A page about a run whose steps want to be part of it: they stay text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.support.commands import mulligan, workflow

MARKUP = (
    """</script><script>evil()</script><img src="//evil.example/x" onerror=evil()><svg onload=evil()>"'`--><style>"""
)
WORKFLOW = {
    "name": "evil",
    "steps": [
        {"step": "writes", "shell": 'printf %s "$MARKUP" >&2; exit 3', "env": {"MARKUP": MARKUP}},
        {
            "step": "reports",
            "shell": 'printf %s "$MARKUP" > $MULLIGAN_ERROR',
            "env": {"MARKUP": json.dumps({"code": MARKUP, "message": MARKUP, "details": {MARKUP: MARKUP}})},
        },
        {"step": "gives", "shell": 'printf %s "$MARKUP"', "env": {"MARKUP": MARKUP}},
        {"step": "each", "map": {"over": [MARKUP], "as": "one"}, "do": [{"shell": "exit 1"}]},
    ],
    "outputs": {"given": "${steps.gives.output}"},
}


class Elements(HTMLParser):
    """The elements of a page, and the attributes that ask for something or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.active: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.active += [name for name, _ in attrs if name.startswith("on") or name in ("src", "srcset", "action")]
        self.active += [str(value) for name, value in attrs if name in ("href", "xlink:href") and value[:1] != "#"]  # type: ignore[index]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    mulligan("run", workflow(json.dumps(WORKFLOW), "evil.json"))
    return mulligan("report", 1, "-o", "-").out


def test_nothing_that_a_step_says_is_markup_of_a_page(page: str) -> None:
    found = Elements()
    found.feed(page)

    assert found.names & {"script", "img", "iframe", "object", "embed", "link", "base", "form"} == set()
    assert found.active == []
    assert MARKUP in found.text


def test_a_page_lets_a_browser_run_and_fetch_nothing(page: str) -> None:
    head = page.partition("<body")[0]

    assert "default-src &#x27;none&#x27;" in head
    assert head.index("Content-Security-Policy") < head.index("<style")
