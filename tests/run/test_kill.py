"""A run killed at any moment and started again gives the bytes of one that never was."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from .conftest import write_images

BATCH = 4


def start(folder: Path, cache: str, out: str, log: Path) -> subprocess.Popen[bytes]:
    arguments = [folder / "gen", folder / "ref", folder / cache, folder / out, log]
    return subprocess.Popen([sys.executable, "-m", "tests.run.kill_target", *map(str, arguments)])


def kill_when(process: subprocess.Popen[bytes], log: Path, batches: int, delay: float) -> None:
    """Wait until this many batches are done, a moment more, and kill."""
    while process.poll() is None:
        done = len(log.read_text().splitlines()) if log.exists() else 0
        if done >= batches:
            break
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()


def metrics_and_samples(out: Path) -> tuple[dict, str]:
    document = json.loads((out / "results.json").read_text())
    return {k: document[k] for k in ("metrics", "inputs", "skipped", "conversions")}, (
        out / "samples.jsonl"
    ).read_text()


@pytest.mark.slow
def test_ten_kills_and_a_restart_equal_an_unbroken_run(tmp_path):
    write_images(tmp_path / "gen", 70)
    write_images(tmp_path / "ref", 51, seed=1)
    whole_log = tmp_path / "whole.log"
    assert start(tmp_path, "cache-whole", "out-whole", whole_log).wait() == 0

    draw = random.Random(0)
    log = tmp_path / "killed.log"
    for kill in range(10):
        process = start(tmp_path, "cache-killed", "out-killed", log)
        kill_when(process, log, batches=2 * kill + 1, delay=draw.uniform(0, 0.12))
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "out-killed" / "results.json").exists()
    assert start(tmp_path, "cache-killed", "out-killed", log).wait() == 0

    killed, whole = (metrics_and_samples(tmp_path / name) for name in ("out-killed", "out-whole"))
    assert killed == whole
    # per side ids repeat (0..50 are in both), so count against the unbroken run
    once = Counter(whole_log.read_text().split())
    seen = Counter(log.read_text().split())
    assert seen.keys() == once.keys()
    assert sum((seen - once).values()) <= 10 * BATCH
