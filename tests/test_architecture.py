"""The shape of the code: who may know whom, what the core may touch, how a file may look.

Each law is a function from a source to the sentences that say where it is broken. The laws hold for every module
under src/ and for the simulator and its invariants in proof/, and each is shown to refuse something.
"""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

from mulligan.core.model.actions import TABLE

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"

# Top to bottom: a part knows only what stands above it.
PARTS = (
    # `step_context` and `values` run in the process of a step, which may be another interpreter.
    *("errors", "step_context", "values", "core", "history", "analysis", "plugins", "cache_folder", "language"),
    *("flows", "formats", "msgspec_import", "programs"),
    *("ports", "object_store", "store", "engine", "worker", "runtime", "dask_executor", "service", "client"),
    # `python -m mulligan` stands at the very bottom: it calls the command line, and nobody calls it.
    *("api", "dashboard", "mcp_server", "cli", "testing", "pytest_plugin", "app", "__main__"),
)
# `formats/SYSTEM/runtime` runs the steps of a system in a child process of a worker. It is a part of its own, below the
# worker, because it builds on the worker's actions and databases. It stands with its format so that a system is one
# folder. Nothing imports it: workers call it by the name that the plugin of its format gives (`mulligan.plugins`).
RUNTIME = re.compile(r"mulligan\.formats\.(\w+)\.runtime\b")
# A module or function that is named in a text, to be imported when it is needed.
NAMED = re.compile(r"mulligan(\.\w+)+\.?(:\w+)?")
# What the package exports, and the table of its own plugins, which stands for entry points in pyproject.toml.
NAME_ANY = frozenset({"mulligan/__init__.py", "mulligan/plugins.py"})
FACES = frozenset({"client", "api", "cli", "dashboard", "mcp_server"})
STRANGERS = frozenset({"store", "engine", "worker"})
FACES_KNOW = frozenset({"errors", "service", "msgspec_import"})
# The dashboard is made of routes of the API; `mulligan server` starts both. Tools of agents check what they are given
# as routes do, and are mounted on the server.
FACES_KNOW_FACES = {"dashboard": {"api"}, "mcp_server": {"api"}, "cli": {"api", "dashboard", "mcp_server"}}
# What runs in the process of a step, and what gives its values back to a program. Programs run their inline steps.
IN_A_STEP = frozenset({"step_context", "values"})
KNOW_WHAT_RUNS_IN_A_STEP = frozenset({"programs", "worker", "runtime", "service", "client", "testing", "app"})
# What gives values to steps and gets them from steps, and runs in none.
HAS_VALUES_OF_STEPS = frozenset({"flows", "client"})
# Plain data, and words for it, that answers of `Service` have and that faces show: a face may know these modules too.
DATA_FOR_FACES = (
    "mulligan.analysis.",
    "mulligan.core.model.",
    "mulligan.core.deciding.rounds.child_rounds",
    "mulligan.core.effects.run_lists",
    "mulligan.core.state.state",
    "mulligan.core.state.transitions",
    "mulligan.dask_executor.address",
    "mulligan.engine.timings",
    "mulligan.formats",
    "mulligan.history.route_outcomes",
    "mulligan.history.views",
    "mulligan.language.readers.workspace_steps",
    "mulligan.language.text.suggestions",
    "mulligan.ports.records",
    "mulligan.ports.server_records",
    "mulligan.worker.logs.progress_records",
)
# What `Service` is made of, and no face touches.
BEHIND_THE_SERVICE = frozenset({"reader", "store"})
CLASSES_BEHIND_THE_SERVICE = frozenset({"RunReader"})
# Inside `core`, from the bottom up: data, one run's state, what a fact changes, what is decided, what is asked for.
CORE_LAYERS = ("model", "schedules", "state", "evolve", "deciding", "effects", "notices", "ordinary", "turn")
# What knows the kinds of actions by name: the table of traits, what reads an action and what carries it out; formats,
# whose steps have kinds of their own; and what makes random workflows.
KNOW_KINDS = (
    "mulligan/core/model/actions.py",
    "mulligan/language/readers/actions.py",
    "mulligan/language/keys/action_keys.py",
    "mulligan/worker/actions/",
    "mulligan/formats/",
    "mulligan/programs/definitions.py",
    "proof/simulator/workflows.py",
)
NAMES_OF_KINDS = frozenset({"SHELL", "APPROVE", "AGENT", "FAKE", "WORKSPACE", "MCP", "ENGINE_ACTIONS"})
PURE_PARTS = frozenset({"core", "history", "analysis"})
# What the package says itself, and anybody may know.
OF_THE_PACKAGE = frozenset({"__version__", "StepError"})
TESTING_KNOWS = frozenset({"errors", "core", "language", "ports", "store"})
# What is held to these laws outside of the package: what promises are checked with knows nothing of what carries them
# out, and the simulator has the real engine over the real stores.
INVARIANTS_KNOW = frozenset({"core", "history", "ports", "store", "testing", "proof.invariants"})
PROOF_KNOWS = {
    "invariants": INVARIANTS_KNOW,
    "simulator": INVARIANTS_KNOW | {"errors", "language", "engine", "proof.arguments", "proof.simulator"},
}
BESIDE_THE_PACKAGE = frozenset({"bench", "proof", "tests", "tools"})
# The parts of workers and servers that the simulator runs as they are, each behind one module.
SIMULATED = {
    "proof/simulator/cluster/simulated_results.py": frozenset({"worker"}),
    "proof/simulator/cluster/simulated_remote.py": frozenset({"service"}),
    "proof/simulator/cluster/simulated_server.py": frozenset({"service"}),
    "proof/simulator/programs/interpreting.py": frozenset({"flows", "programs"}),
    **dict.fromkeys(
        (f"proof/simulator/programs/{name}.py" for name in ("turns", "oracle", "correcting")), frozenset({"programs"})
    ),
}

