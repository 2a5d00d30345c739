"""Models that are directories, found on this machine only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from genmetrics import weights
from genmetrics.core.errors import UsageError, WeightsError

from .local_weights import snapshot

pytestmark = pytest.mark.usefixtures("no_sockets")

FILES = {"config.json": b"{}", "model.safetensors": b"tensors", "tokenizer.json": b"{}"}
PINNED = "3d74acf9a28c67741b2f4f2ea7635f0aaf6f0268"
CLIP = "openai/clip-vit-base-patch32"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hf" / "hub"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "my-clip"
    path.mkdir()
    for name, content in FILES.items():
        (path / name).write_bytes(content)
    return path


def test_a_local_directory_has_a_name_and_the_hash_of_its_content(
    folder: Path, tmp_path: Path
) -> None:
    found = weights.locate_model(str(folder))
    assert found[:3] == ("my-clip", None, folder)
    assert weights.require_model(folder) == folder
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(folder, copy)
    (copy / "README.md").write_text("not content")
    (copy / ".cache").mkdir()
    (copy / ".cache" / "state.json").write_text("not content")
    assert weights.locate_model(copy).sha256 == found.sha256
    (copy / "tokenizer.json").write_text("[]")
    assert weights.locate_model(copy).sha256 != found.sha256
    (folder / "tokenizer.json").rename(folder / "vocab.json")
    assert weights.locate_model(folder).sha256 != found.sha256, "names count"


def test_a_single_file_is_a_model_too(folder: Path) -> None:
    file = folder / "model.safetensors"
    assert weights.locate_model(file)[:3] == ("model.safetensors", None, file)
    assert weights.require_model(file) == file


@pytest.mark.parametrize("missing", sorted(FILES))
def test_one_missing_file_is_named_with_its_path(folder: Path, missing: str) -> None:
    """Weights on disk by hand, one file forgotten: named, and nothing calls home."""
    (folder / missing).unlink()
    with pytest.raises(WeightsError, match="is missing: copy it there") as caught:
        weights.require_model(folder, needs=sorted(FILES))
    assert str(folder / missing) in str(caught.value)


def test_by_default_configuration_and_weights_are_needed(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert weights.require_model(folder) == folder
    (folder / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"config\.json is missing"):
        weights.require_model(folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}')
    (folder / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "unused.bin"}}')
    with pytest.raises(WeightsError, match=r"model-2\.safetensors is missing"):
        weights.require_model(folder)
    (folder / "model-2.safetensors").write_bytes(b"")
    assert weights.require_model(folder) == folder
    index.write_text("{")
    with pytest.raises(WeightsError, match=r"index\.json is damaged"):
        weights.require_model(folder)


def test_a_hub_model_is_found_in_the_local_cache(cache: Path) -> None:
    one = snapshot(cache, "org/net", "1" * 40, FILES, ref="main")
    two = snapshot(cache, "org/net", "2" * 40, FILES, ref="v2")
    assert weights.locate_model("org/net")[:3] == ("org/net", "1" * 40, one)
    assert weights.locate_model("org/net@v2")[:3] == ("org/net", "2" * 40, two)
    assert weights.locate_model(f"org/net@{'2' * 40}").path == two
    assert weights.locate_model("org/net@v2").sha256 == weights.locate_model(one).sha256
    assert weights.require_model("org/net") == one


def test_a_cache_filled_by_commit_has_one_answer(cache: Path) -> None:
    one = snapshot(cache, "org/net", "1" * 40, FILES)
    assert weights.locate_model("org/net").path == one
    snapshot(cache, "org/net", "2" * 40, FILES)
    assert weights.locate_model("org/net").path is None


def test_models_of_the_manifest_are_taken_at_their_revision(cache: Path) -> None:
    other = snapshot(cache, CLIP, "1" * 40, FILES, ref="main")
    assert weights.locate_model(CLIP) == (CLIP, PINNED, None, "")
    with pytest.raises(WeightsError, match="the cache has 1111") as caught:
        weights.require_model(CLIP)
    assert f"`genmetrics weights fetch {CLIP}@{PINNED}`" in str(caught.value)
    assert weights.locate_model(f"{CLIP}@main").path == other
    assert weights.verify(CLIP) == (CLIP, "missing", None, "", PINNED)
    path = snapshot(cache, CLIP, PINNED, {**FILES, "preprocessor_config.json": b"{}"})
    assert weights.require(CLIP) == path
    assert weights.verify(CLIP) == (CLIP, "ok", path, PINNED, PINNED)
    located = weights.locate(CLIP)
    assert located.path == path
    assert located.sha256 == weights.locate_model(CLIP).sha256
    assert weights.fetch(CLIP) == path


def test_a_manifest_without_a_revision_takes_what_is_here(
    manifest: Callable[..., None], cache: Path
) -> None:
    manifest(
        "https://mirror.example/net.pth",
        more='[[weights]]\nid = "org/net"\nkind = "hub"\nused_for = "x"\nlicence = "MIT"\n',
    )
    path = snapshot(cache, "org/net", "1" * 40, FILES, ref="main")
    assert weights.verify("org/net") == ("org/net", "unpinned", path, "1" * 40, "")
    assert weights.locate("org/net").path == path


def test_a_cut_off_file_in_the_cache_is_named(cache: Path) -> None:
    path = snapshot(cache, CLIP, PINNED, {**FILES, "preprocessor_config.json": b"{}"})
    (path / "model.safetensors").resolve().write_bytes(b"tens")
    with pytest.raises(WeightsError, match=r"model\.safetensors is damaged.*weights fetch"):
        weights.require_model(CLIP)
    assert weights.verify(CLIP)[1:3] == ("damaged", path / "model.safetensors")
    (path / "model.safetensors").resolve().write_bytes(b"tensors")
    (path / "config.json").resolve().write_bytes(b"[]")
    assert weights.verify(CLIP)[1:3] == ("damaged", path / "config.json")
    (path / "config.json").resolve().unlink()
    assert weights.verify(CLIP)[1:3] == ("damaged", path / "config.json")


def test_a_copy_in_the_weights_directory_comes_first(store: Path, cache: Path) -> None:
    snapshot(cache, "org/net", "1" * 40, FILES, ref="main")
    by_hand = store / "org" / "net"
    by_hand.mkdir(parents=True)
    for name, content in FILES.items():
        (by_hand / name).write_bytes(content)
    assert weights.require_model("org/net") == by_hand
    assert weights.locate_model("org/net").revision is None
    assert weights.locate_model("org/net@main").revision == "1" * 40


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("/nowhere/clip", WeightsError),
        ("./clip", WeightsError),
        ("~/no/such/clip", WeightsError),
        ("models/mine/clip", WeightsError),
        ("two words", UsageError),
        ("", UsageError),
        ("org/net@", UsageError),
    ],
)
def test_what_is_neither_path_nor_id(model: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        weights.locate_model(model)


def test_a_missing_model_says_how_to_get_it(store: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        weights.require_model("org/net")
    assert "`genmetrics weights fetch org/net@main`" in str(caught.value)
    assert str(store / "org" / "net") in str(caught.value)


def test_the_cache_is_where_the_environment_says_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads its variables once, when it is imported."""
    first = snapshot(tmp_path / "one", "org/net", "1" * 40, FILES, ref="main")
    second = snapshot(tmp_path / "two" / "hub", "org/net", "2" * 40, FILES, ref="main")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "one"))
    assert weights.locate_model("org/net").path == first
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "two"))
    assert weights.locate_model("org/net").path == second


