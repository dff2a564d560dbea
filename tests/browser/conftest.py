"""Pages in a real browser: Debian's Chromium, driven by Playwright, against a real server with real runs.

They run with `make browser`. Everywhere else they are skipped: a browser costs more than all of a fast suite.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

# axe-core finds what people with screen readers, or without a mouse, cannot use.
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# What a step, an item, an error, a label or a file name may contain. One that became more than text would call `hit`.
HOSTILE_TEXTS = (
    "<script>window.hit(1)</script>",
    "<img src=x onerror=window.hit(2)>",
    "\"'><svg onload=window.hit(3)>",
    "' onmouseover='window.hit(4)' autofocus onfocus='window.hit(5)' x='",
    "javascript:window.hit(6)",
    "</title></style></textarea></script><script>window.hit(7)</script>",
    "<a href=javascript:window.hit(8)>here</a>",
    "{{constructor.constructor('window.hit(9)')()}}${window.hit(10)}",
    "<style>*{background:url(javascript:window.hit(11))}</style>",
    "<iframe srcdoc='<script>parent.hit(12)</script>'></iframe>",
    "&lt;script&gt;window.hit(13)&lt;/script&gt;",
    "\u202ereversed\u202c <b>bold</b> \u2028 line",
    "<math><mi xlink:href='data:x,<script>window.hit(14)</script>'>",
    "<template><img src=x onerror=window.hit(15)></template>",
)
# All of them in one text, for a place that takes one.
HOSTILE = " ".join(HOSTILE_TEXTS)
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 420, "height": 860}
FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = ""
    if not os.environ.get("MULLIGAN_BROWSER"):
        reason = "tests of pages run with: make browser"
    elif CHROMIUM is None:
        reason = "Chromium is missing; on Debian: apt-get install chromium"
    if not reason:
        return
    # All items of the session come here, some twenty thousand: their paths are compared as texts.
    prefix = f"{FOLDER}{os.sep}"
    for item in items:
        if str(item.path).startswith(prefix):
            item.add_marker(pytest.mark.skip(reason=reason))


_WINDOWS = pytest.StashKey[list["Window"]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Beside a failure stand the addresses of its windows and pictures of them."""
    report = yield
    if report.when == "call" and report.failed:
        folder = item.config.rootpath / "build" / "browser"
        for number, window in enumerate(item.stash.get(_WINDOWS, [])):
            picture = folder / f"{re.sub('[^A-Za-z0-9]+', '-', item.name).strip('-')}-{number}.png"
            window.page.screenshot(path=picture)
            report.sections.append((f"window {number}", f"{window.page.url}\n{picture}"))
    return report


