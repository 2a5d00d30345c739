"""Metrics that share the passes of their extractors, and what one update means to each."""

from __future__ import annotations

import pytest
import torch

import genmetrics as gm
from genmetrics.core.errors import InputError, ProtocolMismatchError, UsageError
from genmetrics.core.metric import Metric
from genmetrics.core.state import as_arrays
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


def pair() -> gm.MetricSet:
    """Metrics of both kinds; the one that tests make refuse comes last."""
    return gm.MetricSet({"psnr": gm.PSNR(), "fd": gm.FDLite(device="cpu")})


def held(metrics: gm.MetricSet) -> dict[str, str]:
    """Everything that a set holds, in text."""
    return {name: repr(as_arrays(state)) for name, state in metrics.state_dict().items()}


def test_an_update_that_one_metric_refuses_is_taken_by_none():
    """The first metrics kept their part, so the corrected ids were refused as duplicates."""
    metrics, images = pair(), pictures(5, 0)
    metrics.update(images[4:], references=images[4:], ids=["w"])
    metrics["fd"].update(images[:2], ids=["x", "y"])
    before = held(metrics)
    with pytest.raises(InputError, match="'y' was given twice"):
        metrics.update(images[2:4], references=images[2:4], ids=["y", "z"])
    assert held(metrics) == before
    metrics.update(images[2:4], references=images[2:4], ids=["v", "z"])
    assert [len(m._rows) for m in metrics.values()] == [3, 5]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_whatever_a_metric_raises_the_others_are_put_back(monkeypatch, error):
    metrics, images = pair(), pictures(2, 0)
    before = held(metrics)

    def broken(*args, **options):
        raise error

    monkeypatch.setattr(metrics["fd"], "update_features", broken)
    with pytest.raises(error):
        metrics.update(images, references=images)
    assert held(metrics) == before
    monkeypatch.undo()
    metrics.update(images, references=images)
    assert len(metrics["psnr"]._rows) == len(metrics["fd"]._rows) == 2


def test_a_refused_reference_side_changes_no_moments():
    metrics = gm.MetricSet({"fd": gm.FDLite(device="cpu"), "kd": gm.KDLite(device="cpu")})
    metrics.update(pictures(4, 0), real=True, ids=list("abcd"))
    metrics["kd"].update(pictures(1, 1), real=True, ids=["e"])
    before = held(metrics)
    with pytest.raises(InputError, match="'e' was given twice"):
        metrics.update(pictures(2, 2), real=True, ids=["f", "e"])
    assert held(metrics) == before


def test_a_merge_that_one_metric_refuses_changes_none():
    a, b = pair(), pair()
    for metrics, ids in ((a, ["r1"]), (b, ["r2"])):
        metrics.update(pictures(1, 0), real=True, ids=ids)
    a["fd"].update(pictures(1, 0), ids=["x"])
    b.update(pictures(2, 1), references=pictures(2, 1), ids=["x", "y"])
    before, theirs = held(a), held(b)
    with pytest.raises(InputError, match="'x' was given twice"):
        a.merge(b)
    assert held(a) == before and held(b) == theirs
    with pytest.raises(InputError, match="cannot merge PSNR into a MetricSet"):
        a.merge(b["psnr"])


@pytest.mark.parametrize("build", [gm.FDLite, gm.KDLite])
def test_a_metric_whose_reference_side_does_not_merge_keeps_its_images(build):
    a, b = build(device="cpu"), build(device="cpu")
    for metric, name in ((a, "a"), (b, "b")):
        metric.update(pictures(2, 0), real=True, ids=["r", name])
        metric.update(pictures(1, 1), ids=[name])
    before = repr(as_arrays(a.state_dict()))
    with pytest.raises(InputError, match="'r' was given twice"):
        a.merge(b)
    assert repr(as_arrays(a.state_dict())) == before


def test_a_metric_with_a_state_of_its_own_kind_is_put_back_too():
    """The mark that needs nothing of a metric but its state."""
    metric = gm.PSNR()
    metric.update(pictures(2, 0), references=pictures(2, 1))
    before = repr(as_arrays(metric.state_dict()))
    undo = Metric.mark(metric, reference=True)
    metric.update(pictures(2, 2), references=pictures(2, 3))
    undo()
    assert repr(as_arrays(metric.state_dict())) == before


def test_a_set_goes_into_a_checkpoint_and_comes_back(tmp_path):
    metrics, again = pair(), pair()
    metrics.update(pictures(6, 0), real=True)
    metrics.update(pictures(7, 1), references=pictures(7, 2))
    torch.save(metrics.state_dict(), tmp_path / "set.pt")
    again.load_state_dict(torch.load(tmp_path / "set.pt", weights_only=True))
    assert again.compute() == metrics.compute()


def test_a_state_that_does_not_fit_one_metric_replaces_none():
    metrics = pair()
    metrics.update(pictures(6, 0), real=True)
    metrics.update(pictures(2, 1), references=pictures(2, 2))
    before = held(metrics)
    for wrong in (gm.KDLite(device="cpu").state_dict(), {}):
        with pytest.raises(ProtocolMismatchError, match="this metric is fd-lite"):
            metrics.load_state_dict({"psnr": gm.PSNR().state_dict(), "fd": wrong})
    with pytest.raises(InputError, match="the state is of psnr, this set is of psnr, fd"):
        metrics.load_state_dict({"psnr": gm.PSNR().state_dict()})
    assert held(metrics) == before


def test_a_set_moves_as_a_whole_and_keeps_what_it_holds():
    metrics = pair()
    metrics.update(pictures(2, 1), references=pictures(2, 2))
    before = held(metrics)
    assert metrics.to("cpu") is metrics
    with pytest.raises(InputError):
        metrics.to("nowhere")
    assert {metric.device for metric in metrics.values()} == {"cpu"}
    assert held(metrics) == before
    metrics.update(pictures(2, 3), references=pictures(2, 2))


def test_what_is_no_set_of_metrics_is_refused_in_words():
    """One metric under two names failed at its first update, with a word about ids."""
    one = gm.PSNR()
    with pytest.raises(UsageError, match="'a' and 'b' of a MetricSet are one metric; build one"):
        gm.MetricSet({"a": one, "b": one})
    with pytest.raises(UsageError, match=r"takes name to metric, not \[.*; pass \{\"psnr\": gm.PS"):
        gm.MetricSet([one])
    for wrong in ("fd-lite", gm.PSNR, None):
        with pytest.raises(UsageError, match="'fd' of a MetricSet is .*, not a metric; pass an ob"):
            gm.MetricSet({"fd": wrong})
    with pytest.raises(UsageError, match="the name 1 in a MetricSet is no text"):
        gm.MetricSet({1: one})


def test_answers_that_are_missing_are_nan_in_a_set_too():
    from tests.run.lane_toys import Stars

    both = gm.MetricSet({"stars": Stars(), "psnr": gm.PSNR()})
    both.update(
        pictures(3, 0), references=pictures(3, 1), prompts=["a", "aa", "aaa"], ids=["1", "3", "4"]
    )
    found = both.compute()
    assert (found["stars"].n, found["psnr"].n) == (2, 3)
    assert found["stars"].details["3"] == {"reason": "refused to answer"}
    with pytest.raises(InputError, match="'3' was given twice"):
        both.update(pictures(1, 0), references=pictures(1, 1), prompts=["a"], ids=["3"])
    assert both.compute() == found
