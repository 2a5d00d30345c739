"""A run over clips in a process of its own: what it found, and the memory it took.

python -m tests.run.clip_target MANIFEST CACHE LOG BATCH OUT
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import genmetrics as gm
from tests.run.lane_toys import Steadiness


def memory(name: str) -> int:
    """Bytes of this process, now (``VmRSS``) or at most (``VmHWM``)."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def main() -> None:
    manifest, cache, log, batch, out = sys.argv[1:]
    gm.load_image  # noqa: B018  # what a run imports anyway
    import torch

    torch.zeros(1)
    before = memory("VmRSS")
    report = gm.evaluate(
        manifest,
        metrics=[Steadiness(log=log)],
        cache=cache,
        batch_size=int(batch),
        device="cpu",
        distributed=True,
    )
    result = report["toy-steadiness"]
    found = {
        "values": {id_: value.hex() for id_, value in result.per_sample.items()},
        "value": float(result).hex(),
        "above": memory("VmHWM") - before,
        "computed": report.runtime["features_computed"],
        "conversions": dict(report.conversions),
    }
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
