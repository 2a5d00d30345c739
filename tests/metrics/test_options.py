"""Options of metrics are checked when they are made."""

import json

import numpy as np
import pytest

import genmetrics as gm
from genmetrics.core.errors import UsageError

WHOLE = ("2", 2.5, True, float("nan"), -1)
REAL = (True, float("nan"), float("inf"), -0.5)


@pytest.mark.parametrize(
    ("metric", "option", "values"),
    [
        (gm.KID, "subsets", (*WHOLE, 0)),
        (gm.KID, "subset_size", (*WHOLE, 1)),
        (gm.KID, "seed", (*WHOLE, 2**32)),
        (gm.KDLite, "subsets", (*WHOLE, 0)),
        (gm.PRDC, "k", (*WHOLE, 0)),
        (gm.PRDCLite, "k", (*WHOLE, 0)),
        (gm.FID, "infinity_points", (*WHOLE, 1)),
        (gm.FDLite, "infinity_points", (*WHOLE, 1)),
        (gm.FDCLIP, "infinity_points", (*WHOLE, 1)),
        (gm.FDDINOv2, "infinity_points", (*WHOLE, 1)),
        (gm.InceptionScore, "splits", (*WHOLE, 0)),
        (gm.InceptionScore, "seed", (*WHOLE, 2**32)),
        (gm.CMMD, "sigma", (*REAL, 0.0)),
        (gm.CMMD, "scale", (*REAL, 0.0)),
        (gm.GenEval, "threshold", (*REAL, 1.5)),
        (gm.GenEval, "counting_threshold", (*REAL, 1.5)),
        (gm.GenEval, "max_overlap", (*REAL, 1.5)),
        (gm.GenEval, "position_threshold", REAL),
        (gm.GenEval, "max_objects", (*WHOLE, 0)),
    ],
)
def test_out_of_range(metric, option, values):
    for value in values:
        with pytest.raises(UsageError, match=rf"^[\w@.-]+: {option}=") as caught:
            metric(**{option: value})
        assert f"{option}={value!r}; " in str(caught.value)
        assert "\n" not in str(caught.value)


def test_numpys_numbers_make_the_same_protocol():
    plain, numpys = gm.KID(subset_size=500), gm.KID(subset_size=np.int64(500))
    assert plain.protocol.fingerprint == numpys.protocol.fingerprint
    assert json.dumps(numpys.protocol.to_dict()) == json.dumps(plain.protocol.to_dict())
