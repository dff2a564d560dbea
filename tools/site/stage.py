"""Write the sources of the documentation site: the pages of docs/ in their places, and the settings of Zensical.

    python -m tools.site.stage build/site

makes build/site/source and build/site/zensical.toml, of which `zensical build` makes build/site/html.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from tools.site.pages import (
    Entry,
    Site,
    absent_files,
    descriptions,
    doubled_pages,
    fences,
    link_between,
    missing_pages,
    name_pages,
    read_navigation,
    relink,
    title_of,
)

HERE = Path(__file__).parent
# How a block is coloured, where that is not its own word. `console` has no prompts in our pages: it is shell.
LEXERS = {"": "text", "cel": "text", "console": "bash", "kdl": "text", "sh": "bash"}
SUFFIXES = {
    ".json": "json",
    ".py": "python",
    ".sh": "bash",
    ".sql": "sql",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}
TEXTS = (*SUFFIXES, ".json5", ".kdl", ".md", ".txt")
PICTURES = (".svg", ".webp", ".png")
_TABLE_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_ARROW = re.compile(r"^ *(\S+) --> (\S+)(?:: (.*))?$", re.MULTILINE)
_FILE_NAME = re.compile(r"[\w-]+\.\w+")


def main(folder: Path) -> None:
    """Write all sources below `folder`."""
    site = read_navigation()
    if problems := list(navigation_problems(site)):
        sys.exit("\n".join(problems))
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    said = descriptions(site)
    for entry in site.entries():
        write(source / entry.place, page_of(site, entry, said))
    for file, place in linked_files(site):
        if file.endswith(PICTURES):
            copy(site.root / file, source / place)
        else:
            # Found by the pages that link to it: a search for a word of the language should find the page about it.
            write(source / place, f"---\nsearch: {{exclude: true}}\n---\n\n{page_of_file(site, file)}")
    for name in ("site.css", "iframe-worker.js"):
        copy(HERE / name, source / "assets" / name)
    copy(site.root / "src/mulligan/dashboard/assets/icon.svg", source / "assets/logo.svg")
    write(folder / "zensical.toml", settings(site))


def navigation_problems(site: Site) -> Iterator[str]:
    """Why the navigation is not whole, in words."""
    for name in missing_pages(site):
        yield f"{name} stands nowhere in tools/site/navigation.toml: add it where its readers look for it"
    for name in doubled_pages(site):
        yield f"{name} stands twice in tools/site/navigation.toml"
    for name in absent_files(site):
        yield f"tools/site/navigation.toml names {name}, which there is not"


def settings(site: Site) -> str:
    """The settings of Zensical with the navigation."""
    lines = [
        'docs_dir = "source"',
        'site_dir = "html"',
        f"nav = [{', '.join(navigation_items(site, site.navigation))}]",
    ]
    text = (HERE / "zensical.toml").read_text(encoding="utf-8")
    return text.replace("[project]\n", "[project]\n" + "\n".join(lines) + "\n", 1)


def navigation_items(site: Site, entries: Iterable[Entry]) -> Iterator[str]:
    """The entries in the words of Zensical: a page, or a list that begins with the page of the section."""
    for entry in entries:
        pages = ", ".join([json.dumps(entry.place), *navigation_items(site, entry.below)])
        yield f"{{{json.dumps(title_of(site, entry))} = {f'[{pages}]' if entry.below else pages}}}"


def write(path: Path, text: str) -> None:
    """Write a page and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def copy(source: Path, target: Path) -> None:
    """Copy a file and make the folders above it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def page_of(site: Site, entry: Entry, said: dict[str, str]) -> str:
    """The page of an entry."""
    if entry.source:
        return page_of_text(site, entry.source, (site.root / entry.source).read_text(encoding="utf-8"))
    return page_of_section(site, entry, said)


def page_of_text(site: Site, source: str, text: str) -> str:
    """A page as it is written in the clone, with the links and blocks of the site."""
    return blocks_of_site(relink(site, source, name_pages(site, source, text)))


def page_of_section(site: Site, entry: Entry, said: dict[str, str]) -> str:
    """The page of a section that has none of its own: what is in it, in the words of docs/README.md."""
    rows = [
        f"| [{title_of(site, one)}]({link_between(site, entry.place, one.source or one.place)})"
        f" | {relink(site, 'docs/README.md', said.get(one.source, one.text), place=entry.place)} |"
        for one in entry.below
    ]
    return "\n".join([f"# {entry.title}", "", entry.text, "", "| page | for |", "|---|---|", *rows, ""])


def linked_files(site: Site) -> Iterator[tuple[str, str]]:
    """The files that pages link to and that are no entries, with their places. Such a page may link to more."""
    done = {name for entry in site.entries() for name in (entry.source, entry.place)} | {"README.md"}
    while left := [(file, place) for file, place in site.places.items() if file not in done]:
        done |= {file for file, _ in left}
        yield from left


def page_of_file(site: Site, file: str) -> str:
    """The page of a file or folder outside docs/."""
    path = site.root / file
    if path.suffix == ".md":
        return page_of_text(site, file, path.read_text(encoding="utf-8"))
    if path.is_dir():
        return "\n".join([f"# {file}", "", *folder_rows(site, file), ""])
    return f"# {file}\n\n" + block(SUFFIXES.get(path.suffix, "text"), "", path.read_text(encoding="utf-8"))


def folder_rows(site: Site, folder: str) -> Iterator[str]:
    """A line for each file of a folder that is text, and for each folder in it."""
    for path in sorted((site.root / folder).iterdir()):
        if path.suffix in TEXTS or (path.is_dir() and path.name != "__pycache__"):
            yield f"- [{path.name}]({link_between(site, folder, f'{folder}/{path.name}')})"


def blocks_of_site(text: str) -> str:
    """The text with its fenced blocks as the site colours them. A block that is a file gets its name as a title."""
    parts, end = [], 0
    for fence in fences(text):
        language, words, content = fence.groups()
        made = (
            states(content) if language == "mermaid" else block(LEXERS.get(language, language), words.strip(), content)
        )
        parts += [_TABLE_ROW.sub(_plain_pipes, text[end : fence.start()]), made.rstrip("\n")]
        end = fence.end()
    return "".join([*parts, _TABLE_ROW.sub(_plain_pipes, text[end:])])


def _plain_pipes(row: re.Match[str]) -> str:
    """A row of a table without backslashes before pipes in code: Zensical would show them, a code host does not."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0])


def states(diagram: str) -> str:
    """A state diagram as a table of states and where they lead. Drawing it would need a script of three megabytes."""
    found: dict[str, list[str]] = {}
    for before, after, label in _ARROW.findall(diagram):
        if before != "[*]" and after != "[*]":
            found.setdefault(before, []).append(f"<b>{escape(after)}</b> <small>{escape(label)}</small>")
    if not found:
        raise ValueError(f"not a state diagram:\n{diagram}")
    rows = [f"<tr><td><b>{escape(name)}</b></td><td>{'<br>'.join(to)}</td></tr>" for name, to in found.items()]
    head = "<table><thead><tr><th>from</th><th>to, and what leads there</th></tr></thead><tbody>"
    return f'<div class="states">{head}{"".join(rows)}</tbody></table></div>\n'


def block(lexer: str, words: str, content: str) -> str:
    """A fenced block; its marks are longer than any in it."""
    marks = "`" * (max((len(run) for run in re.findall(r"`{3,}", content)), default=2) + 1)
    title = f' title="{words}"' if _FILE_NAME.fullmatch(words) else ""
    return f"{marks}{lexer}{title}\n{content}{marks}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
