import json

import pytest

import genmetrics as gm
from tests.cli.test_main import one_line


def test_show_resolves_a_bare_name_and_prints_its_protocol(run):
    code, out, err = run("show", "fid")
    assert (code, err) == (0, "")
    assert out.startswith("fid@clean (what 'fid' stands for)\n")
    assert gm.FID().protocol.fingerprint in out
    assert "direction    lower is better" in out
    assert "layer=2048 (64|192|768|2048)" in out
    assert "inception-2015-12-05: missing; run `genmetrics weights fetch" in out
    assert '"resize": "clean"' in out


def test_show_as_json_has_the_protocol_of_the_class(run):
    code, out, _ = run("show", "kid@tf1:subsets=50", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["resolved"] == "kid@tf1:subsets=50"
    assert facts["protocol"] == gm.KID(protocol="tf1", subsets=50).protocol.to_dict()
    assert facts["fingerprint"] == gm.KID(protocol="tf1", subsets=50).protocol.fingerprint
    assert facts["options"]["subsets"] == {"type": "integer", "default": 100}
    assert facts["reason"] is None


def test_weights_that_are_here_show_their_place(run):
    _, out, _ = run("show", "fd-lite", "--json")
    (weights,) = json.loads(out)["weights"]
    assert weights["id"] == "efficientnet-lite0"
    assert weights["path"].endswith(".pth")
    assert weights["fetch"] is None


def test_metric_that_cannot_be_built_here_still_shows_what_is_known(run):
    code, out, _ = run("show", "geneval")
    assert code == 0
    assert "needs        images, specs (--layout)" in out
    assert "protocol     not known here: " in out


def test_every_metric_can_be_shown(run):
    for name in gm.metrics.by_class_name().values():
        code, out, err = run("show", name.id, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["documentation"]


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("fdi", "unknown metric 'fdi' (did you mean 'fid'?)"),
        ("fid@claen", "did you mean 'clean'?"),
        ("kid:subset=3", "did you mean 'subsets'?"),
        ("kid:subsets=few", "not int"),
        ("lite", "is a suite"),
        ("fid,kid", "names 2"),
    ],
)
def test_unknown_ids_are_one_line(run, id, said):
    code, out, err = run("show", id)
    assert (code, out) == (2, "")
    assert said in one_line(err)
