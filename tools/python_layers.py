"""The layers of python/hakmem, and the imports that break them.

A module imports only modules of its own package or of a lower layer; those of one layer do not import each other. An
import for types alone (`if TYPE_CHECKING:`) is none, because it does not run. Commands stand above all else and may
import each other."""
from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("python/hakmem")
# Packages and modules, lowest first.
LAYERS = [
    ["clean", "compat", "json_pieces", "records", "streams", "writing", "paths", "extras", "library", "markdown",
     "parameters", "phrases"],
    ["foreign", "apart", "status_line", "screen", "amount", "units", "version", "document"],
    ["limits", "elf", "starter", "completion"],
    ["live"],
    ["processes", "supervise"],
    ["heap"],
    ["doctor", "gdb", "guard", "inside", "leaks", "look", "peers", "ps", "report", "serve", "top"],
    ["budget", "bench", "pytest_plugin", "scopes"],
    ["analyze", "trace", "watched"],
    ["run"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# Modules that are commands besides those named command or ..._command, and what only starts them.
COMMANDS = {"__init__", "__main__", "bench.compare", "cli"}


def rank_of(module: str) -> int | None:
    """Returns the rank of a module such as heap.file; None if no layer names its package."""
    last = module.rpartition(".")[2]
    if module in COMMANDS or last == "command" or last.endswith("_command"):
        return len(LAYERS)
    return RANK.get(module.partition(".")[0])


def may_import(user: str, used: str) -> bool:
    """Returns whether a module may import another. Both are of a layer."""
    user_rank, used_rank = rank_of(user), rank_of(used)
    assert user_rank is not None and used_rank is not None
    if user_rank == len(LAYERS):
        return True
    same = user.partition(".")[0] == used.partition(".")[0] and used_rank < len(LAYERS)
    return same or used_rank < user_rank


def is_for_types(node: ast.AST) -> bool:
    """Returns whether a statement is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports_of(node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yields (line, module, name) of each import of hakmem's that runs, in functions too."""
    for child in ast.iter_child_nodes(node):
        if is_for_types(child):
            continue
        if isinstance(child, ast.Import):
            for alias in child.names:
                if alias.name.startswith("hakmem."):
                    yield child.lineno, alias.name.rpartition(".")[0].partition(".")[2], alias.name.rpartition(".")[2]
        elif isinstance(child, ast.ImportFrom) and (module := child.module or "").partition(".")[0] == "hakmem":
            for alias in child.names:
                yield child.lineno, module.partition(".")[2], alias.name
        yield from imports_of(child)


def check_python(root: Path) -> Iterator[tuple[str, str]]:
    """Yields (place, what is wrong) for each import that breaks the layers, and each module of no layer."""
    folder = root / FOLDER
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        if rank_of(module) is None:
            yield str(path.relative_to(root)), "is in no layer of tools/python_layers.py"
            continue
        for line, package, name in imports_of(ast.parse(path.read_text())):
            whole = f"{package}.{name}".removeprefix(".")
            used = whole if (folder / f"{whole.replace('.', '/')}.py").is_file() or not package else package
            if rank_of(used) is not None and not may_import(module, used):
                yield f"{path.relative_to(root)}:{line}", f"imports {used}, which is no lower layer"
