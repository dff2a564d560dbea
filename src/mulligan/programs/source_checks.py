"""Warns of what stands in a program and differs from replay to replay: the clock, chance, files, the order of sets.

What is found is a guess from the source. So these are warnings: a program that knows better goes on. Steps are not
looked at: they may do anything.
"""

from __future__ import annotations

import ast
from typing import NamedTuple


class SourceWarning(NamedTuple):
    """A line of a program, what is wrong with it, and what to write instead."""

    line: int
    column: int
    message: str
    hint: str


_NOW = "mulligan.now() is recorded"
_RANDOM = "mulligan.random() is recorded"
_UUID = "mulligan.uuid4() is recorded"
_STEP = "do it in a step; @step(inline=True) runs in the program's own process"
_INPUT = "make it an input of the program, or read it in a step"

# What a call or an attribute means, by its dotted name.
_NAMES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("time.time", "time.time_ns", "time.monotonic", "time.perf_counter", "time.localtime", "time.gmtime"),
        ("reads the clock", _NOW),
    ),
    **dict.fromkeys(
        ("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
        ("reads the clock", _NOW),
    ),
    "time.sleep": ("sleeps in its process", 'mulligan.sleep("30s") needs no process'),
    **dict.fromkeys(("uuid.uuid1", "uuid.uuid4"), ("makes an id", _UUID)),
    **dict.fromkeys(
        ("os.urandom", "secrets.token_hex", "secrets.token_urlsafe", "secrets.token_bytes"), ("asks chance", _RANDOM)
    ),
    **dict.fromkeys(("os.environ", "os.getenv", "os.environb"), ("reads its environment", _INPUT)),
    **dict.fromkeys(
        ("os.getcwd", "os.getpid", "os.cpu_count", "socket.gethostname", "platform.node"), ("asks its machine", _INPUT)
    ),
    **dict.fromkeys(("open", "io.open", "os.listdir", "os.scandir", "os.walk", "glob.glob"), ("uses files", _STEP)),
    **dict.fromkeys(
        ("os.path.exists", "os.path.isfile", "os.path.isdir", "os.path.getsize", "os.path.getmtime", "os.stat"),
        ("looks at files", _STEP),
    ),
    **dict.fromkeys(
        ("shutil.copy", "shutil.move", "shutil.rmtree", "os.remove", "os.rename", "os.makedirs"), ("uses files", _STEP)
    ),
    **dict.fromkeys(
        (
            "os.system",
            "os.popen",
            "subprocess.run",
            "subprocess.Popen",
            "subprocess.check_output",
            "subprocess.check_call",
        ),
        ("starts a process", _STEP),
    ),
    **dict.fromkeys(
        ("urllib.request.urlopen", "socket.create_connection", "socket.socket", "sqlite3.connect"),
        ("uses the network or a database", _STEP),
    ),
    **dict.fromkeys(
        (
            "asyncio.to_thread",
            "threading.Thread",
            "concurrent.futures.ThreadPoolExecutor",
            "concurrent.futures.ProcessPoolExecutor",
            "multiprocessing.Process",
            "multiprocessing.Pool",
        ),
        ("starts threads or processes", _STEP),
    ),
    **dict.fromkeys(
        ("asyncio.run", "asyncio.new_event_loop"), ("runs an event loop of its own", "write the program as 'async def'")
    ),
}
# Modules of which everything means the same.
_MODULES: dict[str, tuple[str, str]] = {
    "random": ("asks chance", _RANDOM),
    "numpy.random": ("asks chance", _RANDOM),
    **dict.fromkeys(("requests", "httpx", "aiohttp", "boto3", "psycopg", "sqlalchemy"), ("uses the network", _STEP)),
}
# Built in, and only if they are called: as names of variables they are common.
_BUILT_IN: dict[str, tuple[str, str]] = {
    "hash": ("asks for a hash, which differs from process to process", "hashlib has hashes that do not"),
    "id": ("asks for an address", "use a value that the object has"),
    "input": ("reads its standard input", _INPUT),
}
# Methods of paths, whatever the path is called.
_FILE_METHODS = frozenset(
    {"read_text", "write_text", "read_bytes", "write_bytes", "iterdir", "unlink", "mkdir", "is_file", "is_dir", "rglob"}
)
_SET_MAKERS = frozenset({"set", "frozenset"})
# What does not depend on the order of a set.
_ORDERLESS = frozenset({"sorted", "len", "sum", "min", "max", "any", "all", "set", "frozenset"})
_SET_ORDER = ("goes through a set, whose order differs from process to process", "write sorted(…)")
_DECORATOR = "program"
# What has to be awaited in an `async def`, besides steps.
_AWAITED = frozenset({"mulligan.approve", "mulligan.sleep", "mulligan.gather", "mulligan.wait_event"})


