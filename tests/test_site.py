"""The documentation as a site: the order of its pages, links from one to the next, a broken page that is found.

`make docs` builds it, with a generator that the product does not need; the last test does so where that is installed.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools.site import check, stage
from tools.site.pages import name_pages, read_navigation, relink, title_of

ROOT = Path(__file__).parent.parent
GENERATOR = ROOT / ".venv-docs/bin"
# What a reader asks, in that order.
ORDER = "Why Mulligan, Install, First run, Tutorials, How-to, Concepts, Reference, Operate, Other systems, Project"
CODE = re.compile(r"^(`{3,}).*?^\1$|(`+)(?!`).+?(?<!`)\2(?!`)", re.MULTILINE | re.DOTALL)
PAGE = (
    """<link rel="stylesheet" href="style.css"><article><h1 id="a">A</h1><p>One <a href="#a">two</a>.</p></article>"""
)


def test_the_navigation_answers_in_the_order_in_which_a_reader_asks() -> None:
    site = read_navigation()

    assert ", ".join(title_of(site, entry) for entry in site.navigation) == ORDER


def test_a_page_that_is_forgotten_doubled_or_gone_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("README", "why", "forgotten"):
        (tmp_path / f"docs/{name}.md").write_text(f"# {name}\n", encoding="utf-8")
    rows = "".join(f'[[navigation]]\npage = "{name}.md"\n' for name in ("why", "README", "README", "gone"))

    problems = " ".join(stage.navigation_problems(read_navigation(tmp_path, f"[elsewhere]\n{rows}")))

    assert "docs/forgotten.md stands nowhere" in problems
    assert "docs/README.md stands twice" in problems
    assert "names docs/gone.md, which there is not" in problems


def test_a_link_leads_from_page_to_page_as_it_did_from_file_to_file() -> None:
    site = read_navigation()
    same = "![e](run.svg) `[f](g.md)` [h](#h)"
    text = "[a](../agents/README.md#b) [c](../../ARCHITECTURE.md) [d](../../examples/map.yaml) "

    changed = relink(site, "docs/start/quick-start.md", text + same)

    expected = "[a](../agents/index.md#b) [c](../project/architecture.md) [d](../files/examples/map.yaml.md) "
    assert changed == expected + same
    assert ("examples/map.yaml", "files/examples/map.yaml.md") in stage.linked_files(site)


def test_every_link_leads_to_a_file_that_the_generator_is_given(tmp_path: Path) -> None:
    stage.main(tmp_path)
    source = tmp_path / "source"
    pages = {page: page.read_text(encoding="utf-8") for page in source.rglob("*.md")}

    dead = [
        (page.relative_to(source).as_posix(), link)
        for page, text in pages.items()
        for link in re.findall(r"\]\((?![a-z]+:)([^)\s#]+)", CODE.sub("", text))
        if not (page.parent / link).exists() or "/." in link.replace("../", "")
    ]

    assert pages and dead == []


def test_a_reader_of_the_site_sees_titles_and_not_names_of_files() -> None:
    text = "see [map.md](../how-to/map.md#the-list), [api.md](api.md) and [this](client.md)"

    named = name_pages(read_navigation(), "docs/operate/server.md", text)

    expected = "see [Maps](../how-to/map.md#the-list), [The HTTP interface (REST)](api.md) and [this](client.md)"
    assert named == expected


def built(folder: Path, page: str, text: str = "# A\n\nOne [two](#a).\n") -> list[str]:
    """What the check says of a site of one page, which was made of `text`."""
    for name, content in {"html/a.html": page, "html/style.css": "", "source/a.md": text}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return list(check.problems(folder))


def test_a_page_that_is_as_it_was_written_has_no_problem(tmp_path: Path) -> None:
    assert built(tmp_path, PAGE) == []


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ("style.css", "https://fonts.example/x.css", "asks another host for https://fonts.example/x.css"),
        (
            "<article>",
            '<script src="//cdn.example/x.js"></script><article>',
            "asks another host for //cdn.example/x.js",
        ),
        (
            "<article>",
            "<style>@import 'https://x.example/y'</style><article>",
            "asks another host for https://x.example/y",
        ),
        ("<article>", '<img srcset="https://x.example/y 2x"><article>', "asks another host for https://x.example/y"),
        ('href="#a"', 'href="#b"', "#b: there is no such heading"),
        ('href="#a"', 'href="b.html"', "b.html: there is no such file"),
        ("One", "Ten", "shows 'ATentwo.' where a code host shows 'AOnetwo.'"),
    ],
)
def test_a_page_that_is_broken_or_asks_another_host_is_found(tmp_path: Path, good: str, bad: str, problem: str) -> None:
    (found,) = built(tmp_path, PAGE.replace(good, bad))

    assert found.endswith(problem)


def test_the_site_is_built_without_a_warning_a_dead_link_or_a_request_to_elsewhere(tmp_path: Path) -> None:
    if not (GENERATOR / "zensical").exists():
        pytest.skip("the generator of the site is not installed: `make docs` installs and runs it")
    stage.main(tmp_path)

    settings = str(tmp_path / "zensical.toml")
    made = subprocess.run(
        [GENERATOR / "zensical", "build", "--strict", "--config-file", settings],
        capture_output=True,
        text=True,
        check=False,
    )

    assert made.returncode == 0, made.stdout + made.stderr
    assert list(check.problems(tmp_path)) == []
    assert (tmp_path / "html/index.html").is_file()
    # The index of the search knows a heading of the reference.
    assert "The HTTP interface" in (tmp_path / "html/search.json").read_text(encoding="utf-8")
