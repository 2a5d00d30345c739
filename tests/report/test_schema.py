"""The schemas that ship say what is written; where jsonschema is installed it checks every run."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from genmetrics.core.result import RESERVED
from genmetrics.report.document import document, sample_lines
from genmetrics.report.files import write_report
from tests.report.fakes import record
from tests.report.test_record import GOLDEN, everything

FOLDER = files("genmetrics.report")


def schema(name):
    return json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))


def runs(folder):
    write_report(everything(), folder / "a")
    write_report(record(), folder / "b")
    return [folder / "a", folder / "b", GOLDEN]


def test_runs_of_both_versions_are_valid(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    results, samples = (jsonschema.Draft202012Validator(schema(n)) for n in ("results", "samples"))
    for checker in (results, samples):
        checker.check_schema(checker.schema)
    for run in runs(tmp_path):
        results.validate(json.loads((run / "results.json").read_text()))
        for line in (run / "samples.jsonl").read_text().splitlines():
            samples.validate(json.loads(line))


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (("schema",), "genmetrics.results/3"),
        (("metrics", "geneval", "value"), "high"),
        (("metrics", "geneval", "status"), "fine"),
        (("metrics", "geneval", "n"), -1),
        (("samples",), {"n": 1}),
        (("not_finite",), {"/a": "big"}),
        (("more",), 1),
    ],
)
def test_documents_that_are_wrong_are_not(place, wrong):
    jsonschema = pytest.importorskip("jsonschema")
    made = document(everything())
    target = made
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = wrong
    assert not jsonschema.Draft202012Validator(schema("results")).is_valid(made)


def test_schema_names_exactly_what_is_written():
    made = json.loads(json.dumps(document(everything())))
    defined = schema("results")["$defs"]
    assert defined["version2"]["properties"].keys() == made.keys()
    assert set(defined["version2"]["required"]) == made.keys()
    for entry in made["metrics"].values():
        assert defined["metric2"]["properties"].keys() == entry.keys()
    skipped = defined["version2"]["properties"]["skipped"]["items"]
    assert skipped["properties"].keys() == made["skipped"][0].keys()


def test_schema_of_a_line_reserves_what_no_metric_may_be_called():
    assert schema("samples")["properties"].keys() == RESERVED
    written = set().union(*sample_lines(everything()))
    assert written - {"fid@clean", "psnr", "geneval"} <= RESERVED


def test_schemas_lie_where_a_wheel_takes_them():
    import genmetrics

    package = Path(genmetrics.__file__).parent
    assert {path.name for path in package.rglob("*.schema.json")} == {
        "results.schema.json",
        "samples.schema.json",
    }