PURE_MODULES = frozenset(
    {
        *(
            "__future__",
            "contextlib",
            "abc",
            "ast",
            "bisect",
            "builtins",
            "collections",
            "copy",
            "dataclasses",
            "datetime",
            "decimal",
            "enum",
            "functools",
            "hashlib",
        ),
        *(
            "heapq",
            "itertools",
            "json",
            "math",
            "msgspec",
            "operator",
            "re",
            "string",
            "textwrap",
            "types",
            "typing",
            "zlib",
        ),
    }
)
CLOCK_METHODS = frozenset({"now", "utcnow", "today"})
# `hash` of a text differs from process to process, which a replay would notice.
IMPURE_BUILTINS = frozenset({"__import__", "breakpoint", "eval", "exec", "hash", "input", "open", "print"})

NAMELESS = re.compile(r"_?(utils?|commons?|helpers?|base|managers?|mixins?|misc|v\d+)")
# A file is as long as its thought; one that grew beyond this has more than one.
LINES_MAX = 800
# A folder with more is a hall: nobody finds a room in it.
MODULES_MAX = 25


LOOKED_AT = {
    ast.Attribute,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.If,
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
}


@dataclass(frozen=True)
class Source:
    """One module: its path below src/ and its text."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Those that a law looks at."""
        return tuple(node for node in ast.walk(self.tree) if type(node) in LOOKED_AT)

    @cached_property
    def imports(self) -> tuple[ast.Import | ast.ImportFrom, ...]:
        return tuple(node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom))

    @property
    def part(self) -> str:
        """The name right below the package: a folder, or a module of its own."""
        return part_of(".".join(self.path.with_suffix("").parts))

    @property
    def package(self) -> tuple[str, ...]:
        return self.path.parent.parts

    @property
    def name(self) -> str:
        """As others import it."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(name: str) -> str:
    return "runtime" if RUNTIME.match(name) else name.split(".")[1]


def source(path: str, text: str) -> Source:
    return Source(PurePosixPath(path), text)


def lawful_sources() -> list[Source]:
    """All that is shipped, the simulator and its invariants."""
    places = [(SRC, SRC), *((ROOT, ROOT / "proof" / name) for name in PROOF_KNOWS)]
    return [
        source(path.relative_to(above).as_posix(), path.read_text(encoding="utf-8"))
        for above, folder in places
        for path in sorted(folder.rglob("*.py"))
    ]


@contextmanager
def no_collecting() -> Iterator[None]:
    """A million nodes stay: to look for garbage among them takes twice as long as to make them."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def imported_modules(module: Source) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a module imports; what is taken from the package itself is named in full."""
    for node in module.imports:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            origin = absolute_name(module, node)
            names = [f"{origin}.{alias.name}" for alias in node.names] if origin == "mulligan" else [origin]
            yield from ((node.lineno, name) for name in names)


