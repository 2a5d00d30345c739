"""transformers: metrics of generated images whenever a ``Trainer`` evaluates."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import distributed

from genmetrics.core.errors import (
    InputError,
    MissingExtraError,
    UsageError,
    did_you_mean,
    require_number,
)
from genmetrics.core.fields import FIELDS
from genmetrics.core.metric import Metric
from genmetrics.core.result import Result
from genmetrics.distributed import sync
from genmetrics.integrations._metrics import fresh

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtraError("genmetrics.integrations.transformers", "transformers") from error

Batch = Mapping[str, Any]
"""What ``update`` takes, by name: ``{"images": ..., "ids": [...], "prompts": [...]}``."""

KNOWN = frozenset({"real", "ids", "value_range"})
"""What a batch may hold beside fields of samples; one set of batches serves any metrics."""


class MetricsCallback(TrainerCallback):  # type: ignore[misc]
    """Generates and judges images whenever a ``Trainer`` evaluates.

    Every rank generates its share, the ranks are joined by sample id, and each value enters the
    evaluation as ``eval_NAME``: for ``metric_for_best_model``, early stopping and schedulers, in
    ``log_history``, and for every reporter (Weights & Biases, TensorBoard). A ``Trainer`` reports
    before it calls ``on_evaluate``, so the values are a log entry of their own, of the same step;
    for that the callback has to know its trainer::

        MetricsCallback({"fid": fid}, generate, samples=1000).attach(trainer)

    While images are made, the model is in evaluation mode and no gradients are recorded; then every
    module has the mode that it had. The global random state is left to ``generate``.

    Args:
        metrics: Name to metric. Each evaluation begins without samples: give a reference side by
            ``reference=FILE``, or by batches with ``"real": True`` (on one rank only).
        generate: Called as ``generate(model, share)`` on every rank, where ``share`` is the range
            of sample numbers of this rank, which may be empty. It yields one mapping a batch: the
            arguments of ``update`` by name. Each metric is given those that it takes. Make a
            sample from its number (``torch.Generator().manual_seed(number)``, and
            ``ids=[str(number)]``), and the value is the same on any number of ranks.
        samples: Number of images over all ranks.
        every: Run at the first of so many evaluations.

    Attributes:
        results: Name to the whole :class:`Result` of the latest evaluation.

    Raises:
        UsageError: A name is empty, or a number is out of range.
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        generate: Callable[[Any, range], Iterable[Batch]],
        *,
        samples: int,
        every: int = 1,
    ) -> None:
        require_number("MetricsCallback", "samples", samples, 1)
        require_number("MetricsCallback", "every", every, 1)
        if not metrics:
            raise UsageError('MetricsCallback has no metrics; pass {"fid": metric}')
        self.metrics = dict(metrics)
        self.results: dict[str, Result] = {}
        self._generate = generate
        self._samples = samples
        self._every = every
        self._trainer: Any = None

    def attach(self, trainer: Any) -> Self:
        """Add the callback to a ``Trainer``, which from here on logs its values.

        Raises:
            UsageError: The trainer would keep the worst model, since ``greater_is_better`` is not
                the direction of its ``metric_for_best_model``.
        """
        best = (trainer.args.metric_for_best_model or "").removeprefix("eval_")
        metric = self.metrics.get(best)
        if metric is not None and trainer.args.greater_is_better != metric.higher_is_better:
            raise UsageError(
                f"metric_for_best_model={best!r} with greater_is_better="
                f"{trainer.args.greater_is_better} keeps the worst model; pass"
                f" greater_is_better={metric.higher_is_better}"
            )
        self._trainer = trainer
        trainer.add_callback(self)
        return self

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Refuse a callback that was given to the ``Trainer`` instead of attached to it."""
        self._require_trainer()

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Generate this rank's share, join the ranks, and add the values to the evaluation.

        Raises:
            InputError: A rank failed, or not as many images came as were asked for; on every rank.
        """
        self._require_trainer()
        model, metrics = given["model"], given["metrics"]
        # `eval`, or with several datasets `eval_NAME`: only its own timing tells
        prefix = next(name for name in metrics if name.endswith("_runtime"))[: -len("_runtime")]
        before = sum(f"{prefix}_runtime" in entry for entry in state.log_history) - 1
        if before % self._every:
            return
        share = range(args.process_index, self._samples, args.world_size)
        self.results = self._evaluate(model, share)
        for result in self.results.values():
            if result.value is None:
                warnings.warn(f"{result.id} is {result.status}: {result.reason}", stacklevel=2)
        values = {f"{prefix}_{name}": float(result) for name, result in self.results.items()}
        metrics.update(values)
        self._trainer.log(values)

    def _require_trainer(self) -> None:
        if self._trainer is None:
            raise UsageError(
                "MetricsCallback is not attached: build the Trainer without it, then call"
                " callback.attach(trainer)"
            )

    def _evaluate(self, model: Any, share: range) -> dict[str, Result]:
        parts = {name: fresh(metric) for name, metric in self.metrics.items()}
        count, failure = 0, None
        try:
            with _evaluating(model):
                for batch in self._generate(model, share):
                    count += _give(parts, batch)
        except Exception as error:  # or the other ranks would wait for this one
            failure = error
        _agree(count, failure, self._samples)
        return {name: sync(part).compute() for name, part in parts.items()}


def _give(metrics: Mapping[str, Metric], batch: Batch) -> int:
    """Update each metric with what it takes of a batch; return the number of generated images."""
    if not isinstance(batch, Mapping) or "images" not in batch:
        raise UsageError(
            'generate must yield mappings with "images", such as {"images": images, "ids": ids};'
            f" it yielded a {type(batch).__name__}"
        )
    real = bool(batch.get("real"))
    known = KNOWN.union(field.plural for field in FIELDS.values())
    for key in batch:
        if key not in known:
            raise UsageError(f"no metric takes {key!r} of a batch{did_you_mean(key, known)}")
    for metric in metrics.values():
        takes = metric.takes()
        if not real or "real" in takes:
            metric.update(**{key: value for key, value in batch.items() if key in takes})
    return 0 if real else len(batch["images"])


def _agree(count: int, failure: Exception | None, wanted: int) -> None:
    """Raise on every rank if one failed or if images are missing. A collective."""
    mine = (count, failure and f"{type(failure).__name__}: {failure}")
    said = [mine]
    if distributed.is_available() and distributed.is_initialized():
        said = [mine] * distributed.get_world_size()
        distributed.all_gather_object(said, mine)
    if failure is not None:
        raise failure
    for rank, (_, reason) in enumerate(said):
        if reason is not None:
            raise InputError(f"rank {rank} could not evaluate: {reason}")
    total = sum(number for number, _ in said)
    if total != wanted:
        raise InputError(
            f"generate yielded {total} images on {len(said)} ranks, samples={wanted}; yield one for"
            " each number of its share"
        )


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients, then every module as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
