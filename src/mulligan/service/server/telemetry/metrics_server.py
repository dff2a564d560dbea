"""`python -m mulligan.service.server.telemetry.metrics_server FILE HOST PORT`: serves the metrics of a worker.

Standard library only. Prints its port once it listens, or why it cannot. Ends when its standard input is closed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

_REQUEST_SECONDS = 5.0


class _Handler(BaseHTTPRequestHandler):
    """Answers `GET /metrics`."""

    timeout = _REQUEST_SECONDS
    file = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "the metrics are at /metrics")
            return
        try:
            with open(self.file, "rb") as file:
                body = file.read()
        except FileNotFoundError:
            body = b""  # the worker has just begun
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main(file: str, host: str, port: str) -> int:
    # Ctrl-C is meant for the worker, whose end ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Handler.file = file
    try:
        server = HTTPServer((host, int(port)), _Handler)
    except OSError as error:
        print(f"port {port} of {host}: {os.strerror(error.errno or 0)}", flush=True)
        return 1
    print(server.server_address[1], flush=True)
    with server:
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [])
            if sys.stdin in ready and not os.read(sys.stdin.fileno(), 4096):
                return 0
            if server in ready:
                server.handle_request()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