def modules_imported_by_name(module: Source) -> Iterator[tuple[int, str]]:
    """Line and name of what `import_module("…")` imports."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and name_of(node.func).endswith("import_module"):
            yield from ((node.lineno, arg.value) for arg in node.args if isinstance(arg, ast.Constant))


def name_of(node: ast.expr) -> str:
    """The last name of `name` or `….name`, or nothing."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def lines_for_type_checkers(module: Source) -> frozenset[int]:
    """The lines under `if TYPE_CHECKING:`."""
    tests = [node for node in module.nodes if isinstance(node, ast.If) and name_of(node.test) == "TYPE_CHECKING"]
    return frozenset(line for node in tests for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


def absolute_name(module: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    above = module.package[: len(module.package) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def known_parts(part: str) -> frozenset[str]:
    """The parts that `part` may import, itself among them."""
    above = frozenset(PARTS[: PARTS.index(part)]) - {"runtime"}
    if part in FACES:
        above = FACES_KNOW | FACES_KNOW_FACES.get(part, set())
    elif part in STRANGERS:
        above -= STRANGERS
        # An engine asks a store for artifacts, wherever they are.
        above -= {"object_store"} if part == "engine" else set()
    elif part == "testing":
        above = TESTING_KNOWS
    if part in HAS_VALUES_OF_STEPS:
        above = above - IN_A_STEP | {"values"}
    elif part not in KNOW_WHAT_RUNS_IN_A_STEP:
        above -= IN_A_STEP
    return above | {part}


# The laws


def the_package_needs_nothing_of_the_checkout(module: Source) -> Iterator[str]:
    """What stands beside src/ is not in the wheel."""
    if module.package[0] == "mulligan":
        for line, name in (*imported_modules(module), *modules_imported_by_name(module)):
            if name.partition(".")[0] in BESIDE_THE_PACKAGE:
                yield f"{module.path}:{line}: '{name}' is not in the wheel"


def the_simulator_runs_the_real_engine_and_stores(module: Source) -> Iterator[str]:
    """And no process: what it runs of workers and servers is behind one module each."""
    if module.package[0] != "proof":
        return
    allowed = PROOF_KNOWS[module.part] | SIMULATED.get(str(module.path), frozenset())
    for line, name in imported_modules(module):
        above, _, rest = name.partition(".")
        part = rest.partition(".")[0] if above == "mulligan" else f"proof.{rest.partition('.')[0]}"
        if above in ("mulligan", "proof") and part not in allowed:
            yield f"{module.path}:{line}: '{module.part}' may not know '{part}'"


def arrows_go_one_way(module: Source) -> Iterator[str]:
    if module.package[0] != "mulligan":
        return
    ours = [
        (line, part_of(name))
        for line, name in imported_modules(module)
        if name.startswith("mulligan.") and not (module.part in FACES and name.startswith(DATA_FOR_FACES))
    ]
    if module.part == "__init__":
        typed = lines_for_type_checkers(module)
        yield from (
            f"{module.path}:{line}: the package itself imports '{part}'" for line, part in ours if line not in typed
        )
    elif module.part not in PARTS:
        yield f"{module.path}: '{module.part}' is no part of the design"
    else:
        allowed = known_parts(module.part) | OF_THE_PACKAGE
        yield from (
            f"{module.path}:{line}: '{module.part}' may not know '{part}'" for line, part in ours if part not in allowed
        )


def arrows_in_texts_go_one_way(module: Source) -> Iterator[str]:
    if str(module.path) in NAME_ANY or module.part not in PARTS:
        return
    allowed = known_parts(module.part)
    own_runtime = ".".join([*module.package[:3], "runtime"])
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.fullmatch(node.value):
            part = part_of(node.value.replace(":", "."))
            if part in PARTS and part not in allowed and not node.value.startswith(own_runtime):
                yield f"{module.path}:{node.lineno}: '{module.part}' may not name '{node.value}'"


def layers_of_the_core_go_one_way(module: Source) -> Iterator[str]:
    """A layer of the core imports itself and those below it."""
    if module.part != "core" or module.name == "mulligan.core":
        return
    layer = CORE_LAYERS.index(module.name.split(".")[2])
    for line, name in imported_modules(module):
        names = name.split(".")
        if names[:2] == ["mulligan", "core"] and len(names) > 2 and CORE_LAYERS.index(names[2]) > layer:
            yield f"{module.path}:{line}: 'core.{CORE_LAYERS[layer]}' may not know 'core.{names[2]}'"


def faces_look_behind_no_service(module: Source) -> Iterator[str]:
    """A face calls `Service`, and takes types and words of its rooms. It touches nothing that `Service` is made of."""
    if module.part not in FACES:
        return
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr in BEHIND_THE_SERVICE:
            yield f"{module.path}:{node.lineno}: '.{node.attr}' is behind the service"
        if isinstance(node, ast.ImportFrom):
            for name in sorted({alias.name for alias in node.names} & CLASSES_BEHIND_THE_SERVICE):
                yield f"{module.path}:{node.lineno}: '{name}' is behind the service"


def the_core_is_pure(module: Source) -> Iterator[str]:
    if module.part not in PURE_PARTS:
        return
    for line, name in imported_modules(module):
        if name.split(".")[0] not in PURE_MODULES | {"mulligan"}:
            yield f"{module.path}:{line}: '{name}' is not on the list of pure modules"
    for node in module.nodes:
        if isinstance(node, ast.Call) and (name := impure_callee(node.func)):
            yield f"{module.path}:{node.lineno}: calls '{name}'"


def impure_callee(callee: ast.expr) -> str:
    """The name of a clock or of a builtin that touches the world, or nothing."""
    if isinstance(callee, ast.Attribute) and callee.attr in CLOCK_METHODS:
        return callee.attr
    if isinstance(callee, ast.Name) and callee.id in IMPURE_BUILTINS:
        return callee.id
    return ""


def imports_of_pure_parts_stand_at_the_top(module: Source) -> Iterator[str]:
    """Elsewhere an import may stand in the function that needs it, for start-up. The other laws hold for it as well."""
    if module.part not in PURE_PARTS:
        return
    functions = [n for n in module.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {
        node.lineno
        for node in module.imports
        if any(function.lineno <= node.lineno <= (function.end_lineno or 0) for function in functions)
    }
    yield from (f"{module.path}:{line}: an import inside a function" for line in sorted(lines))


def nothing_is_imported_by_star(module: Source) -> Iterator[str]:
    for node in module.imports:
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield f"{module.path}:{node.lineno}: a star import"


def every_file_is_named_for_a_noun(module: Source) -> Iterator[str]:
    for name in module.path.with_suffix("").parts:
        if NAMELESS.fullmatch(name):
            yield f"{module.path}: '{name}' says that nobody looked for the noun"


def files_are_short(module: Source) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines >= LINES_MAX:
        yield f"{module.path}: {lines} lines, and {LINES_MAX - 1} are the most"


def kinds_of_actions_are_told_apart_by_their_traits(module: Source) -> Iterator[str]:
    """`action.kind == "approve"` stands in the table of traits alone, and where an action is read or carried out."""
    if module.path.as_posix().startswith(KNOW_KINDS):
        return
    for node in module.nodes:
        if isinstance(node, ast.Compare):
            parts = (node.left, *node.comparators)
            found = [kind for part in parts for kind in kinds_named_in(part)]
            is_about = any("kind" in (getattr(part, "attr", ""), getattr(part, "id", "")) for part in parts)
        else:
            is_about = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Action"
            literal = node.args[0] if isinstance(node, ast.Call) and is_about and node.args else None
            found = [literal.value] if isinstance(literal, ast.Constant) and literal.value in TABLE else []
        if is_about and found:
            yield f"{module.path}:{node.lineno}: asks for the kind '{found[0]}', not for a trait"


def kinds_named_in(part: ast.expr) -> Iterator[str]:
    for node in ast.walk(part):
        if isinstance(node, ast.Constant) and node.value in TABLE:
            yield str(node.value)
        elif isinstance(node, ast.Name) and node.id in NAMES_OF_KINDS:
            yield node.id


Law = Callable[[Source], Iterator[str]]
LAWS: tuple[Law, ...] = (
    the_package_needs_nothing_of_the_checkout,
    the_simulator_runs_the_real_engine_and_stores,
    arrows_go_one_way,
    arrows_in_texts_go_one_way,
    layers_of_the_core_go_one_way,
    faces_look_behind_no_service,
    the_core_is_pure,
    imports_of_pure_parts_stand_at_the_top,
    nothing_is_imported_by_star,
    every_file_is_named_for_a_noun,
    files_are_short,
    kinds_of_actions_are_told_apart_by_their_traits,
)


def a_circle_among(modules: list[Source]) -> list[str]:
    """Modules of which each imports the next, and the last the first; none if there is no such circle."""
    names = {module.name for module in modules} - {"mulligan"}
    try:
        TopologicalSorter({module.name: set(needed(module, names)) - {module.name} for module in modules}).prepare()
    except CycleError as found:
        return [*reversed(found.args[1])]
    return []


def needed(module: Source, names: set[str]) -> Iterator[str]:
    """Those of `names` that the module imports, at once or, by their names, when they are wanted."""
    for node in module.imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        else:
            origin = absolute_name(module, node)
            inner = {f"{origin}.{alias.name}" for alias in node.names}
            yield from inner & names or {origin} & names
    yield from (name for _, name in modules_imported_by_name(module) if name in names)


def test_the_laws_hold_for_every_module_and_none_leads_back_to_itself() -> None:
    """One test: each process that runs a part of it would parse all modules."""
    with no_collecting():
        sources = lawful_sources()
        broken = {law.__name__: [sentence for module in sources for sentence in law(module)] for law in LAWS}
        circle = a_circle_among(sources)
        assert all(module.nodes for module in sources)
        del sources

    assert broken == {law.__name__: [] for law in LAWS}
    assert circle == []


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("from mulligan.core.turn import follow", "from .state.state import State"),
        ("from .. import turn", "import mulligan.core.state.state"),
        # put off is not avoided
        ("def f(): return import_module('mulligan.core.turn')", "from .state import state"),
        (
            "def f(): return importlib.import_module('mulligan.core.turn')",
            "if TYPE_CHECKING:\n    from .state import state",
        ),
    ],
)
def test_a_circle_is_found(there: str, back: str) -> None:
    modules = [source("mulligan/core/state/state.py", there), source("mulligan/core/turn.py", back)]

    assert sorted(set(a_circle_among(modules))) == ["mulligan.core.state.state", "mulligan.core.turn"]


def test_the_arrows_of_the_design_are_allowed() -> None:
    assert known_parts("core") == {"core", "errors"}
    above_the_language = {"cache_folder", "plugins", "analysis", "history", "core", "errors"}
    assert known_parts("language") == {"language", *above_the_language}
    assert known_parts("flows") == {"flows", "values", "language", *above_the_language}
    assert known_parts("engine") == {
        *known_parts("language"),
        "flows",
        "engine",
        "formats",
        "msgspec_import",
        "programs",
        "ports",
    }
    assert known_parts("runtime") == set(PARTS[:19])
    assert known_parts("dask_executor") == {*PARTS[:18], "dask_executor"} - IN_A_STEP
    assert known_parts("service") == {*PARTS[:18], "dask_executor", "service"}
    assert known_parts("client") == {"client", *FACES_KNOW, "values"}
    assert known_parts("api") == {"api", *FACES_KNOW}
    assert known_parts("dashboard") == {"dashboard", "api", *FACES_KNOW}
    assert known_parts("app") == set(PARTS) - {"__main__", "runtime"}


@pytest.mark.parametrize(
    ("path", "text", "sentence"),
    [
        # against the stream
        (
            "mulligan/core/turn.py",
            "import mulligan.language.load",
            "mulligan/core/turn.py:1: 'core' may not know 'language'",
        ),
        # the part named as a name taken from the package
        ("mulligan/core/turn.py", "from mulligan import ports", "mulligan/core/turn.py:1: 'core' may not know 'ports'"),
        # relative, two levels up
        ("mulligan/core/turn.py", "from ..store import disk", "mulligan/core/turn.py:1: 'core' may not know 'store'"),
        ("mulligan/core/turn.py", "from .. import store", "mulligan/core/turn.py:1: 'core' may not know 'store'"),
        # for types only is still knowing
        (
            "mulligan/errors.py",
            "if TYPE_CHECKING:\n    from mulligan.core.state.state import State",
            "mulligan/errors.py:2: 'errors' may not know 'core'",
        ),
        # strangers to each other, although one stands above the other
        (
            "mulligan/engine/loop.py",
            "import mulligan.store.sqlite.sqlite",
            "mulligan/engine/loop.py:1: 'engine' may not know 'store'",
        ),
        (
            "mulligan/worker/lease.py",
            "import mulligan.engine.loop",
            "mulligan/worker/lease.py:1: 'worker' may not know 'engine'",
        ),
        # a face knows neither another face nor what lies behind the service
        (
            "mulligan/mcp_server/server.py",
            "import mulligan.dashboard.pages",
            "mulligan/mcp_server/server.py:1: 'mcp_server' may not know 'dashboard'",
        ),
        ("mulligan/api/routes.py", "import mulligan.core.turn", "mulligan/api/routes.py:1: 'api' may not know 'core'"),
        # what tests of users build on carries nothing out
        (
            "mulligan/testing/fake_executor.py",
            "import mulligan.worker.local_executor",
            "mulligan/testing/fake_executor.py:1: 'testing' may not know 'worker'",
        ),
        # what runs the steps of a system is called by name, and imported by nothing
        (
            "mulligan/service/verbs.py",
            "from mulligan.formats.noetl.runtime import run",
            "mulligan/service/verbs.py:1: 'service' may not know 'runtime'",
        ),
        # importing anything imports the package first
        (
            "mulligan/__init__.py",
            "from mulligan.core import turn",
            "mulligan/__init__.py:1: the package itself imports 'core'",
        ),
        # a part nobody designed
        ("mulligan/extras/a.py", "", "mulligan/extras/a.py: 'extras' is no part of the design"),
    ],
)
def test_an_arrow_against_the_stream_is_found(path: str, text: str, sentence: str) -> None:
    assert list(arrows_go_one_way(source(path, text))) == [sentence]


@pytest.mark.parametrize(
    ("module", "text", "sentence"),
    [
        # the simulated world has the real engine and the real stores, and no process
        (
            "simulator/cluster/simulated_cluster.py",
            "import mulligan.worker.local_executor",
            "'simulator' may not know 'worker'",
        ),
        ("simulator/simulation.py", "from mulligan import service", "'simulator' may not know 'service'"),
        ("simulator/workflows.py", "from proof.stage import Stage", "'simulator' may not know 'proof.stage'"),
        # a checker does not use what it checks
        ("invariants/liveness.py", "import mulligan.engine.loop", "'invariants' may not know 'engine'"),
        (
            "invariants/liveness.py",
            "from proof.simulator import simulation",
            "'invariants' may not know 'proof.simulator'",
        ),
    ],
)
def test_an_arrow_of_the_simulator_to_a_process_is_found(module: str, text: str, sentence: str) -> None:
    found = list(the_simulator_runs_the_real_engine_and_stores(source(f"proof/{module}", text)))

    assert found == [f"proof/{module}:1: {sentence}"]


def test_what_the_simulator_runs_of_a_worker_stands_behind_one_module() -> None:
    text = "import mulligan.worker.outputs.result_cache, mulligan.core.turn"

    assert list(the_simulator_runs_the_real_engine_and_stores(source(next(iter(SIMULATED)), text))) == []


@pytest.mark.parametrize("text", ["from proof.simulator import simulation", "import_module('tests.support.postgres')"])
def test_what_the_wheel_lacks_is_found(text: str) -> None:
    (found,) = the_package_needs_nothing_of_the_checkout(source("mulligan/testing/history.py", text))

    assert found.endswith("is not in the wheel")


@pytest.mark.parametrize(
    ("path", "text", "sentence"),
    [
        ("language/keys/plugins.py", "'mulligan.worker.actions.noetl:run'", "'language' may not name "),
        ("language/keys/plugins.py", "import_module(f'mulligan.store.{kind}')", "'language' may not name "),
        # the runtime of another system
        ("formats/torc/action.py", "'mulligan.formats.noetl.runtime:run'", "'formats' may not name "),
        ("worker/actions/plugin.py", "'mulligan.formats.noetl.runtime:run'", "'worker' may not name "),
    ],
)
def test_an_arrow_against_the_stream_is_found_in_a_text(path: str, text: str, sentence: str) -> None:
    (found,) = arrows_in_texts_go_one_way(source(f"mulligan/{path}", text))

    assert sentence in found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("formats/noetl/action.py", "'mulligan.formats.noetl.runtime:run'"),
        ("cli/main.py", "'mulligan.service.words'"),
        ("language/keys/plugins.py", "'mulligan.actions'"),
        ("plugins.py", "'mulligan.formats.noetl.action:NOETL'"),
    ],
)
def test_an_arrow_with_the_stream_is_let_through_in_a_text(path: str, text: str) -> None:
    assert list(arrows_in_texts_go_one_way(source(f"mulligan/{path}", text))) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "mulligan/formats/noetl/runtime/tools/sql_tools.py",
            "from mulligan.worker.actions import sql\nfrom .call import Call",
        ),
        ("mulligan/core/turn.py", "from mulligan.errors import IllegalTransition\nfrom mulligan.core import state"),
        ("mulligan/core/turn.py", "from . import state\nfrom .state import State\nfrom ..errors import Refused"),
        ("mulligan/cli/main.py", "from mulligan import __version__\nfrom mulligan.service import Service"),
        ("mulligan/app.py", "import mulligan.cli.main, mulligan.store.sqlite.sqlite, mulligan.engine.loop"),
        ("mulligan/store/sqlite/sqlite.py", "import apsw\nimport mulligan.ports"),
    ],
)
def test_an_arrow_with_the_stream_is_let_through(path: str, text: str) -> None:
    assert list(arrows_go_one_way(source(path, text))) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "from mulligan.service.runs.stored.run_reader import AttemptLog, RunReader",
            "'RunReader' is behind the service",
        ),
        ("record = service.reader.record(1)", "'.reader' is behind the service"),
        ("now = service.store.now()", "'.store' is behind the service"),
    ],
)
def test_a_face_that_looks_behind_the_service_is_found(text: str, found: str) -> None:
    assert list(faces_look_behind_no_service(source("mulligan/api/areas/runs.py", text))) == [
        f"mulligan/api/areas/runs.py:1: {found}"
    ]


