import re
from html.parser import HTMLParser

import numpy as np
import pytest

from genmetrics.core.sample import Decoded, Sample
from genmetrics.report.html import page
from genmetrics.report.svg import whisker
from tests.report.fakes import HOSTILE, Picture, failure, report, result, samples, typical


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
    tree = Tree(page(report(), command="genmetrics eval gen"))
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
        report(failures=(failure(),), missing=("gone_7",), conversions={"grayscale": 3}),
        command="genmetrics eval gen --ref real",
    )
    for text in (
        "441.19",
        "± 11.02",
        "lower is better",
        "n=384 is below the feature dimension 2048",
        "3fa9c1d2",
        "430.12",
        "gen/bad.png is cut short",
        "gone_7",
        "grayscale",
        "genmetrics eval gen --ref real",
        "Images that cost the most",
    ):
        assert text in shown, text


@pytest.mark.parametrize(
    "hostile", [HOSTILE, '"><img src=x onerror=alert(1)>', "</style>", "a\udcff"]
)
def test_hostile_names_stay_text(hostile):
    bad = Sample(id=hostile, image=Picture(hostile), prompt=hostile)
    made = report(
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
            "f": result("f", None, status="failed", reason=hostile),
        },
        samples=(bad, *samples(2)),
        failures=(failure(hostile, hostile, hostile),),
        missing=(hostile,),
        conversions={hostile: 1},
        inputs={"generated": {"path": hostile, "n": 1, "digest": hostile}},
        created=hostile,
    )
    shown = page(made, command=hostile)
    shown.encode()
    tree = Tree(shown)
    assert "script" not in tree.tags
    assert tree.tags.count("style") == 1
    assert not any(name == "onerror" for name, _ in tree.attributes)
    assert "\x1b" not in shown


def test_page_is_deterministic():
    assert page(report(), command="c") == page(report(), command="c")


def test_worst_come_first_whichever_way_is_better():
    values = {f"img_{i}": float(i) for i in range(20)}
    for higher, worst in ((False, "img_19"), (True, "img_0")):
        shown = page(report({"x": result("x", 1.0, higher_is_better=higher, per_sample=values)}))
        figures = re.findall(r'<figure title="(img_\d+)', shown)
        assert figures[0] == worst
        assert len(figures) == 16


def test_picture_that_cannot_be_read_shows_its_name():
    lost = Sample(id="lost_one", image=Picture("lost.png", None))
    shown = page(
        report(
            {"x": result("x", 1.0, per_sample={"lost_one": 9.0, "img_0": 1.0})},
            samples=(lost, *samples(1)),
        )
    )
    assert "not readable" in shown
    assert "lost_one" in shown
    assert shown.count("data:image/jpeg") == 1


class Noise(Picture):
    def load(self):
        rng = np.random.default_rng(int(self.name))
        return Decoded(rng.integers(0, 256, (96, 96, 3)).astype(np.uint8), ())


def test_page_of_many_metrics_and_faults_stays_small():
    noisy = tuple(Sample(id=f"{i:06}", image=Noise(str(i))) for i in range(200))
    rng = np.random.default_rng(0)
    results = {
        f"m{i}": result(
            f"m{i}", 1.0, per_sample=dict(zip((s.id for s in noisy), rng.random(200), strict=True))
        )
        for i in range(30)
    }
    many = tuple(failure(f"{i}" * 20, f"folder/{i:060}.png") for i in range(5000))
    shown = page(report(results, samples=noisy, failures=many, missing=("x" * 60,) * 5000))
    assert len(shown.encode()) < 1_500_000
    assert "and 4,800 more" in shown


def test_python_call_stands_where_there_is_no_command():
    assert "gm.evaluate(&#x27;gen&#x27;, &#x27;real&#x27;, metrics=" in page(report())


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
