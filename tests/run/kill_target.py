"""Run by test_kill as a process of its own: evaluates with the toy metrics, slowly."""

from __future__ import annotations

import sys

import genmetrics as gm

from .toys import ToyBrightness, ToyDistance, ToySpec

if __name__ == "__main__":
    generated, reference, cache, out, log = sys.argv[1:]
    spec = ToySpec(log=log, pause=0.3)  # longer than rows may wait to be written together
    gm.evaluate(
        generated,
        reference,
        [ToyDistance(spec), ToyBrightness(spec)],
        cache=cache,
        out=out,
        batch_size=4,
    )
