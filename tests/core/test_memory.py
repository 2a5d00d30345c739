"""Memory that was freed is there for the next time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PAGES = """
import resource, sys
from genmetrics.core.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def use():
    return [bytearray(14 << 20) for _ in range(2)]  # zeroed, so every page is touched
for _ in range(3):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(what: str, **environment: str) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", PAGES, what],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(ran.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_kept_memory_costs_no_page_faults():
    given_back = page_faults("plain")
    assert given_back > 10_000  # of 280 MiB in pages of 4 KiB
    assert page_faults("keep") < given_back / 10
    assert page_faults("keep", MALLOC_TRIM_THRESHOLD_="0") > 10_000  # the user's word counts
