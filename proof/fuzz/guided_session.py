"""In the environment that has atheris: one target until the time is up or something is broken. See `guided`.

None of our modules may be imported before it is instrumented, so the targets come last.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

INPUT_SECONDS_MAX = 20
INPUT_BYTES_MAX = 8192
MEMORY_MEGABYTES_MAX = 4096


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.fuzz.guided_session")
    parser.add_argument("target")
    parser.add_argument("--seconds", required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    said = parser.parse_args()
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["mulligan"]):
        target = import_module("proof.fuzz.targets").TARGETS[said.target]
    with tempfile.TemporaryDirectory(prefix="corpus-") as corpus:
        for number, data in enumerate(target.seeds):
            (Path(corpus) / str(number)).write_bytes(data)
        words = said.folder / "words"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words))
        atheris.Setup([sys.argv[0], *_options(said, words), corpus], target.run)
        atheris.Fuzz()


def _options(said: argparse.Namespace, words: Path) -> list[str]:
    """As libFuzzer calls them. It refuses an empty list of words."""
    return [
        *(f"-max_total_time={said.seconds}", f"-seed={said.seed}"),
        *([f"-dict={words}"] if words.stat().st_size else []),
        *(f"-timeout={INPUT_SECONDS_MAX}", f"-rss_limit_mb={MEMORY_MEGABYTES_MAX}", f"-max_len={INPUT_BYTES_MAX}"),
        f"-artifact_prefix={said.folder}/broken-",
    ]


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
