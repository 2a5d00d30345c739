"""Worlds as people start them: launchers, `--processes`, programs with a group of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import genmetrics as gm
from genmetrics.core.device import cores
from genmetrics.run import collect as collecting
from genmetrics.run.ranks import Ranks
from genmetrics.run.store import FeatureStore
from genmetrics.run.work import Job, Who
from genmetrics.samples.sources import read_samples

from .conftest import write_images
from .toys import ToySpec
from .world_target import evaluate, finish, free_port, torchrun

METRICS = ["psnr", "fd-lite"]
N = 13


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launchers")
    write_images(folder / "gen", N)
    write_images(folder / "ref", N)  # of the same sizes, because they are counterparts too
    for path in (folder / "ref").iterdir():
        path.write_bytes(_negative(path))
    return folder


def _negative(path: Path) -> bytes:
    import io

    from PIL import Image, ImageOps

    with Image.open(path) as image:
        buffer = io.BytesIO()
        ImageOps.invert(image).save(buffer, "PNG")
    return buffer.getvalue()


def words(folder: Path, out: str, cache: str | None = None) -> list[str]:
    """A command line after ``genmetrics``; results go to ``out`` in the folder."""
    places = [str(folder / "gen"), "--ref", str(folder / "ref"), "--pair-with", str(folder / "ref")]
    kept = ["--no-cache"] if cache is None else ["--cache", str(folder / cache)]
    asked = ["-m", ",".join(METRICS), "--batch-size", "4", "--quiet"]
    return ["eval", *places, *asked, *kept, "--out", str(folder / out)]


def results(folder: Path, out: str) -> tuple[dict[str, Any], bytes]:
    document = json.loads((folder / out / "results.json").read_text())
    told = {name: document[name] for name in ("metrics", "inputs", "skipped", "conversions")}
    return told, (folder / out / "samples.jsonl").read_bytes()


@pytest.fixture(scope="module")
def alone(folder: Path) -> tuple[dict[str, Any], bytes]:
    """What a single process finds."""
    finish(torchrun(1, "genmetrics", *words(folder, "alone")))
    return results(folder, "alone")


def torchrun_node(node: int, port: int) -> list[str]:
    place = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    ranks = ["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1"]
    return [sys.executable, "-m", "torch.distributed.run", *ranks, *place]


def accelerate_node(node: int, port: int) -> list[str]:
    # with --cpu it starts a single process; without, ranks that find no GPU use gloo
    place = ["--main_process_ip=127.0.0.1", f"--main_process_port={port}"]
    ranks = ["--multi_gpu", "--num_machines=2", "--num_processes=2", f"--machine_rank={node}"]
    plain = ["--mixed_precision=no", "--dynamo_backend=no"]
    return [sys.executable, "-m", "accelerate.commands.launch", *ranks, *place, *plain]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [torchrun_node, accelerate_node])
def test_two_machines_without_a_common_folder_are_one_process(folder, alone, launcher):
    """Each has a store of its own; afterwards that of the first has everything."""
    port, name = free_port(), launcher.__name__
    finish(
        *(
            [*launcher(node, port), "-m", "genmetrics", *words(folder, name, f"{name}-{node}")]
            for node in range(2)
        )
    )
    assert results(folder, name) == alone
    assert sum(usage.rows for usage in FeatureStore(folder / f"{name}-0").usage()) == 3 * N
    again = gm.evaluate(
        folder / "gen", folder / "ref", METRICS, pair_with=folder / "ref",
        cache=folder / f"{name}-0", device="cpu",
    )  # fmt: skip
    assert (again.runtime["features_computed"], again.runtime["features_reused"]) == (0, 3 * N)


@pytest.mark.slow
def test_processes_of_one_command_are_one_process(folder, alone):
    command = [*words(folder, "processes", "processes-cache"), "--processes", "3"]
    finish(torchrun(1, "genmetrics", *command))
    assert results(folder, "processes") == alone
    usages = list(FeatureStore(folder / "processes-cache").usage())
    assert sum(usage.rows for usage in usages) == 3 * N  # a common folder, and no row twice


@pytest.mark.slow
def test_statistics_of_two_processes_are_those_of_one(folder):
    build = ["stats", "build", str(folder / "ref"), "-m", "fd-lite,kd-lite", "--no-cache"]
    files = [folder / "one.safetensors", folder / "two.safetensors"]
    finish(
        *(
            torchrun(1, "genmetrics", *build, "-o", str(file), "--processes", str(count))
            for count, file in enumerate(files, start=1)
        )
    )
    assert {name.rpartition(".")[2] for name in load_file(files[0])} >= {"features", "mean"}
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("program", ["torch", "accelerate"])
def test_a_program_of_two_ranks_evaluates_twice_and_goes_on(folder, tmp_path, program):
    """Its group and its threads are as they were; the ranks share the cores while they work."""
    run = {
        "generated": str(folder / "gen"), "reference": str(folder / "ref"), "batch_size": 4,
        "metrics": ["toy-distance", "toy-brightness"],
    }  # fmt: skip
    asked, out = tmp_path / "run.json", tmp_path / "out"
    asked.write_text(json.dumps(run))
    out.mkdir()
    finish(torchrun(2, "tests.run.joined_target", program, str(asked), str(out)))
    found = [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]
    expected = evaluate(**run)
    for got in found:
        assert got["reports"] == [expected] * 2
        assert got["threads kept"]
        assert got["talk"] == [0, 1]
    inside = [got["inside"] for got in found]
    apart = program == "torch"
    share = 1 if apart else max(1, cores() // 2)
    assert (
        [each["threads"] for each in inside] == [each["workers"] for each in inside] == [share] * 2
    )
    if cores() > 1:
        assert not apart or inside[0]["cores"] != inside[1]["cores"]
        assert 2 * share <= cores()
    assert inside[0]["deciding"] == (1 if apart else cores())


def test_a_run_leaves_the_number_of_threads_alone_where_nothing_was_computed(tmp_path, folder):
    """Torch was not asked before the first pool was made, and took the pool's number: one."""
    code = (
        "import sys, genmetrics as gm; gm.evaluate(*sys.argv[1:3], 'psnr', pair_with=sys.argv[2],"
        " cache=sys.argv[3], device='cpu'); import torch; print(torch.get_num_threads())"
    )
    command = [sys.executable, "-c", code, str(folder / "gen"), str(folder / "ref"), str(tmp_path)]
    assert finish(command) == [f"{cores()}\n"]


