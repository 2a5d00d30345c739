from __future__ import annotations

import pytest

import genmetrics.metrics  # noqa: F401
from genmetrics.core.errors import UsageError
from genmetrics.core.metric import Metric
from genmetrics.core.registry import create, find, parse, register, registered


def test_bare_names_resolve_to_their_default_variant():
    metric, variant = find("fid")
    assert (metric.id, variant) == ("fid", "clean")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("fdi", "fid"), ("fid@cleen", "clean"), ("clipscor", "clipscore"), ("ssim@wong", "wang")],
)
def test_unknown_names_suggest_the_closest(name, hint):
    with pytest.raises(UsageError, match=f"did you mean '{hint}'"):
        find(name)


def test_commas_separate_ids_and_options():
    requests = parse(["fid@tf1,kid:subset_size=50,subsets=10,prdc", "is"])
    assert [request.id for request in requests] == [
        "fid@tf1",
        "kid@clean",
        "prdc@clean",
        "is@clean",
    ]
    assert requests[1].options == {"subset_size": 50, "subsets": 10}
    assert requests[1].name == "kid@clean:subset_size=50,subsets=10"


def test_the_same_request_twice_is_one():
    assert len(parse(["fid", "fid@clean,fid"])) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kid:subsetsize=5", "did you mean 'subset_size'"),
        ("kid:subset_size=many", "kid:subset_size=many is not int"),
        ("cmmd:estimator=unbiased1", "did you mean 'unbiased'"),
        ("kid:subset_size", "no option 'subset_size'.*as key=value"),
        ("fid:weights=x", "no option 'weights'"),
    ],
)
def test_bad_options_are_named(text, message):
    with pytest.raises(UsageError, match=message):
        parse([text])


def test_options_reach_the_protocol():
    (request,) = parse(["kid@tf1:subset_size=7"])
    metric = create(request)
    assert metric.protocol.metric == "kid@tf1"
    assert metric.protocol.to_dict()["subset_size"] == 7


def test_an_id_is_taken_once():
    with pytest.raises(UsageError, match="'fid' is taken"):

        @register
        class Other(Metric):  # pragma: no cover
            id = "fid"


@pytest.mark.parametrize("name", sorted(registered()))
def test_every_metric_states_its_facts(name):
    metric = registered()[name]
    assert metric.summary and metric.__doc__
    assert "image" in metric.inputs
    assert isinstance(metric.higher_is_better, bool)
    assert metric.default_variant in metric.variants if metric.variants else True
