"""Who may import whom: arrows point down only, between parts and between modules."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import genmetrics

ROOT = Path(genmetrics.__file__).parent

# What each part may import of ours (besides itself).
ALLOWED = {
    "core": set(),
    "stats": {"core"},
    "weights": {"core"},
    "samples": {"core"},
    "extractors": {"core", "weights", "samples", "stats"},
    "metrics": {"core", "stats", "extractors", "samples", "weights"},
    "run": {"core", "stats", "extractors", "samples", "weights", "metrics"},
    "report": {"core", "stats", "samples", "metrics", "run"},
    "cli": {"core", "samples", "weights", "extractors", "metrics", "run", "report", "api"},
    "api": {"core", "run", "report"},
    "distributed": {"core"},
    "integrations": {"core", "distributed"},
}


def imports(path: Path) -> set[str]:
    """Top-level parts of genmetrics that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "genmetrics" and len(parts) > 1:
                found.add(parts[1])
    return found


def test_arrows_point_down_only():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part in ("__init__", "__main__"):
            continue
        beyond = imports(path) - ALLOWED[part] - {part}
        wrong += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(beyond)]
    assert wrong == []


def modules_imported() -> dict[str, set[str]]:
    """Each module of ours to those that it imports, also inside functions, but not for types."""
    paths = {_module_name(path): path for path in ROOT.rglob("*.py")}
    return {
        name: {
            found
            for imported in _imported_names(ast.parse(path.read_text()))
            if (found := imported if imported in paths else imported.rpartition(".")[0]) in paths
        }
        for name, path in paths.items()
    }


def _module_name(path: Path) -> str:
    parts = (ROOT.name, *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported_names(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        yield from _imported_names(child)


def a_cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the modules of some cycle, the first one again at its end; empty without any."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_module_imports_itself_by_way_of_others():
    assert " -> ".join(a_cycle(modules_imported())) == ""


def test_a_circle_of_imports_would_be_shown():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert sorted(a_cycle(graph)[1:]) == ["a", "b", "c"]
    tree = ast.parse("if TYPE_CHECKING:\n    import a\ndef f():\n    from b import c\n")
    assert list(_imported_names(tree)) == ["b.c"]


def test_modules_stay_readable():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in ROOT.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 450
    }
    assert long == {}


def test_import_and_the_registry_are_light():
    code = (
        "import sys, genmetrics, genmetrics.metrics, genmetrics.core.registry as r;"
        "assert 'fid' in r.registered();"
        "heavy = {'torch', 'transformers', 'timm', 'open_clip', 'scipy', 'skimage', 'PIL'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_registered_metric_is_a_public_name():
    from genmetrics.core.registry import registered

    for metric in registered().values():
        assert getattr(genmetrics, metric.__name__) is metric
    assert {"FID", "evaluate", "load_image", "stats"} <= set(dir(genmetrics))