class Watched(Ranks):
    """The main rank of two, which notes what it says; the other answers from its own store."""

    world = 2

    def __init__(self, job: Job, theirs: FeatureStore) -> None:
        self._job, self._theirs = job, theirs
        self.said: list[Any] = []

    def share(self, make: Any) -> Any:
        """The main rank alone knows what is lacking."""
        self._lacking = make()
        self.said.append(self._lacking)
        return self._lacking

    def gather_to_main(self, value: Any, meanwhile: Any = None) -> list[Any]:
        self.said.append(value)
        piece = self._lacking[: collecting.PIECE]
        self._lacking = self._lacking[collecting.PIECE :]
        return [value, collecting._offer(self._job.spec, piece, self._theirs)]


@pytest.mark.parametrize(("shared", "said"), [(True, 1), (False, 1 + 3)])
def test_only_what_the_main_ranks_store_lacks_travels(folder, tmp_path, monkeypatch, shared, said):
    """Nothing does where all write to one folder; else 13 rows in pieces of 5."""
    monkeypatch.setattr(collecting, "PIECE", 5)
    spec, samples = ToySpec(), read_samples(folder / "gen")
    job = Job(spec, tuple(Who("generated", sample) for sample in samples))
    keys = [sample.digest(spec.inputs) for sample in samples]
    mine = FeatureStore(tmp_path / "mine")
    theirs = FeatureStore(tmp_path / ("mine" if shared else "theirs"))
    assert not len(mine.known(spec))
    rows = np.arange(12 * N, dtype=np.float32).reshape(N, 12)
    theirs.write(spec, keys, {"grid": rows})
    ranks = Watched(job, theirs)
    collecting.collect(job, mine, ranks)
    assert ranks.said[0] == ([] if shared else keys)
    assert len(ranks.said) == said
    assert np.array_equal(FeatureStore(mine.root).read(spec, keys)["grid"], rows)