def test_a_repository_of_which_only_the_needed_files_were_fetched_is_found(cache: Path) -> None:
    """The client's own list of the repository names more files than we ever fetch."""
    path = snapshot(cache, "org/net", "1" * 40, FILES, ref="main")
    trees = cache / "models--org--net" / "trees"
    trees.mkdir()
    tree = {name: {"size": 7, "blob_id": "0" * 40} for name in (*FILES, "flax_model.msgpack")}
    (trees / f"{'1' * 40}.json").write_text(json.dumps({"format_version": 1, "files": tree}))
    assert weights.require_model("org/net") == path


def test_a_name_that_the_hub_refuses_is_a_usage_error(cache: Path) -> None:
    cache.mkdir(parents=True)
    with pytest.raises(UsageError, match="is no hub id"):
        weights.locate_model("org/net..git")


def test_to_locate_a_model_its_large_files_are_not_read(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`genmetrics list` and `show` would read gigabytes; before use all is read."""
    path = snapshot(cache, "org/net", "1" * 40, FILES, ref="main")
    read: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            "genmetrics.weights.models.sha256_of", lambda file: read.append(file.name) or "0" * 64
        )
        weights.locate_model("org/net")
    assert sorted(read) == ["config.json", "tokenizer.json"]
    copy = path.parent / "copy"
    shutil.copytree(path, copy)
    assert weights.locate_model(path).sha256 == weights.locate_model(copy).sha256
