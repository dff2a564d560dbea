"""Wheels that tests make themselves, and a `uv` that is a small script: nothing is downloaded."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

# What the worker's environment says so that pip and uv ask nothing but a folder.
OFFLINE_PIP = {"MULLIGAN_INSTALLER": "pip", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
OFFLINE_UV = {"UV_OFFLINE": "1", "UV_NO_INDEX": "1", "UV_NO_CONFIG": "1"}


def make_wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> Path:
    """A package with one module that knows its version."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as wheel:
        for name_in_wheel, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name_in_wheel, text)
    return path


# `index.txt` beside it lists what there is, as NAME==VERSION. It notes each call in `calls.txt`, and its environment in
# `environment.txt`. If there is a pipe `gate`, installing waits until somebody has written to it.
_FAKE_UV = """#!{python} -IS
import os, sys
here, words = os.path.dirname(os.path.abspath(__file__)), sys.argv[1:]
def note(name, text):
    with open(f"{{here}}/{{name}}", "a") as file:
        file.write(text + "\\n")
def value(option):
    return words[words.index(option) + 1]
note("calls.txt", " ".join(words))
note("environment.txt", repr(dict(os.environ)))
if words[:2] == ["pip", "compile"]:
    index = open(f"{{here}}/index.txt").read().split()
    pins = []
    for line in open(words[-1]):
        name = line.strip().split(">")[0].split("=")[0]
        found = [pin for pin in index if pin.split("==")[0] == name]
        if not found:
            print("error: No solution found when resolving dependencies", file=sys.stderr)
            print(f"  cause: Because {{name}} was not found in the package registry", file=sys.stderr)
            sys.exit(1)
        pins.append(found[-1])
    with open(value("--output-file"), "w") as file:
        file.write("".join(f"{{pin}}\\n" for pin in pins))
elif words[0] == "venv":
    venv = words[-1]
    os.makedirs(f"{{venv}}/bin")
    os.symlink(os.path.realpath(value("--python")), f"{{venv}}/bin/python")
    with open(f"{{venv}}/pyvenv.cfg", "w") as file:
        file.write(f"home = {{os.path.dirname(os.path.realpath(value('--python')))}}\\n")
    os.makedirs(f"{{venv}}/lib/python{{sys.version_info[0]}}.{{sys.version_info[1]}}/site-packages")
else:
    venv = value("--python").removesuffix("/bin/python")
    print("installing", file=sys.stderr, flush=True)
    if os.path.exists(f"{{here}}/gate"):
        with open(f"{{here}}/gate") as gate:
            word = gate.read()
        if word.strip() == "fail":
            print("error: Failed to fetch: the index is away", file=sys.stderr)
            sys.exit(1)
    for pin in open(value("-r")):
        name, _, version = pin.strip().partition("==")
        if os.path.exists(f"{{here}}/withdrawn") and pin.strip() in open(f"{{here}}/withdrawn").read():
            print(f"error: No solution found: there is no {{pin.strip()}}", file=sys.stderr)
            sys.exit(1)
        [packages] = [f"{{venv}}/lib/{{one}}/site-packages" for one in os.listdir(f"{{venv}}/lib")]
        with open(f"{{packages}}/{{name}}.py", "w") as file:
            file.write(f"VERSION = {{version!r}}\\n")
"""


class FakeUv:
    """A program that does what the builder asks of uv, from a list of packages."""

    def __init__(self, folder: Path, *pins: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.program = folder / "uv"
        self.program.write_text(_FAKE_UV.format(python=sys.executable))
        self.program.chmod(0o755)
        self.offer(*pins)

    def offer(self, *pins: str) -> None:
        (self.folder / "index.txt").write_text("\n".join(pins))

    def withdraw(self, pin: str) -> None:
        """From now on this version cannot be installed."""
        (self.folder / "withdrawn").write_text(pin)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls.txt"
        return path.read_text().splitlines() if path.exists() else []

    def count(self, words: str) -> int:
        return sum(call.startswith(words) for call in self.calls)

    @property
    def environments(self) -> str:
        return (self.folder / "environment.txt").read_text()

    def close_gate(self) -> None:
        os.mkfifo(self.folder / "gate")

    def open_gate(self, word: str = "go") -> None:
        """Let the process pass that waits at the gate, or will, and all that come later."""
        path = self.folder / "gate"
        with path.open("w") as gate:
            gate.write(word)
            path.unlink()


# An interpreter that has no pip until it makes an environment with one. `-m pip` knows two packages.
_FAKE_PYTHON = """#!/bin/sh
here={folder}
echo "$*" >> $here/python-calls.txt
case "$0" in $here/python) pip= ;; *) pip={pip} ;; esac
case "$*" in
  *interpreter_identity.py) echo '{{"interpreter": ["fake"], "pip": "'$pip'"}}' ;;
  "-m venv --without-pip "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *" --report "*)
    while [ "$1" != --report ]; do shift; done
    echo '{{"install": [{{"metadata": {{"name": "Tiny.Thing", "version": "1.0"}}, "is_direct": false}},
      {{"metadata": {{"name": "lib", "version": "2"}}, "is_direct": true, "download_info":
        {{"url": "https://example.org/lib.git", "subdirectory": "py",
          "vcs_info": {{"vcs": "git", "commit_id": "0a1b"}}}}}}]}}' > "$2" ;;
esac
"""


class FakePython:
    """An interpreter without pip; the environments that it makes have a pip of this version."""

    def __init__(self, folder: Path, pip: str) -> None:
        self._folder = folder
        self.program = folder / "python"
        self.program.write_text(_FAKE_PYTHON.format(folder=folder, pip=pip))
        self.program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return (self._folder / "python-calls.txt").read_text().splitlines()