def test_a_face_may_use_the_service_and_others_may_use_what_it_is_made_of() -> None:
    text = "from mulligan.service.service import Service\nService(home).list_runs(query)"
    test_double = source("mulligan/testing/runs.py", "from mulligan.service.runs.stored.run_reader import RunReader")

    assert list(faces_look_behind_no_service(source("mulligan/api/areas/runs.py", text))) == []
    assert list(faces_look_behind_no_service(test_double)) == []


def test_each_folder_says_in_a_sentence_what_it_is_for_and_has_few_modules() -> None:
    folders = {file.parent for file in (SRC / "mulligan").rglob("*.py")}
    found = {folder: [file for file in folder.glob("*.py") if file.name != "__init__.py"] for folder in folders}

    assert [folder for folder, modules in found.items() if len(modules) > MODULES_MAX] == []
    assert [one for one in folders if not (one / "__init__.py").read_text("utf-8").startswith('"""')] == []


def test_modules_are_named_in_texts_only_where_the_name_is_data() -> None:
    """An editor follows an import, also in a function, and no name in a text."""
    calls = [
        f"{path.relative_to(SRC)}:{number}"
        for path in sorted((SRC / "mulligan").rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if "import_module(" in line
    ]

    assert len(calls) <= 20, calls


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import time", "'time' is not on the list of pure modules"),
        ("import os.path", "'os.path' is not on the list of pure modules"),
        ("from random import choice", "'random' is not on the list of pure modules"),
        ("import json, uuid", "'uuid' is not on the list of pure modules"),
        ("at = datetime.now(UTC)", "calls 'now'"),
        # whatever name it was imported under
        ("at = dt.datetime.utcnow()", "calls 'utcnow'"),
        ("day = date.today()", "calls 'today'"),
        ("text = open('a')", "calls 'open'"),
        ("print(1)", "calls 'print'"),
        ("seed = hash('a')", "calls 'hash'"),
    ],
)
def test_an_impure_core_is_found(text: str, found: str) -> None:
    assert list(the_core_is_pure(source("mulligan/core/turn.py", text))) == [f"mulligan/core/turn.py:1: {found}"]


