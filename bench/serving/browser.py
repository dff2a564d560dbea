"""A real browser for the bench: Chromium by Playwright, with the figures of its own tools."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from playwright.sync_api import sync_playwright

from .processes import ServerProcess


@dataclass
class OpenedPage:
    """A page and what opening it took, in milliseconds since the navigation began."""

    page: Any
    tools: Any
    first_paint: float
    data: float

    def heap(self) -> float:
        """MB of JavaScript objects that are still used."""
        self.tools.send("HeapProfiler.collectGarbage")
        return float(self.tools.send("Runtime.getHeapUsage")["usedSize"]) / 1e6

    def received(self) -> float:
        """kB that were sent for everything that the page has asked for so far."""
        script = "performance.getEntries().reduce((sum, one) => sum + (one.transferSize ?? 0), 0)"
        return float(self.page.evaluate(script)) / 1e3


@dataclass
class Browser:
    """A window that is logged in."""

    context: Any
    url: str

    def open(self, path: str, ready: str) -> OpenedPage:
        """Open a page, and wait until `ready` (an expression) holds."""
        page = self.context.new_page()
        tools = self.context.new_cdp_session(page)
        page.goto(self.url + path, wait_until="commit")
        data = page.wait_for_function(f"() => ({ready}) && performance.now()", timeout=60_000).json_value()
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
        return OpenedPage(page, tools, float(paint), float(data))


@contextmanager
def browser(running: ServerProcess) -> Iterator[Browser]:
    """Chromium without a screen."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise SystemExit("Chromium is missing; on Debian: apt-get install chromium")
    url = f"http://{running.host}:{running.port}"
    connection = HTTPConnection(running.host, running.port)
    connection.request("POST", "/api/v1/logins", "{}", {"Authorization": f"Bearer {running.token}"})
    link = json.loads(connection.getresponse().read())["url"]
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        context = chromium.new_context(viewport={"width": 1280, "height": 860})
        page = context.new_page()
        page.goto(link)
        page.close()
        yield Browser(context, url)
        chromium.close()
