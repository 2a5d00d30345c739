"""The callback of the `Trainer`: values where transformers looks, and nothing else moved."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import genmetrics as gm
from genmetrics.core.errors import InputError, UsageError
from genmetrics.integrations import _metrics
from genmetrics.integrations import transformers as integration
from genmetrics.integrations.transformers import MetricsCallback
from tests.integrations.ranks import image


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3))
        self.layers[1].eval()  # frozen, as fine-tuning does

    def forward(self, x, labels=None):
        made = self.layers(x)
        return {"loss": (made - labels).square().mean(), "made": made}


def picture(i: int) -> torch.Tensor:
    return image(i)[0].float() / 255


def generate(model, share):
    assert not any(part.training for part in model.modules()) and not torch.is_grad_enabled()
    for i in share:
        target = picture(i)[None]
        made = model(target, labels=target)["made"].clamp(0, 1)
        yield {"images": made, "references": target, "ids": [str(i)]}


class Recorder(TrainerCallback):
    """What a reporter is told."""

    def __init__(self) -> None:
        self.told: list[dict] = []

    def on_log(self, args, state, control, logs=None, **_) -> None:
        self.told.append({"step": state.global_step, **logs})


def trained(folder, *, steps=4, callback=None, recorder=None, **choices):
    """A tiny training that evaluates at every second step."""
    torch.manual_seed(0)
    arguments = {
        "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "logging_steps": 1,
        "per_device_train_batch_size": 2, "report_to": "none", "disable_tqdm": True,
        "use_cpu": True, "learning_rate": 0.05, "dataloader_pin_memory": False,
    }  # fmt: skip
    data = [{"x": picture(i), "labels": picture(i)} for i in range(8)]
    trainer = Trainer(
        Net(),
        TrainingArguments(str(folder), max_steps=steps, **arguments | choices),
        train_dataset=data,
        eval_dataset=data[:2],
        callbacks=[recorder] if recorder else None,
    )
    if callback:
        callback.attach(trainer)
    trainer.train()
    return trainer


def psnr_callback(samples=5, **choices):
    return MetricsCallback({"psnr": gm.PSNR(device="cpu")}, generate, samples=samples, **choices)


def values(entries, name="eval_psnr"):
    return [(entry["step"], entry[name]) for entry in entries if name in entry]


def test_values_reach_logs_reporters_and_the_choice_of_the_best_model(tmp_path):
    callback, recorder = psnr_callback(), Recorder()
    trainer = trained(
        tmp_path, callback=callback, recorder=recorder,
        load_best_model_at_end=True, metric_for_best_model="psnr", greater_is_better=True,
    )  # fmt: skip
    logged = values(trainer.state.log_history)
    assert [step for step, _ in logged] == [2, 4]
    assert values(recorder.told) == logged
    best = max(logged, key=lambda entry: entry[1])
    assert trainer.state.best_metric == best[1]
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{best[0]}")
    assert callback.results["psnr"].n == 5 and callback.results["psnr"].interval is not None
    # the best model is loaded, and gives the best value again
    assert trainer.evaluate()["eval_psnr"] == best[1]


def test_the_value_is_that_of_the_metric(tmp_path):
    callback = psnr_callback()
    trainer = trained(tmp_path, callback=callback)
    metric = gm.PSNR(device="cpu")
    with torch.no_grad():
        for batch in generate(trainer.model.eval(), range(5)):
            metric.update(**batch)
    assert metric.compute() == callback.results["psnr"]


def test_a_training_goes_as_without_it(tmp_path):
    weights = []
    for callback in (None, psnr_callback()):
        model = trained(tmp_path / str(callback), callback=callback).model
        weights.append([value.clone() for value in model.state_dict().values()])
    for one, other in zip(*weights, strict=True):
        assert torch.equal(one, other)


def test_modules_keep_their_modes_also_after_an_error(tmp_path):
    def failing(model, share):
        yield from generate(model, share[:1])
        raise RuntimeError("no more memory")

    callback = psnr_callback()
    trainer = trained(tmp_path, callback=callback)
    model = trainer.model
    model.train()
    model.layers[1].eval()
    modes = [part.training for part in model.modules()]
    callback._evaluate(model, range(5))
    assert [part.training for part in model.modules()] == modes
    callback._generate = failing
    with pytest.raises(RuntimeError, match="no more memory"):
        callback._evaluate(model, range(5))
    assert [part.training for part in model.modules()] == modes
    assert torch.is_grad_enabled()


def test_each_evaluation_begins_anew_and_keeps_nothing(tmp_path, reference, monkeypatch):
    made = []

    def fresh(metric):
        made.append(weakref.ref(one := _metrics.fresh(metric)))
        return one

    monkeypatch.setattr(integration, "fresh", fresh)
    fd = gm.FDLite(device="cpu", reference=reference)
    fd.update(image(50))  # the metric of the user stays as it is
    callback = MetricsCallback({"fd": fd}, generate, samples=3)
    trained(tmp_path, callback=callback, learning_rate=0.0)
    assert callback.results["fd"].n == 3
    assert len(fd.state_dict()["rows"]["samples"]) == 1
    gc.collect()
    assert len(made) == 2 and all(part() is None for part in made)


def test_each_metric_gets_what_it_takes(tmp_path):
    def both_sides(model, share):
        yield {"images": torch.cat([image(i) for i in range(40, 44)]), "real": True}
        yield from generate(model, share)

    metrics = {"psnr": gm.PSNR(device="cpu"), "fd": gm.FDLite(device="cpu")}
    callback = MetricsCallback(metrics, both_sides, samples=3)
    found = trained(tmp_path, callback=callback).state.log_history
    assert len(values(found)) == len(values(found, "eval_fd")) == 2
    assert callback.results["fd"].n_reference == 4 and callback.results["psnr"].n == 3


def test_several_evaluation_sets_have_names_of_their_own(tmp_path):
    trainer = trained(tmp_path, callback=psnr_callback())
    data = trainer.eval_dataset
    found = trainer.evaluate({"a": data, "b": data[:1]}, metric_key_prefix="test")
    assert {"test_a_psnr", "test_b_psnr"} <= set(found)


def test_every_so_many_evaluations_also_after_a_restart(tmp_path):
    trainer = trained(tmp_path, steps=6, callback=psnr_callback(every=2), eval_steps=1)
    assert [step for step, _ in values(trainer.state.log_history)] == [1, 3, 5]
    callback = psnr_callback(every=2)
    callback.attach(trainer)
    trainer.pop_callback(MetricsCallback)
    again = Trainer(
        Net(), trainer.args, train_dataset=trainer.train_dataset, eval_dataset=trainer.eval_dataset
    )
    callback.attach(again)
    again.args.max_steps = 8
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert [step for step, _ in values(again.state.log_history)] == [1, 3, 5, 7]


def test_a_value_that_is_not_there_is_nan_with_its_reason(tmp_path):
    def hidden(model, share):
        for batch in generate(model, share):
            yield {**batch, "masks": torch.ones(1, 24, 24, dtype=torch.bool)}

    callback = psnr_callback()
    callback._generate = hidden
    with pytest.warns(UserWarning, match="psnr is unavailable: no sample has a score"):
        trainer = trained(tmp_path, callback=callback, steps=2)
    ((_, value),) = values(trainer.state.log_history)
    assert value != value


# -- what is refused -------------------------------------------------------------------------------


def test_a_callback_that_is_not_attached_is_refused_at_once(tmp_path):
    with pytest.raises(UsageError, match=r"call callback\.attach\(trainer\)"):
        Trainer(
            Net(),
            TrainingArguments(str(tmp_path), report_to="none", use_cpu=True),
            callbacks=[psnr_callback()],
        )


def test_a_direction_that_keeps_the_worst_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match="keeps the worst model; pass greater_is_better=True"):
        trained(
            tmp_path, callback=psnr_callback(),
            metric_for_best_model="eval_psnr", greater_is_better=False,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.zeros(1), "must yield mappings with \"images\".* a Tensor"),
        ({"prompts": ["a"]}, 'must yield mappings with "images"'),
        ({"images": image(0), "id": ["a"]}, r"no metric takes 'id' of.*did you mean 'ids'"),
    ],
)  # fmt: skip
def test_a_batch_that_cannot_be_meant_is_refused(batch, message):
    callback = psnr_callback()
    callback._generate = lambda model, share: [batch]
    with pytest.raises(UsageError, match=message):
        callback._evaluate(Net(), range(5))


@pytest.mark.parametrize("given", [4, 6])
def test_missing_and_surplus_images_are_an_error(given):
    with pytest.raises(InputError, match=f"yielded {given} images on 1 ranks, samples=5"):
        psnr_callback()._evaluate(Net(), range(given))


def test_options_are_checked():
    for choices in ({"samples": 0}, {"samples": 1, "every": 0}):
        with pytest.raises(UsageError, match="whole number of at least 1"):
            psnr_callback(**choices)
    with pytest.raises(UsageError, match="has no metrics"):
        MetricsCallback({}, generate, samples=1)


# -- ranks -----------------------------------------------------------------------------------------


@pytest.fixture
def other_rank(monkeypatch):
    """A second rank that says what the test wants."""
    told = []

    def gather(into, mine):
        into[:] = [mine, *told]

    monkeypatch.setattr(integration.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(integration.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(integration.distributed, "all_gather_object", gather)
    return told


def test_a_rank_that_fails_ends_all_and_is_named(other_rank):
    other_rank.append((1, "RuntimeError: no more memory"))
    with pytest.raises(InputError, match="rank 1 could not evaluate: RuntimeError: no more memory"):
        integration._agree(4, None, 5)
    with pytest.raises(ZeroDivisionError):  # its own error on the rank that has one
        integration._agree(0, ZeroDivisionError(), 5)


def test_images_are_counted_over_ranks(other_rank):
    other_rank.append((2, None))
    integration._agree(3, None, 5)
    with pytest.raises(InputError, match="yielded 6 images on 2 ranks, samples=5"):
        integration._agree(4, None, 5)
