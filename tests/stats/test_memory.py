"""Peak memory above the inputs, each in a process of its own with a hard limit."""

import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits and peaks are read as on Linux"),
]

MEASURE = """
import resource, sys
import numpy as np
import torch
from genmetrics import stats

def mebibytes(field):
    with open("/proc/self/status") as file:
        return int(next(line.split()[1] for line in file if line.startswith(field))) / 1024

torch.set_num_threads(1)
rng = np.random.default_rng(0)
{setup}
square = torch.ones(512, 512, dtype=torch.float64)
torch.linalg.eigvalsh(square @ square)  # work space of the libraries, taken once
limit = int((mebibytes("VmSize") + {limit}) * 2**20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak starts anew
before = mebibytes("VmRSS")
result = {call}
print(mebibytes("VmHWM") - before)
assert {check}
"""


def peak(setup: str, call: str, check: str, limit: int) -> float:
    code = MEASURE.format(setup=setup, call=call, check=check, limit=limit)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return float(run.stdout)


def test_moments_do_not_grow_with_the_number_of_samples():
    """Rows of 2048 read-only float32 numbers: as many as one likes, without memory of their own."""
    used = peak(
        "x = np.broadcast_to(rng.standard_normal((1, 2048), dtype=np.float32), (100_000, 2048))",
        "stats.Moments(2048).update(x)",
        "result.n == 100_000",
        limit=600,
    )
    assert used < 300


GENERATED = """
class Rows:
    dim = 64
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __iter__(self):
        rng = np.random.default_rng(1)
        for start in range(0, self.n, 1000):
            yield rng.standard_normal((1000, 64), dtype=np.float32)
reference = stats.Moments(64).update(rng.standard_normal((5000, 64)))
small = Rows(20_000)
stats.frechet_infinity(reference, small, points=3), stats.vendi_estimate(small)
"""


@pytest.mark.parametrize(
    ("call", "bytes_a_row"),
    [
        ("stats.frechet_estimate(reference, Rows({n})).value", 4 * 8),
        ("stats.frechet_infinity(reference, Rows({n}), points=3)", 3 * 8),
        ("stats.vendi_estimate(Rows({n})).value", 4 * 8),
    ],
)
def test_rows_from_a_source_take_no_memory(call, bytes_a_row):
    """200,000 rows are 50 MB of float32, 100 MB of float64; a few numbers a row are left."""
    used = {n: peak(GENERATED, call.format(n=n), "result > -1", 600) for n in (20_000, 200_000)}
    assert used[200_000] < used[20_000] + 180_000 * bytes_a_row / 2**20 + 4
    assert used[200_000] < 50


def test_kernel_distance_of_twenty_thousand_samples():
    setup = "x, y = rng.standard_normal((2, 20_000, 64))"
    every = "stats.kernel_distance(x, y, subsets=None).value"
    assert peak(setup, every, "abs(result) < 0.01", limit=1000) < 300
    drawn = "stats.kernel_distance(x, y).value"
    assert peak(setup, drawn, "abs(result) < 0.01", limit=1000) < 300


def test_cmmd_does_not_grow_with_the_number_of_embeddings():
    setup = """
def sphere(shift):
    x = rng.standard_normal((100_000, 768), dtype=np.float32)
    x += shift
    for part in np.split(x, 100):
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return x
x, y = sphere(0.5), sphere(0.6)
"""
    assert peak(setup, "stats.cmmd_estimate(x, y)", "not result.exact", limit=800) < 300


def test_prdc_of_fifty_thousand_reference_samples():
    """Tiled on both axes: whole matrices would take 20 GB."""
    used = peak(
        "x, y = rng.standard_normal((50_000, 64)), rng.standard_normal((1000, 64))",
        "stats.prdc(x, y)",
        "0.5 < result.precision <= 1 and len(result.covered) == 50_000",
        limit=1000,
    )
    assert used < 300


def test_bootstrap_of_fifty_thousand_scores():
    used = peak(
        "x = rng.standard_normal(50_000)",
        "stats.mean_interval(x, draws=1000)",
        "result[0] < x.mean() < result[1]",
        limit=600,
    )
    assert used < 200
