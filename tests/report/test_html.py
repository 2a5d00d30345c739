import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from genmetrics.core.result import Interval
from genmetrics.core.sample import Sample
from genmetrics.report.html import page
from genmetrics.report.svg import whisker
from genmetrics.samples.media import FileMedia
from tests.report.fakes import (
    HOSTILE,
    Picture,
    failure,
    record,
    result,
    samples,
    samples_in,
    typical,
)


class Tree(HTMLParser):
    """Collects tags and text, and checks that every tag is closed in order."""

    VOID = frozenset({"meta", "img", "rect", "line"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_page_is_whole_and_loads_nothing():
    tree = Tree(page(record(command={"argv": ["genmetrics", "eval", "gen"]})))
    assert "script" not in tree.tags
    assert "link" not in tree.tags
    for name, value in tree.attributes:
        assert not name.startswith("on")
        if name in ("src", "href"):
            assert value.startswith(("data:image/jpeg;base64,", "#"))
    assert "@import" not in "".join(tree.text)
    assert "url(" not in "".join(tree.text)


def test_page_says_what_the_report_knows():
    shown = page(
        record(
            failures=(failure(), failure("img_3", "x.png")._replace(model="judge-7b")),
            missing=("gone_7",),
            conversions={"grayscale": 3},
            notes=("prompts.jsonl: nobody read its column style",),
            command={
                "argv": ["genmetrics", "eval", "gen", "--ref", "real"],
                "overrides": {"inception@tf1": "my.pt"},
            },
        )
    )
    for text in (
        "441.19",
        "± 11.02",
        "lower is better",
        "n=384 is below the feature dimension 2048",
        "e40b15e9",
        "430.12",
        "gen/bad.png is cut short",
        "gone_7",
        "grayscale",
        "genmetrics eval gen --ref real",
        "Images that cost the most",
        "judge-7b",
        "nobody read its column style",
        "my.pt",
    ):
        assert text in shown, text


@pytest.mark.parametrize(
    "hostile", [HOSTILE, '"><img src=x onerror=alert(1)>', "</style>", "a\udcff"]
)
def test_hostile_names_stay_text(hostile):
    bad = Sample(id=hostile, image=Picture(hostile), prompt=hostile)
    made = record(
        {
            hostile: result(
                hostile,
                1.0,
                per_sample={hostile: 2.0, "img_1": 1.0},
                parts={hostile: 1.0},
                warnings=(hostile,),
                protocol={hostile: hostile},
                fingerprint=hostile,
            ),
            "g": result(
                "g",
                1.0,
                per_sample={hostile: 2.0, "img_1": 1.0},
                groups={hostile: hostile, "img_1": "b"},
                details={hostile: {"reason": hostile}},
            ),
            "f": result("f", None, status="failed", reason=hostile),
        },
        samples=(bad, *samples(2)),
        failures=(failure(hostile, hostile, hostile),),
        missing=(hostile,),
        conversions={hostile: 1},
        inputs={"generated": {"path": hostile, "n": 1, "digest": hostile}},
        created=hostile,
        name=hostile,
        notes=(hostile,),
        command={"call": hostile, "overrides": {hostile: hostile}},
    )
    shown = page(made)
    shown.encode()
    tree = Tree(shown)
    assert "script" not in tree.tags
    assert tree.tags.count("style") == 1
    assert not any(name == "onerror" for name, _ in tree.attributes)
    assert "\x1b" not in shown


def test_page_is_deterministic():
    assert page(record()) == page(record())


def test_worst_come_first_whichever_way_is_better():
    values = {f"img_{i}": float(i) for i in range(20)}
    for higher, worst in ((False, "img_19"), (True, "img_0")):
        shown = page(record({"x": result("x", 1.0, higher_is_better=higher, per_sample=values)}))
        figures = re.findall(r'<figure title="(img_\d+)', shown)
        assert figures[0] == worst
        assert len(figures) == 16


def test_picture_that_cannot_be_read_shows_its_name(tmp_path):
    lost = Sample(id="lost_one", image=Picture("lost.png", None))
    shown = page(
        record(
            {"x": result("x", 1.0, per_sample={"lost_one": 9.0, "img_0": 1.0})},
            samples=(lost, *samples_in(tmp_path, 1)),
        )
    )
    assert "not readable" in shown
    assert "lost_one" in shown
    assert shown.count("data:image/jpeg") == 1


def test_page_of_many_metrics_and_faults_stays_small(tmp_path):
    noisy = []
    rng = np.random.default_rng(0)
    for i in range(200):
        path = tmp_path / f"{i:06}.png"
        Image.fromarray(rng.integers(0, 256, (96, 96, 3)).astype(np.uint8)).save(path)
        noisy.append(Sample(id=f"{i:06}", image=FileMedia(str(path))))
    results = {
        f"m{i}": result(
            f"m{i}",
            1.0,
            per_sample=dict(zip((s.id for s in noisy), rng.random(200), strict=True)),
            details={s.id: {"reason": "why " * 2000} for s in noisy},
            groups={s.id: f"group {s.id}" * 20 for s in noisy},
        )
        for i in range(30)
    }
    many = tuple(failure(f"{i}" * 20, f"folder/{i:060}.png") for i in range(5000))
    shown = page(record(results, samples=noisy, failures=many, missing=("x" * 60,) * 5000))
    assert shown.count("data:image/jpeg") > 100
    assert len(shown.encode()) < 1_500_000
    assert "and 4,800 more" in shown


def test_python_call_stands_where_there_is_no_command():
    assert "gm.evaluate(&#x27;gen&#x27;, &#x27;real&#x27;, metrics=" in page(record())


def test_parts_have_their_intervals_and_groups_their_means():
    shown = page(
        record(
            {
                "x": result(
                    "x",
                    0.5,
                    parts={"spatial": 0.25},
                    intervals={"spatial": Interval(0.15, 0.35)},
                    per_sample={"img_0": 1.0, "img_1": 0.0, "img_2": 0.5},
                    groups={"img_0": "color", "img_1": "count", "img_2": "color"},
                )
            }
        )
    )
    assert '0.25000 <span class="dim">± 0.10000</span>' in shown
    assert "2 groups" in shown
    assert '<td>color</td><td class="number">0.7500</td><td class="number">2</td>' in shown


def test_reason_of_a_sample_stands_under_its_picture():
    shown = page(
        record(
            {
                "x": result(
                    "x",
                    0.5,
                    per_sample={"img_0": 0.0, "img_1": 1.0},
                    details={"img_0": {"reason": "no dog was found"}},
                )
            }
        )
    )
    assert '<span class="why">no dog was found</span>' in shown


def coordinates(svg):
    bar = re.search(r'class="bar" x="([\d.]+)" y="4" width="([\d.]+)"', svg)
    return float(bar[1]), float(bar[1]) + float(bar[2])


def test_bar_of_a_bounded_metric_is_its_share():
    start, end = coordinates(whisker(result(value=0.5), (0.0, 1.0)))
    assert start == 4.0
    assert end == 95.0


def test_bar_of_a_negative_value_ends_at_zero():
    kid = typical()["kid@clean"]
    svg = whisker(kid, (None, None))
    start, end = coordinates(svg)
    assert start < end < 186
    assert svg.count('class="whisker"') == 3


def test_no_bar_without_a_number():
    assert whisker(typical()["psnr"], (0.0, None)) == ""
    assert whisker(typical()["cmmd"], (None, None)) == ""
