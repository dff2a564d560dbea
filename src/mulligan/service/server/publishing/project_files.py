"""The files of a project that may be published: below its root, not ignored by Git, and nothing that looks secret."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from mulligan.core.model.text.formatting import error_reason, format_size, pluralize
from mulligan.errors import InputInvalid
from mulligan.ports.bundles import BUNDLE_BYTES_MAX, FILE_BYTES_MAX, FILES_MAX, BundleFile, digest_of, path_problem
from mulligan.service.authoring.named_files import read_file

PROJECT_FILE = "mulligan.toml"
# Names of files in which people keep secrets. A server and its workers get none of them.
_SECRET_NAMES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", ".pgpass", ".pypirc", ".npmrc", ".htpasswd", ".git-credentials"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*"),
    *("id_ed25519*", "credentials", "credentials.*", "*credentials.json", "*service-account*.json", "secrets.*"),
    *("*.ppk", ".dockercfg", "*.tfstate", "token", "*.token", "kubeconfig"),
)
# Examples of such files, which have no values.
_NO_SECRET_NAMES = ("*.example", "*.sample", "*.template", "*.py", "*.pub")
_SECRET_CONTENT = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36,}\b"
    rb"|\bgithub_pat_\w{40,}|\bxox[abprs]-[A-Za-z0-9-]{20,}|\bsk_live_[A-Za-z0-9]{20,}|\bglpat-[\w-]{20,}"
)
_GIT_SECONDS = 30.0
# Folders that no pattern looks into.
_SKIPPED = frozenset((".git", ".mulligan", "__pycache__", "node_modules", ".venv", "venv"))


class ProjectFile(msgspec.Struct, frozen=True):
    """A file that is published: what the manifest says of it, and its content, as it was read once."""

    file: BundleFile
    content: bytes
    # Why it is published: `the workflow file`, `imported by sales.py`.
    why: str = ""


def find_root(file: Path) -> Path:
    """The root of the project of a file: the next folder with a mulligan.toml, or this one, if the file is in it."""
    folder = file.resolve().parent
    for above in (folder, *folder.parents):
        if (above / PROJECT_FILE).is_file():
            return above
    here = Path.cwd().resolve()
    return here if folder.is_relative_to(here) else folder


class ProjectFiles:
    """Gathers files of a project by their paths, each once."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        # By path below the root, why it is published; and whether it was found by a pattern.
        self._wanted: dict[str, tuple[str, bool]] = {}

    def add(self, path: str | Path, why: str) -> str:
        """Add a file or all files in a folder; return its path below the root.

        `InputInvalid` for one that is outside the project, or not there.
        """
        found = self._below(self.root / path, why)
        if (self.root / found).is_dir():
            for one in self._files_in(self.root / found):
                self._wanted.setdefault(one, (why, True))
            return found
        if not (self.root / found).is_file():
            raise InputInvalid(f"'{path}' ({why}) is not a file", hint=f"looked in {self.root}")
        self._wanted.setdefault(found, (why, False))
        return found

    def add_matching(self, pattern: str, why: str) -> None:
        """Add all files that match. `InputInvalid` for a pattern that matches none, or leads out of the project."""
        if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
            raise InputInvalid(f"'{pattern}' ({why}) leads out of the project", hint=f"the project is in {self.root}")
        if not pattern.strip("/"):
            raise InputInvalid(f"'{pattern}' ({why}) is not a pattern", hint="write it like data/*.csv")
        found = False
        for path in sorted(self.root.glob(pattern.strip("/"))):
            inner = [self._below(path, why)] if path.is_file() else list(self._files_in(path))
            for one in inner:
                found = True
                self._wanted.setdefault(one, (why, True))
        if not found:
            raise InputInvalid(f"'{pattern}' ({why}) matches no file", hint=f"looked in {self.root}")

    def read(self) -> list[ProjectFile]:
        """All of them, by path. `InputInvalid` for one that is ignored, or that looks like a secret."""
        ignored = ignored_files(self.root, self._wanted)
        read: list[ProjectFile] = []
        if len(self._wanted) > FILES_MAX:
            raise InputInvalid(
                f"{pluralize(len(self._wanted), 'file')} would be published, and a version has at most {FILES_MAX:,}",
                hint="name fewer with --include, or in 'include' of mulligan.toml",
            )
        left = BUNDLE_BYTES_MAX
        for path, (why, is_matched) in sorted(self._wanted.items()):
            if path in ignored:
                if is_matched:
                    continue
                raise InputInvalid(
                    f"'{path}' ({why}) is ignored by .gitignore, so it is not published",
                    hint="take it out of .gitignore, or do not name it",
                )
            read.append(_read(self.root, path, why))
            left -= read[-1].file.size
            if left < 0:
                message = f"the files have more than {format_size(BUNDLE_BYTES_MAX)} together, which is the limit"
                raise InputInvalid(message, hint="let steps fetch large data from where it is kept")
        return read

    def _below(self, path: Path, why: str) -> str:
        """The path below the root. A link counts as what it leads to: nothing outside is published."""
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):
            raise InputInvalid(f"'{path}' ({why}) is not the name of a file") from None
        written = Path(os.path.normpath(path))
        if not real.is_relative_to(self.root) or not written.is_relative_to(self.root):
            raise InputInvalid(
                f"'{path}' ({why}) is outside the project, and is not published",
                hint=f"the project is in {self.root}; put the file there, or a mulligan.toml above both",
            )
        return written.relative_to(self.root).as_posix()

    def _files_in(self, folder: Path) -> Iterator[str]:
        for above, names, files in os.walk(folder):
            names[:] = sorted(name for name in names if name not in _SKIPPED)
            for name in sorted(files):
                path = Path(above, name)
                if path.is_file():
                    yield self._below(path, "a file of the project")


