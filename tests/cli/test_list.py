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


def test_list_says_which_weights_are_missing(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    out = run("list", "--json")[1]
    rows = {row["id"]: row["missing_weights"] for row in json.loads(out)["metrics"]}
    assert rows["fd-lite"] == rows["psnr"] == {}
    assert rows["fid"]["fid@tf1"] == ["inception-2015-12-05"]
    assert "vendi@lite" not in rows["vendi"]
    said = " ".join(run("list")[1].split())
    assert "weights missing: inception-2015-12-05" in said
    assert "(not for vendi@lite)" in said
