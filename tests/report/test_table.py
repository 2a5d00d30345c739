from genmetrics.core.result import Interval
from genmetrics.report.table import ASCII, render
from tests.report.fakes import HOSTILE, failure, record, result


def lines(text):
    return text.splitlines()


def test_table_as_people_see_it():
    text = render(
        record(failures=(failure(),), missing=("a", "b"), conversions={"grayscale": 3}), width=100
    )
    assert lines(text) == [
        " metric        value         95 % interval  n / ref     protocol  note",
        " " + "─" * 69,
        " fid@clean ↓   441.19        ± 11.02        384 / 1000  e40b15e9  1",
        "     infinity 430.12",
        " kid@clean ↓    -0.00012346  ± 0.00017500   384         a21c5e44  1",
        " prdc@clean ↑    0.51235                    384         d686498c",
        "     precision 0.50000   recall 0.25000   coverage 1   n_cut 3",
        " psnr ↑        inf                          384         798a7c3e  2",
        " cmmd ↓        failed                       384         c4a50fef  3",
        "",
        "  1  n=384 is below the feature dimension 2048",
        "  2  every score is inf",
        r"  3  failed: cmmd gave NaN\nin two lines",
        " 1 skipped sample: gen/bad.png is cut short",
        " 2 missing partners: a; b",
        " converted: 3 grayscale",
        " 25.1 s on cpu (fp32), 30 of 50 features from cache",
    ]


def test_without_colour_there_are_no_escape_codes_whatever_files_are_called():
    text = render(record(failures=(failure(HOSTILE, HOSTILE),)))
    assert "\x1b" not in text
    assert r"\x1b[31m\n.png" in text


def test_colour_changes_no_text():
    from rich.text import Text

    plain = render(record())
    assert "\x1b[" in render(record(), color=True)
    assert Text.from_ansi(render(record(), color=True)).plain.rstrip() == plain.rstrip()


def test_ascii_output_holds_only_ascii():
    text = render(record(), symbols=ASCII)
    assert text.isascii()
    assert "fid@clean (low)" in text


def test_lines_fit_the_width_and_names_are_folded_not_cut():
    name = "kid@clean:subsets=50:subset_size=200:seed=1:degree=3"
    warning = "a reader of this number should know " * 8
    made = render(
        record(
            {
                name: result(
                    name, 0.5, interval=Interval(0.25, 0.75), n_reference=50000, warnings=(warning,)
                )
            }
        ),
        width=80,
    )
    assert max(map(len, lines(made))) <= 80
    folded = "".join(line[:25].strip() for line in lines(made)[2:5])
    assert folded == f"{name} ↓"


def test_values_that_differ_are_shown_to_differ():
    made = render(record({"ssim@wang": result("ssim@wang", 1.0), "b": result("b", 0.9999999)}))
    assert "1.0000" in made
    assert "0.9999999" in made


def test_long_lists_are_cut_with_a_count():
    made = render(record(failures=tuple(failure(f"b{i}", f"b{i}.png") for i in range(12))))
    assert "12 skipped samples: b0.png is cut short" in made
    assert "and 7 more" in made
    assert "b5.png" not in made


def test_warning_of_two_metrics_is_one_note():
    made = render(record())
    assert made.count("n=384 is below") == 1


def test_name_that_fits_is_not_folded():
    name = "kd-lite:subset_size=20"
    assert f" {name} ↓  0.50000" in render(record({name: result(name, 0.5)}))
