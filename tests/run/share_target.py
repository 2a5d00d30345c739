"""One rank of a world that exchanges large values; prints what memory each exchange took.

torchrun -m tests.run.share_target
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genmetrics.run.launch import joined

SIZE = 100_000_000


def peak() -> int:
    """Bytes of memory this process has had at most since the last reset."""
    status = Path("/proc/self/status").read_text()
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return 1024 * int(found)


def added(work: Callable[[], Any]) -> tuple[int, Any]:
    """Bytes that a piece of work takes at its peak, and what it returns."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = peak()
    made = work()
    return peak() - before, made


def main() -> None:
    with joined("cpu") as ranks:
        ranks.gather(None)  # whatever is loaded and connected at first
        shared, value = added(lambda: ranks.share(lambda: b"\x01" * SIZE))
        assert value == b"\x01" * SIZE
        del value
        mine = bytes([ranks.rank]) * (SIZE // ranks.world)
        brought, rows = added(lambda: ranks.gather_to_main(mine))
        assert [row[-1] for row in rows] == list(range(ranks.world))[: len(rows)]
        found = ranks.gather({"share": shared, "to main": brought})
    if os.environ["RANK"] == "0":
        print(json.dumps(found))


if __name__ == "__main__":
    main()