@dataclass
class Site:
    """A server in a process of its own, and requests to its interface."""

    folder: Path
    store: str = ""
    url: str = ""
    token: str = ""
    # For the environment of the server and its workers.
    variables: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] = field(default=None)  # type: ignore[assignment]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MULLIGAN_")}
        return {**kept, **self.variables, **({"MULLIGAN_STORE": self.store} if self.store else {})}

    def start(self, *options: str, port: int = 0) -> None:
        command = [sys.executable, "-P", "-m", "mulligan", "server", "--home", str(self.home), "--port", str(port)]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--json", *options], stdout=subprocess.PIPE, stderr=log, env=self.environment()
            )
        assert self.process.stdout is not None
        first = json.loads(self.process.stdout.readline())
        self.url, self.token = first["url"], first["token"]

    @property
    def port(self) -> int:
        return int(urlsplit(self.url).port or 0)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The JSON of an answer; AssertionError if it is an error."""
        connection = HTTPConnection(urlsplit(self.url).netloc)
        try:
            sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
            connection.request(method, f"/api/v1/{path}", None if body is None else json.dumps(body), sent)
            reply = connection.getresponse()
            data = reply.read()
            assert reply.status < 400, data
            return json.loads(data) if data else None
        finally:
            connection.close()

    def publish(self, name: str, text: str) -> None:
        self.ask("PUT", f"workflows/{name}", {"text": text})

    def run(self, name: str, text: str = "", **inputs: Any) -> int:
        """Start a run of a published workflow; with `text` publish it first."""
        if text:
            self.publish(name, text)
        return self.start_run(name, **inputs)

    def start_run(self, name: str, *, labels: dict[str, str] | None = None, **inputs: Any) -> int:
        """Start a run of a published workflow, with labels."""
        asked = {"workflow": name, "inputs": inputs, "labels": labels or {}}
        return int(self.ask("POST", "runs", asked)["run_id"])

    def settle(self, *run_ids: int) -> None:
        """Wait until these runs have ended or need a person."""
        names = [str(run_id) for run_id in run_ids]
        said = self.command("wait", *names, "--until", "person", "--timeout", "60s")
        assert said.returncode != 124, said.stderr

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of the command line in the folder of the site."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "mulligan", *arguments, "--home", str(self.home)],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture(params=["sqlite"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A server on SQLite. `@pytest.mark.parametrize("site", ["sqlite", "postgres"], indirect=True)` for both."""
    store = request.getfixturevalue("store_schema_url") if request.param == "postgres" else ""
    made = Site(tmp_path, store)
    made.start()
    yield made
    if made.process.poll() is None:
        made.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    # Imported here: only `make browser` needs it.
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@dataclass
class Window:
    """A browser window that is logged in, and what went wrong in it."""

    page: Any
    site: Site
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> Any:
        self.page.goto(self.site.url + path)
        return self.page

    def watch_for_scripts(self) -> None:
        """Note it as a problem if a hostile text is executed. To be called before the page is opened."""
        self.page.expose_function("hit", lambda number: self.problems.append(f"executed: hostile text {number}"))
        self.page.on("dialog", lambda shown: (self.problems.append(f"executed: {shown.message}"), shown.dismiss()))


@pytest.fixture
def open_window(request: pytest.FixtureRequest, browser: Any, site: Site) -> Iterator[Callable[..., Window]]:
    """Opens windows that are logged in. A test fails if one of them had an error or a report of the policy."""
    contexts: list[Any] = []
    windows = request.node.stash[_WINDOWS] = []

    def make(*, size: dict[str, int] = WIDE, dark: bool = False, context: Any = None) -> Window:
        if context is None:
            context = browser.new_context(
                viewport=size, color_scheme="dark" if dark else "light", timezone_id="Europe/Berlin", locale="en-GB"
            )
            contexts.append(context)
            link = site.ask("POST", "logins", {})["url"]
            first = context.new_page()
            first.goto(link)
            first.close()
        window = Window(context.new_page(), site)
        window.page.on("pageerror", lambda error: window.problems.append(str(error)))
        window.page.on("console", lambda said: _note(window.problems, said))
        windows.append(window)
        return window

    yield make
    for context in contexts:
        context.close()
    assert [window.problems for window in windows if window.problems] == []


def assert_accessible(page: Any, *, within: str = "body") -> None:
    """axe-core has no serious finding: names, roles, focus, contrast."""
    # As a protocol command, not as an element: the policy of the page allows no script that is not a file of ours.
    page.evaluate(f"() => {{ {AXE.read_text(encoding='utf-8')}\n }}")
    options = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    found = page.evaluate("([within, options]) => axe.run(within, options)", [within, options])
    serious = [
        f"{one['id']}: {node['html'][:200]}: {' '.join(node['failureSummary'].split())[:300]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:5]
    ]
    assert serious == [], "\n" + "\n".join(serious)


def _note(problems: list[str], said: Any) -> None:
    # What Chromium says of a request that fails while the server is away is no error of the page.
    if said.type == "error" and "Failed to load resource" not in said.text:
        problems.append(said.text)


@pytest.fixture
def window(open_window: Callable[..., Window]) -> Window:
    return open_window()
