"""Every option of every function says its range, in one line, before anything is computed."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from genmetrics import stats
from genmetrics.core.errors import UsageError, require_number, require_real

X = np.random.default_rng(0).random((6, 4))
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)
SHARES = X / X.sum(axis=1, keepdims=True)
REFERENCE = stats.Moments(4).update(X)

CALLS: dict[str, tuple[Any, ...]] = {
    "cmmd": (UNIT, UNIT),
    "cmmd_estimate": (UNIT, UNIT),
    "cmmd_exact": (UNIT, UNIT),
    "frechet_infinity": (REFERENCE, X),
    "inception_influence": (SHARES,),
    "inception_score": (SHARES,),
    "kernel_distance": (X, X + 1),
    "kernel_estimate": (X, X + 1),
    "kernel_influence": (X, X + 1),
    "mean_interval": (X[:, 0],),
    "normal_interval": (1.0, 0.1),
    "prdc": (X, X + 1),
    "psnr": (UNIT, UNIT),
    "ssim": (np.tile(UNIT, (3, 4)), np.tile(UNIT, (3, 4))),
    "wilson_interval": (0.5, 10),
}

WHOLE = ("2", 2.5, True, float("nan"), -1)
REAL = ("2", True, float("nan"), float("inf"), -float("inf"), -1.0)
OPTIONS: dict[str, tuple[Any, ...]] = {
    "channel": ("hsv", None),
    "coef0": REAL,
    "data_range": (*REAL, 0.0),
    "degree": (*WHOLE, 0, None),
    "draws": (*WHOLE, 0, None),
    "estimator": ("exact", None),
    "gamma": (*REAL, 0.0),
    "k": (*WHOLE, 0, None),
    "level": (*REAL, 0.0, 1.0, 95, None),
    "points": (*WHOLE, 0, 1, None),
    "scale": (*REAL, 0.0, None),
    "seed": (*WHOLE, 2**63, None),
    "sigma": (*REAL, 0.0, None),
    "splits": (*WHOLE, 0, None),
    "subset_size": (*WHOLE, 0, 1, None),
    "subsets": (*WHOLE, 0),
}
NOT_NUMBERS = {"clusters", "groups", "mask", "minimum", "normalise"}


def options(function: Callable[..., Any]) -> list[str]:
    """Parameters with a default."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is not p.empty]


FUNCTIONS = {
    name: function
    for name in stats.__all__
    if inspect.isfunction(function := getattr(stats, name)) and name != "as_float64"
}
CASES = [
    (name, option, value)
    for name, function in FUNCTIONS.items()
    for option in options(function)
    if option not in NOT_NUMBERS
    for value in OPTIONS[option]
]


@pytest.mark.parametrize(("name", "option", "value"), CASES)
def test_out_of_range(name, option, value):
    with pytest.raises(UsageError, match=rf"^[\w .]+: {option}=") as caught:
        FUNCTIONS[name](*CALLS[name], **{option: value})
    said = str(caught.value)
    assert f"{option}={value!r}" in said
    assert "\n" not in said
    assert "; pass a " in said or " is not one of " in said


@pytest.mark.parametrize(("name", "option"), list(dict.fromkeys(case[:2] for case in CASES)))
def test_the_defaults_and_numpys_numbers_are_in_range(name, option):
    function = FUNCTIONS[name]
    default = inspect.signature(function).parameters[option].default
    if option == "splits":
        default = 3
    if isinstance(default, int | float):
        same = np.asarray(default)[()]
        few = {"splits": 3} if name.startswith("inception") else {}
        got = function(*CALLS[name], **few | {option: same})
        plain = function(*CALLS[name], **few | {option: default})
        assert repr(got) == repr(plain)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: stats.wilson_interval(1.5, 10),
            "share=1.5; pass a finite number of at least 0 and",
        ),
        (lambda: stats.wilson_interval(float("nan"), 10), "share=nan"),
        (lambda: stats.wilson_interval(0.5, 0), "n=0; pass a whole number of at least 1"),
        (lambda: stats.Moments(0), "Moments: dim=0"),
        (lambda: stats.UnitMoments(2.5), "Moments: dim=2.5"),
        (lambda: stats.Moments.from_statistics(2.5, X[0], X.T @ X), "n=2.5"),
    ],
)
def test_arguments_out_of_range(call, said):
    with pytest.raises(UsageError, match=said):
        call()


def test_the_two_checks():
    require_number("x", "k", np.int64(3), 1)
    require_real("x", "g", np.float32(0.5), above=0, below=1)
    require_real("x", "g", 3)
    with pytest.raises(UsageError, match=r"^x: k=3; pass a whole number of at least 4 and below"):
        require_number("x", "k", 3, 4)
    for value, bounds, said in [
        (0, {"above": 0}, "pass a finite number above 0"),
        (2.0, {"least": 0, "most": 1}, "pass a finite number of at least 0 and of at most 1"),
        (1, {"above": 0.5, "below": 1}, "pass a finite number above 0.5 and below 1"),
    ]:
        with pytest.raises(UsageError) as caught:
            require_real("x", "g", value, **bounds)
        assert str(caught.value) == f"x: g={value!r}; {said}"
    with pytest.raises(UsageError, match=r"^x: g=inf; pass a finite number$"):
        require_real("x", "g", float("inf"))