def test_a_pure_core_and_an_impure_shell_are_let_through() -> None:
    core = source("mulligan/core/turn.py", "from datetime import datetime\nimport collections.abc\nat = state.now")
    shell = source("mulligan/engine/loop.py", "import time\nprint(time.time())")

    assert list(the_core_is_pure(core)) == []
    assert list(the_core_is_pure(shell)) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import json",
        "async def f():\n    from json import loads",
        "class A:\n    def f(self): from . import b",
        # two functions deep is one import, told once
        "def f():\n    def g(): import json",
    ],
)
def test_an_import_inside_a_function_of_a_pure_part_is_found(text: str) -> None:
    line = len(text.splitlines())

    assert list(imports_of_pure_parts_stand_at_the_top(source("mulligan/core/turn.py", text))) == [
        f"mulligan/core/turn.py:{line}: an import inside a function"
    ]
    assert list(imports_of_pure_parts_stand_at_the_top(source("mulligan/app.py", text))) == []


def test_an_import_that_depends_on_what_is_installed_may_stand_at_the_top() -> None:
    text = "try:\n    import cel\nexcept ImportError:\n    cel = None\n\ndef f(): return cel"

    assert list(imports_of_pure_parts_stand_at_the_top(source("mulligan/core/turn.py", text))) == []


