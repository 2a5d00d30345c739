"""The adapter for torchmetrics: the metric's own value, in one process and under DDP."""

import gc
import importlib
import json
import math
import pickle
import sys
import weakref
from pathlib import Path

import pytest
import torch
import torchmetrics
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from torchmetrics.wrappers import BootStrapper, MetricTracker, Running

import genmetrics as gm
from genmetrics.core.errors import InputError, MissingExtraError, TooFewSamplesError, UsageError
from genmetrics.core.loop import Loop
from genmetrics.core.threads import threads
from genmetrics.integrations.torchmetrics import TorchMetric
from tests.integrations import ranks
from tests.integrations.ranks import bits, fill, image, launch, random_state
from tests.integrations.toys import as_ranks


def psnr(images=()):
    adapter = TorchMetric(gm.PSNR(device="cpu"))
    fill(adapter, images)
    return adapter


def own(images, metric=None):
    metric = metric or gm.PSNR(device="cpu")
    fill(metric, images)
    return metric.compute()


# -- one process -----------------------------------------------------------------------------------


def test_values_are_those_of_the_metric(reference):
    adapter = psnr(range(5))
    assert bits(adapter.compute()) == bits(own(range(5)))
    assert adapter.compute().dtype == torch.float64 and adapter.compute().shape == ()
    assert adapter.result == own(range(5))
    metric = gm.FDLite(device="cpu", reference=reference)
    adapter = TorchMetric(gm.FDLite(device="cpu", reference=reference))
    fill(adapter, range(3))
    assert bits(adapter.compute()) == bits(own(range(3), metric))


def test_what_it_says_of_itself():
    adapter = psnr()
    assert adapter.higher_is_better and not TorchMetric(gm.FDLite(device="cpu")).higher_is_better
    assert adapter.is_differentiable is False
    assert repr(adapter) == "TorchMetric(psnr)"
    assert list(adapter.parameters()) == [] and list(adapter.children()) == []
    with pytest.raises(UsageError, match="wraps a genmetrics metric, not MeanMetric"):
        TorchMetric(torchmetrics.MeanMetric())


def test_every_metric_has_an_update_the_adapter_can_ask():
    from genmetrics.core.registry import registered

    for name, kind in registered().items():
        if name != "geneval":  # which needs a detector
            assert {"images", "ids"} <= kind(device="cpu").takes(), name


