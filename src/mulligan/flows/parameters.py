"""The parameters of a function, and the arguments of a call by name."""

from __future__ import annotations

from mulligan.flows.context import Site, refuse, suggest
from mulligan.flows.functions import definition_site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Parameters:
    """What a function takes. `label` names it in messages: "step 'fetch'"."""

    __slots__ = ("annotations", "defaults", "label", "names", "required", "takes_any")

    def __init__(self, function: Callable[..., Any], label: str) -> None:

        self.label = label
        self.names: list[str] = []
        self.required: list[str] = []
        self.defaults: dict[str, Any] = {}
        self.annotations: dict[str, Any] = {}
        self.takes_any = False
        import inspect

        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                self.takes_any = True
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                shown = f"*{name}" if parameter.kind is parameter.VAR_POSITIONAL else f"{name}, /"
                hint = "give each parameter a name: a worker calls the function with named arguments"
                refuse("function", f"{label} has the parameter '{shown}'", hint=hint, site=definition_site(function))
            self.names.append(name)
            if parameter.annotation is not parameter.empty:
                self.annotations[name] = parameter.annotation
            if parameter.default is parameter.empty:
                self.required.append(name)
            else:
                self.defaults[name] = parameter.default
        if self.names[:1] == ["self"] and "." in function.__qualname__:
            hint = "make it a function at the top of a module, or a @staticmethod under the step decorator"
            refuse("function", f"{label} is a method, and no object travels to a worker", hint=hint)

    def by_name(self, given: tuple[Any, ...], named: dict[str, Any], site: Site) -> dict[str, Any]:
        """The arguments by name. Too many of them, or one that is given twice, are refused."""
        if len(given) > len(self.names):
            word = "argument" if len(self.names) == 1 else "arguments"
            takes = f"{len(self.names)} {word} ({', '.join(self.names)})" if self.names else "no arguments"
            message = f"{self.label} takes {takes}, and {len(given)} are given"
            refuse("arguments", message, site=site)
        found = dict(zip(self.names, given, strict=False))
        for name in named:
            if name in found:
                refuse("arguments", f"{self.label} gets '{name}' twice", word=name, site=site)
        return {**found, **named}

    def bind(self, given: tuple[Any, ...], named: dict[str, Any], site: Site) -> dict[str, Any]:
        """The arguments by name. What does not fit the parameters is refused."""
        found = self.by_name(given, named, site)
        for name in named:
            if name not in self.names and not self.takes_any:
                hint = suggest(name, self.names) or f"it has {', '.join(self.names) or 'no parameters'}"
                refuse("arguments", f"{self.label} has no parameter '{name}'", hint=hint, word=name, site=site)
        missing = [name for name in self.required if name not in found]
        if missing:
            names = " and ".join(f"'{name}'" for name in missing)
            hint = f"it takes {', '.join(self.names)}"
            refuse("arguments", f"{self.label} is called without {names}", hint=hint, site=site)
        return found