def _read(root: Path, path: str, why: str) -> ProjectFile:
    if problem := path_problem(path):
        raise InputInvalid(f"'{path}' ({why}) cannot be published: {problem}", hint="rename it")
    about = os.stat(root / path)
    if not stat.S_ISREG(about.st_mode):
        raise InputInvalid(f"'{path}' ({why}) is not a file")
    if about.st_size > FILE_BYTES_MAX:
        raise InputInvalid(
            f"'{path}' ({why}) has {format_size(about.st_size)}, and a published file has at most "
            f"{format_size(FILE_BYTES_MAX)}",
            hint="let a step fetch it from where it is kept",
        )
    content = read_file(root / path)
    refuse_secret(path, content)
    is_executable = bool(about.st_mode & 0o100)
    return ProjectFile(BundleFile(path, len(content), digest_of(content), is_executable), content, why)


def refuse_secret(path: str, content: bytes) -> None:
    """`InputInvalid` for a file in whose name or content people keep secrets."""
    name = path.rpartition("/")[2].lower()
    is_named = any(fnmatch(name, one) for one in _SECRET_NAMES) and not any(
        fnmatch(name, one) for one in _NO_SECRET_NAMES
    )
    if is_named or _SECRET_CONTENT.search(content):
        why = "its name says that it has secrets" if is_named else "there is a key or a token in it"
        raise InputInvalid(
            f"'{path}' is not published: {why}",
            hint="declare it as a secret, which workers look up: docs/how-to/secrets.md",
        )


def ignored_files(root: Path, paths: Collection[str]) -> frozenset[str]:
    """Those of the files that Git would ignore, also where the project is no repository.

    Without Git, a project with a .gitignore is refused: nobody knows what it means.
    """
    if not paths or not _may_ignore(root, paths):
        return frozenset()
    try:
        if _is_repository(root):
            return _ask_git(root, [], paths)
        with tempfile.TemporaryDirectory() as empty:
            subprocess.run(["git", "init", "--quiet", empty], check=True, capture_output=True, timeout=_GIT_SECONDS)
            return _ask_git(root, [f"--git-dir={empty}/.git", f"--work-tree={root}"], paths)
    except FileNotFoundError:
        message = "there is a .gitignore, and 'git', which reads it, is not installed"
        raise InputInvalid(message, hint="install git") from None
    except (subprocess.SubprocessError, OSError) as error:
        reason = error_reason(error) if isinstance(error, OSError) else "it failed"
        raise InputInvalid(f"'git' does not say which files are ignored: {reason}", hint="run git status") from None


def _ask_git(root: Path, options: list[str], paths: Iterable[str]) -> frozenset[str]:
    command = ["git", *options, "check-ignore", "--stdin", "-z"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(
        command,
        cwd=root,
        input="\0".join(paths).encode("utf-8", "surrogateescape"),
        capture_output=True,
        timeout=_GIT_SECONDS,
        env=environment,
    )
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, command)
    return frozenset(filter(None, done.stdout.decode("utf-8", "surrogateescape").split("\0")))


def _is_repository(root: Path) -> bool:
    return any((above / ".git").exists() for above in (root, *root.parents))


def _may_ignore(root: Path, paths: Iterable[str]) -> bool:
    """Whether there is anything that Git would read: a repository, or a .gitignore on the way to a file."""
    folders = {root / path for one in paths for path in (Path(one).parent, *Path(one).parent.parents)}
    return _is_repository(root) or any((folder / ".gitignore").is_file() for folder in folders)
