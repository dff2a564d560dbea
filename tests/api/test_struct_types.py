"""Threads of a server decode the same types: none of them may be the first to do so together with another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
# Structs in structs, so that gathering what is to know about them takes a while; threads that take turns all the time.
PROGRAM = """
import sys, threading, msgspec
from mulligan.api.http.struct_types import build_struct_types

sys.setswitchinterval(1e-6)
outer = []
for number in range(20):
    inner = "int"
    for depth in range(40):
        name = f"S{number}_{depth}"
        fields = [(f"f{i}", "dict[str, int] | None", None) for i in range(9)]
        fields.append(("first", f"list[{inner}] | None", None))
        globals()[name] = struct = msgspec.defstruct(name, fields, module=__name__)
        inner = name
    outer.append(struct)
build_struct_types()
for struct in outer:
    together = threading.Barrier(4)
    def decode():
        together.wait()
        msgspec.json.decode(b'{"first": [{"first": [{"first": [], "f3": {"a": 1}}]}]}', type=struct)
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
"""


def test_types_that_were_made_ready_are_decoded_by_several_threads_at_once() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}

    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], env=environment, capture_output=True)

    assert (done.returncode, done.stderr) == (0, b"")
