"""Rows read from a source block by block: the bits of the same rows in one array."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from genmetrics.core.errors import InputError, TooFewSamplesError
from genmetrics.stats import Moments, frechet_estimate, frechet_infinity, vendi, vendi_estimate
from genmetrics.stats.arrays import Rows
from genmetrics.stats.blocks import StreamedRows, as_blocks

CPU = torch.device("cpu")


class Source:
    """Rows cut at the given places, as a store of shards cuts them."""

    def __init__(self, rows: np.ndarray, *cuts: int, says: int | None = None) -> None:
        self.dim = rows.shape[1]
        self.passes = 0
        self._rows, self._cuts, self._says = rows, cuts, says

    def __len__(self) -> int:
        return len(self._rows) if self._says is None else self._says

    def __iter__(self) -> Iterator[np.ndarray]:
        self.passes += 1
        yield from np.split(self._rows, self._cuts)


def every(step: int, n: int) -> range:
    return range(step, n, step)


def data(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * 1.1 + 0.2).astype(np.float32)


CASES = [(9000, 24), (5000, 24), (700, 24), (24, 24), (20, 24), (6000, 1100), (1200, 1100)]
STEPS = [1, 7, 1000, 4096, 5000, 100_000]


@pytest.mark.parametrize(("n", "d"), CASES)
def test_a_source_of_any_blocks_gives_the_bits_of_the_array(n, d):
    fake, reference = data(n, d), Moments(d).update(data(1500, d, seed=1))
    expected = frechet_estimate(reference, fake)
    varied = vendi_estimate(fake)
    for step in STEPS if n * d < 1e6 else STEPS[2:3]:
        source = Source(fake, *every(step, n))
        got = frechet_estimate(reference, source)
        assert (got.value, got.standard_error) == (expected.value, expected.standard_error)
        assert np.array_equal(got.influence, expected.influence)
        assert source.passes <= 2
        found = vendi_estimate(source)
        assert found.value == varied.value
        assert np.array_equal(found.influence, varied.influence)
        assert vendi(source) == vendi(fake)


@pytest.mark.parametrize(("n", "d"), [(9000, 24), (300, 24), (30, 24), (20, 24), (1400, 1100)])
def test_the_extrapolation_of_a_source_is_that_of_the_array(n, d):
    """Also where the first draws are smaller than the dimension."""
    fake, reference = data(n, d), Moments(d).update(data(1500, d, seed=1))
    expected = frechet_infinity(reference, fake, points=4, seed=3)
    for step in (50, 4096):
        source = Source(fake, *every(step, n))
        assert frechet_infinity(reference, source, points=4, seed=3) == expected
        assert source.passes <= 4


def test_blocks_may_be_empty_and_may_be_tensors():
    fake, reference = data(60, 3), Moments(3).update(data(50, 3, seed=1))

    class Tensors(Source):
        def __iter__(self) -> Iterator[np.ndarray]:
            return (torch.from_numpy(block) for block in super().__iter__())

    expected = frechet_infinity(reference, fake)
    for kind in (Source, Tensors):
        assert frechet_infinity(reference, kind(fake, 0, 10, 10, 60)) == expected


@pytest.mark.parametrize("size", [1, 5, 64, 1000])
def test_streamed_rows_are_cut_as_those_of_an_array(size):
    x = data(130, 3)
    array, stream = Rows(x, "fake", CPU), StreamedRows(Source(x, 1, 2, 90), "fake", CPU)
    chosen = np.array([5, 3, 120, 77, 89, 90])
    for one, other in ((array, stream), (array.subset(np.sort(chosen)), stream.subset(chosen))):
        assert len(one) == len(other)
        assert torch.equal(one.whole(), other.whole())
        for (where, block), (there, same) in zip(one.blocks(size), other.blocks(size), strict=True):
            assert where == there
            assert torch.equal(block, same)


def test_a_source_is_checked_while_it_is_read():
    reference, fake = Moments(3).update(data(50, 3)), data(40, 3)
    wrong = fake.copy()
    wrong[17, 1] = np.nan
    with pytest.raises(InputError, match="row 17 of the fake features is not finite"):
        frechet_estimate(reference, Source(wrong, 10, 20))
    with pytest.raises(InputError, match="source of the fake features says 41 rows and gave 40;"):
        frechet_estimate(reference, Source(fake, 10, says=41))
    with pytest.raises(InputError, match="source of the fake features says 9 rows and gave 10;"):
        frechet_estimate(reference, Source(fake, 10, says=9))
    with pytest.raises(InputError, match="real features have 3 dimensions but fake features have"):
        frechet_estimate(reference, Source(data(40, 4), 10))

    class Ragged(Source):
        def __iter__(self) -> Iterator[np.ndarray]:
            yield self._rows[:, :2]

    with pytest.raises(InputError, match=r"block of the fake features has shape \(40, 2\);"):
        frechet_estimate(reference, Ragged(fake))
    with pytest.raises(TooFewSamplesError, match="fake side has 1 samples"):
        frechet_estimate(reference, Source(fake[:1]))
    zero = np.vstack([fake, np.zeros((1, 3), np.float32)])
    with pytest.raises(InputError, match="row 40 of the features is all zero"):
        vendi(Source(zero, 20))


def test_few_rows_are_read_whole():
    assert isinstance(as_blocks(Source(data(5, 5), 2), "fake"), Rows)
    assert isinstance(as_blocks(Source(data(6, 5), 2), "fake"), StreamedRows)
