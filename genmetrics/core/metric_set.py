"""Several metrics in one loop: each extractor runs once for all that ask for it."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from genmetrics.core.device import resolve_device
from genmetrics.core.errors import InputError, UsageError, did_you_mean, shown
from genmetrics.core.loop import Loop, as_items
from genmetrics.core.metric import Metric
from genmetrics.core.result import Result
from genmetrics.core.rows import Features


class MetricSet(Mapping[str, Metric]):
    """Metrics that are given the same images and share the passes of their extractors.

    ``MetricSet({"fid": gm.FID(), "kid": gm.KID()})`` runs Inception once an image. Each metric is
    given what it uses of an update, and its numbers are those it would have by itself.

    Args:
        metrics: Name to metric, all on one device. The set uses them as its own from here on.

    Raises:
        UsageError: No metric, something else than a metric, one metric under two names, or metrics
            on several devices.
    """

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        _require_metrics(metrics)
        devices = sorted({metric.device for metric in metrics.values()})
        if len(devices) != 1:
            found = ", ".join(devices) or "no metric"
            raise UsageError(f"a MetricSet needs metrics on one device; found {found}")
        self._metrics = dict(metrics)
        self._loop = Loop(devices[0])

    def __getitem__(self, name: str) -> Metric:
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)

    def update(
        self,
        images: Any = None,
        real: bool = False,
        *,
        ids: Sequence[str] | None = None,
        value_range: tuple[float, float] = (0.0, 1.0),
        **fields: Any,
    ) -> None:
        """Give every metric what it uses; see :meth:`Metric.update`.

        With ``real=True`` only metrics with a reference side are given the images.

        All metrics are given their part or, where one raises, none: the same ids can come again.

        Raises:
            UsageError: Something that no metric of the set has a use for.
            InputError: As :meth:`Metric.update`.
        """
        given = {n: v for n, v in {"images": images, **fields}.items() if v is not None}
        chosen = [m for m in self._metrics.values() if not real or "real" in m.takes()]
        self._require_used(chosen, given)
        own = {id(m): {n: v for n, v in given.items() if n in m.takes()} for m in chosen}
        for metric in chosen:
            metric.require_usable(own[id(metric)], real=real)
        known: dict[tuple[str, ...], dict[str, Features]] = {}
        ready = []
        for metric in chosen:
            mine = own[id(metric)]
            numbered = partial(metric.next_ids, real)
            items = as_items(mine, ids=ids, numbered=numbered, value_range=value_range)
            shared = known.setdefault(tuple(item.id for item in items), {})
            for spec in metric.extractors.values():
                if items and spec.fingerprint not in shared:
                    shared[spec.fingerprint] = self._loop.extract(spec, items)
            found = {
                role: shared[spec.fingerprint] for role, spec in metric.extractors.items() if items
            }
            ready.append((metric, items, found))
        with _all_or_none(chosen, reference=real):
            for metric, items, found in ready:
                if items:
                    metric.accept(items, found, real=real)

    def _require_used(self, chosen: Sequence[Metric], given: Mapping[str, Any]) -> None:
        if not chosen:
            raise InputError("no metric of this set has a reference side; drop real=True")
        takes = frozenset().union(*(metric.takes() for metric in chosen))
        for name in given:
            if name not in takes:
                raise UsageError(
                    f"no metric of this set has a use for {name}={did_you_mean(name, takes)}"
                )

    def compute(self) -> dict[str, Result]:
        """Return name to result; see :meth:`Metric.compute`."""
        return {name: metric.compute() for name, metric in self._metrics.items()}

    def reset(self, *, keep_reference: bool = False) -> None:
        """Forget every sample; those of reference sides only unless they are to be kept."""
        for metric in self._metrics.values():
            metric.reset(keep_reference=keep_reference)

    def merge(self, other: Self) -> Self:
        """Add what another set of the same metrics accumulated: to all of them or, on errors, none.

        Raises:
            InputError: It has other names, or a metric of it does not fit; see
                :meth:`Metric.merge`.
            ProtocolMismatchError: A metric has another protocol.
        """
        if not isinstance(other, MetricSet):
            raise InputError(f"cannot merge {type(other).__name__} into a MetricSet")
        if self.keys() != other.keys():
            raise InputError(f"sets of {', '.join(self)} and {', '.join(other)} do not merge")
        with _all_or_none(self._metrics.values()):
            for name, metric in self._metrics.items():
                metric.merge(other[name])
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return name to the state of each metric; see :meth:`Metric.state_dict`."""
        return {name: metric.state_dict() for name, metric in self._metrics.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace what all metrics accumulated by a :meth:`state_dict`, or on errors nothing.

        Raises:
            InputError: The state is of a set with other names.
            ProtocolMismatchError: The state of a metric is of another protocol.
        """
        if self.keys() != state.keys():
            raise InputError(
                f"the state is of {', '.join(state)}, this set is of {', '.join(self)}; build it"
                " with equal names"
            )
        with _all_or_none(self._metrics.values()):
            for name, metric in self._metrics.items():
                metric.load_state_dict(state[name])

    def to(self, device: str) -> Self:
        """Move all metrics to another device; see :meth:`Metric.to`."""
        for metric in self._metrics.values():
            metric.to(device)
        self._loop = Loop(resolve_device(device))
        return self

    def detached(self) -> Self:
        """Part a fresh copy from its original: no samples, no models, no metrics in common."""
        self._metrics = {name: copy.copy(m).detached() for name, m in self._metrics.items()}
        self._loop = Loop(self._loop.device)
        return self


def _require_metrics(metrics: object) -> None:
    if not isinstance(metrics, Mapping):
        raise UsageError(
            f"a MetricSet takes name to metric, not {shown(metrics)}; pass"
            ' {"psnr": gm.PSNR()} or the like'
        )
    names: dict[int, str] = {}
    for name, metric in metrics.items():
        if not isinstance(name, str):
            raise UsageError(f"the name {name!r} in a MetricSet is no text; pass one")
        if not isinstance(metric, Metric):
            raise UsageError(
                f"{name!r} of a MetricSet is {shown(repr(metric))}, not a metric; pass an object"
                " such as gm.PSNR()"
            )
        if id(metric) in names:
            raise UsageError(
                f"{names[id(metric)]!r} and {name!r} of a MetricSet are one metric; build one for"
                " each name"
            )
        names[id(metric)] = name


@contextmanager
def _all_or_none(metrics: Collection[Metric], *, reference: bool = True) -> Iterator[None]:
    """Put all metrics back as they were if the step fails at any of them."""
    marks = [metric.mark(reference=reference) for metric in metrics]
    try:
        yield
    except BaseException:
        for undo in marks:
            undo()
        raise
