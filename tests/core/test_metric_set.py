"""Metrics that share the passes of their extractors, and what one update means to each."""

from __future__ import annotations

import pytest
import torch

import genmetrics as gm
from genmetrics.core.errors import InputError, UsageError
from genmetrics.extractors._model import ImageExtractor


def pictures(n: int, seed: int) -> torch.Tensor:
    return torch.randint(
        0, 256, (n, 3, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )


@pytest.fixture
def passes(monkeypatch):
    """Images that went through the backbone."""
    seen = []
    plain = ImageExtractor.prepare

    def prepare(self, item):
        seen.append(item.id)
        return plain(self, item)

    monkeypatch.setattr(ImageExtractor, "prepare", prepare)
    return seen


def test_one_backbone_runs_once_and_numbers_are_those_of_each_alone(passes):
    together = gm.MetricSet({"fd": gm.FDLite(device="cpu"), "kd": gm.KDLite(device="cpu"),
                             "psnr": gm.PSNR()})  # fmt: skip
    real, fake = pictures(6, 0), pictures(7, 1)
    together.update(real, real=True, ids=[f"r{i}" for i in range(6)])
    together.update(fake, references=fake.flip(3), ids=[f"f{i}" for i in range(7)])
    assert len(passes) == 6 + 7
    found = together.compute()
    for name, metric in (("fd", gm.FDLite(device="cpu")), ("kd", gm.KDLite(device="cpu"))):
        metric.update(real, True, ids=[f"r{i}" for i in range(6)])
        metric.update(fake, ids=[f"f{i}" for i in range(7)])
        assert metric.compute() == found[name]
    psnr = gm.PSNR()
    psnr.update(fake, references=fake.flip(3), ids=[f"f{i}" for i in range(7)])
    assert psnr.compute() == found["psnr"]


def test_the_reference_side_may_outlive_an_epoch(passes):
    together = gm.MetricSet({"fd": gm.FDLite(device="cpu"), "kd": gm.KDLite(device="cpu")})
    together.update(pictures(6, 0), real=True)
    for epoch in range(3):
        together.reset(keep_reference=True)
        together.update(pictures(7, epoch + 1))
        assert all(r.n == 7 and r.n_reference == 6 for r in together.compute().values())
    assert len(passes) == 6 + 3 * 7
    together.reset()
    together.update(pictures(7, 1))
    with pytest.raises(gm.TooFewSamplesError):
        together.compute()


def test_numbers_without_ids_and_shards_merge():
    a, b = (gm.MetricSet({"fd": gm.FDLite(device="cpu")}) for _ in range(2))
    a.update(pictures(6, 0), real=True)
    a.update(pictures(3, 1))
    b.update(pictures(4, 2))
    assert a.merge(b).compute()["fd"].n == 7
    with pytest.raises(InputError, match="sets of fd and kd do not merge"):
        a.merge(gm.MetricSet({"kd": gm.KDLite(device="cpu")}))


def test_what_nobody_uses_is_refused_and_nothing_is_kept():
    one = gm.MetricSet({"fd": gm.FDLite(device="cpu"), "psnr": gm.PSNR()})
    with pytest.raises(UsageError, match="no metric of this set has a use for prompts="):
        one.update(pictures(2, 0), references=pictures(2, 1), prompts=["a", "b"])
    with pytest.raises(InputError, match="psnr needs references="):
        one.update(pictures(2, 0))
    assert len(one["fd"]._rows) == 0
    with pytest.raises(InputError, match="no metric of this set has a reference side"):
        gm.MetricSet({"psnr": gm.PSNR()}).update(pictures(2, 0), real=True)
    with pytest.raises(UsageError, match="found no metric"):
        gm.MetricSet({})


def test_a_metric_refuses_what_it_has_no_use_for():
    """Dropped in silence, masks would have looked as if they had been obeyed."""
    masks = torch.ones(2, 40, 40, dtype=torch.bool)
    with pytest.raises(UsageError, match="fd-lite has no use for masks=.*it takes ids, images"):
        gm.FDLite(device="cpu").update(pictures(2, 0), masks=masks)
    with pytest.raises(UsageError, match="psnr has no use for prompts="):
        gm.PSNR().update(pictures(2, 0), references=pictures(2, 0), prompts=["a", "b"])
    with pytest.raises(UsageError, match="no use for refrences=.*did you mean 'references'"):
        gm.PSNR().update(pictures(2, 0), refrences=pictures(2, 0))
    with pytest.raises(InputError, match="psnr has no reference side; drop real=True"):
        gm.PSNR().update(pictures(2, 0), True, references=pictures(2, 0))


def test_a_batch_that_does_not_fit_is_halved_in_a_loop_too(monkeypatch):
    sizes = []
    plain = ImageExtractor.forward

    def forward(self, prepared):
        if len(prepared) > 8:
            raise torch.OutOfMemoryError("no room")
        sizes.append(len(prepared))
        return plain(self, prepared)

    whole = gm.FDLite(device="cpu")
    whole.update(pictures(6, 0), True)
    whole.update(pictures(40, 1))
    monkeypatch.setattr(ImageExtractor, "forward", forward)
    metric = gm.FDLite(device="cpu")
    metric.update(pictures(6, 0), True)
    metric.update(pictures(40, 1))
    assert metric.compute() == whole.compute()
    assert max(sizes) == 8
