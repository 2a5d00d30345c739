"""torchmetrics and Lightning: one adapter for every metric."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed

from genmetrics.core.errors import InputError, MissingExtraError, TooFewSamplesError, UsageError
from genmetrics.core.metric import Metric
from genmetrics.core.result import Result
from genmetrics.distributed import sync as join
from genmetrics.integrations._metrics import fresh

try:
    import torchmetrics
    from torchmetrics.utilities.distributed import gather_all_tensors
except ImportError as error:
    raise MissingExtraError("genmetrics.integrations.torchmetrics", "torchmetrics") from error

STATE = "state"
"""Key of the metric's state in the ``state_dict`` of a module, behind the module's prefix."""


class TorchMetric(torchmetrics.Metric):
    """A genmetrics metric as a ``torchmetrics.Metric``.

    ``update`` and ``forward`` take what the metric's own ``update`` takes. ``compute`` returns its
    value as a float64 scalar on the metric's device (float32 where the device has no float64); NaN,
    with a warning, where there is none. The whole :class:`Result` is in :attr:`result`.

    Ranks are joined sample by sample as by :func:`genmetrics.distributed.sync`, never by averaging
    values. By the rule of torchmetrics this happens inside ``compute()``, so every rank has to call
    it; with ``sync_on_compute=False`` it happens in ``sync()`` alone. Unlike in torchmetrics, a
    sample id that two ranks hold is an error on all of them: a sampler that pads repeats samples.

    Nothing is declared through ``add_state``. A ``MetricCollection`` therefore never takes two
    adapters for one compute group.

    Args:
        metric: Any genmetrics metric. The adapter uses it as its own from here on.
        sync_on_compute: Join the ranks in ``compute()``.
        dist_sync_on_step: Join the ranks for the value that ``forward`` returns, too.

    Attributes:
        metric: The metric; between ``sync()`` and ``unsync()`` the one of all ranks.
        result: What the latest ``compute()`` made; kept over a ``reset()``, so that it can be read
            after an epoch.
    """

    is_differentiable = False
    full_state_update = False

    def __init__(
        self, metric: Metric, *, sync_on_compute: bool = True, dist_sync_on_step: bool = False
    ) -> None:
        if not isinstance(metric, Metric):
            raise UsageError(f"TorchMetric wraps a genmetrics metric, not {type(metric).__name__}")
        super().__init__(sync_on_compute=sync_on_compute, dist_sync_on_step=dist_sync_on_step)
        self.metric = metric
        self.result: Result | None = None
        self._kept = False
        self._device = torch.device(metric.device)

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """The direction of the metric."""
        return self.metric.higher_is_better

    def extra_repr(self) -> str:
        """Return the protocol's name, such as ``fid@clean``."""
        return self.metric.protocol.metric

    # -- samples and values ------------------------------------------------------------------------

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add images; takes what the metric's own ``update`` takes."""
        self._require_own("update")
        self.metric.update(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Add images, and return the value of these images alone. They are extracted once.

        Raises:
            TooFewSamplesError: The images were added but are too few for a value of their own.
        """
        self._require_own("forward")
        batch = fresh(self.metric)
        with torch.no_grad():
            batch.update(*args, **kwargs)
        self.metric.merge(batch)
        self._update_count += 1
        self._computed = None
        try:
            value = self._scalar((join(batch) if self.dist_sync_on_step else batch).compute())
        except TooFewSamplesError as error:
            raise TooFewSamplesError(
                f"{error}; a batch has no value of its own, call update() instead of the metric"
            ) from error
        self._forward_cache = value  # type: ignore[assignment]
        return value

    def compute(self) -> Tensor:
        """Return the value of all images given so far; see :attr:`result` for the rest.

        With too few images for a value it is NaN, with a warning: an epoch without images must not
        end a training.
        """
        try:
            self.result = self.metric.compute()
        except TooFewSamplesError as error:
            self.result = self.metric.failed(error)
        return self._scalar(self.result)

    def reset(self) -> None:
        """Forget every image, also of a reference side that was given by ``real=True``."""
        if self._is_synced:
            self.unsync()
        super().reset()
        self.metric.reset()

    def merge_state(self, incoming_state: Any) -> None:
        """Add the images of another adapter of an equal metric."""
        if not isinstance(incoming_state, TorchMetric):
            found = type(incoming_state).__name__
            raise UsageError(f"merge_state takes another TorchMetric, not {found}")
        self._require_own("merge_state")
        self.metric.merge(incoming_state.metric)
        self._update_count += incoming_state._update_count
        self._computed = None

    def _scalar(self, result: Result) -> Tensor:
        if result.value is None:
            warnings.warn(f"{result.id} is {result.status}: {result.reason}", stacklevel=2)
        dtype = torch.float32 if self._device.type == "mps" else torch.float64
        return torch.tensor(float(result), dtype=dtype, device=self._device)

    def _require_own(self, what: str) -> None:
        if self._is_synced:
            raise InputError(f"{what}() of a metric that holds all ranks; call unsync() first")

    def _filter_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        """Leave out what the metric does not take, as a ``MetricCollection`` asks for."""
        takes = self.metric.takes()
        return {name: value for name, value in kwargs.items() if name in takes}

    # -- ranks -------------------------------------------------------------------------------------
    # `sync` and `unsync` of torchmetrics call the first two: they keep this rank's state aside as
    # attributes, and set these again.

    def _copy_state_dict(self) -> dict[str, Any]:
        return {"metric": self.metric}

    def _sync_dist(
        self, dist_sync_fn: Callable[..., Any] | None = None, process_group: Any = None
    ) -> None:
        if dist_sync_fn not in (None, gather_all_tensors) or process_group or self.process_group:
            raise UsageError(
                f"{self.metric.protocol.metric} joins all ranks of the default process group by"
                " sample id; leave out dist_sync_fn and process_group"
            )
        self.metric = join(self.metric)

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        raise UsageError(
            f"{self.metric.protocol.metric} keeps samples, not sums; wrappers that add up states"
            " (Running) do not work with it"
        )

    @contextmanager
    def sync_context(
        self,
        dist_sync_fn: Callable[..., Any] | None = None,
        process_group: Any = None,
        should_sync: bool = True,
        should_unsync: bool = True,
        distributed_available: Callable[..., Any] | None = None,
    ) -> Generator[None, None, None]:
        """Hold all ranks' images inside the block, and this rank's own after it, come what may."""
        self.sync(dist_sync_fn, process_group, should_sync, distributed_available)
        try:
            yield
        finally:
            self.unsync(should_unsync=self._is_synced and should_unsync)

    # -- copies, checkpoints, devices --------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Leave the models out: a copy builds its own when it needs them."""
        metric = copy.copy(self.metric).detached()
        metric.load_state_dict(self.metric.state_dict())
        return {**super().__getstate__(), "metric": metric}

    def persistent(self, mode: bool = False) -> None:
        """Choose whether the images given so far are part of the module's ``state_dict``."""
        self._kept = mode

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not self._kept:
            return
        if self._update_count and not self._is_synced and _world() > 1:
            raise InputError(
                f"the state of {self.metric.protocol.metric} is one rank's share of {_world()};"
                " call sync() before saving and unsync() after, or reset()"
            )
        destination[prefix + STATE] = {
            "updates": self._update_count,
            "metric": self.metric.state_dict(),
        }

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        saved = state_dict.pop(prefix + STATE, None)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if saved is None:
            if self._kept:
                missing_keys.append(prefix + STATE)
            return
        self.reset()
        if _world() == 1 or distributed.get_rank() == 0:  # or its images would count on every rank
            self.metric.load_state_dict(saved["metric"])
            self._update_count = saved["updates"]

    def _apply(self, fn: Callable[..., Any], exclude_state: Sequence[str] = "") -> torch.nn.Module:
        """Move the metric where the module is moved; its numbers have no dtype to change."""
        before = self._device
        super()._apply(fn, exclude_state)
        if self._device != before:
            self.metric.to(str(self._device))
        return self


def _world() -> int:
    ready = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if ready else 1
