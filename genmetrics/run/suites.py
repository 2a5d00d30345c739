"""Named sets of metrics for ``--suite``."""

from __future__ import annotations

from genmetrics.core.errors import UsageError, did_you_mean

SUITES: dict[str, tuple[str, ...]] = {
    # everything that runs on the backbone that comes with the installation
    "lite": ("fd-lite", "kd-lite", "prdc-lite", "vendi@lite", "authpct@lite"),
    # one Inception pass
    "inception": ("fid@clean", "kid@clean", "prdc@clean", "is@clean"),
    # what a paper on an unconditional generator is asked for
    "standard": ("fid@clean", "kid@clean", "prdc@clean", "is@clean", "cmmd", "fd-dinov2"),
    # edits and restorations against their counterparts
    "pairs": ("psnr", "ssim@wang"),
}


def suite(name: str) -> tuple[str, ...]:
    """Return the metric ids of a suite.

    Raises:
        UsageError: No such suite.
    """
    if name not in SUITES:
        raise UsageError(
            f"unknown suite {name!r}{did_you_mean(name, SUITES)}; there is {', '.join(SUITES)}"
        )
    return SUITES[name]
