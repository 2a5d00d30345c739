"""Values travel once, at their own size, to those who want them.

Retold here: sharing 100 MB from one rank padded and gathered them everywhere, at 770 to
860 MB a rank.
"""

from __future__ import annotations

import json

import pytest

from genmetrics.core.errors import UsageError
from genmetrics.run.exchange import Call, _require_alike
from genmetrics.run.ranks import ALONE

from .share_target import SIZE
from .world_target import finish, torchrun

MB = 1_000_000
WORLD = 4


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_large_value_takes_no_more_memory_than_itself_and_what_travels():
    (said,) = finish(torchrun(WORLD, "tests.run.share_target"))
    found = json.loads(said)
    assert len(found) == WORLD
    assert max(each["share"] for each in found) < 2.5 * SIZE
    main, *others = [each["to main"] for each in found]
    part = SIZE // WORLD
    assert main < 1.2 * SIZE  # the rows of three others, and a copy of one on its way
    assert max(others) < 1.5 * part


def test_a_world_of_one_exchanges_nothing():
    made = object()
    assert ALONE.share(lambda: made) is made
    assert ALONE.gather(made) == ALONE.gather_to_main(made) == [made]


def test_ranks_at_different_places_of_a_run_are_refused():
    _require_alike([Call.SHARE] * 3)
    with pytest.raises(UsageError, match="rank 1, 2 has less to do than others; give all ranks"):
        _require_alike([Call.GATHER, Call.END, Call.END])
    with pytest.raises(UsageError, match="rank 2 does other work than rank 0; give all ranks"):
        _require_alike([Call.GATHER, Call.GATHER, Call.SHARE])
