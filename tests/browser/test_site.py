"""The documentation site in a browser: `make docs` builds it, and this opens it from its folder, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SITE = Path(__file__).parents[2] / "build/site/html"
PAGES = ("index.html", "how-to/map.html", "reference/reference.html", "operate/api.html", "other-systems/compared.html")


@pytest.fixture(autouse=True)
def _built() -> None:
    if not (SITE / "index.html").is_file():
        pytest.skip("the site is not built: make docs")


@pytest.mark.parametrize("width", [1360, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_the_window_and_load_nothing_from_another_host(browser: Any, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 860}, color_scheme=scheme)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    too_wide = []
    for name in PAGES:
        page.goto(f"file://{SITE / name}")
        too_wide += [name] if page.evaluate("document.documentElement.scrollWidth > innerWidth") else []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.close()

    assert too_wide == []
    assert asked and [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert ground == ("rgb(13, 17, 23)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_the_search_finds_a_section_by_its_words(browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"file://{SITE / 'index.html'}")

    page.get_by_role("button", name="Search").first.click()
    page.keyboard.type("circuit breakers")
    found = page.locator("a[href*='h=circuit+breakers']").first
    found.wait_for(timeout=60_000)

    assert "concepts/breakers.html?" in found.get_attribute("href")
    page.close()
