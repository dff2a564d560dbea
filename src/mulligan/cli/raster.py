"""SVG to PNG, by whatever this machine has that can do it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from mulligan.errors import MulliganError

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_BROWSER_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_TIMEOUT_SECONDS = 60.0
# Browsers refuse larger pictures; a small drawing is rendered twice as fine instead.
_PIXELS_MAX = 8000
_SHARPNESS = 2


Render = Callable[[str, Path], None]


class NoRenderer(MulliganError):
    """Nothing on this machine turns an SVG into a PNG."""

    code = "graph.no_renderer"
    http_status = 422
    exit_code = 2


def png(drawing: str) -> bytes:
    """`drawing`, an SVG, as a PNG. Tries what is installed, one after the other."""
    tried: list[str] = []
    for name, render in _renderers():
        with tempfile.TemporaryDirectory(prefix="mulligan-") as folder:
            trouble = _trouble(render, drawing, Path(folder))
            if not trouble:
                return (Path(folder) / "picture.png").read_bytes()
            tried.append(f"{name}: {trouble}")
    raise NoRenderer(
        "no program that turns an SVG into a PNG " + (f"worked ({'; '.join(tried)})" if tried else "was found"),
        hint="install chromium, rsvg-convert (librsvg) or the Python package cairosvg, or ask for --format svg",
    )


def _renderers() -> Iterator[tuple[str, Render]]:
    """What is here, best first. Each leaves `picture.png` in the folder it is given."""
    for name in BROWSERS:
        if found := shutil.which(name):
            yield name, partial(_browse, found)
    if found := shutil.which("rsvg-convert"):
        yield "rsvg-convert", partial(_convert, found)
    if find_spec("cairosvg"):
        yield "cairosvg", _cairo


def _trouble(render: Render, drawing: str, folder: Path) -> str:
    """Why `render` did not leave a picture, or nothing if it did."""
    try:
        render(drawing, folder)
    except subprocess.TimeoutExpired:
        return f"gave no answer in {_TIMEOUT_SECONDS:.0f}s"
    except Exception as error:
        # Whatever a foreign program or library does, the next one may do better.
        return " ".join(str(error).split()) or type(error).__name__
    return "" if (folder / "picture.png").is_file() else "left no picture"


def _size(drawing: str) -> tuple[int, int, float]:
    """Width and height to render at, and how fine."""
    found = re.search(r'width="(\d+)" height="(\d+)"', drawing)
    wide, high = (int(found[1]), int(found[2])) if found else (_PIXELS_MAX, _PIXELS_MAX)
    share = min(1.0, _PIXELS_MAX / max(wide, high))
    sharpness = min(_SHARPNESS, _PIXELS_MAX / (max(wide, high) * share))
    return max(1, round(wide * share)), max(1, round(high * share)), sharpness


def _browse(program: str, drawing: str, folder: Path) -> None:
    wide, high, sharpness = _size(drawing)
    (folder / "picture.svg").write_text(drawing, encoding="utf-8")
    page = f'<body style="margin:0"><img src="picture.svg" width="{wide}" height="{high}" style="display:block">'
    (folder / "picture.html").write_text(page, encoding="utf-8")
    _run(
        program,
        *_BROWSER_FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={wide},{high}",
        f"--force-device-scale-factor={sharpness:.3f}",
        f"--screenshot={folder / 'picture.png'}",
        (folder / "picture.html").as_uri(),
    )


def _convert(program: str, drawing: str, folder: Path) -> None:
    wide, _, sharpness = _size(drawing)
    (folder / "picture.svg").write_text(drawing, encoding="utf-8")
    width = f"--width={round(wide * sharpness)}"
    _run(program, "--keep-aspect-ratio", width, f"--output={folder / 'picture.png'}", str(folder / "picture.svg"))


def _cairo(drawing: str, folder: Path) -> None:
    wide, _, sharpness = _size(drawing)
    render = import_module("cairosvg").svg2png
    render(bytestring=drawing.encode(), write_to=str(folder / "picture.png"), output_width=round(wide * sharpness))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_SECONDS, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"exit code {done.returncode}{': ' + said[-1] if said else ''}")
