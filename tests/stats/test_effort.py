import warnings

import pytest

from genmetrics.stats import effort
from genmetrics.stats.effort import joined_pairs, pair_seconds, warn_if_long


def test_time_grows_with_pairs_and_numbers_and_falls_with_cores():
    one = pair_seconds(1e9, 64, threads=1)
    assert pair_seconds(4e9, 64, threads=1) == pytest.approx(4 * one)
    assert pair_seconds(1e9, 64, threads=8) == pytest.approx(one / 8)
    assert pair_seconds(1e9, 2048, threads=1) > 5 * one
    assert joined_pairs(3, 5) == 4.5 + 12.5 + 15


def test_only_what_takes_over_ten_minutes_is_announced(monkeypatch):
    monkeypatch.setattr(effort, "cores", lambda: 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_long("prdc", 1e10, 2048)
    with pytest.warns(UserWarning, match=r"^prdc compares 2e\+10 pairs of 2048 numbers") as told:
        warn_if_long("prdc", 2e10, 2048)
    assert len(told) == 1
    assert "about 12 minutes on 2 CPU cores; give it fewer images" in str(told[0].message)
    with pytest.warns(UserWarning, match="about 20 hours on 2 CPU cores"):
        warn_if_long("kid", joined_pairs(10**6, 10**6), 2048)
