"""Who may import whom: arrows point down only."""

from __future__ import annotations

import ast
import subprocess
import sys
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
