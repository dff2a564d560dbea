"""A shop with an API that fails now and then: the same faults, in the same order, each time it is started.

    python3 shop.py start     starts it in the background, on a free port, and writes its address to shop.url
    python3 shop.py stop      ends it; half an hour without a request ends it, too

GET /days/2026-03-02          the pages of that day, how many orders there are, and their sum in euros
GET /days/2026-03-02/pages/1  twenty orders
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ADDRESS, LOG = Path("shop.url"), Path("shop.log")
IDLE_SECONDS = 1800.0
PAGES, ORDERS_PER_PAGE = 5, 20
# Euros for one dollar, in the shop's own books.
RATE = 0.92
# What a path is answered with before it works: by the part after the day, one fault per request.
FAULTS = {"": ["busy"], "/pages/2": ["down", "down"], "/pages/4": ["broken off"]}


def orders(day: str) -> list[dict[str, Any]]:
    """The orders of a day: always the same ones. Their data is as untidy as real data."""
    dice = random.Random(day)
    return [
        {
            "id": f"{day}-{number:03}",
            "product": dice.choice(["chair", "table", "lamp"]),
            "country": dice.choice(["DE", "FR", "NL", None]),
            # Dollars, as a text with commas in it.
            "usd": f"{dice.randrange(500, 300_000) / 100:,.2f}",
        }
        for number in range(1, PAGES * ORDERS_PER_PAGE + 1)
    ]


def index(day: str) -> dict[str, Any]:
    all_orders = orders(day)
    dollars = sum(float(order["usd"].replace(",", "")) for order in all_orders)
    pages = [f"/days/{day}/pages/{number}" for number in range(1, PAGES + 1)]
    return {"day": day, "pages": pages, "orders": len(all_orders), "euros": round(dollars * RATE, 2)}


def page(day: str, number: int) -> dict[str, Any]:
    """The orders of a page. It repeats the last order of the page before, as the real API does."""
    first = (number - 1) * ORDERS_PER_PAGE
    return {"orders": orders(day)[max(0, first - 1) : first + ORDERS_PER_PAGE]}


class Shop(ThreadingHTTPServer):
    """The server: it ends on request, or when there was no request for a long time."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Clerk)
        self.asked: Counter[str] = Counter()
        self.asked_at = time.monotonic()

    def service_actions(self) -> None:
        if time.monotonic() - self.asked_at > IDLE_SECONDS:
            self.close_soon()

    def close_soon(self) -> None:
        # `shutdown` waits for the loop to end, so the loop itself cannot call it.
        threading.Thread(target=self.shutdown, daemon=True).start()


class Clerk(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Shop

    def do_GET(self) -> None:
        asked = re.fullmatch(r"/days/(?P<day>[\d-]+)(?P<rest>|/pages/(?P<page>[1-5]))", self.path)
        fault = self.next_fault(asked["rest"]) if asked else ""
        if not asked:
            self.answer(404, {"error": "there is no such page"})
        elif fault == "busy":
            self.answer(429, {"error": "too many requests"}, {"Retry-After": "1"})
        elif fault == "down":
            self.answer(503, {"error": "the database is restarting"})
        else:
            found = page(asked["day"], int(asked["page"])) if asked["page"] else index(asked["day"])
            self.answer(200, found, is_whole=fault != "broken off")

    def do_POST(self) -> None:
        self.answer(200, {})
        self.server.close_soon()

    def next_fault(self, path: str) -> str:
        faults, number = FAULTS.get(path, []), self.server.asked[self.path]
        self.server.asked[self.path] += 1
        self.server.asked_at = time.monotonic()
        return faults[number] if number < len(faults) else ""

    def answer(
        self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None, *, is_whole: bool = True
    ) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if is_whole else data[: len(data) // 2])


def serve() -> None:
    with Shop() as shop:
        print(f"http://127.0.0.1:{shop.server_port}", flush=True)
        shop.serve_forever(poll_interval=0.1)


def start() -> None:
    if ADDRESS.exists():
        sys.exit(f"the shop is open already: {ADDRESS.read_text().strip()} (python3 shop.py stop closes it)")
    command = [sys.executable, __file__, "serve"]
    with LOG.open("w") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True, text=True
        )
    assert server.stdout is not None
    address = server.stdout.readline()
    ADDRESS.write_text(address)
    print(f"the shop is open: {address.strip()}")


def stop() -> None:
    if not ADDRESS.exists():
        sys.exit("no shop is open here")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        direct.open(f"{ADDRESS.read_text().strip()}/stop", data=b"", timeout=10).close()
    except OSError:
        pass  # it has closed by itself
    ADDRESS.unlink()
    print("the shop is closed")


if __name__ == "__main__":
    verbs = {"serve": serve, "start": start, "stop": stop}
    verb = verbs.get(sys.argv[1] if len(sys.argv) == 2 else "")
    sys.exit(verb() if verb else "usage: python3 shop.py start | stop")
