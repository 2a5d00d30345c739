import json
import os
import time
from dataclasses import dataclass

import numpy as np
import pytest

from genmetrics.run.store import FeatureStore
from tests.cli.test_main import one_line
from tests.run.toys import ToySpec


@dataclass(frozen=True, kw_only=True)
class CroppedSpec(ToySpec):
    crop: str | None = None


@pytest.fixture
def cache(tmp_path):
    """Two extractors: five rows in two shards, and one row of 40 days ago."""
    store = FeatureStore(tmp_path / "cache")
    new, old = ToySpec(), ToySpec(extractor="elder")
    rows = np.ones((5, 4), np.float32)
    keys = [f"{i:064x}" for i in range(5)]
    store.write(new, keys[:3], {"grid": rows[:3]})
    store.write(new, keys[3:], {"grid": rows[3:]})
    store.write(old, keys[:1], {"grid": rows[:1]})
    then = time.time() - 40 * 86400
    for path in store.folder(old).iterdir():
        os.utime(path, (then, then))
    return tmp_path / "cache"


def names(run, cache):
    _, out, _ = run("cache", "info", "--cache", cache, "--json")
    return sorted(row["extractor"] for row in json.loads(out)["extractors"])


def test_info_counts_rows_shards_and_bytes(run, cache):
    code, out, err = run("cache", "info", "--cache", cache, "--json")
    assert (code, err) == (0, "")
    found = {row["extractor"]: row for row in json.loads(out)["extractors"]}
    assert found["toy"]["rows"] == 5
    assert found["toy"]["shards"] == 2
    total = sum(path.stat().st_size for path in cache.rglob("*.safetensors"))
    assert found["toy"]["bytes"] + found["elder"]["bytes"] == total
    assert found["elder"]["age_days"] == pytest.approx(40, abs=0.1)


def test_info_for_people(run, cache):
    code, out, _ = run("cache", "info", "--cache", cache)
    assert code == 0
    assert "2 extractors" in out
    assert "toy  5 rows in 2 shards" in out


def test_rows_of_one_extractor_are_told_apart_by_their_choices(run, tmp_path):
    store = FeatureStore(tmp_path / "cache")
    for spec in (ToySpec(), ToySpec(fault="x"), ToySpec(extractor="elder")):
        store.write(spec, ["0" * 64], {"grid": np.ones((1, 4), np.float32)})
    _, out, _ = run("cache", "info", "--cache", tmp_path / "cache")
    rows = sorted(line.split("  ")[1] for line in out.splitlines() if " in 1 shard" in line)
    assert rows == ["elder", "toy (fault=)", "toy (fault=x)"]
    assert out.count("1 row in 1 shard") == 3
    assert out.count(f"last written {time.strftime('%Y-')}") == 3
    _, out, _ = run("cache", "info", "--cache", tmp_path / "cache", "--json")
    faults = [row["spec"]["fault"] for row in json.loads(out)["extractors"]]
    assert sorted(faults) == ["", "", "x"]


def test_choice_that_an_extractor_lacks_goes_unsaid(run, tmp_path):
    store = FeatureStore(tmp_path / "cache")
    for spec in (ToySpec(), CroppedSpec(crop="whole"), CroppedSpec(crop=None)):
        store.write(spec, ["0" * 64], {"grid": np.ones((1, 4), np.float32)})
    _, out, _ = run("cache", "info", "--cache", tmp_path / "cache")
    rows = sorted(line.split("  ")[1] for line in out.splitlines() if " in 1 shard" in line)
    assert rows == ["toy", "toy (crop=None)", "toy (crop=whole)"]


def test_an_address_is_no_cache(run):
    code, _, err = run("cache", "info", "--cache", "https://example.org/cache")
    assert code == 2
    assert "--cache https://example.org/cache is an address" in one_line(err)


def test_info_names_damaged_shards(run, cache):
    shard = next(cache.rglob("*.safetensors"))
    shard.write_bytes(b"half")
    _, out, _ = run("cache", "info", "--cache", cache)
    assert f"damaged, will be computed again: {shard}" in out


def test_features_of_an_older_layout_take_room_until_they_are_pruned(run, cache):
    folder = cache / ("0" * 32)
    folder.mkdir()
    (folder / f"{'1' * 32}.safetensors").write_bytes(bytes(700))
    _, out, _ = run("cache", "info", "--cache", cache, "--json")
    found = {row["extractor"]: row for row in json.loads(out)["extractors"]}
    assert json.loads(out)["damaged"] == []
    assert (found["unknown"]["rows"], found["unknown"]["bytes"]) == (0, 700)
    run("cache", "prune", "--cache", cache, "--yes", "--extractor", "0" * 32)
    assert not folder.exists()


def test_default_cache_that_is_not_there_is_empty(run):
    code, out, _ = run("cache", "info")
    assert code == 0
    assert "0 extractors" in out


@pytest.mark.parametrize(
    ("which", "left"),
    [
        (("--older-than", "30"), ["toy"]),
        (("--older-than", "50"), ["elder", "toy"]),
        (("--extractor", "toy"), ["elder"]),
        (("--extractor", "toy", "--older-than", "30"), ["elder", "toy"]),
        (("--all",), []),
    ],
)
def test_prune_deletes_what_was_asked(run, cache, which, left):
    code, out, err = run("cache", "prune", "--cache", cache, "--yes", *which)
    assert (code, err) == (0, "")
    assert out.startswith("deleted ")
    assert names(run, cache) == left


def test_prune_by_fingerprint(run, cache):
    fingerprint = ToySpec().fingerprint
    for name in (fingerprint, fingerprint.removeprefix("sha256:")[:12]):
        run("cache", "prune", "--cache", cache, "--yes", "--extractor", name)
    assert names(run, cache) == ["elder"]


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ((), "say what to prune"),
        (("--all", "--older-than", "3"), "--all excludes"),
        (("--extractor", "tyo", "--yes"), "no extractor 'tyo' (did you mean 'toy'?)"),
        (("--all",), "pass --yes"),
    ],
)
def test_prune_refuses_what_is_unclear(run, cache, which, said):
    code, out, err = run("cache", "prune", "--cache", cache, *which)
    assert (code, out) == (2, "")
    assert said in one_line(err)
    assert names(run, cache) == ["elder", "toy"]


def test_cache_that_is_no_folder(run, tmp_path):
    code, _, err = run("cache", "info", "--cache", tmp_path / "nowhere")
    assert code == 2
    assert "nowhere is not a folder" in one_line(err)
