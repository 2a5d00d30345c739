"""GenEval: the published rules on recorded cases, the aggregates, and the metric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import genmetrics as gm
from genmetrics.core.registry import create, parse
from genmetrics.core.sample import Sample
from genmetrics.metrics import geneval
from genmetrics.metrics.geneval import TASKS, check, relations, summarise

GOLDEN = Path(__file__).parent.parent / "golden" / "geneval_rules.jsonl"


def cases() -> list[dict]:
    return [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def thing(label: str, box=(0, 0, 10, 10), score: float = 0.95, **more) -> dict:
    return {"label": label, "box": list(box), "score": score, **more}


def asks(*include: dict, tag: str = "single_object", **more) -> dict:
    return {"tag": tag, "include": list(include), **more}


def unordered(reason: str) -> list[object]:
    """Reasons up to the order of names joined by "and", which the benchmark leaves open."""
    return [
        tuple(sorted(part.split(" and "))) if (part := line.partition(", found ")[2]) else line
        for line in reason.replace(" target", "").split("\n")
    ]


# -- the rules -------------------------------------------------------------------------------------


def test_every_recorded_case_of_the_benchmarks_own_script():
    recorded = cases()
    assert len(recorded) == 400
    for case in recorded:
        verdict = check(case["metadata"], case["detections"], **case["options"])
        assert verdict.correct is case["correct"], case["id"]
        assert unordered(verdict.reason) == unordered(case["reason"]), case["id"]


@pytest.mark.parametrize(
    ("moved", "expected"),
    [((40, 0), []), ((60, 0), ["left of"]), ((100, 100), ["left of", "above"]), ((0, 0), [])],
)
def test_relations_of_a_square_and_the_same_moved(moved, expected):
    dx, dy = moved
    assert relations((0, 0, 100, 100), (dx, dy, 100 + dx, 100 + dy)) == expected
    opposite = {"left of": "right of", "above": "below"}
    back = relations((dx, dy, 100 + dx, 100 + dy), (0, 0, 100, 100))
    assert back == [opposite[name] for name in expected]


def test_the_threshold_is_strict_and_another_for_counting():
    asked = asks({"class": "dog", "count": 1})
    assert not check(asked, [thing("dog", score=0.3)]).correct
    assert check(asked, [thing("dog", score=0.31)]).correct
    counting = {**asked, "tag": "counting"}
    assert not check(counting, [thing("dog", score=0.9)]).correct
    assert check(counting, [thing("dog", score=0.91)]).correct


def test_exclude_fails_from_its_count_on_and_gives_the_number_found():
    asked = asks(
        {"class": "cat", "count": 2}, tag="counting", exclude=[{"class": "cat", "count": 3}]
    )
    two = [thing("cat", (i, 0, i + 5, 5), 0.91 + i / 1000) for i in range(2)]
    assert check(asked, two).correct
    verdict = check(asked, [*two, thing("cat", (50, 50, 60, 60))])
    assert verdict.reason == "expected cat<3, found 3"


def test_of_a_class_only_the_best_count_up_to_the_limit():
    asked = asks({"class": "cat", "count": 17})
    many = [thing("cat", (i, 0, i + 1, 1), 0.5 + i / 100) for i in range(20)]
    assert check(asked, many).reason == "expected cat>=17, found 16"
    assert check(asked, many, max_objects=20).correct


def test_the_best_objects_must_have_the_colour_and_others_do_not_help():
    asked = asks({"class": "cup", "count": 1, "color": "red"}, tag="colors")
    best_blue = [thing("cup", score=0.9, color="blue"), thing("cup", score=0.8, color="red")]
    verdict = check(asked, best_blue)
    assert verdict.reason == "expected red cup>=1, found 0 red; and 1 blue"
    assert check(asked, best_blue[1:]).correct


def test_overlapping_boxes_are_dropped_only_below_one_and_edges_are_inclusive():
    asked = asks({"class": "cat", "count": 2})
    # 10x10 pixels each, 5 columns in common: 50 of 150
    pair = [thing("cat", (0, 0, 9, 9), 0.9), thing("cat", (5, 0, 14, 9), 0.8)]
    assert check(asked, pair).correct
    assert check(asked, pair, max_overlap=0.34).correct
    assert not check(asked, pair, max_overlap=1 / 3).correct


def test_nothing_is_left_of_nothing():
    asked = asks(
        {"class": "cat", "count": 1},
        {"class": "dog", "count": 1, "position": ["left of", 0]},
        tag="position",
    )
    verdict = check(asked, [thing("dog")])
    assert verdict.reason == "expected cat>=1, found 0\nno target for dog to be left of"
    empty = asks(
        {"class": "cat", "count": 0}, {"class": "dog", "count": 1, "position": ["left of", 0]}
    )
    assert not check(empty, [thing("dog")]).correct


def test_every_object_must_stand_in_the_relation_to_every_target():
    asked = asks(
        {"class": "cat", "count": 2},
        {"class": "dog", "count": 1, "position": ["left of", 0]},
        tag="position",
    )
    dog, near = thing("dog", (100, 0, 110, 10)), thing("cat", (200, 0, 210, 10))
    assert check(asked, [dog, near, thing("cat", (300, 0, 310, 10))]).correct
    verdict = check(asked, [dog, near, thing("cat", (0, 0, 10, 10), 0.5)])
    assert verdict.reason == "expected dog left of target, found right of target"


@pytest.mark.parametrize(
    ("metadata", "detections", "message"),
    [
        ({"tag": "x"}, [], "expected tag and include"),
        (asks({"class": "a", "count": 1}), [{"label": "a"}], "detection 0 has no box and no score"),
        (
            asks({"class": "a", "count": 1, "color": "red"}),
            [thing("a")],
            "a colour is asked of 'a'",
        ),
        (asks({"class": "a", "count": 1, "position": ["above", 3]}), [thing("a")], "to clause 3"),
    ],
)
def test_input_that_cannot_be_judged_is_an_error_and_not_a_fail(metadata, detections, message):
    with pytest.raises(gm.InputError, match=message):
        check(metadata, detections)


@settings(max_examples=30, deadline=None)
@given(case=st.sampled_from(cases()), data=st.data())
def test_the_order_of_detections_does_not_matter(case, data):
    shuffled = data.draw(st.permutations(case["detections"]))
    assert check(case["metadata"], shuffled, **case["options"]) == check(
        case["metadata"], case["detections"], **case["options"]
    )


# -- the aggregates --------------------------------------------------------------------------------


def verdicts(hits: list[tuple[int, int]]) -> list[dict]:
    return [
        {"tag": tag, "correct": i < right, "prompt": f"{tag} {i // 4}"}
        for tag, (right, n) in zip(TASKS, hits, strict=True)
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("hits", "overall", "images"),
    [
        ([(4, 94), (10, 80), (0, 100), (1, 99), (1, 80), (0, 100)], 0.03169, 0.02893),
        (
            [(289, 320), (214, 396), (120, 320), (303, 376), (32, 400), (60, 364)],
            0.47820,
            0.46783,
        ),
    ],
)
def test_overall_is_the_mean_of_tasks_and_not_the_share_of_images(hits, overall, images):
    found = summarise(verdicts(hits))
    assert found.overall == pytest.approx(overall, abs=5e-6)
    assert found.images == pytest.approx(images, abs=5e-6)
    assert found.tasks == {tag: r / n for tag, (r, n) in zip(TASKS, hits, strict=True)}
    assert found.n_images == sum(n for _, n in hits)


def test_overall_of_six_published_task_scores():
    hits = [(round(share * 100), 100) for share in (0.98, 0.74, 0.50, 0.76, 0.14, 0.20)]
    assert summarise(verdicts(hits)).overall == pytest.approx(0.553333, abs=5e-7)


def test_a_prompt_counts_when_any_of_its_images_is_right():
    rows = [
        {"tag": "colors", "correct": i == 5, "prompt": prompt}
        for prompt in ("a", "b", "c")
        for i in range(3 if prompt != "b" else 6)
    ]
    found = summarise(rows)
    assert (found.prompts, found.n_prompts, found.images) == (1 / 3, 3, 1 / 12)
    assert summarise([{**row, "prompt": None} for row in rows]).n_prompts == 12


def test_no_verdicts_and_rows_that_are_none_are_refused():
    with pytest.raises(gm.TooFewSamplesError):
        summarise([])
    with pytest.raises(gm.InputError, match="expected correct and tag"):
        summarise([{"tag": "colors"}])


# -- the metric ------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path) -> Path:
    path = tmp_path / "detections.jsonl"
    rows = [{"id": f"c_{c['id']}", "detections": c["detections"]} for c in cases()]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def run(metric: geneval.GenEval, some: list[dict]) -> None:
    """Feed cases through the extractor, as a training loop does."""
    metric.update(
        torch.zeros(len(some), 3, 2, 2, dtype=torch.uint8),
        specs=[case["metadata"] for case in some],
        ids=[f"c_{case['id']}" for case in some],
    )


def test_the_value_is_the_mean_of_tasks_and_every_aggregate_has_its_name(recorded):
    metric = gm.GenEval(detections=str(recorded))
    run(metric, cases())
    result = metric.compute()
    expected = summarise(check(c["metadata"], c["detections"]) for c in cases())
    assert result.value == pytest.approx(expected.overall, abs=1e-12)
    assert result.parts["images"] == expected.images
    assert result.parts["prompts"] == expected.prompts
    assert {f"task/{tag}" for tag in TASKS} < set(result.parts)
    assert set(result.per_sample.values()) == {0.0, 1.0}
    assert (result.n, result.warnings) == (400, ())
    assert 0 <= result.interval.lo <= result.value <= result.interval.hi <= 1
    assert metric.verdicts()["c_0"].correct is bool(result.per_sample["c_0"])


def test_missing_tasks_are_said(recorded):
    metric = gm.GenEval(detections=str(recorded))
    run(metric, [case for case in cases() if case["metadata"]["tag"] != "counting"])
    warning = metric.compute().warnings[0]
    assert "no image for 1 of the 6 tasks (counting)" in warning
    assert "not comparable" in warning


def test_options_reach_the_rules_and_the_fingerprint(recorded):
    metric = create(parse([f"geneval:detections={recorded},threshold=1"])[0])
    run(metric, [case for case in cases() if case["metadata"]["tag"] == "single_object"])
    assert metric.compute().value == 0
    assert metric.protocol.to_dict()["threshold"] == 1
    assert str(recorded) not in json.dumps(metric.protocol.to_dict())


def test_two_generators_compare_under_one_detector_and_not_under_two(tmp_path):
    def protocol(name: str, detector: str) -> str:
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps({"id": name, "detections": [], "detector": detector}))
        return gm.GenEval(detections=str(path)).protocol.fingerprint

    assert protocol("a", "mask2former") == protocol("b", "mask2former")
    assert protocol("a", "mask2former") != protocol("a", "yolo")


def test_merge_order_and_state_do_not_move_a_bit(recorded):
    some = cases()[:60]
    whole = gm.GenEval(detections=str(recorded))
    run(whole, some)
    left, right = (gm.GenEval(detections=str(recorded)) for _ in range(2))
    run(left, some[40:])
    run(right, some[:40][::-1])
    assert left.merge(right).compute() == whole.compute()
    loaded = gm.GenEval(detections=str(recorded))
    loaded.load_state_dict(whole.state_dict())
    assert loaded.compute() == whole.compute()


def test_the_interval_takes_images_of_one_prompt_together(recorded):
    metric = gm.GenEval(detections=str(recorded))
    spec = asks({"class": "dog", "count": 1}, prompt="a photo of a dog")
    samples = [Sample(id=str(i), spec=spec) for i in range(4)]
    assert metric.clusters(samples) == ["a photo of a dog"] * 4
    assert metric.clusters([Sample(id="x", spec={**spec, "prompt": None})]) == ["x"]


def test_a_detector_function_with_colours():
    def detector(images):
        return [[thing("cup", score=float(i.float().mean() / 255))] for i in images]

    def colors(image, detections):
        return ["red"] * len(detections)

    metric = gm.GenEval(detector=detector, color_model=colors)
    asked = asks({"class": "cup", "count": 1, "color": "red"}, tag="colors")
    metric.update(
        [torch.full((3, 4, 4 + i), 100 * i, dtype=torch.uint8) for i in range(3)],
        specs=[asked] * 3,
        ids=["dark", "grey", "light"],
    )
    assert metric.compute().per_sample == {"dark": 0.0, "grey": 1.0, "light": 1.0}


def test_errors_name_the_image(recorded):
    metric = gm.GenEval(detections=str(recorded))
    with pytest.raises(gm.InputError, match="no detections for image 'c_400'"):
        metric.update(torch.zeros(1, 3, 2, 2), specs=[{}], ids=["c_400"])
    with pytest.raises(gm.InputError, match="geneval needs specs="):
        metric.update(torch.zeros(1, 3, 2, 2))
    run(metric, [{"id": 0, "metadata": {"prompt": "a dog"}}])
    with pytest.raises(gm.InputError, match="image 'c_0'.*expected tag and include"):
        metric.compute()


def test_one_source_of_detections_is_needed(recorded):
    with pytest.raises(gm.UsageError, match=r"one of detections=FILE .* and detector=FUNCTION"):
        gm.GenEval()
    with pytest.raises(gm.UsageError, match="one of detections=FILE"):
        gm.GenEval(detections=str(recorded), detector=lambda images: [])
    with pytest.raises(gm.UsageError, match="color_model= needs detector="):
        gm.GenEval(detections=str(recorded), color_model=lambda image, found: [])
    with pytest.raises(gm.InputError, match="cannot read detections"):
        gm.GenEval(detections="nowhere.jsonl")
