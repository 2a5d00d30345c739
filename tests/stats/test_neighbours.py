import numpy as np
import pytest
import torch

from genmetrics.stats import neighbours as module
from genmetrics.stats.arrays import as_pair, as_rows
from genmetrics.stats.neighbours import nearest, pair_distances, within

RNG = np.random.default_rng(0)
SETS = {
    "normal": RNG.standard_normal((1300, 9)),
    "wide": RNG.standard_normal((1100, 300)),
    "lattice": RNG.integers(0, 2, (1200, 8)).astype(float),
    "repeated": np.repeat(RNG.standard_normal((130, 5)), 10, axis=0),
    "clusters": RNG.standard_normal((10, 40))[np.arange(1200) % 10]
    + 1e-4 * RNG.standard_normal((1200, 40)),
    "offset": RNG.standard_normal((1100, 6)) + 1e6,
    "huge": RNG.standard_normal((1100, 6)) * 1e30,
    "tiny": RNG.standard_normal((1100, 6)) * 1e-30,
    "outlier": np.vstack([RNG.standard_normal((1100, 6)), np.full((1, 6), 1e12)]),
    "constant": np.ones((50, 3)),
}
every_set = pytest.mark.parametrize("name", SETS)


def all_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    a, b = as_pair(x, y)
    i, j = np.arange(len(x)), np.broadcast_to(np.arange(len(y)), (len(x), len(y)))
    return pair_distances(a, i, b, j)


@every_set
@pytest.mark.parametrize("k", [1, 5])
def test_nearest_others_are_those_of_every_pair(name, k):
    x = SETS[name]
    distances = all_distances(x, x)
    np.fill_diagonal(distances, np.inf)
    found = nearest(as_rows(x, "real"), None, k)
    assert np.array_equal(found.squared, np.sort(distances, axis=1)[:, :k])
    assert np.array_equal(np.take_along_axis(distances, found.rows, axis=1), found.squared)


@every_set
def test_nearest_of_another_set_and_strict_comparisons(name):
    x, y = SETS[name], SETS[name][::-3] * (1 if name == "repeated" else 1.01)
    distances = all_distances(x, y)
    a, b = as_pair(x, y)
    assert np.array_equal(nearest(a, b, 1).squared[:, 0], distances.min(axis=1))
    radius_x, radius_y = np.sort(distances, axis=1)[:, 3], np.sort(distances, axis=0)[3]
    tiles = 0
    for i, j, at_x, at_y in within(a, b, radius_x, radius_y):
        assert np.array_equal(at_x, distances[i, j] < radius_x[i, None])
        assert np.array_equal(at_y, distances[i, j] < radius_y[None, j])
        tiles += at_x.size
    assert tiles == distances.size


def test_pairs_have_the_same_bits_in_any_batch_and_direction():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((300, 77)), rng.standard_normal((40, 77))
    whole = all_distances(x, y)
    assert np.array_equal(whole, all_distances(y, x).T)
    assert whole == pytest.approx(((x[:, None] - y[None]) ** 2).sum(-1), rel=1e-13)
    a, b = as_pair(x[7:9], y[3:])
    assert np.array_equal(
        pair_distances(a, np.array([1]), b, np.array([[2, 0]])), whole[8:9, [5, 3]]
    )


@every_set
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_screen_keeps_its_error_bound(name, dtype):
    x = SETS[name]
    rows = as_rows(x, "real")
    screen = module._Screen(rows, rows, dtype)
    a, norms = screen.block(rows, slice(0, min(400, len(x))))
    near = norms.double()
    screened = near[:, None] + near[None] - 2 * (a @ a.T).double()
    true = all_distances(x[:400], x[:400]) * screen._scale**2
    bound = screen.error * (near[:, None] + near[None]).numpy() + module._TINY
    assert (np.abs(screened.numpy() - true) <= bound).all()


@pytest.mark.parametrize("columns", [5, 64, 1000, 1024])
def test_smallest_is_topk(columns):
    rng = np.random.default_rng(columns)
    tile = torch.from_numpy(rng.integers(0, 50, (30, columns)).astype(np.float32))
    values, index = module._smallest(tile, 5)
    assert torch.equal(values, tile.topk(5, dim=1, largest=False).values)
    assert torch.equal(tile.gather(1, index), values)
    assert all(len(set(row.tolist())) == 5 for row in index)


def test_float32_is_used_only_where_it_is_float32(monkeypatch):
    assert module._dtypes(torch.device("cpu")) == (torch.float32, torch.float64)
    assert module._dtypes(torch.device("cuda")) == (torch.float64,)
    monkeypatch.setattr(module, "_float32_is_float32", lambda: False)
    assert module._dtypes(torch.device("cpu")) == (torch.float64,)
