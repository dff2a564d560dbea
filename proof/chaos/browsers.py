"""A real browser that watches: two tabs with pages of the dashboard, which are opened once and never reloaded.

Again and again it writes to `browser.json` what the list of runs shows, and what went wrong in the pages.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proof.chaos.http_client import last_address
from proof.chaos.watchers import TOKEN_FILE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WRITE_SECONDS, AGAIN_SECONDS = 1.0, 0.5
KNOWN_FILE, LINK_FILE = "browser.json", "browser.link"
# The rows of the list, and whether the page knows that it is live.
ROWS = "Object.fromEntries([...document.querySelectorAll('[id^=run-]')].map(row => [row.id.slice(4), row.innerText]))"
STATE = "document.querySelector('#connection')?.dataset.state ?? ''"
# How often a page was rendered again, since it was opened.
COUNT = "window.renderings = 0, main.addEventListener('refreshed', () => window.renderings++)"
RENDERINGS = "window.renderings ?? 0"


def why_not() -> str:
    """Why no browser can be started; "" if one can."""
    if CHROMIUM is None:
        return "Chromium is not installed"
    return "" if find_spec("playwright") else "playwright is not installed"


def watch() -> None:
    from playwright.sync_api import Error, sync_playwright

    problems: list[str] = []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = browser.new_context()
        pages: dict[str, Any] = {path: context.new_page() for path in ("/runs", "/")}
        for page in pages.values():
            page.on("pageerror", lambda error: problems.append(str(error)))
        _open(context, pages, Error)
        while True:
            shown = {path: _look(page) for path, page in pages.items()}
            Path(f"{KNOWN_FILE}.new").write_text(json.dumps({"pages": shown, "problems": problems}))
            os.replace(f"{KNOWN_FILE}.new", KNOWN_FILE)
            pages["/"].wait_for_timeout(WRITE_SECONDS * 1000)


def _look(page: Any) -> dict[str, Any]:
    return {"rows": page.evaluate(ROWS), "state": page.evaluate(STATE), "renderings": page.evaluate(RENDERINGS)}


def _open(context: Any, pages: dict[str, Any], error: type[Exception]) -> None:
    """Log in and open the pages; the server may die meanwhile."""
    token = Path(TOKEN_FILE).read_text()
    while True:
        address = last_address(Path("api-server.stdout"))
        if address is not None:
            base = f"http://{address.host}:{address.port}"
            try:
                # The link that the server would print, asked for as a program does.
                reply = context.request.post(f"{base}/api/v1/logins", headers={"Authorization": f"Bearer {token}"})
                if reply.ok:
                    pages["/"].goto(reply.json()["url"])
                    for path, page in pages.items():
                        page.goto(base + path)
                        page.locator("#connection[data-state=live]").wait_for(timeout=10_000)
                        page.evaluate(COUNT)
                    return
            except error:
                pass
        time.sleep(AGAIN_SECONDS)


if __name__ == "__main__":
    watch()
