"""The documentation does what it says: its code and commands run, its links resolve.

Each page runs in a folder of its own that holds the small sets its examples speak of. A comment on
the line behind a code block says what is expected when it is not plain success:

- ``<!-- needs weights -->``: weights that are not here are missed, and the line says what to fetch;
- ``<!-- exit 1 -->``, ``<!-- exit 2 -->``: the exit code of every command of the block;
- ``<!-- only on a machine with ... -->``: not run.
"""

from __future__ import annotations

import doctest
import importlib
import io
import json
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

import genmetrics
import genmetrics.metrics
from genmetrics.core.errors import WeightsError
from genmetrics.core.registry import full_id, options_of, registered

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
COUNT, SIDE = 12, 64

HEADINGS = [
    "What it measures",
    "Facts",
    "Formula",
    "Variants and protocol",
    "Options",
    "Interval and per-sample values",
    "Numbers it reproduces",
    "Traps",
    "Source",
    "Example",
]
"""Sections of every card in docs/metrics, in this order."""


class Block(NamedTuple):
    """A fenced block: its language, its text, the remark behind it, and its line in the page."""

    language: str
    text: str
    remark: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """Read the fenced blocks of a page in order."""
    pattern = r"^```(\w+)\n(.*?)^```\n(?:\n?<!-- (.*?) -->\n)?"
    text = page.read_text()
    for match in re.finditer(pattern, text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(match[1], match[2], match[3] or "", line)


def commands(block: Block) -> Iterator[list[str]]:
    """Split the ``genmetrics`` lines of a shell block; output and other programs are left out."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = line.removeprefix("$ ")
        if words.startswith("genmetrics "):
            yield shlex.split(words, comments=True)[1:]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


# -- a folder with what the examples speak of ------------------------------------------------------


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small sets: generated images, their counterparts, masks and prompts, and a reference set."""
    folder = tmp_path_factory.mktemp("docs") / "data"
    clean, others = crops(seed=1), crops(seed=0)
    rng = np.random.default_rng(2)
    noisy = [np.clip(x + rng.normal(0, 15, x.shape), 0, 255).astype(np.uint8) for x in clean]
    mask = np.zeros((SIDE, SIDE), np.uint8)
    mask[16:48, 16:48] = 255
    for name, images in {
        "gen": noisy,
        "pairs": clean,
        "real": others,
        "masks": [mask] * COUNT,
        "other": [np.flip(x, axis=1) for x in noisy],
    }.items():
        write(folder / name, images)
    ids = [f"{i:04d}" for i in range(COUNT)]
    write_lines(folder / "prompts.jsonl", [{"id": i, "prompt": f"photo {i}"} for i in ids])
    write_lines(
        folder / "manifest.jsonl",
        [
            {"file": f"gen/{i}.png", "prompt": f"photo {i}", "reference": f"pairs/{i}.png"}
            for i in ids
        ],
    )
    shutil.make_archive(str(folder / "gen"), "zip", folder / "gen")
    np.savez(folder / "samples.npz", arr_0=np.stack(noisy))
    np.savez(folder / "published.npz", mu=np.zeros(4), sigma=np.eye(4))
    shutil.copytree(folder / "gen", folder / "with_faults")
    (folder / "with_faults/0003.png").write_bytes(b"\x89PNG\r\n\x1a\n, and no more")
    shutil.copytree(folder / "pairs", folder / "incomplete")
    (folder / "incomplete/0005.png").unlink()
    write_lines(folder / "tints.jsonl", [{"id": i, "tint": [128, 128, 128]} for i in ids])
    for clip in range(3):
        write(folder / f"clips/{clip}", noisy[3 * clip : 3 * clip + 2 + clip])
    write_lines(
        folder / "clips.jsonl", [{"id": f"clip-{i}", "video": f"clips/{i}"} for i in range(3)]
    )
    write_geneval(folder, noisy[:4])
    write_shards(folder)
    return folder


def crops(seed: int) -> list[np.ndarray]:
    from skimage import data

    photos = [data.astronaut(), data.chelsea(), data.coffee(), data.rocket()]
    rng = np.random.default_rng(seed)
    found = []
    for i in range(COUNT):
        photo = photos[i % len(photos)]
        top, left = (int(rng.integers(0, photo.shape[axis] - 2 * SIDE)) for axis in (0, 1))
        found.append(photo[top : top + 2 * SIDE : 2, left : left + 2 * SIDE : 2])
    return found


def write(folder: Path, images: list[np.ndarray]) -> None:
    folder.mkdir(parents=True)
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{i:04d}.png")


def write_lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def write_geneval(folder: Path, images: list[np.ndarray]) -> None:
    """Two prompts of two images each, and what a detector found in them."""
    asked = [
        {
            "tag": "single_object",
            "include": [{"class": "bench", "count": 1}],
            "prompt": "a photo of a bench",
        },
        {
            "tag": "counting",
            "include": [{"class": "cat", "count": 2}],
            "exclude": [{"class": "cat", "count": 3}],
            "prompt": "a photo of two cats",
        },
    ]
    records = []
    for i, row in enumerate(asked):
        write(folder / f"geneval/{i:05d}/samples", images[2 * i : 2 * i + 2])
        write_lines(folder / f"geneval/{i:05d}/metadata.jsonl", [row])
        for j in range(2):
            boxes = [[0, 0, 20, 20], [30, 0, 60, 30]][: j + 1]
            label = row["include"][0]["class"]
            found = [{"label": label, "box": box, "score": 0.95} for box in boxes]
            records.append({"id": f"{i:05d}/{j:04d}", "detector": "example", "detections": found})
    write_lines(folder / "detections.jsonl", records)


def write_shards(folder: Path) -> None:
    """The generated images in three tars with prompts, in two Parquet files, and with pairs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted((folder / "gen").iterdir())
    (folder / "shards").mkdir()
    for shard in range(3):
        with tarfile.open(folder / f"shards/gen-{shard:06d}.tar", "w") as archive:
            for file in files[4 * shard : 4 * shard + 4]:
                archive.add(file, file.name)
                text = tarfile.TarInfo(f"{file.stem}.txt")
                text.size = len(file.stem)
                archive.addfile(text, io.BytesIO(file.stem.encode()))
    edited = [file.read_bytes() for file in files]
    source = [(folder / "pairs" / file.name).read_bytes() for file in files]
    pq.write_table(pa.table({"edited": edited, "source": source}), folder / "edits.parquet")
    (folder / "parquet").mkdir()
    for half in range(2):
        table = pa.table({"image": edited[6 * half : 6 * half + 6]})
        pq.write_table(table, folder / f"parquet/train-{half:05d}-of-00002.parquet")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all pages, so that their examples extract each image once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def place(
    prepared: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A fresh copy of the folder as the working directory, no weights but those installed."""
    import torch

    from genmetrics.core import fields, registry

    folder = tmp_path / "page"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    for name in ("GENMETRICS_WEIGHTS", "HF_HUB_CACHE", "GENMETRICS_MANIFEST"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GENMETRICS_HOME", "TORCH_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("GENMETRICS_OFFLINE", "1")
    monkeypatch.setattr(registry, "_METRICS", dict(registry._METRICS))
    known = dict(fields.FIELDS)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the examples are so small that threads only wait for each other
    yield folder
    torch.set_num_threads(threads)
    for name in fields.FIELDS.keys() - known.keys():  # what the page's package registered
        del fields.FIELDS[name]


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_code_and_commands_of_a_page_run(
    page: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in blocks(page):
        where = f"{named(page)} line {block.line}"
        if block.remark.startswith("only on"):
            continue
        if block.language == "python":
            run_python(block, module, where)
        elif block.language in ("console", "bash", "sh"):
            for words in commands(block):
                run_command(words, block.remark, f"{where}: genmetrics {shlex.join(words)}", capsys)


def run_python(block: Block, module: types.ModuleType, where: str) -> None:
    code = compile("\n" * block.line + block.text, where, "exec")
    if block.remark == "needs weights":
        with pytest.raises(WeightsError, match="genmetrics weights fetch"):
            exec(code, vars(module))
    else:
        exec(code, vars(module))


def run_command(
    words: list[str], remark: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from genmetrics.cli.main import main

    expected = {"needs weights": 2, "exit 1": 1, "exit 2": 2}.get(remark, 0)
    if "--processes" in words:  # the ranks it starts run the command line of their process
        command = [sys.executable, "-m", "genmetrics", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        code, said = done.returncode, done.stderr
    else:
        code = main(words)
        said = capsys.readouterr().err
    assert code == expected, f"{where} gave {code}: {said[-500:]}"
    if remark == "needs weights":
        assert "genmetrics weights fetch" in said.splitlines()[-1], f"{where}: {said[-500:]}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def anchors(page: Path) -> set[str]:
    """Names under which the headings of a page can be linked to."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_fence_is_a_block_with_a_language(page: Path) -> None:
    assert page.read_text().count("```") == 2 * len(list(blocks(page)))


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.name != "README.md"]
    assert [page for page in pages if f"({page})" not in index] == []


def test_every_test_that_is_named_as_evidence_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (DOCS / "checked.md").read_text())
    assert len(named) > 30
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).exists() or f"def {name}(" not in (ROOT / file).read_text()
    ]
    assert missing == []


# -- cards -----------------------------------------------------------------------------------------


@pytest.fixture(params=list(registered()))
def card(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Id of a metric, and the text of its card."""
    return request.param, (DOCS / "metrics" / f"{request.param}.md").read_text()


def test_every_card_has_the_same_sections(card: tuple[str, str]) -> None:
    _, text = card
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert len(text.splitlines()) <= 130, "a card is one page"


def test_a_card_names_every_variant_and_option(card: tuple[str, str]) -> None:
    name, text = card
    metric = registered()[name]
    wanted = [f"`{full_id(metric, variant)}`" for variant in metric.variants]
    options = section(text, "Options")
    missing = [text_ for text_ in wanted if text_ not in text]
    missing += [option for option in options_of(metric) if f"`{option}`" not in options]
    assert missing == []


def test_the_facts_of_a_card_are_those_of_the_class(card: tuple[str, str]) -> None:
    from genmetrics.cli.list import direction, needs

    name, text = card
    metric = registered()[name]
    lo, hi = ("none" if bound is None else f"{bound:.6g}" for bound in metric.bounds)
    expected = {
        "Class": f"`genmetrics.{metric.__name__}`",
        "Needs": needs(metric),
        "Direction": direction(metric),
        "Bounds": "none" if lo == hi == "none" else f"{lo} to {hi}",
        "Unit": metric.unit or "none",
        "Minimum": str(metric.minimum),
    }
    found = dict(re.findall(r"^\| ([A-Z]\w+) \| (.+?) \|$", section(text, "Facts"), re.MULTILINE))
    assert found == expected


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_every_card_belongs_to_a_metric() -> None:
    assert {page.stem for page in (DOCS / "metrics").glob("*.md")} == set(registered())


# -- a package of somebody else --------------------------------------------------------------------


def test_the_worked_example_is_found_through_its_entry_point(place: Path, home: Path) -> None:
    """What docs/adding-a-metric.md shows, installed the way an index would deliver it."""
    page = list(blocks(DOCS / "adding-a-metric.md"))
    (module,) = [b.text for b in page if b.text.startswith("# my_metrics.py")]
    (project,) = [b.text for b in page if b.language == "toml"]
    ((group, entry),) = re.findall(r'^\[project\.entry-points\."(.+)"\]\n(.+)$', project, re.M)
    site = place / "site"
    installed = site / "my_metrics-0.1.dist-info"
    installed.mkdir(parents=True)
    (site / "my_metrics.py").write_text(module)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-metrics\nVersion: 0.1\n")
    (installed / "entry_points.txt").write_text(f"[{group}]\n{entry.replace(chr(34), '')}\n")
    lines = [w for b in page if b.language == "console" for w in commands(b) if w[0] == "eval"]
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "from genmetrics.cli.main import main\n"
        f"sys.exit(max(main(words) for words in {lines!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("colourfulness", "centroid@lite", "steadiness", "tint-distance"):
        assert name in done.stdout


# -- docstrings ------------------------------------------------------------------------------------

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(genmetrics.__path__, "genmetrics.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["genmetrics", *MODULES])
def test_examples_in_docstrings(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), report=True)
    assert failed == 0


def test_there_are_examples_in_docstrings() -> None:
    finder: Callable[..., list[doctest.DocTest]] = doctest.DocTestFinder(exclude_empty=True).find
    tried = sum(
        len(test.examples) for name in MODULES for test in finder(importlib.import_module(name))
    )
    assert tried > 10
