import json
import math

import pytest

from genmetrics.core.sample import Sample
from genmetrics.report.document import document, sample_lines, to_json
from genmetrics.run.work import Failure, Who
from tests.report.fakes import HOSTILE, failure, report, result, samples


def strictly(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_document_has_the_fields_of_the_schema():
    made = strictly(to_json(document(report(missing=("a",), conversions={"grayscale": 3}))))
    assert made["schema"] == "genmetrics.results/1"
    assert made["created"] == "2026-01-02T03:04:05+00:00"
    assert made["inputs"]["generated"] == {
        "path": "gen",
        "n": 20,
        "digest": "sha256:" + "a" * 64,
    }
    assert made["missing"] == ["a"]
    assert made["conversions"] == {"grayscale": 3}
    assert made["runtime"]["seconds"] == 25.1
    fid = made["metrics"]["fid@clean"]
    assert fid["value"] == 441.18812
    assert fid["interval"] == [430.168, 452.208]
    assert fid["level"] == 0.95
    assert fid["protocol"] == {"metric": "fid@clean", "mean": [1.5, 2]}
    assert fid["status"] == "ok"
    assert fid["reason"] is None


def test_infinite_value_is_null_with_a_reason():
    # an infinite PSNR once made a whole results file unreadable for other languages
    made = strictly(to_json(document(report())))
    psnr = made["metrics"]["psnr"]
    assert psnr["value"] is None
    assert psnr["reason"] == "every score is inf"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nothing_that_is_not_finite_reaches_the_file(bad):
    everywhere = report(
        {"x": result("x", bad, parts={"p": bad}, protocol={"deep": [{"value": bad}]})},
        runtime={"seconds": 1.0, "images_per_second": bad},
        inputs={"generated": {"path": "g", "n": bad, "digest": "d"}},
    )
    made = strictly(to_json(document(everywhere)))
    assert made["metrics"]["x"]["value"] is None
    assert "JSON cannot hold" in made["metrics"]["x"]["reason"]
    assert made["metrics"]["x"]["parts"] == {"p": None}
    assert made["runtime"]["images_per_second"] is None


def test_skipped_samples_are_named_with_side_and_reason():
    reference = Failure(Who("reference", Sample(id="r")), "is empty")
    made = strictly(to_json(document(report(failures=(failure("bad", HOSTILE), reference)))))
    assert made["skipped"] == [
        {"id": "bad", "side": "generated", "path": HOSTILE, "reason": f"{HOSTILE} is cut short"},
        {"id": "r", "side": "reference", "path": None, "reason": "is empty"},
    ]


def test_sample_lines_follow_the_samples_and_carry_every_metric_with_values():
    lines = [strictly(to_json(line)) for line in sample_lines(report())]
    assert [line["id"] for line in lines] == [f"img_{i}" for i in range(20)]
    assert lines[0] == {
        "id": "img_0",
        "path": "gen/img_0.png",
        "prompt": "a thing 0",
        "fid@clean": -10.0,
        "psnr": None,
        "reason": "psnr is inf",
    }
    assert lines[19]["reason"] == "psnr is nan"


def test_skipped_sample_has_its_line_with_null_and_the_reason():
    fid = result(per_sample={"img_0": 1.0, "bad": math.nan})
    bad = failure()
    with_bad = report({"fid@clean": fid}, samples=(*samples(1), bad.who.sample), failures=(bad,))
    good, skipped = sample_lines(with_bad)
    assert "reason" not in good
    assert skipped["fid@clean"] is None
    assert skipped["reason"] == "gen/bad.png is cut short"
    assert "prompt" not in skipped


def test_sample_that_a_metric_did_not_score_says_so():
    fid = result(per_sample={"img_0": 1.0})
    _, line = sample_lines(report({"fid@clean": fid}, samples=samples(2)))
    assert line["fid@clean"] is None
    assert line["reason"] == "fid@clean has no value"
