"""Batches: how the inputs of an extractor are cut into forwards. Nowhere else are batches cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from genmetrics.core.errors import InputError, OutOfMemoryError
from genmetrics.core.extractor import Extractor
from genmetrics.core.outputs import checked
from genmetrics.core.rows import Features, concatenate, one_row, take
from genmetrics.core.sample import Item
from genmetrics.core.views import View, view_of


class Batches:
    """Runs one extractor in batches of one shape.

    Inputs of equal :meth:`~genmetrics.core.extractor.Extractor.bucket` run together, at most
    ``size`` at a time. A short batch is filled up with copies of its last entry (see
    :attr:`~genmetrics.core.extractor.Extractor.fill`), whose rows are dropped again: so no row
    depends on how many others there are.

    Args:
        extractor: What is run.
        size: Inputs of a batch; halved, for good, where the device's memory ends.
        shrink: Whether it may be halved.
        halved: Told the new size.
    """

    def __init__(
        self,
        extractor: Extractor,
        size: int,
        *,
        shrink: bool = True,
        halved: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.extractor = extractor
        self.size = size
        self._shrink = shrink
        self._halved = halved

    def run(self, prepared: Sequence[Any]) -> Features:
        """Compute the features of inputs, in their order.

        Raises:
            OutOfMemoryError: A batch does not fit the device's memory and may not, or cannot, be
                halved.
        """
        alike: dict[Any, list[int]] = {}
        for i, one in enumerate(prepared):
            alike.setdefault(self.extractor.bucket(one), []).append(i)
        pieces = [self._bucket([prepared[i] for i in rows]) for rows in alike.values()]
        joined = concatenate(pieces)
        if len(alike) == 1:
            return joined
        order = [i for rows in alike.values() for i in rows]
        return take(joined, np.argsort(order).tolist())

    def _bucket(self, prepared: Sequence[Any]) -> Features:
        pieces = []
        done = 0
        while done < len(prepared):
            found = self._forward(list(prepared[done : done + self.size]))
            if found is not None:
                done += len(next(iter(found.values())))
                pieces.append(found)
        return concatenate(pieces)

    def _forward(self, batch: list[Any]) -> Features | None:
        """Run one batch; None where it did not fit and the size was halved."""
        import torch

        n, step, size = len(batch), self.extractor.fill or self.size, self.size
        filled = batch + [batch[-1]] * (min(-(-n // step) * step, size) - n)
        try:
            found = checked(self.extractor.spec, self.extractor.forward(filled), len(filled))
        except torch.OutOfMemoryError as error:
            if size == 1 or not self._shrink:
                raise OutOfMemoryError(
                    f"a batch of {size} does not fit the memory of {self.extractor.device} with"
                    f" {self.extractor.spec.extractor}; pass a smaller --batch-size, or auto"
                ) from error
        else:
            return found if n == len(filled) else take(found, range(n))
        # outside the handler, whose traceback would keep the failed batch alive
        self.size = size // 2
        torch.cuda.empty_cache()
        self._halved(self.size)
        return None


def run_items(batches: Batches, items: Sequence[Item]) -> Features:
    """Prepare and run items that are in memory: one row an item, ragged where it has parts."""
    extractor = batches.extractor
    view = view_of(extractor.spec.view)
    if not view.parts:
        return batches.run([extractor.prepare(item) for item in items])
    return concatenate([_run_parts(batches, item, view) for item in items])


def _run_parts(batches: Batches, item: Item, view: View) -> Features:
    """Run the parts of one item, so many at a time as a batch holds."""
    pieces = []
    loads = iter(view.loads(item))
    while chunk := list(islice(loads, batches.size)):
        pieces.append(batches.run([batches.extractor.prepare(load()) for load in chunk]))
    if not pieces:
        raise no_parts(item.id, view)
    return one_row(concatenate(pieces))


def no_parts(id_: str, view: View) -> InputError:
    """Return the error for a sample that has nothing of what is to be judged."""
    return InputError(f"sample {id_!r} has no {view.name.replace('_', ' ')}; drop or replace it")
