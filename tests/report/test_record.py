import json
import math
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genmetrics.core.errors import InputError, UsageError
from genmetrics.core.result import Interval, PerSample
from genmetrics.core.sample import Sample
from genmetrics.report.columns import Labels, Row, Samples, Skipped
from genmetrics.report.csv import to_csv
from genmetrics.report.document import document, sample_chunks
from genmetrics.report.files import write_report
from genmetrics.report.html import page
from genmetrics.report.record import RunRecord
from genmetrics.report.table import render
from tests.report import fakes
from tests.report.fakes import (
    HOSTILE,
    Failure,
    Picture,
    Who,
    failure,
    record,
    samples,
    samples_in,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "run-1"


def result(name, value=441.18812, **fields):
    """A result of no more samples than a record in here has."""
    return fakes.result(name, value, **{"n": 0, **fields})


def typical():
    return {name: replace(result, n=6) for name, result in fakes.typical().items()}


def everything(folder=None):
    """A record with all that a run can leave behind."""
    some = samples(6) if folder is None else samples_in(folder, 6)
    lost = Sample(id="lost", image=Picture("gen/lost.png"))
    ids = [sample.id for sample in some]
    scores = PerSample(ids, [1.0, 0.0, 0.1 + 0.2, math.inf, math.nan, 1e-320])
    results = {
        "fid@clean": replace(
            typical()["fid@clean"], per_sample={id_: i - 2.5 for i, id_ in enumerate(ids)}
        ),
        "kid@clean:subsets=5": result(
            "kid@clean", -1e-17, interval=Interval(-math.inf, 1.0), parts={"odd": math.nan}
        ),
        "psnr": result("psnr", math.inf, per_sample=PerSample(ids, [math.inf] * 6)),
        "geneval": result(
            "geneval",
            2 / 3,
            higher_is_better=True,
            n=4,
            interval=Interval(0.5, 0.7, 0.9),
            per_sample=scores,
            sample_parts={"task/color": {"img_0": 1.0, "img_1": -math.inf}, "images": scores},
            details={"img_4": {"reason": "no answer", "tokens": [1, math.nan, {"a": None}]}},
            groups={id_: f"group {i % 2}" for i, id_ in enumerate(ids)},
            clusters={sample.id: sample.prompt if i else "own" for i, sample in enumerate(some)},
            parts={"task/color": 1 / 3, "images": math.inf},
            intervals={"task/color": Interval(0.1, 0.5)},
            warnings=("small",),
        ),
        "cmmd": typical()["cmmd"],
    }
    return record(
        results,
        samples=(*some, lost),
        name="model b",
        asked={"kid:subsets=5": "kid@clean:subsets=5"},
        failures=(
            Failure(Who("model b", lost), "gen/lost.png is cut short"),
            Failure(Who("model b", some[4]), "no answer", "judge"),
        ),
        missing=("a", HOSTILE),
        conversions={"grayscale": 3},
        notes=("nobody read boxes",),
        command={"argv": ["genmetrics", "eval"], "overrides": {"inception": "my.pt"}},
    )


def saved(made, folder):
    write_report(made, folder)
    return RunRecord.load(folder)


def test_everything_comes_back_bit_for_bit(tmp_path):
    made = everything()
    read = saved(made, tmp_path)
    for name in made.metrics:
        mine, other = made.metrics[name], read.metrics[name]
        assert repr(mine.value) == repr(other.value)
        assert repr(mine.interval) == repr(other.interval)
        for field in ("per_sample", "sample_parts", "groups", "clusters", "intervals", "reason"):
            assert getattr(mine, field) == getattr(other, field), field
        assert repr(mine) == repr(other)
        assert repr(dict(mine.details)) == repr(dict(other.details))
        assert mine.protocol == other.protocol
    for field in ("samples", "name", "inputs", "asked", "skipped", "missing", "conversions"):
        assert getattr(made, field) == getattr(read, field), field
    for field in ("notes", "runtime", "created", "genmetrics", "command", "schema"):
        assert getattr(made, field) == getattr(read, field), field
    column = made.metrics["geneval"].per_sample
    assert column.numbers.tobytes() == read["geneval"].per_sample.numbers.tobytes()


def test_page_table_and_csv_are_byte_equal_from_the_files_alone(tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    made = everything(pictures)
    read = saved(made, tmp_path / "run")
    assert page(read) == page(made)
    assert page(read).count("data:image/jpeg") > 3
    assert render(read) == render(made)
    assert to_csv(read) == to_csv(made)
    assert document(read) == document(made)


def test_saved_again_gives_the_same_files(tmp_path):
    write_report(everything(), tmp_path / "a")
    write_report(RunRecord.load(tmp_path / "a"), tmp_path / "b")
    for name in ("results.json", "samples.jsonl", "report.html"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_means_are_made_again_from_the_files(tmp_path):
    numbers = {f"img_{i}": value for i, value in enumerate([0.1, 0.7, math.inf, math.nan])}
    groups = {"img_0": "a", "img_1": "b", "img_2": "b"}
    made = record({"x": result("x", 0.4, per_sample=numbers, groups=groups)}, samples=samples(4))
    read = saved(made, tmp_path)["x"]
    finite = [v for v in read.per_sample.values() if math.isfinite(v)]
    assert np.mean(finite) == np.mean([0.1, 0.7])
    assert math.isinf(read.per_sample["img_2"])
    assert math.isnan(read.per_sample["img_3"])
    assert dict(read.groups) == groups


def test_memory_of_writing_does_not_grow_with_the_samples():
    def peak(count):
        ids = [f"{i:06}" for i in range(count)]
        made = RunRecord(
            metrics={"x": result("x", per_sample=PerSample(ids, np.arange(float(count))))},
            samples=Samples(ids, ids, ids),
        )
        tracemalloc.start()
        for _ in sample_chunks(made):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small, large = peak(4_000), peak(40_000)
    assert large < small + 200_000
    assert large < 2_000_000


def test_metrics_are_found_by_short_names(tmp_path):
    read = saved(everything(), tmp_path)
    assert read["fid"] is read["fid@clean"]
    assert read["kid:subsets=5"] is read["kid"]
    with pytest.raises(KeyError, match="not in this run, which has fid@clean"):
        read["clipscore"]


def test_samples_are_a_table_with_access_by_id(tmp_path):
    read = saved(everything(), tmp_path)
    assert read.samples["img_2"] == Row("img_2", "gen/img_2.png", "a thing 2", "psnr is inf")
    assert read.samples["img_4"].reason == "psnr is inf; geneval: no answer"
    assert read.samples["lost"].reason == "gen/lost.png is cut short"
    assert list(read.samples) == [*(f"img_{i}" for i in range(6)), "lost"]
    assert read.skipped[1] == Skipped("img_4", "model b", "gen/img_4.png", "no answer", "judge")


def test_skipped_sample_of_a_named_set_has_its_reason():
    lost = Sample(id="lost", image=Picture("b/lost.png"))
    why = "b/lost.png is cut short"
    made = record(
        {"x": result("x", per_sample={"lost": math.nan})},
        samples=(lost,),
        name="model b",
        failures=(Failure(Who("model b", lost), why), Failure(Who("reference", lost), "other")),
    )
    assert made.samples["lost"].reason == why


def test_samples_that_only_a_metric_knows_are_kept(tmp_path):
    read = saved(record({"x": result("x", 1.0, per_sample={"other": 2.0})}), tmp_path)
    assert read.samples["other"] == Row("other")
    assert read["x"].per_sample["other"] == 2.0


def test_record_of_votes_has_no_pictures_and_no_inputs(tmp_path):
    ids = ["a", "b", "c"]
    votes = result("wins", 0.5, per_sample=PerSample(ids, [1.0, 0.0, 0.5]))
    made = RunRecord(metrics={"wins": votes}, samples=Samples(ids), created="2026-01-02")
    read = saved(made, tmp_path)
    assert read["wins"] == made["wins"]
    assert read.samples["b"] == Row("b")
    assert "<img" not in page(read)
    assert "wins" in render(read)


def test_plain_run_has_no_name_and_an_empty_one_can_be_read(tmp_path):
    read = saved(record({"x": result("x", None, per_sample={})}, samples=()), tmp_path)
    assert read.name is None
    assert len(read.samples) == 0
    assert read["x"].per_sample == {}


@pytest.mark.parametrize("name", ["id", "reason", "not_finite", "details"])
def test_metric_with_a_reserved_name_is_refused(name):
    with pytest.raises(UsageError, match="a metric cannot be called"):
        record({name: result(name)})


def test_details_that_are_no_json_are_refused():
    with pytest.raises(InputError, match=r"a record cannot hold .*give plain JSON values"):
        record({"x": result("x", per_sample={"img_0": 1.0}, details={"img_0": {"v": object()}})})


def test_numbers_of_numpy_are_plain_in_a_record():
    said = {"img_0": {"correct": np.bool_(True), "n": np.int64(3), "p": np.float32(0.5)}}
    made = record({"x": result("x", per_sample={"img_0": 1.0}, details=said)})
    assert json.dumps(made["x"].details["img_0"]) == '{"correct": true, "n": 3, "p": 0.5}'


names = st.text(min_size=1, max_size=8)
odd = st.floats(allow_nan=True, allow_infinity=True)


@given(
    ids=st.lists(names, unique=True, max_size=5),
    key=names.filter(lambda name: name not in ("id", "path", "prompt", "reason", "details")),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_any_names_and_numbers_come_back(tmp_path_factory, ids, key, data):
    numbers = data.draw(st.lists(odd, min_size=len(ids), max_size=len(ids)))
    part = data.draw(names.filter(lambda name: name != "value"))
    parts = data.draw(st.booleans())
    made = RunRecord(
        metrics={
            key: result(
                key,
                data.draw(odd),
                reason="because",
                per_sample=PerSample(ids, numbers),
                sample_parts={part: PerSample(ids, numbers[::-1])} if parts else {},
                groups=Labels(ids, data.draw(labels(ids))) if ids else None,
                clusters=Labels(ids, data.draw(labels(ids))) if ids else None,
            )
        },
        samples=Samples(ids, ids, data.draw(labels(ids))),
        created=key,
    )
    folder = tmp_path_factory.mktemp("run")
    read = saved(made, folder)
    assert repr(read.metrics[key]) == repr(made.metrics[key])
    for field in ("per_sample", "sample_parts", "groups", "clusters"):
        assert getattr(read.metrics[key], field) == getattr(made.metrics[key], field)
    assert read.samples == made.samples
    shutil.rmtree(folder)


def labels(ids):
    return st.lists(st.none() | names, min_size=len(ids), max_size=len(ids))


def test_run_of_the_first_schema_is_read():
    read = RunRecord.load(GOLDEN)
    assert read.schema == "genmetrics.results/1"
    assert read.genmetrics == "0.1.0"
    assert read.name is None
    assert read["psnr"].value is not None
    assert math.isinf(read["psnr"].per_sample["a"])
    assert math.isnan(read["psnr"].per_sample["d"])
    e = read["psnr"].per_sample["e"]
    assert read["psnr"].value == np.mean([*list(read["psnr"].per_sample.values())[1:3], e])
    assert read["fd-lite"].per_sample["a"] == -1.065418801476254
    assert read["fd-lite"].interval == (6.4712756771025175, 7.6997468115699315, 0.95)
    assert read["kd-lite"].protocol["degree"] == 3
    why = "gen/d.png is empty (0 bytes); write it again or remove it"
    assert read.samples["d"] == Row("d", "gen/d.png", "a d", why)
    assert read.skipped == (Skipped("d", "generated", "gen/d.png", why),)
    assert "fd-lite" in page(read)


def test_run_of_the_first_schema_is_saved_in_the_newest(tmp_path):
    old = RunRecord.load(GOLDEN)
    new = saved(old, tmp_path)
    assert new.schema == "genmetrics.results/2"
    assert {k: r.per_sample for k, r in new.metrics.items()} == {
        k: r.per_sample for k, r in old.metrics.items()
    }
    assert render(new) == render(old)


def changed(folder, **changes):
    path = folder / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def first_line(folder, **changes):
    path = folder / "samples.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[0] = json.dumps({**json.loads(lines[0]), **changes}) + "\n"
    path.write_text("".join(lines))


def drop_newline(folder):
    path = folder / "samples.jsonl"
    path.write_bytes(path.read_bytes()[:-40])


def drop_line(folder):
    path = folder / "samples.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def twice(path, key):
    path.write_text(path.read_text().replace(key, f'{key}"first", {key}', 1))


def entry(folder, name, odd=(), **changes):
    path = folder / "results.json"
    found = json.loads(path.read_text())
    found["not_finite"] |= dict(odd)
    found["metrics"][name] |= changes
    path.write_text(json.dumps(found))


DAMAGE = {
    "no results": (lambda f: (f / "results.json").unlink(), "holds no results.json; pass a folder"),
    "no samples": (lambda f: (f / "samples.jsonl").unlink(), "holds no samples.jsonl"),
    "torn results": (lambda f: (f / "results.json").write_text('{"a": 1'), "is not strict JSON"),
    "NaN": (lambda f: (f / "results.json").write_text('{"a": NaN}'), "holds NaN"),
    "deep": (lambda f: (f / "results.json").write_text("[" * 100_000), "is not strict JSON"),
    "a list": (lambda f: (f / "results.json").write_text("[]"), r"is \[\]; expected an object"),
    "newer": (
        lambda f: changed(f, schema="genmetrics.results/3"),
        "has schema genmetrics.results/3, and this genmetrics .* reads up to /2; upgrade",
    ),
    "other": (lambda f: changed(f, schema="lm-eval/1"), "expected genmetrics.results/1 or /2"),
    "no metrics": (
        lambda f: changed(f, metrics=None, not_finite={}),
        "metrics is None; expected an object",
    ),
    "pointer": (lambda f: changed(f, not_finite={"/name/x": "inf"}), "not_finite names '/name/x'"),
    "value": (
        lambda f: entry(f, "geneval", value="high"),
        "metrics.geneval.value is 'high'; expected a number: the file is damaged",
    ),
    "status": (lambda f: entry(f, "geneval", status="fine"), "expected ok, unavailable or failed"),
    "n": (lambda f: entry(f, "geneval", n=-1), "a whole number of at least 0"),
    "n of more": (
        lambda f: entry(f, "geneval", n=8),
        "metrics.geneval.n is 8; expected at most 7, which samples.jsonl has",
    ),
    "interval": (lambda f: entry(f, "geneval", interval=[1]), "expected two numbers"),
    "interval from above": (
        lambda f: entry(f, "geneval", interval=[0.7, 0.5]),
        r"geneval.interval is \[0.7, 0.5\]; expected the lower number first",
    ),
    "interval of a part from above": (
        lambda f: entry(f, "geneval", intervals={"task/color": {"interval": [1, 0], "level": 0.9}}),
        r"geneval.intervals.task/color.interval is \[1, 0\]; expected the lower number",
    ),
    "interval of no part": (
        lambda f: entry(f, "geneval", intervals={"task": {"interval": [0, 1], "level": 0.9}}),
        "geneval.intervals.task is .*; expected the interval of one of the parts",
    ),
    "asked": (
        lambda f: changed(f, asked={"kid": "kid@other"}),
        "asked.kid is 'kid@other'; expected a key of metrics",
    ),
    "protocol": (
        lambda f: entry(f, "geneval", protocol={"metric": "geneval"}),
        "geneval.fingerprint is 'sha256:.*; expected sha256:.*, which its protocol has",
    ),
    "protocol with infinity": (
        lambda f: entry(f, "psnr", protocol={"x": None}, odd={"/metrics/psnr/protocol/x": "inf"}),
        "psnr.protocol is {'x': inf}; expected finite numbers alone",
    ),
    "key twice": (
        lambda f: twice(f / "results.json", '"created": '),
        "results.json is not strict JSON: it holds the key 'created' twice",
    ),
    "key twice in a line": (
        lambda f: twice(f / "samples.jsonl", '"path": '),
        "samples.jsonl line 1: it holds the key 'path' twice",
    ),
    "gone": (lambda f: entry(f, "geneval", fingerprint=None), "fingerprint is None"),
    "torn line": (drop_newline, "samples.jsonl line 7: it is cut off"),
    "one line less": (drop_line, "tells of 7 samples and samples.jsonl has 6, not the same ones"),
    "other id": (lambda f: first_line(f, id="x"), "the files are of different runs"),
    "id twice": (lambda f: first_line(f, id="img_1"), "'img_1' comes twice"),
    "number": (
        lambda f: first_line(f, psnr=True, not_finite={}),
        "line 1: psnr is True; expected a number",
    ),
    "metric": (lambda f: first_line(f, lpips=1.0), "it has 'lpips', of which results.json does"),
    "parts": (lambda f: first_line(f, geneval=1.0), "geneval is 1.0; expected an object"),
    "part": (lambda f: first_line(f, geneval={"value": 1, "a": 1}), "geneval has other numbers"),
    "details": (lambda f: first_line(f, details={"geneval": 1}), "details.geneval is 1"),
    "label": (lambda f: first_line(f, groups={"geneval": 1}), "groups.geneval is 1"),
    "prompt": (lambda f: first_line(f, prompt=1), "prompt is 1; expected a text"),
    "bytes": (lambda f: (f / "samples.jsonl").write_bytes(b"\xff\n"), "is not UTF-8"),
    "empty line": (lambda f: (f / "samples.jsonl").write_text("\n"), "line 1: Expecting value"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_run_is_refused_in_one_line(tmp_path, kind):
    write_report(everything(), tmp_path)
    damage, message = DAMAGE[kind]
    damage(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        RunRecord.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no results.json"):
        RunRecord.load(tmp_path / "nowhere")


def test_folder_of_several_runs_names_them(tmp_path):
    write_report(everything(), tmp_path / "theirs")
    with pytest.raises(InputError, match="results.json; it holds the run theirs: load that$"):
        RunRecord.load(tmp_path)
    write_report(everything(), tmp_path / "mine")
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="it holds the runs mine and theirs: load one of them$"):
        RunRecord.load(tmp_path)


def test_one_of_very_many_runs_is_asked_for_in_one_short_line(tmp_path):
    for i in range(12):
        (tmp_path / f"run-{i:02}").mkdir()
        (tmp_path / f"run-{i:02}" / "results.json").touch()
    with pytest.raises(InputError, match=r"run-09 and 2 more: load one of them$"):
        RunRecord.load(tmp_path)


def test_record_is_ok_when_its_report_is(tmp_path):
    whole = {"x": result("x", 1.0, per_sample={"img_0": 1.0})}
    assert saved(record(whole), tmp_path).ok
    assert not record(whole, failures=(failure(),)).ok
    assert not record(whole, missing=("a",)).ok
    assert not record(typical()).ok


def test_files_of_two_runs_are_told_apart(tmp_path):
    for name, count in (("a", 3), ("b", 4)):
        one = {"x": result("x", per_sample={"img_0": 1.0})}
        write_report(record(one, samples=samples(count)), tmp_path / name)
    shutil.copy(tmp_path / "b" / "samples.jsonl", tmp_path / "a")
    with pytest.raises(InputError, match="different runs"):
        RunRecord.load(tmp_path / "a")


def test_model_that_failed_is_named_once_in_the_table():
    failures = (
        failure("img_1", "judge.png")._replace(model="judge"),
        Failure(failure("img_2", "b.png").who, "b.png: judge: RuntimeError: no", "judge"),
    )
    made = render(record(failures=failures[:1]))
    assert "1 failure of one model: judge.png is cut short (judge)" in made
    made = render(record(failures=failures))
    assert "2 failures of one model: judge.png is cut short (judge); b.png: judge: Run" in made
    assert made.count("judge: ") == 1


def test_page_says_file_and_model_beside_the_reason_not_in_it():
    who = failure("img_2", "b.png").who
    made = page(record(failures=(Failure(who, "b.png: judge: RuntimeError: no", "judge"),)))
    assert "<td>RuntimeError: no</td>" in made
