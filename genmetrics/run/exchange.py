"""How values travel between the ranks of a run, once all of them have arrived."""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Sequence
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from genmetrics.core.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

Data = memoryview | bytearray

NOTHING = memoryview(bytearray())
LIMIT = timedelta(minutes=10)  # for one transfer, once all ranks have arrived


class Call(IntEnum):
    """What a rank takes part in; in one exchange all must say the same."""

    GATHER = 0
    TO_MAIN = 1
    SHARE = 2
    END = 3


class Head(NamedTuple):
    """What a rank says before its value travels."""

    call: Call
    size: int


def pack(value: object) -> memoryview:
    """Return what travels of a value: its pickle, in memory that torch may read without a copy."""
    buffer = io.BytesIO()
    pickle.dump(value, buffer)
    return buffer.getbuffer()


class Exchange:
    """Collectives of the run, from and to the memory of the CPU, each value at its own size.

    Args:
        apart: Use a gloo group of the run's own beside the process group of the program, which is
            then never left in the middle of a collective: an exchange that is broken off, by an
            interrupt or because a rank died, breaks this group alone, and closing it releases
            whoever waits in it. Making it is a collective of the program's group.
    """

    def __init__(self, *, apart: bool) -> None:
        from torch import distributed

        self._group: ProcessGroup | None = None
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        if apart:  # the other type that it may have is for processes that are not in the group
            made = distributed.new_group(backend="gloo", timeout=LIMIT)
            self._group = cast("ProcessGroup", made)

    def swap(self, call: Call, mine: Data) -> dict[int, Any]:
        """Take part in an exchange; returns what others brought for this rank, by their ranks.

        Args:
            call: All bring values for all, or for the main rank alone, or the main rank for all.
            mine: What this rank brings, packed; may be nothing.

        Raises:
            UsageError: Another rank takes part in something else; raised on all.
            RuntimeError: Another rank ended, or closed its group.
        """
        found: dict[int, Any] = {}
        try:
            for source, size in enumerate(self._sizes(call, len(mine))):
                own = source == self.rank
                if not size or (call is Call.TO_MAIN and not (own or self.rank == 0)):
                    continue
                data = mine if own else bytearray(size)
                self._move(call, data, source)
                if not own:
                    found[source] = pickle.loads(data)
        except BaseException as error:
            # torch's frames know the group, which stays open for as long as somebody does
            traceback.clear_frames(error.__traceback__)
            raise
        return found

    def close(self) -> None:
        """Leave the run's own group; whoever waits in it for this rank gets an error."""
        from torch import distributed

        if self._group is not None:
            group, self._group = self._group, None
            distributed.destroy_process_group(group)

    def _sizes(self, call: Call, size: int) -> list[int]:
        import torch
        from torch import distributed

        heads = [torch.zeros(2, dtype=torch.int64) for _ in range(self.world)]
        distributed.all_gather(heads, torch.tensor([call, size]), group=self._group)
        said = [Head(Call(int(head[0])), int(head[1])) for head in heads]
        _require_alike([head.call for head in said])
        return [head.size for head in said]

    def _move(self, call: Call, data: Data, source: int) -> None:
        from torch import distributed

        tensor = _tensor(data)
        if call is not Call.TO_MAIN:
            distributed.broadcast(tensor, source, group=self._group)
        elif source == self.rank:
            distributed.send(tensor, 0, group=self._group)
        else:
            distributed.recv(tensor, source, group=self._group)


def _tensor(data: Data) -> Tensor:
    """See memory as a tensor, without a copy."""
    import torch

    return torch.frombuffer(data, dtype=torch.uint8)


def _require_alike(calls: Sequence[Call]) -> None:
    """Refuse ranks that are at different places of the run.

    Raises:
        UsageError: Names those that are done, or that do something else than rank 0.
    """
    if len(set(calls)) == 1:
        return
    done = Call.END in calls
    wrong = [i for i, call in enumerate(calls) if (call is Call.END if done else call != calls[0])]
    what = "has less to do than others" if done else "does other work than rank 0"
    raise UsageError(f"rank {', '.join(map(str, wrong))} {what}; give all ranks the same arguments")
