"""Lanes: endpoints without an answer, models that do not fit together, errors with a name."""

from __future__ import annotations

import gc
import json
import math
import signal
import sys

import numpy as np
import pytest
import torch

import genmetrics as gm
from genmetrics.core.errors import InputError, ModelError
from genmetrics.run.remote import Pace

from .conftest import write_images
from .lane_toys import Endpoint, EndpointSpec, Large, LargeSpec, Memory, Opinion, SmallSpec, Stars
from .toys import ToyBrightness, ToyDistance, ToyExtractor, ToySpec

N = 20


@pytest.fixture
def asked(tmp_path):
    """20 images with prompts, of which two end in 3."""
    folder = write_images(tmp_path / "gen", N)
    rows = [{"id": str(i), "prompt": "a" * (i + 1)} for i in range(N)]
    (tmp_path / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write_images(tmp_path / "ref", 9, seed=1)
    return folder


def run(asked, *metrics, **more):
    root = asked.parent
    return gm.evaluate(
        asked, root / "ref", [*metrics, ToyDistance(ToySpec()), ToyBrightness(ToySpec())],
        prompts=root / "prompts.jsonl", cache=root / "c", batch_size=4, **more,
    )  # fmt: skip


def questions(log):
    return sorted(log.read_text().split(), key=int) if log.exists() else []


def test_what_an_endpoint_did_not_answer_is_nan_with_its_reason_and_asked_again(asked, tmp_path):
    log = tmp_path / "log"
    alone = run(asked)
    report = run(asked, Stars(EndpointSpec(log=str(log))))
    stars = report["toy-stars"]
    silent = {"3", "13"}
    assert {id_ for id_, v in stars.per_sample.items() if math.isnan(v)} == silent
    assert stars.n == N - 2
    for id_ in silent:
        assert stars.details[id_] == {"reason": "refused to answer"}
    assert stars.details["4"] == {"stars": 0}
    assert not report.ok
    assert {f.who.sample.id for f in report.failures} == silent
    assert {f.model for f in report.failures} == {"toy-endpoint"}
    for other in ("toy-distance", "toy-brightness"):
        assert report[other] == alone[other]  # all others are untouched
    assert questions(log) == [str(i) for i in range(N)]
    log.unlink()
    again = run(asked, Stars(EndpointSpec(log=str(log))))
    assert questions(log) == ["3", "13"]  # only those are asked again
    assert again["toy-stars"] == stars
    log.unlink()
    healed = run(asked, Stars(EndpointSpec(log=str(log), silent="-")))
    assert questions(log) == ["3", "13"]
    assert healed.ok
    assert healed["toy-stars"].n == N


def test_answers_are_kept_one_by_one(asked, tmp_path):
    log = tmp_path / "log"
    with pytest.raises(ModelError, match=r"7\.png.*toy-endpoint.*ConnectionError: reset by peer"):
        run(asked, Stars(EndpointSpec(log=str(log), raises="17", requests=1)))
    asked_before = questions(log)
    assert "17" in asked_before and "18" not in asked_before
    log.unlink()
    report = run(asked, Stars(EndpointSpec(log=str(log), requests=3)))
    assert questions(log) == [str(i) for i in (3, 13, 17, 18, 19)]
    assert report["toy-stars"].n == N - 2


def test_questions_are_spaced_and_none_is_held_up_without_a_limit():
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    pace = Pace(30, clock=lambda: now[0], sleep=sleep)
    turns = []
    for _ in range(4):
        pace.wait()
        turns.append(now[0])
    assert turns == [0.0, 2.0, 4.0, 6.0]
    Pace(None, clock=lambda: 0.0, sleep=pytest.fail).wait()


@pytest.fixture
def memory(monkeypatch):
    gc.collect()
    monkeypatch.setattr(Memory, "used", 0)
    monkeypatch.setattr(Memory, "most", 0)
    monkeypatch.setattr(Memory, "built", [])
    return Memory


def test_two_models_that_do_not_fit_together_run_one_after_the_other(asked, memory):
    metrics = [Opinion("b"), Opinion("a"), Opinion("s", SmallSpec, 3)]
    report = run(asked, *metrics)
    assert report.ok
    assert memory.built == ["s", "b", "a"]  # small ones first, then each large one by itself
    assert memory.most == 8
    gc.collect()
    assert memory.used == 0
    with pytest.raises(InputError, match="does not fit: 8 of 10 used"):
        gm.evaluate(asked, metrics=[Opinion(n, SmallSpec) for n in "xy"], cache=False)


def test_a_large_model_may_lie_on_all_devices_of_a_rank(asked, memory, monkeypatch):
    from genmetrics.run.evaluate import devices_of
    from genmetrics.run.ranks import ALONE

    given = []

    def build_over(self, devices):
        given.append(tuple(devices))
        return self.build(devices[0])

    monkeypatch.setattr(LargeSpec, "build_over", build_over)
    run(asked, Opinion("b"), Opinion("s", SmallSpec, 1), device="cpu")
    assert given == [("cpu",)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert devices_of("cuda", ALONE) == ("cuda:0", "cuda:1", "cuda:2")
    assert devices_of("cuda:1", ALONE) == ("cuda:1",)


def test_a_forward_that_raises_names_the_sample_and_obeys_on_error(asked, monkeypatch):
    plain = ToyExtractor.forward

    def forward(self, prepared):
        if any(name == "7" for name, _ in prepared):
            raise RuntimeError("index out of range\n in self")
        return plain(self, prepared)

    monkeypatch.setattr(ToyExtractor, "forward", forward)
    with pytest.raises(ModelError) as caught:
        run(asked)
    text = str(caught.value)
    assert "7.png: toy: RuntimeError: index out of range in self" in text and "\n" not in text
    report = run(asked, Opinion("other", SmallSpec), on_error="skip")
    assert report["toy-brightness"].n == N - 1
    assert math.isnan(report["toy-brightness"].per_sample["7"])
    assert "index out of range" in report["toy-brightness"].details["7"]["reason"]
    assert report["toy-other"].n == N  # it belongs to the sample and that model
    assert not report.ok


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_memory_that_ends_while_a_sample_is_prepared_names_it(asked, monkeypatch, error):
    plain = Large.prepare

    def prepare(self, item):
        if item.id == "5":
            raise error("no room")
        return plain(self, item)

    monkeypatch.setattr(Large, "prepare", prepare)
    with pytest.raises(ModelError, match=r"5\.png: small: \w+: no room"):
        gm.evaluate(asked, metrics=[Opinion("small", SmallSpec)], cache=False)
    report = gm.evaluate(asked, metrics=[Opinion("small", SmallSpec)], cache=False, on_error="skip")
    assert report["toy-small"].n == N - 1


def test_one_input_that_never_fits_is_named_where_the_batch_may_shrink(asked, monkeypatch):
    plain = Large.forward
    heavy = []

    def forward(self, prepared):
        if heavy and heavy[0] in prepared:
            raise torch.OutOfMemoryError("no room")
        return plain(self, prepared)

    monkeypatch.setattr(Large, "forward", forward)
    spec = LargeSpec(extractor="small", size=1)
    item = gm.load_image(asked / "9.png")
    heavy.append(float(item.double().mean()))
    assert spec.lane == "alone"
    report = gm.evaluate(asked, metrics=[Opinion("small")], cache=False, on_error="skip")
    assert report["toy-small"].n == N - 1
    assert "does not fit the memory" in report["toy-small"].details["9"]["reason"]


def test_a_traceback_is_shown_where_the_environment_asks(asked, monkeypatch, capfd):
    monkeypatch.setattr(Large, "prepare", lambda self, item: 1 / 0)
    monkeypatch.setenv("GENMETRICS_TRACEBACK", "1")
    with pytest.raises(ModelError, match="ZeroDivisionError"):
        gm.evaluate(asked, metrics=[Opinion("small", SmallSpec)], cache=False, limit=1)
    assert "1 / 0" in capfd.readouterr().err


def test_in_a_loop_a_missing_answer_is_nan_with_its_reason_too():
    pictures = torch.full((4, 3, 8, 8), 9, dtype=torch.uint8)
    prompts = ["a", "aa", "aaa", "aaaa"]

    def metric(ids, some):
        made = Stars()
        made.update(pictures[some], ids=ids, prompts=[prompts[i] for i in some])
        return made

    whole = metric(["0", "3", "5", "13"], [0, 1, 2, 3])
    result = whole.compute()
    assert (result.n, result.value) == (2, 2.0)  # one and three stars
    assert {id_ for id_, v in result.per_sample.items() if math.isnan(v)} == {"3", "13"}
    assert result.details["13"] == {"reason": "refused to answer"}
    shards = metric(["13", "0"], [3, 0]).merge(metric(["5", "3"], [2, 1]))
    assert shards.compute() == result
    again = Stars()
    again.load_state_dict(whole.state_dict())
    assert again.compute() == result
    with pytest.raises(InputError, match="'3' was given twice"):
        whole.update(pictures[:1], ids=["3"], prompts=["a"])


@pytest.mark.parametrize("lane", [SmallSpec, EndpointSpec])
def test_an_exit_in_a_plug_in_is_a_failure_and_no_end(asked, monkeypatch, lane):
    """With code 0 it ended the command without a word and without a result."""
    kind = Large if lane is SmallSpec else Endpoint

    def forward(self, prepared):
        raise SystemExit(0)

    monkeypatch.setattr(kind, "forward", forward)
    metric = Opinion("small", SmallSpec) if lane is SmallSpec else Stars()
    with pytest.raises(ModelError, match="SystemExit: 0"):
        run(asked, metric)


def test_an_exit_of_a_signal_in_a_forward_ends_the_process(asked, monkeypatch):
    """A training job's handler of SIGTERM calls sys.exit: no sample is to blame."""

    def end(number, frame):
        sys.exit(128 + number)

    def forward(self, prepared):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Large, "forward", forward)
    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit, match="143"):
            run(asked, Opinion("small", SmallSpec))
    finally:
        signal.signal(signal.SIGTERM, before)


