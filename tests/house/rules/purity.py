"""From the roles down no code reads the clock, draws a random number, opens a socket or connects to a server.

import-linter checks the same for imports; this rule also finds imports by name and clocks reached through other modules.
"""

import ast
import tomllib
from pathlib import Path

from house.rules.tree import module_of, name_of, parsed, python_files

PURE_PACKAGES = (
    "broker", "federation", "incidents", "healing", "history", "mesh",
    "matching", "roads", "trust", "vetting",
    "wire",
    "model",
)  # fmt: skip

FORBIDDEN_MODULES = {
    "asyncio", "confluent_kafka", "kazoo", "pyspark", "random", "secrets", "selectors", "socket", "threading", "time", "uuid",
}  # fmt: skip

FORBIDDEN_CALLS = {
    "date.today", "datetime.now", "datetime.today", "datetime.utcnow",
    "np.random", "numpy.random", "os.getrandom", "os.times", "os.urandom",
    "builtins.open", "importlib.import_module",
}  # fmt: skip
FORBIDDEN_BARE_CALLS = {"__import__", "open", "print", "input"}


def purity_faults(root: Path) -> list[str]:
    """Return lines of pure packages that use the clock, randomness, files or sockets."""
    faults = []
    for path in python_files(root, "src"):
        if package_of(module_of(root, path)) in PURE_PACKAGES:
            faults += [f"{name_of(root, path)}:{line} {what}" for line, what in _reaches(parsed(path))]
    return faults


def contract_faults(root: Path) -> list[str]:
    """Return pure packages, and forbidden modules, that the forbidden contract in pyproject.toml does not name."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidden = next(
        contract for contract in contracts if contract["type"] == "forbidden" and "milepost.model" in contract["source_modules"]
    )
    packages = {package_of(module_of(root, path)) for path in python_files(root, "src")} & set(PURE_PACKAGES)
    missing = sorted(f"milepost.{package}" for package in packages if f"milepost.{package}" not in forbidden["source_modules"])
    unlisted = sorted(FORBIDDEN_MODULES - set(forbidden["forbidden_modules"]))
    return [f"pyproject.toml: the forbidden contract does not name {name}" for name in [*missing, *unlisted]]


def package_of(module: str) -> str:
    """Return the package below milepost: `model` for milepost.model.areas."""
    return [*module.split("."), ""][1]


def _reaches(tree: ast.Module) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, f"imports {name.name}") for name in node.names if _is_forbidden(name.name)]
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{name.name}" for name in node.names]
            found += [(node.lineno, f"imports {name}") for name in whole if _is_forbidden(name)]
        elif isinstance(node, ast.Attribute) and _dotted(node) in FORBIDDEN_CALLS:
            found.append((node.lineno, f"uses {_dotted(node)}"))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_BARE_CALLS:
            found.append((node.lineno, f"calls {node.func.id}"))
        elif isinstance(node, ast.Call) and _is_numpy_clock(node):
            found.append((node.lineno, "reads the clock with datetime64"))
    return found


def _is_numpy_clock(call: ast.Call) -> bool:
    is_datetime64 = isinstance(call.func, ast.Attribute) and call.func.attr == "datetime64"
    return is_datetime64 and any(isinstance(given, ast.Constant) and given.value in ("now", "today") for given in call.args)


def _is_forbidden(module: str) -> bool:
    parts = module.split(".")
    return parts[0] in FORBIDDEN_MODULES or ".".join(parts[:2]) in FORBIDDEN_CALLS


def _dotted(node: ast.Attribute) -> str:
    """The last two names of a dotted expression: `datetime.now` also in datetime.datetime.now."""
    owner = node.value
    if isinstance(owner, ast.Attribute):
        return f"{owner.attr}.{node.attr}"
    return f"{owner.id}.{node.attr}" if isinstance(owner, ast.Name) else node.attr