def check_source(text: str, file: str = "<program>", *, program: str = "") -> list[SourceWarning]:
    """The warnings for a program in the text of a module, or for all, by line; none if it is not Python."""
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError):
        return []
    names = _imported_names(tree)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    called = {node.name for node in functions if _is_decorated(node, names, "step", "program", "flow")}
    found: list[SourceWarning] = []
    for node in functions:
        if _is_decorated(node, names, _DECORATOR) and program in ("", node.name):
            found += _Checker(names, node, called).warnings()
    return sorted(found)


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """What the names of a module mean, as dotted names: `dt` is `datetime`, `now` is `datetime.datetime.now`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found[name] = alias.name if alias.asname else name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _is_decorated(node: ast.FunctionDef | ast.AsyncFunctionDef, names: dict[str, str], *decorators: str) -> bool:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        package, _, name = _dotted(target, names).rpartition(".")
        if name in decorators and package in ("mulligan", f"mulligan.programs.{_DECORATOR}"):
            return True
    return False


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """The full name of `dt.now`, or "" if it is something else than names and dots."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


class _Checker(ast.NodeVisitor):
    """Looks at one program, and not at the functions with decorators inside of it."""

    def __init__(
        self, names: dict[str, str], program: ast.FunctionDef | ast.AsyncFunctionDef, called: set[str]
    ) -> None:
        self._names = names
        self._program = program
        # The steps, programs and flows of the module.
        self._called = called
        self._found: dict[tuple[int, str], SourceWarning] = {}
        # Local names that hold a set; and names that mean something else here than in the module.
        self._sets: set[str] = set()
        self._locals = {one.arg for one in (*program.args.args, *program.args.kwonlyargs)}

    def warnings(self) -> list[SourceWarning]:
        for node in ast.walk(self._program):
            if isinstance(node, ast.Assign) and self._is_set(node.value):
                self._sets |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        for statement in self._program.body:
            self.visit(statement)
        return list(self._found.values())

    def _warn(self, node: ast.expr, meaning: tuple[str, str]) -> None:
        what, hint = meaning
        end = "" if what.startswith("calls ") else ": a replay may differ"
        message = f"the program '{self._program.name}' {what}{end}"
        self._found.setdefault((node.lineno, what), SourceWarning(node.lineno, node.col_offset + 1, message, hint))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not node.decorator_list:
            self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        if not node.decorator_list:
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(self._program, ast.AsyncFunctionDef) and isinstance(call, ast.Call):
            function = call.func
            if isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute):
                function = function.func.value  # load.options(…)(…)
            elif isinstance(function, ast.Attribute) and function.attr == "call":
                function = function.value
            name = _dotted(function, self._names)
            if name in _AWAITED or (name in self._called and name not in self._locals):
                what = f"calls '{name.removeprefix('mulligan.')}' and does not await it"
                self._warn(call, (what, "write await before it: it does not start otherwise"))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._look_up(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not self._look_up(node):
            self.generic_visit(node)

    def _look_up(self, node: ast.Name | ast.Attribute) -> bool:
        name = _dotted(node, self._names)
        root = name.partition(".")[0]
        if not name or root in self._locals:
            return False
        if name in _NAMES and (name != "open" or isinstance(node, ast.Name)):
            self._warn(node, _NAMES[name])
            return True
        for module, meaning in _MODULES.items():
            if name.startswith(f"{module}."):
                self._warn(node, meaning)
                return True
        return False

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _FILE_METHODS:
            self._warn(function, ("uses files", _STEP))
        name = _dotted(function, self._names)
        if isinstance(function, ast.Name) and name in _BUILT_IN and name not in self._locals:
            self._warn(function, _BUILT_IN[name])
        if name not in _ORDERLESS:
            is_ordering = name in ("list", "tuple", "enumerate", "iter", "next", "zip", "map", "filter")
            is_gather = name in ("mulligan.gather", "asyncio.gather")
            for argument in node.args:
                if (is_ordering or is_gather) and self._is_set(argument):
                    self._warn(argument, _SET_ORDER)
        if name in _ORDERLESS and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            # sorted(x for x in a_set)
            for generator in node.args[0].generators:
                self.visit(generator.iter)
            self.visit(node.args[0].elt)
            return
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._check_iterated(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._check_iterated(node.iter)
        self.generic_visit(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        for generator in node.generators:
            self.visit(generator.iter)
        self.visit(node.elt)

    def _check_iterated(self, node: ast.expr) -> None:
        if self._is_set(node):
            self._warn(node, _SET_ORDER)

    def _is_set(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Name):
            return node.id in self._sets
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
            return self._is_set(node.left) or self._is_set(node.right)
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SET_MAKERS