def test_details_are_of_all_samples_and_plain(asked, monkeypatch):
    for given, said in (
        ([{"a": 1}], "gave details of 1 samples for 20"),
        ([{"a": {1, 2}}] * N, "in the details of '0', no JSON value"),
    ):
        monkeypatch.setattr(Opinion, "details", lambda self, *_, given=given: given, raising=False)
        report = gm.evaluate(asked, metrics=[Opinion("small", SmallSpec)], cache=False)
        assert report["toy-small"].status == "failed"
        assert said in report["toy-small"].reason
    monkeypatch.setattr(Opinion, "details", lambda self, *_: [{"m": np.float32(0.5)}] * N)
    report = gm.evaluate(asked, metrics=[Opinion("small", SmallSpec)], cache=False)
    assert report["toy-small"].details["7"] == {"m": 0.5}


def test_a_score_that_is_missing_has_a_reason(asked, monkeypatch):
    plain = Opinion.scores

    def scores(self, samples, features):
        found = plain(self, samples, features)
        found[3] = np.nan
        return found

    monkeypatch.setattr(Opinion, "scores", scores)
    result = gm.evaluate(asked, metrics=[Opinion("small", SmallSpec)], cache=False)["toy-small"]
    assert result.n == N - 1
    assert result.details == {"3": {"reason": "it has no score"}}
