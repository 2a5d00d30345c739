import json

from genmetrics.core.registry import registered
from genmetrics.run.suites import SUITES


def test_list_names_every_metric_variant_and_suite(run):
    code, out, err = run("list")
    assert (code, err) == (0, "")
    words = set(out.replace(",", " ").split())
    for metric in registered().values():
        assert metric.id in words
        for variant in metric.variants:
            assert f"{metric.id}@{variant}" in words
    for name in SUITES:
        assert f"\n  {name} " in out
    assert "fid@clean (default)" in out
    assert max(map(len, out.splitlines())) <= 100


def test_list_as_json(run):
    code, out, err = run("list", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["suites"]["lite"] == list(SUITES["lite"])
    fid = next(row for row in found["metrics"] if row["id"] == "fid")
    assert fid["default_variant"] == "clean"
    assert fid["inputs"] == ["image", "reference_set"]
    assert fid["higher_is_better"] is False
    assert fid["bounds"] == [0.0, None]
