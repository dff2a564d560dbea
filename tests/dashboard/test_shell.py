"""What all pages have in common."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.dashboard.conftest import HOSTILE, Flows, show
from tests.support.api_client import Client

import mulligan.dashboard
from mulligan.dashboard.assets import POLICY, contents

ASSETS = Path(mulligan.dashboard.__file__).parent / "assets"
GOOD = "name: good\nsteps: [{step: a, shell: 'true'}]\n"
FAILING = "name: nightly\nsteps:\n  - step: load\n    shell: exit 3\n"


def test_a_page_loads_only_files_of_ours(pages: Client) -> None:
    reply = pages.get("/")

    assert reply.headers["content-security-policy"] == POLICY
    assert b"http://" not in reply.body
    assert b"https://" not in reply.body


def test_a_page_waits_for_one_style_sheet_and_names_all_its_modules(pages: Client, flows: Flows) -> None:
    html = show(pages, f"/runs/{flows.run(GOOD)}")

    (sheet,) = re.findall(r'rel="stylesheet" href="([^"]*)"', html)
    styles = pages.get(sheet)
    assert styles.headers["content-type"] == "text/css; charset=utf-8"
    assert all(part in styles.body.decode() for part in (".sidebar", ".run-facts", ".gantt"))
    named = re.findall(r'(?:src|rel="modulepreload" href)="/static/\w+/([\w.]+\.js)"', html)
    imported = {one for name in named for one in re.findall(r'"\./([\w.]+\.js)";', contents()[name].decode())}
    assert imported <= {*named, "feed.js"}
    assert html.index("theme.js") < html.index("stylesheet")
    for name in ("charts+none.css", "dashboard+.css", "+", "charts+dashboard.js"):
        assert pages.get(f"/static/x/{name}").status == 404


def test_a_page_has_only_the_entries_that_its_reader_may_open(pages: Client) -> None:
    assert 'href="/tokens"' in show(pages, "/")
    assert 'href="/tokens"' not in show(pages, "/", scope="read")


def test_somebody_without_a_token_gets_the_page_to_log_in(pages: Client) -> None:
    reply = pages.get("/", scope=None)

    assert reply.status == 401
    assert b'id="login"' in reply.body


def test_what_a_person_wrote_is_text(pages: Client, flows: Flows) -> None:
    flows.run(FAILING, labels={"team": HOSTILE})

    found = show(pages, "/")

    assert "<script>alert" not in found
    assert "<img src=x" not in found


@pytest.mark.parametrize("module", sorted(ASSETS.glob("*.js")), ids=lambda path: path.stem)
def test_a_module_declares_no_name_twice(module: Path) -> None:
    """A browser refuses the whole module, so the page stays empty; two branches that add the same thing do that."""
    text = module.read_text(encoding="utf-8")

    names = re.findall(r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)", text, re.MULTILINE)

    assert len(names) == len(set(names))
