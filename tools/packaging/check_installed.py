"""Install what `make dist` built into empty environments, outside of the checkout, and type what people type first.

    python -m tools.packaging.check_installed dist [--python 3.12]... [--extra NAME]... [--json FILE]

For each Python from 3.11 to 3.14 that is found on the PATH or in pyenv: the package alone, and with each extra alone,
from the package index that pip is set up for. Prints how large each installation is, and what went wrong; exit code
1 if anything did.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tools.packaging import first_commands
from tools.packaging.first_commands import Command, FirstCommandFailed, run_command, write_files

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# What `python -m venv` puts there itself.
NOT_OURS = ("pip", "setuptools")


@dataclass(frozen=True)
class Installation:
    """One environment: how large it is, and what went wrong in it."""

    python: str
    package: str
    extra: str
    packages: int
    megabytes: float
    commands: int
    problems: list[str]


class Collector(BaseHTTPRequestHandler):
    """Takes notices and traces."""

    def do_POST(self) -> None:
        """Accept whatever is sent."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def collector() -> Iterator[str]:
    """Where notices and traces are accepted: host and port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The URL of a PostgreSQL that this environment starts."""
    program = [sys.executable, "-m", "mulligan", "postgres"]
    words = ["--data", str(folder / "postgres")]
    told = subprocess.run([*program, "start", "--json", *words], check=True, capture_output=True, text=True).stdout
    try:
        yield json.loads(told)["store_url"]
    finally:
        subprocess.run([*program, "stop", "--now", *words], check=True, capture_output=True)


def interpreters() -> dict[str, str]:
    """Each supported Python that is at hand, by version."""
    return {version: found for version in VERSIONS if (found := _interpreter(version))}


def _interpreter(version: str) -> str | None:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        # A program of pyenv on the PATH need not lead to an interpreter.
        told = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False)
        if told.stdout.strip() == version:
            return candidate
    return None