def test_a_star_import_is_found() -> None:
    module = source("mulligan/app.py", "import re\nfrom mulligan.errors import *")

    assert list(nothing_is_imported_by_star(module)) == ["mulligan/app.py:2: a star import"]


@pytest.mark.parametrize("name", ["utils", "_util", "common", "helpers", "base", "manager", "v2"])
def test_a_file_or_folder_without_a_noun_is_found(name: str) -> None:
    sentence = f"'{name}' says that nobody looked for the noun"

    as_file = list(every_file_is_named_for_a_noun(source(f"mulligan/core/{name}.py", "")))
    as_folder = list(every_file_is_named_for_a_noun(source(f"mulligan/{name}/turn.py", "")))

    assert as_file == [f"mulligan/core/{name}.py: {sentence}"]
    assert as_folder == [f"mulligan/{name}/turn.py: {sentence}"]


def test_a_noun_that_only_begins_like_a_forbidden_one_is_let_through() -> None:
    assert list(every_file_is_named_for_a_noun(source("mulligan/core/baseline.py", ""))) == []


def test_a_long_file_is_found_and_one_line_less_is_let_through() -> None:
    long = source("mulligan/core/turn.py", "pass\n" * LINES_MAX)
    short = source("mulligan/core/turn.py", "pass\n" * (LINES_MAX - 1))

    assert list(files_are_short(long)) == ["mulligan/core/turn.py: 800 lines, and 799 are the most"]
    assert list(files_are_short(short)) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("mulligan/history/story.py", 'if action.kind == "approve": pass'),
        ("mulligan/service/decisions/inbox.py", 'if kind in ("wait", "approve"): pass'),
        ("mulligan/core/deciding/admit.py", "if AGENT != task.kind: pass"),
        ("mulligan/service/authoring/step_trial.py", 'step(action=Action("shell", {"text": "true"}))'),
    ],
)
def test_a_comparison_of_kinds_is_found(path: str, text: str) -> None:
    assert [*kinds_of_actions_are_told_apart_by_their_traits(source(path, text))]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("mulligan/core/model/actions.py", 'if action.kind == "approve": pass'),
        ("mulligan/history/story.py", "if traits_of(action).asks_person: pass"),
        ("mulligan/history/notices.py", 'if notice.kind == "failed": pass'),
        ("mulligan/api/areas/runs.py", 'if verdict == "approve": pass'),
    ],
)
def test_a_question_for_a_trait_is_let_through(path: str, text: str) -> None:
    assert not [*kinds_of_actions_are_told_apart_by_their_traits(source(path, text))]
