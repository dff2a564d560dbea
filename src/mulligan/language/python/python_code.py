"""Checks inline Python when the file is loaded, so that a typo does not cost a run."""

from __future__ import annotations

# The classes alone: what `ast` adds to them takes 1.5 ms to load.
import _ast as ast
import warnings
from collections.abc import Sequence
from functools import lru_cache

from mulligan.core.model.text.lazy_regex import lazy_regex
from mulligan.language.scope import Scope
from mulligan.language.text.nodes import Mapping, Node, Refusal, Scalar
from mulligan.language.text.suggestions import did_you_mean

_PLACEHOLDER = lazy_regex(r"\$\{\s*(?:inputs|steps|error|failure|output|run|env|secrets|files|matrix|item|index)\b")


def check_code(
    code: Scalar,
    args: Mapping | None,
    key: Scalar,
    scope: Scope,
    *,
    is_ours: bool = True,
    given: Sequence[str] = (),
) -> None:
    """Check that the code parses and has a `main` that takes exactly the arguments in `args`, and those `given`.

    Syntax errors are ignored if another interpreter runs the code, since it may be valid there.
    """
    if found := _PLACEHOLDER.search(code.text):
        message = "'${…}' cannot be used in python code: values are passed as arguments"
        raise scope.source.refuse_in(
            "python", message, code, found.start(), 2, hint="add it under 'args:' and make it a parameter of main"
        )
    try:
        module = _parse(code, scope)
    except Refusal:
        if is_ours:
            raise
        return
    main = _find_main(module)
    if main is None:
        hint = "define main(…): its parameters come from 'args'"
        raise scope.source.refuse("python", "the python code has no function 'main'", key, hint=hint)
    _check_arguments(main, code, args, scope, given)


def check_source(code: Node, scope: Scope) -> None:
    """Check that the source of a module parses."""
    assert isinstance(code, Scalar)
    _parse(code, scope)


def _parse(code: Scalar, scope: Scope) -> ast.Module:
    try:
        return _parse_cached(code.text)
    except SyntaxError as error:
        raise _refuse_syntax(error, code, scope) from None
    except (RecursionError, MemoryError):
        message = "the python code is nested too deep, or a calculation in it is too long"
        raise scope.source.refuse("python", message, code) from None
    except ValueError:
        raise scope.source.refuse("python", "the python code does not parse", code) from None


@lru_cache(maxsize=256)
def _parse_cached(text: str) -> ast.Module:
    """Parsed once, however many steps have the same text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = compile(text, "<unknown>", "exec", ast.PyCF_ONLY_AST)
    assert isinstance(tree, ast.Module)
    return tree


def _refuse_syntax(error: SyntaxError, code: Scalar, scope: Scope) -> Refusal:
    lines = code.text.split("\n")
    number = min(max(1, error.lineno or 1), len(lines))
    column = min(max(1, error.offset or 1), len(lines[number - 1]) + 1)
    offset = sum(len(line) + 1 for line in lines[: number - 1]) + column - 1
    message = f"python: {error.msg.lower() if error.msg else 'invalid syntax'}"
    return scope.source.refuse_in("python", message, code, offset, 1)


@lru_cache(maxsize=256)
def _find_main(module: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    functions = (node for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((function for function in functions if function.name == "main"), None)


def _check_arguments(
    main: ast.FunctionDef | ast.AsyncFunctionDef, code: Scalar, args: Mapping | None, scope: Scope, given: Sequence[str]
) -> None:
    set_here = args.entries if args else {}
    required, optional = _parameters(main)
    for name in given:
        if main.args.kwarg is None and name not in required and name not in optional:
            scope.note(scope.source.refuse("python", f"main has no parameter '{name}', which it gets", code))
    for name, (key, _) in set_here.items():
        if main.args.kwarg is None and name not in required and name not in optional:
            hint = did_you_mean(name, [*required, *optional])
            scope.note(scope.source.refuse("python", f"main has no parameter '{name}'", key, hint=hint))
    for name in required:
        if name not in set_here and name not in given:
            message = f"main has the parameter '{name}', but 'args' does not set it"
            offset = sum(len(line) + 1 for line in code.text.split("\n")[: main.lineno - 1]) + main.col_offset
            scope.note(scope.source.refuse_in("python", message, code, offset, 8, hint="add it under 'args:'"))


@lru_cache(maxsize=256)
def _parameters(main: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[list[str], list[str]]:
    """The names of the parameters without a default, and of those with one."""
    arguments = main.args
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    split = len(positional) - len(arguments.defaults)
    pairs = list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    required = positional[:split] + [argument.arg for argument, default in pairs if default is None]
    return required, positional[split:] + [argument.arg for argument, default in pairs if default is not None]