def test_a_step_gives_its_own_value_and_counts_once():
    adapter = psnr()
    for i in range(3):
        step = adapter(image(i), references=image(i) // 2, ids=[f"image-{i}"])
        assert bits(step) == bits(own([i]))
    assert bits(adapter.compute()) == bits(own(range(3)))
    assert adapter.result.n == 3 and adapter.update_count == 3


def test_a_step_without_ids_counts_once():
    adapter = psnr()
    for i in range(3):
        adapter(image(i), references=image(i) // 2)
        adapter.update(image(i), references=image(i) // 2)
    adapter.compute()
    assert adapter.result.n == 6


def test_a_step_extracts_once(monkeypatch):
    calls = []
    extract = Loop.extract
    monkeypatch.setattr(
        Loop,
        "extract",
        lambda self, spec, items: (calls.append(len(items)), extract(self, spec, items))[1],
    )
    psnr()(image(0), references=image(1))
    assert calls == [1]


def test_a_failed_step_loses_nothing():
    adapter = psnr(range(2))
    with pytest.raises(InputError, match="outside the declared range"):
        adapter(torch.full((1, 3, 8, 8), 2.0), references=torch.zeros(1, 3, 8, 8))
    with pytest.raises(InputError, match="given twice"):
        adapter(image(0), references=image(0) // 2, ids=["image-0"])
    assert bits(adapter.compute()) == bits(own(range(2)))


def test_a_step_of_a_set_metric_is_added_and_has_no_value(reference):
    adapter = TorchMetric(gm.FDLite(device="cpu", reference=reference))
    with pytest.raises(TooFewSamplesError, match=r"call update\(\) instead"):
        adapter(image(0), ids=["image-0"])
    fill(adapter, [1, 2])
    assert bits(adapter.compute()) == bits(own(range(3), gm.FDLite(reference=reference)))


def test_reset_forgets_images_and_keeps_the_reference_and_the_last_result(reference):
    adapter = TorchMetric(gm.FDLite(device="cpu", reference=reference))
    fill(adapter, range(3))
    value = adapter.compute()
    adapter.reset()
    assert adapter.result.n == 3 and not adapter.update_called
    fill(adapter, range(3))
    assert adapter.compute() == value


def test_a_value_that_is_not_there_is_nan_with_its_reason():
    adapter = psnr()
    everything = torch.ones(1, 24, 24, dtype=torch.bool)
    adapter.update(image(0), references=image(1), masks=everything)
    with pytest.warns(UserWarning, match="psnr is unavailable: no sample has a score"):
        assert math.isnan(adapter.compute())


def test_an_epoch_without_images_does_not_end_a_training():
    adapter = psnr()
    with (
        pytest.warns(UserWarning, match="called before the ``update`` method"),
        pytest.warns(UserWarning, match="psnr is failed: psnr has 0 generated images"),
    ):
        assert math.isnan(adapter.compute())
    assert adapter.result.status == "failed"


def test_images_leave_no_graph_and_are_not_kept():
    adapter = psnr()
    weight = torch.full((1, 3, 24, 24), 0.5, requires_grad=True)
    made = weight * 0.5
    kept = weakref.ref(made)
    adapter(made, references=made.detach())
    adapter.update(made, references=made.detach())
    del made
    gc.collect()
    assert kept() is None
    assert not adapter.compute().requires_grad and weight.grad is None


def test_random_states_and_training_modes_stay(reference):
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Dropout())
    model[0].eval()
    model.fd = TorchMetric(gm.FDLite(device="cpu", reference=reference))
    before, modes = random_state(), [part.training for part in model.modules()]
    grad = torch.is_grad_enabled()
    fill(model.fd, range(3))
    with as_ranks([model.fd.metric]):
        gm.distributed.sync(model.fd.metric).compute()
    model.fd.compute()
    assert random_state() == before
    assert [part.training for part in model.modules()] == modes
    assert torch.is_grad_enabled() == grad


# -- copies, checkpoints, devices ------------------------------------------------------------------


@pytest.mark.parametrize("copy", [TorchMetric.clone, lambda a: pickle.loads(pickle.dumps(a))])
def test_copies_go_on_by_themselves(copy, reference):
    adapter = TorchMetric(gm.FDLite(device="cpu", reference=reference))
    fill(adapter, range(3))
    other = copy(adapter)
    assert bits(other.compute()) == bits(adapter.compute())
    fill(other, [3])
    other.compute()
    adapter.compute()
    assert (adapter.result.n, other.result.n) == (3, 4)


def test_a_pickle_holds_no_model(reference):
    adapter = TorchMetric(gm.FDLite(device="cpu", reference=reference))
    empty = len(pickle.dumps(adapter))
    fill(adapter, [0])
    assert len(pickle.dumps(adapter)) - empty < 50_000  # the backbone has 17 MB


def test_the_state_is_no_part_of_a_checkpoint_unless_asked(tmp_path):
    model = torch.nn.Linear(1, 1)
    model.psnr = psnr(range(3))
    assert list(model.state_dict()) == ["weight", "bias"]
    model.psnr.persistent(True)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    value = model.psnr.compute()
    model.psnr.reset()
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    model.load_state_dict(state)
    model.load_state_dict(state)  # twice counts once
    assert model.psnr.compute() == value and model.psnr.update_count == 3
    fill(model.psnr, [3])
    assert bits(model.psnr.compute()) == bits(own(range(4)))
    del state["psnr.state"]
    with pytest.raises(RuntimeError, match=r"Missing key.*psnr\.state"):
        model.load_state_dict(state)


def test_it_moves_when_it_is_moved(monkeypatch):
    moves = []
    monkeypatch.setattr(gm.PSNR, "to", lambda self, device: moves.append(device))
    adapter = psnr()
    model = torch.nn.ModuleDict({"psnr": adapter})
    model.half().double().to(torch.float16).to("cpu")
    assert moves == []
    model.to("meta")
    assert moves == ["meta"] and adapter.device == torch.device("meta")


# -- in the hands of torchmetrics ------------------------------------------------------------------


def test_a_collection_gives_each_metric_what_it_takes_and_never_shares_states(reference):
    collection = torchmetrics.MetricCollection(
        {
            "fd": TorchMetric(gm.FDLite(device="cpu", reference=reference)),
            "psnr": psnr(),
            "luma": TorchMetric(gm.PSNR(channel="y-full", device="cpu")),
            "again": psnr(),
            "ssim": TorchMetric(gm.SSIM(device="cpu")),
        },
        prefix="val/",
    )
    for i in range(3):
        collection.update(image(i), references=image(i) // 2, ids=[f"image-{i}"])
    assert all(len(group) == 1 for group in collection.compute_groups.values())
    values = collection.compute()
    expected = {
        "val/fd": own(range(3), gm.FDLite(device="cpu", reference=reference)),
        "val/psnr": own(range(3)),
        "val/luma": own(range(3), gm.PSNR(channel="y-full")),
        "val/again": own(range(3)),
        "val/ssim": own(range(3), gm.SSIM()),
    }
    assert {name: bits(value) for name, value in values.items()} == {
        name: bits(result) for name, result in expected.items()
    }
    other = collection.clone(prefix="test/")
    other.reset()
    assert collection["psnr"].metric.compute().n == 3


def test_a_collection_steps_and_resets():
    collection = torchmetrics.MetricCollection({"psnr": psnr(), "ssim": TorchMetric(gm.SSIM())})
    for i in range(2):
        values = collection(image(i), references=image(i) // 2)
        assert bits(values["psnr"]) == bits(own([i]))
    assert bits(collection.compute()["psnr"]) == bits(own(range(2)))
    collection.reset()
    assert not collection["psnr"].update_called


def test_states_merge():
    adapter = psnr([0, 2])
    assert bits(adapter.compute()) == bits(own([0, 2]))
    adapter.merge_state(psnr([1]))
    assert bits(adapter.compute()) == bits(own(range(3)))
    with pytest.raises(UsageError, match="takes another TorchMetric, not dict"):
        adapter.merge_state({})


def test_other_parts_of_torchmetrics():
    assert (psnr([0]) * 2).compute() == 2 * own([0]).value
    tracker = MetricTracker(psnr(), maximize=True)
    for epoch in range(2):
        tracker.increment()
        tracker.update(image(epoch), references=image(epoch) // 2)
    assert tracker.best_metric() == max(own([i]).value for i in range(2))
    running = Running(psnr(), window=2)
    with pytest.raises(UsageError, match="wrappers that add up states"):
        running(image(0), references=image(1))
        running.compute()


def test_without_torchmetrics_the_error_names_the_package(monkeypatch):
    name = "genmetrics.integrations.torchmetrics"
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match="run `pip install torchmetrics`"):
        importlib.import_module(name)


# -- ranks -----------------------------------------------------------------------------------------


def joinable(images):
    adapter = psnr(images)
    adapter.distributed_available_fn = lambda: True
    return adapter


def test_ranks_are_joined_inside_compute_and_parted_after_it():
    adapters = [joinable([0, 2]), joinable([1])]
    with as_ranks([adapter.metric for adapter in adapters]):
        for adapter in adapters:
            assert bits(adapter.compute()) == bits(own(range(3)))
            assert not adapter._is_synced
    assert [adapter.metric.compute().n for adapter in adapters] == [2, 1]


def test_it_is_parted_after_an_error_too(monkeypatch):
    adapter = joinable([0])
    with as_ranks([adapter.metric]):
        monkeypatch.setattr(gm.PSNR, "compute", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            adapter.compute()
        monkeypatch.undo()
    with as_ranks([adapter.metric]):
        assert bits(adapter.compute()) == bits(own([0]))


def test_syncing_by_hand():
    adapter, other = joinable([0]), joinable([1])
    with as_ranks([adapter.metric, other.metric]):
        adapter.sync()
        with pytest.raises(TorchMetricsUserError, match="already been synced"):
            adapter.sync()
        for call in (adapter.update, adapter):
            with pytest.raises(InputError, match=r"holds all ranks; call unsync\(\) first"):
                call(image(5), references=image(6))
        assert adapter.metric.compute().n == 2
        adapter.unsync()
    assert adapter.metric.compute().n == 1


def test_reset_of_a_joined_metric_ends_with_an_own_one():
    adapter = joinable([0])
    with as_ranks([adapter.metric]):
        adapter.sync()
        adapter.reset()
    fill(adapter, [1])
    with as_ranks([adapter.metric]):
        assert bits(adapter.compute()) == bits(own([1]))


def test_without_sync_on_compute_only_sync_joins():
    adapter = TorchMetric(gm.PSNR(device="cpu"), sync_on_compute=False)
    fill(adapter, [0])
    adapter.distributed_available_fn = lambda: True
    with as_ranks([adapter.metric, psnr([1]).metric]):
        assert bits(adapter.compute()) == bits(own([0]))


def test_other_ways_to_join_are_refused():
    adapter = joinable([0])
    with as_ranks([adapter.metric]), pytest.raises(UsageError, match="leave out dist_sync_fn"):
        adapter.sync(dist_sync_fn=lambda x, group: [x])
    with as_ranks([adapter.metric]), pytest.raises(UsageError, match="process_group"):
        adapter.sync(process_group=object())


@pytest.mark.slow
def test_every_rank_under_ddp_has_the_bits_of_one_process(reference, tmp_path):
    world, n = 2, 5
    launch(Path(ranks.__file__), world, str(tmp_path), str(n), str(reference))
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(world)]
    with threads(1):  # as the ranks have it
        fd = bits(own(range(n), gm.FDLite(device="cpu", reference=reference)))
    everyone = {
        "psnr": bits(own(range(n))),
        "fd": fd,
        "n": n,
        "n of one more each": n + world,
        "random state kept": True,
        "own images kept": True,
        "step of all": bits(own(range(world))),
        "psnr after steps": [bits(own(range(world))), world],
        "joined_steps after steps": [bits(own(range(world))), world],
        "state of one rank": f"the state of psnr is one rank's share of {world}; call sync() before"
        " saving and unsync() after, or reset()",
        "update while joined": "update() of a metric that holds all ranks; call unsync() first",
        "n after loading": world,
        "ragged": ["bool", [8, 4], 32],
        "lone": bits(own([0])),
        "padded": f"rank {world - 1}: sample id 'image-0' was given twice; ids must be unique over"
        " all updates and ranks",
        "still not joined": False,
    }
    assert found == [{**everyone, "step of the rank": bits(own([r]))} for r in range(world)]


def test_bootstrapping_works_on_copies():
    """The copies of a wrapper are metrics of their own."""
    wrapped = BootStrapper(psnr(), num_bootstraps=2, sampling_strategy="multinomial")
    assert all(isinstance(metric, TorchMetric) for metric in wrapped.metrics)
    assert len({id(metric.metric) for metric in wrapped.metrics}) == 2
