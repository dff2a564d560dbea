"""A service with the sales of each day, for trying the project: it refuses the first request for anything.

    SALES_TOKEN=letmein python3 service.py 8099 2026-11-16

On the day that is named, the south sells ten times what was expected.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

SALES = {"north": [(3, 40), (2, 45)], "south": [(10, 10)], "east": [(5, 30)], "west": [(4, 25), (1, 15)]}


class Service(BaseHTTPRequestHandler):
    asked: ClassVar[set[str]] = set()
    odd_day = ""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {os.environ.get('SALES_TOKEN', '')}":
            self.send_error(403)
        elif self.path not in self.asked:
            self.asked.add(self.path)
            self.send_error(503, "try again")
        else:
            *_, day, region = self.path.split("/")
            times = 10 if (day, region) == (self.odd_day, "south") else 1
            rows = [{"pieces": pieces * times, "price": price} for pieces, price in SALES[region]]
            body = json.dumps(rows).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: what it refuses is seen in the runs."""


if __name__ == "__main__":
    Service.odd_day = sys.argv[2] if len(sys.argv) > 2 else ""
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Service).serve_forever()
