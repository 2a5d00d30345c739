import numpy as np
import pytest
import torch

from genmetrics.core.errors import InputError, TooFewSamplesError
from genmetrics.stats import frechet_distance, kernel_distance, prdc, vendi
from genmetrics.stats.arrays import (
    UnitRows,
    as_float64,
    as_pair,
    as_rows,
    as_unit_rows,
    float64_device,
    gram_tiles,
    has_float64,
)


def test_without_float64_on_the_device_statistics_are_computed_on_the_cpu():
    asked = []

    def no_float64(device: torch.device) -> bool:
        asked.append(device)
        return False

    got = as_float64(torch.ones(2, 3), supports=no_float64)
    assert asked == [torch.device("cpu")]
    assert (got.dtype, got.device.type) == (torch.float64, "cpu")
    apple = torch.device("mps")
    assert not has_float64(apple)
    assert float64_device(apple) == torch.device("cpu")
    assert float64_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
    assert float64_device(torch.device("cuda"), supports=no_float64) == torch.device("cpu")


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int16", ">f4"])
def test_every_numeric_array_becomes_float64(kind):
    x = np.arange(6).reshape(3, 2).astype(kind)
    assert torch.equal(as_float64(x), torch.arange(6).reshape(3, 2).double())


def test_gradients_bfloat16_and_read_only_arrays_are_taken():
    learnt = torch.ones(3, 2, requires_grad=True)
    assert not as_float64(learnt).requires_grad
    assert as_float64(torch.ones(3, 2, dtype=torch.bfloat16)).dtype == torch.float64
    frozen = np.ones((3, 2))
    frozen.flags.writeable = False
    assert as_float64(frozen).sum() == 6  # torch would warn about memory it may not write


def test_arrays_and_tensors_give_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 40, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for measure in (
        frechet_distance,
        lambda a, b: kernel_distance(a, b, subsets=3, subset_size=20).value,
        lambda a, b: prdc(a, b).density,
    ):
        first = measure(x, y)
        for other in (torch.from_numpy(x), x.astype(np.float64), mapped):
            assert measure(other, torch.from_numpy(y)) == first


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("wrap", [np.asarray, torch.as_tensor])
def test_a_row_that_is_not_finite_is_named(bad, wrap):
    x = np.zeros((9000, 4))
    x[8123, 2] = bad
    with pytest.raises(InputError, match="row 8123 of the fake features is not finite"):
        frechet_distance(wrap(np.zeros((5, 4))), wrap(x))


def test_shapes_are_checked():
    with pytest.raises(InputError, match=r"shape \(3,\); pass a matrix"):
        vendi(np.ones(3))
    with pytest.raises(
        InputError, match="real features have 16 dimensions but fake features have 8"
    ):
        frechet_distance(np.ones((4, 16)), np.ones((4, 8)))
    with pytest.raises(
        TooFewSamplesError, match="the fake side has 0 samples, this needs at least 1"
    ):
        as_pair(np.ones((4, 2)), np.ones((0, 2)))


def test_rows_read_slices_positions_and_subsets():
    x = torch.arange(20.0).reshape(10, 2)
    rows = as_rows(x, "real").subset(np.array([9, 1, 5]))
    assert len(rows) == 3
    assert rows[0:2].tolist() == [[18.0, 19.0], [2.0, 3.0]]
    assert rows[np.array([2])].tolist() == [[10.0, 11.0]]
    assert rows.subset(np.array([2, 0]))[:].tolist() == [[10.0, 11.0], [18.0, 19.0]]


def test_unit_rows_are_scaled_and_others_refused():
    x = np.array([[0.6, 0.8], [1.0004, 0.0]])
    assert torch.linalg.vector_norm(as_unit_rows(as_rows(x, "real"))[:], dim=1) == pytest.approx(1)
    with pytest.raises(InputError, match="row 1 of the fake features has length 2, not 1"):
        as_unit_rows(as_rows(np.array([[1.0, 0.0], [0.0, 2.0]]), "fake"))
    assert isinstance(as_unit_rows(as_rows(x, "real")).subset(np.array([0])), UnitRows)


def test_gram_tiles_cover_the_matrix_once():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((1500, 3)), rng.standard_normal((2100, 3))
    a, b = as_pair(x, y)
    whole = np.zeros((1500, 2100))
    for i, j, tile in gram_tiles(a, b):
        whole[i, j] += tile.numpy()
    assert np.allclose(whole, x @ y.T, atol=1e-12)
    upper = np.zeros((2100, 2100))
    for i, j, tile in gram_tiles(b, b, upper=True):
        upper[i, j] += tile.numpy()
        if i != j:
            upper[j, i] += tile.numpy().T
    assert np.allclose(upper, y @ y.T, atol=1e-12)