def install(python: str, environment: Path, wheels: Sequence[str]) -> None:
    """Make an environment with wheels and what they need."""
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([*pip, *wheels], cwd=environment, env=outside, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FirstCommandFailed(f"pip install {' '.join(wheels)}\n{done.stderr[-2000:]}")


def size(environment: Path) -> tuple[int, float]:
    """How many packages there are besides those of every environment, and how many MB they have, also compiled."""
    (installed,) = (environment / "lib").glob("python3.*/site-packages")
    packages = [one for one in installed.glob("*.dist-info") if one.name.partition("-")[0] not in NOT_OURS]
    skipped = [installed / name for name in (*NOT_OURS, "pkg_resources", "_distutils_hack")]
    files = (
        path
        for path in installed.rglob("*")
        if path.is_file() and not path.is_symlink() and not any(path.is_relative_to(one) for one in skipped)
    )
    return len(packages), sum(path.stat().st_size for path in files) / 1_000_000


def check(
    *,
    python: str,
    package: str,
    wheels: Sequence[Path],
    extra: str,
    commands: Sequence[Command],
    addresses: dict[str, str],
) -> Installation:
    """Install the last wheel, with an extra, and run commands."""
    with tempfile.TemporaryDirectory(prefix="mulligan-dist-") as folder:
        environment, place = Path(folder) / "environment", Path(folder) / "place"
        # A PostgreSQL that root starts runs as another user, who has to get there.
        Path(folder).chmod(0o755)
        place.mkdir()
        write_files(place, addresses)
        *others, last = (str(wheel) for wheel in wheels)
        problems: list[str] = []
        try:
            install(python, environment, [*others, last + (f"[{extra}]" if extra else "")])
        except FirstCommandFailed as failed:
            problems.append(str(failed))
            commands = ()
        for command in commands:
            try:
                run_command(command, environment / "bin", place, addresses)
            except FirstCommandFailed as failed:
                problems.append(str(failed))
        packages, megabytes = size(environment)
    return Installation(
        python=python,
        package=package,
        extra=extra,
        packages=packages,
        megabytes=round(megabytes, 1),
        commands=len(commands),
        problems=problems,
    )


def check_metadata(python: str, files: Sequence[Path]) -> str:
    """What twine has against the files that would be published; "" if nothing."""
    with tempfile.TemporaryDirectory(prefix="mulligan-dist-") as folder:
        install(python, Path(folder), ["twine"])
        words = [str(Path(folder) / "bin/twine"), "--no-color", "check", "--strict", *map(str, files)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def check_rebuilt(dist: Path) -> str:
    """How a wheel that is built from the checkout differs from the one of the sdist; "" if they are equal."""
    with tempfile.TemporaryDirectory(prefix="mulligan-dist-") as folder:
        words = [
            str(Path(sys.executable).parent / "uv"),
            "build",
            "--quiet",
            "--wheel",
            "--no-config",
            "--offline",
            "--no-build-isolation",
        ]
        words += ["--python", sys.executable, "--out-dir", folder]
        for project in (ROOT, ROOT / "packages/nl2sql"):
            subprocess.run([*words, str(project)], check=True, cwd=ROOT)
        for wheel in Path(folder).glob("*.whl"):
            if _contents(wheel) != _contents(dist / wheel.name):
                return f"{wheel.name} from the checkout is not the one from its sdist"
    return ""


def _contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def plan(chosen: Sequence[str]) -> Iterator[tuple[str, str, tuple[Command, ...]]]:
    """Package, extra and commands of each installation. "" is the package alone."""
    missing = tuple(command for extra in first_commands.EXTRAS.values() for command in extra.without)
    found = [("mulligan", "", first_commands.FIRST + missing)]
    found += [
        ("mulligan", name, first_commands.FIRST[2:] + extra.with_it) for name, extra in first_commands.EXTRAS.items()
    ]
    found.append(("mulligan-nl2sql", "", first_commands.NL2SQL_FIRST + first_commands.NL2SQL_WITHOUT))
    found += [
        ("mulligan-nl2sql", name, first_commands.NL2SQL_FIRST + commands)
        for name, commands in first_commands.NL2SQL_EXTRAS.items()
    ]
    return (one for one in found if not chosen or one[1] in chosen)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every installation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, help="the folder with the wheels")
    parser.add_argument("--python", action="append", default=[], help="this version only, such as 3.12")
    parser.add_argument("--extra", action="append", default=[], help="this extra only; '' for none")
    parser.add_argument("--json", type=Path, help="write the result there, too")
    given = parser.parse_args(arguments)
    (wheel,) = given.dist.absolute().glob("mulligan-*.whl")
    (nl2sql,) = given.dist.absolute().glob("mulligan_nl2sql-*.whl")
    files = sorted(given.dist.absolute().glob("mulligan*.*"))
    for file in files:
        print(f"{file.stat().st_size / 1_000_000:6.1f} MB  {file.name}")
    problems = list(filter(None, (check_metadata(sys.executable, files), check_rebuilt(given.dist))))
    for problem in problems:
        print(problem)
    results: list[Installation] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mulligan-dist-")))
        folder.chmod(0o755)
        addresses = {
            "collector": stack.enter_context(collector()),
            "postgres": stack.enter_context(postgres(folder)),
        }
        for version, python in interpreters().items():
            if given.python and version not in given.python:
                continue
            for package, extra, commands in plan(given.extra):
                wheels = [wheel] if package == "mulligan" else [wheel, nl2sql]
                result = check(
                    python=python,
                    package=package,
                    wheels=wheels,
                    extra=extra,
                    commands=commands,
                    addresses=addresses,
                )
                name = package + (f"[{extra}]" if extra else "")
                told = f"{result.packages:3} packages {result.megabytes:6.1f} MB  {result.commands:2} commands"
                print(f"{version}  {name:32} {told}  {'FAILED' if result.problems else 'ok'}", flush=True)
                for problem in result.problems:
                    print(f"\n{problem}\n", flush=True)
                results.append(result)
    if given.json:
        given.json.write_text(json.dumps([asdict(result) for result in results], indent=2), encoding="utf-8")
    return 1 if problems or not results or any(result.problems for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
