"""The house rules of DESIGN.md that a machine can read off the source."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import bhclust

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bhclust"
FILES = sorted(SOURCE.rglob("*.py"))

# A room may import the rooms before it, and none after it.
ORDER = (
    "_validation",
    "_progress",
    "tree",
    "models",
    "_columns",
    "_frames",
    "tables",
    "csvtable",
    "tablefile",
    "mixing",
    "frontier",
    "_kernels",
    "_gpu",
    "agglomerate",
    "_branches",
    "posterior",
    "layout",
    "explanations",
    "_cluster_tree",
    "_routing",
    "regression",
    "coalescent",
    "_fixed_tree",
    "_pinning",
    "_coordinates",
    "_linkage",
    "_polish",
    "strategies",
    "learn",
    "randomised",
    "_whole_numbers",
    "_wide_counts",
    "_partitions",
    "_growing_any",
    "growing",
    "metrics",
    "_newick",
    "_nexus",
    "_treejson",
    "io",
    "bridges",
    "datasets",
    "estimators",
    "distributed",
    "comparison",
    "bhclust",
    "plots",
    "report",
    "viewer",
    "cli",
)

# `Tree` and `to_html` of the estimators are façades whose methods hold no logic; only the examples
# of `load_example` need scikit-learn's data sets.
IMPORTS_IN_FUNCTIONS = {
    "tree": {"bhclust.bridges", "bhclust.io", "bhclust.posterior", "bhclust.viewer"},
    "estimators": {"bhclust.viewer"},
    "datasets": {"sklearn"},
}

OPTIONAL = (
    "matplotlib", "pandas", "polars", "pyarrow", "dask", "networkx", "torch", "cupy",
    "ete4", "skbio", "anndata", "arviz",
)  # fmt: skip
UNSAFE = {"pickle", "dill", "cloudpickle", "marshal", "shelve"}
LONGEST_FILE = 700


def room_of(path: Path) -> str:
    """Return the room a source file belongs to; the package's own file is ``bhclust``."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "bhclust" if first == "__init__" else first


def imported(node: ast.Import | ast.ImportFrom, path: Path) -> list[str]:
    """Return the full names of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"{path.name}:{node.lineno} imports relative to itself"
    if node.module == "bhclust":
        return [
            f"bhclust.{alias.name}" if alias.name in ORDER else "bhclust" for alias in node.names
        ]
    return [node.module or ""]


def target_room(module: str) -> str | None:
    """Return the room of a module of ours, None for a module of others."""
    package, _, rest = module.partition(".")
    if package != "bhclust":
        return None
    return rest.split(".")[0] or "bhclust"


def import_statements(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Return the imports of a file and whether each stands inside a function.

    Imports under ``if TYPE_CHECKING`` are for readers and type checkers, and are left out.
    """
    found: list[tuple[ast.Import | ast.ImportFrom, bool]] = []
    todo: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text("utf-8")), False)]
    while todo:
        node, inside = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append((node, inside))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        todo.extend((child, inside) for child in ast.iter_child_nodes(node))
    return found


def test_every_module_has_its_place():
    rooms = {room_of(path) for path in FILES}
    assert rooms <= set(ORDER), f"give {sorted(rooms - set(ORDER))} a place in ORDER and DESIGN.md"


def test_the_design_names_the_same_order():
    text = (ROOT / "DESIGN.md").read_text("utf-8")
    block = text.split("Import order")[1].split("```")[1]
    assert tuple(block.replace("<", " ").split()) == ORDER


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    room = room_of(path)
    for node, inside in import_statements(path):
        for module in imported(node, path):
            target = target_room(module)
            if target is None or target == room:
                continue
            if inside and module in IMPORTS_IN_FUNCTIONS.get(room, ()):
                continue
            place = f"{path.name}:{node.lineno}"
            assert not inside, f"{place} imports {module} inside a function"
            assert ORDER.index(target) < ORDER.index(room), f"{place}: {room} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_optional_packages_are_imported_inside_functions(path):
    allowed = {*OPTIONAL, *IMPORTS_IN_FUNCTIONS.get(room_of(path), ())}
    for node, inside in import_statements(path):
        for module in imported(node, path):
            package = module.split(".")[0]
            if package in OPTIONAL:
                assert inside, f"{path.name}:{node.lineno} imports {module} for everybody"
            elif inside and package not in sys.stdlib_module_names:
                assert {package, module} & allowed, f"{path.name}:{node.lineno} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_unpickled_and_no_text_is_run(path):
    for node, _ in import_statements(path):
        for module in imported(node, path):
            assert module.split(".")[0] not in UNSAFE
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        place = f"{path.name}:{node.lineno}"
        if isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec", "compile", "__import__"}, place
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle":
                assert ast.unparse(keyword.value) == "False", place


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_short_enough_to_read(path):
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_public_functions_and_classes_have_a_docstring(path):
    tree = ast.parse(path.read_text("utf-8"))
    assert ast.get_docstring(tree), f"{path.name} does not say what it is for"
    if any(part.startswith("_") for part in path.relative_to(SOURCE).with_suffix("").parts):
        return
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path.name}:{node.lineno} {node.name}"


def public_objects():
    """Yield what the public packages export."""
    for name in ("bhclust", "bhclust.models", "bhclust.coalescent", "bhclust.estimators"):
        module = importlib.import_module(name)
        for exported in module.__all__:
            yield pytest.param(getattr(module, exported), id=f"{name}.{exported}")


@pytest.mark.parametrize("thing", list(public_objects()))
def test_public_methods_have_a_docstring(thing):
    if not inspect.isclass(thing):
        return
    for name, member in vars(thing).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            assert inspect.getdoc(getattr(thing, name)), f"{thing.__name__}.{name}"


def test_everything_exported_exists():
    for module_info in pkgutil.walk_packages([str(SOURCE)], "bhclust."):
        module = importlib.import_module(module_info.name)
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{module_info.name}.{name}"


def run_python(code):
    """Run Python code in a fresh interpreter and return the words it prints."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_nothing_optional():
    # scikit-learn itself imports pandas where it is installed.
    required = "import sys, numba, narwhals, click, scipy, sklearn.base, sklearn.utils.validation"
    added = "print(*(set(name.split('.')[0] for name in sys.modules) - before))"
    before = "before = set(name.split('.')[0] for name in sys.modules)"
    found = run_python(f"{required}; {before}; import bhclust; {added}")
    assert "bhclust" in found
    assert found & set(OPTIONAL) == set()


def test_the_package_works_without_anything_optional():
    # What is not of use to a table is not installed with the tests, and others look for it.
    code = f"""
        import sys

        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in {OPTIONAL[:4]!r}:
                    raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, Absent())
        import bhclust, bhclust.cli, bhclust.report
        print(bhclust.BayesianRoseTree().fit([[0, 1], [0, 1], [1, 0]]).n_clusters_)
    """
    assert run_python(textwrap.dedent(code)) <= set("123")


def test_the_package_says_that_it_is_typed():
    assert (SOURCE / "py.typed").exists()
    assert bhclust.__version__.count(".") == 2
