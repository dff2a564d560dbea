"""Likely mistakes: `{{ … }}` of other systems, `{i}` outside names, items outside maps, unused declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.errors import Problem
from mulligan.language.keys.value_schemas import Fields
from mulligan.language.matrices.matrix import written_names
from mulligan.language.scope import LOCAL_ROOTS, ROOTS, Draft, Scope
from mulligan.language.shell.shell_placeholders import ROOTS as SHELL_ROOTS
from mulligan.language.shell.shell_placeholders import Names, ShellRefused
from mulligan.language.text.nodes import Mapping, Node, Scalar, Sequence, Source

_PLACEHOLDER = lazy_regex(r"(?<![$\w{\\])\{(?P<name>[A-Za-z_]\w*)(?::[^{}\s]*)?\}(?!\})", re.A)
# Keys in which `{i}` is replaced, in names of steps and files and in paths, and the matrix itself.
_NAMING = frozenset({"step", "needs", "next", "reads", "writes", "matrix", "python"})
_WITH_BRACES = frozenset({"python", "noetl"})
# Texts below these keys are not shell text.
_WITHOUT_SHELL = frozenset("http sql agent env args stdin cwd logs inputs outputs wait approve when validate".split())
# Only paths of names: anything else, such as `{{.Names}}`, belongs to another program.
_FOREIGN_TEMPLATE = lazy_regex(r"(?<!\$)\{\{-?\s*(?P<path>(?P<root>[A-Za-z_]\w*)(?P<fields>(?:\.\w+)*))\s*-?\}\}", re.A)
# Per section: the noun for an entry, and the verb for its use.
_SECTIONS = {
    "inputs": ("input", "read"),
    "secrets": ("secret", "read"),
    "files": ("file", "read or written"),
    "retry_policies": ("retry policy", "used"),
    "handlers": ("handler", "used"),
}


def item_names(root: Mapping) -> frozenset[str]:
    """The names that maps of a file give to their items, without those that an `env` sets."""
    names = {"item", "index"}
    variables = set(_env_names(root.get("defaults")))
    steps = root.get("steps")
    for step in steps.items if isinstance(steps, Sequence) else ():
        mapped = step.get("map") if isinstance(step, Mapping) else None
        name = mapped.get("as") if isinstance(mapped, Mapping) else None
        if isinstance(name, Scalar):
            names.add(name.text)
        variables.update(_env_names(step))
    return frozenset(names - variables)


def _env_names(node: Node | None) -> Iterator[str]:
    env = node.get("env") if isinstance(node, Mapping) else None
    yield from env.entries if isinstance(env, Mapping) else ()


def warn_unbound_items(node: Scalar, scope: Scope) -> None:
    """Warn if a shell text reads the name of an item that is not bound there and that it does not set itself."""
    unbound = scope.draft.item_names - scope.bare_names
    found = list(_reference_pattern(unbound).finditer(node.text)) if unbound else []
    offsets = _expanded_offsets(node.text, unbound | scope.bare_names) if found else set()
    for name, offset in ((match["name"], match.start("name")) for match in found if match.start() in offsets):
        if not _assignment_pattern(name).search(node.text):
            what = f"'${{{name}}}' is not known here"
            message = f"{what}, so the shell expands its own variable, which is probably empty"
            scope.source.warn_in("unbound_item", message, node, offset, len(name))


def _expanded_offsets(text: str, names: frozenset[str]) -> set[int]:
    """The offsets of `${…}` that the shell expands: not in single quotes, and not after a backslash."""
    try:
        from mulligan.language.shell import shell_lexer

        sites = shell_lexer.scan(text, Names(names, SHELL_ROOTS | {"matrix"})).sites
    except ShellRefused:
        return set()
    from mulligan.language.shell import shell_safety

    unexpanded = (shell_safety.SINGLE_QUOTES, shell_safety.QUOTED_DOCUMENT)
    return {site.placeholder.offset for site in sites if site.danger not in unexpanded}


@lru_cache(maxsize=256)
def _reference_pattern(names: frozenset[str]) -> re.Pattern[str]:
    """Matches `${item}`, also with an operator, except those for unset variables, which are meant for the shell."""
    return re.compile(rf"\$\{{#?(?P<name>{'|'.join(map(re.escape, sorted(names)))})(?:[}}#%/^,@]|:\d)", re.A)


@lru_cache(maxsize=256)
def _assignment_pattern(name: str) -> re.Pattern[str]:
    word = re.escape(name)
    commands = "for|select|read|readarray|mapfile|getopts|local|declare|typeset|export|readonly|printf"
    return re.compile(rf"(?<![\w$]){word}\+?=|\b(?:{commands})\b[^;\n|&]*?(?<![\w$.{{]){word}(?!\w)", re.A)


def refuse_foreign_templates(root: Mapping, source: Source) -> None:
    """Refuse `{{ inputs.x }}`: a placeholder in other systems, but plain text here."""
    if "{{" not in source.text:
        return
    items = item_names(root)
    for key, value in root.items():
        if not key.text.startswith("x-"):
            for scalar, is_shell in _texts_with_shells(value, is_shell=True):
                _refuse_foreign(scalar, items, source, is_shell=is_shell)


def warn_matrix_placeholders(root: Mapping, source: Source) -> None:
    """Warn about `{i}` in a matrix step outside names and paths of files, where it is not replaced."""
    steps = root.get("steps")
    for step in steps.items if isinstance(steps, Sequence) else ():
        matrix = step.get("matrix") if isinstance(step, Mapping) else None
        if matrix is not None and isinstance(step, Mapping):
            for value in (value for key, value in step.items() if key.text not in _NAMING):
                for scalar, _ in _texts_with_shells(value, is_shell=True):
                    _warn_placeholder(scalar, written_names(matrix), source)


def _warn_placeholder(scalar: Scalar, names: tuple[str, ...], source: Source) -> None:
    for match in _PLACEHOLDER.finditer(scalar.text):
        if match["name"] in names:
            message = f"'{match[0]}' is replaced by a matrix value only in names: here it is plain text"
            hint = f"write ${{matrix.{match['name']}}}"
            source.warn_in("matrix_placeholder", message, scalar, match.start(), len(match[0]), hint=hint)


def _texts_with_shells(node: Node, *, is_shell: bool) -> Iterator[tuple[Scalar, bool]]:
    """Every text, and whether it may be shell text.

    Except Python code, where `{{` is a brace, and NoETL steps, which use such templates.
    """
    if isinstance(node, Scalar):
        yield node, is_shell
    elif isinstance(node, Sequence):
        for each in node.items:
            yield from _texts_with_shells(each, is_shell=is_shell)
    else:
        for key, each in node.items():
            if key.text not in _WITH_BRACES:
                yield from _texts_with_shells(each, is_shell=is_shell and key.text not in _WITHOUT_SHELL)


def _refuse_foreign(scalar: Scalar, items: frozenset[str], source: Source, *, is_shell: bool) -> None:
    for match in _FOREIGN_TEMPLATE.finditer(scalar.text):
        is_ours = match["root"] in (items | ROOTS | LOCAL_ROOTS if match["fields"] else items)
        if is_ours and not _is_quoted(scalar.text, match.start(), is_shell=is_shell):
            message = f"'{match[0]}' is not replaced: values are written as ${{…}}"
            text = f"'{match[0]}' in single quotes" if is_shell else f"${{'{match[0]}'}}"
            hint = f"write ${{{match['path']}}}, or {text} for the text itself"
            refusal = source.refuse_in("foreign_template", message, scalar, match.start(), len(match[0]), hint=hint)
            if not any(_covers(known, refusal.problem) for known in source.problems):
                source.note(refusal)


def _covers(known: Problem, problem: Problem) -> bool:
    """Whether a problem was already reported for the same position: conditions refuse braces themselves."""
    end = known.column + known.length
    return known.line == problem.line and known.column <= problem.column + 1 and problem.column <= end


def _is_quoted(text: str, offset: int, *, is_shell: bool) -> bool:
    """Whether this is meant as text: in single quotes of a shell, or in a string inside `${…}`."""
    if is_shell and text.count("'", 0, offset) % 2 == 1:
        return True
    opened = text.rfind("${", 0, offset)
    return opened >= 0 and "}" not in text[opened:offset]


def warn_unused(fields: Fields, draft: Draft) -> None:
    """Warn about every declaration that is never used; once for all that one entry of another system became."""
    for section, (what, done) in _SECTIONS.items():
        node = fields.at(section) if section in fields else None
        if not isinstance(node, Mapping) or (section, "*") in draft.used:
            continue
        unused: dict[object, list[str]] = {}
        for name, (key, _) in node.entries.items():
            if (section, name) not in draft.used:
                # An entry of another system may have become several, all at its position.
                unused.setdefault((key.line, key.column) if draft.source.origin else name, []).append(name)
        for names in unused.values():
            message = f"the {what} '{names[0]}' is declared and never {done}"
            if len(names) > 1:
                others = f"{len(names) - 1} other" + ("s" if len(names) > 2 else "")
                message = f"the {what} '{names[0]}' and {others} of the same entry are declared and never {done}"
            code = f"unused_{what.rpartition(' ')[2]}"
            draft.source.warn(code, message, node.key(names[0]), hint="remove it, or use it")
