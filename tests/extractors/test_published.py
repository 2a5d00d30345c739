"""clean-fid's published statistics as a reference: what they say of themselves, and the number."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from genmetrics.core.errors import InputError, ProtocolMismatchError, UsageError, WeightsError
from genmetrics.extractors.inception import InceptionSpec
from genmetrics.extractors.published import find_reference
from genmetrics.metrics.fid import FID
from genmetrics.metrics.kid import KID
from genmetrics.weights.references import MODES, PUBLISHED

NAME = "clean-fid:cat2dog-256-test"
FILES = {
    "clean": "cat2dog_clean_test_256.npz",
    "tf1": "cat2dog_legacy_tensorflow_test_256.npz",
    "pytorch-fid": "cat2dog_legacy_pytorch_test_256.npz",
}


@pytest.fixture
def stats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """clean-fid's folder of statistics, as its own downloads fill it."""
    import cleanfid

    package = tmp_path / "cleanfid"
    monkeypatch.setattr(cleanfid, "__file__", str(package / "__init__.py"))
    monkeypatch.setenv("GENMETRICS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GENMETRICS_WEIGHTS", raising=False)
    (package / "stats").mkdir(parents=True)
    return package / "stats"


@pytest.fixture
def published_weights(
    inception_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """A manifest whose Inception is the random one of these tests; returns the override."""
    sha256 = hashlib.sha256(inception_file.read_bytes()).hexdigest()
    manifest = tmp_path / "manifest.toml"
    manifest.write_text(
        '[[weights]]\nid = "inception-2015-12-05"\nkind = "file"\nused_for = "tests"\n'
        f'licence = "CC0-1.0"\nurls = ["https://mirror.example/i.pth"]\nsha256 = "{sha256}"\n'
    )
    monkeypatch.setenv("GENMETRICS_MANIFEST", str(manifest))
    return {"inception-2015-12-05": str(inception_file)}


def moments(width: int = 2048) -> dict[str, np.ndarray]:
    rows = np.random.default_rng(0).normal(size=(20, width))
    return {"mu": rows.mean(axis=0), "sigma": np.cov(rows, rowvar=False)}


@pytest.mark.parametrize("protocol", FILES)
def test_each_mode_is_read_as_the_protocol_that_it_is(stats: Path, protocol: str) -> None:
    arrays = moments()
    np.savez(stats / FILES[protocol], **arrays)
    name = NAME if protocol == "clean" else f"{NAME}@{protocol}"
    found = find_reference(Path(name))
    assert found is not None
    entry = found.entry(InceptionSpec.create(protocol))
    assert (found.source, entry.source, entry.n, entry.verified) == (name, name, 500, True)
    assert np.array_equal(entry.arrays["2048.mean"], arrays["mu"])
    assert np.array_equal(entry.arrays["2048.cov"], arrays["sigma"])
    digest = hashlib.sha256((stats / FILES[protocol]).read_bytes()).hexdigest()
    assert found.digest == f"sha256:{digest}"
    other = next(key for key in MODES if key != protocol)
    with pytest.raises(ProtocolMismatchError, match="resize"):
        found.entry(InceptionSpec.create(other))


def test_a_path_is_no_name(tmp_path: Path) -> None:
    assert find_reference(tmp_path) is None
    assert find_reference("clean-fid") is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("clean-fid:ffhq-256-trainval70", "did you mean 'ffhq-256-trainval70k'"),
        ("clean-fid:imagenet-256-train", "weights list --references"),
        ("clean-fid:lsun_church-256-trainfull@tf1", "for clean, not for 'tf1'"),
        ("clean-fid:", "weights list --references"),
    ],
)
def test_what_clean_fid_does_not_publish_is_a_usage_error(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_reference(name)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_here_is_never_fetched(
    stats: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("socket.create_connection", refuse)
    for name in PUBLISHED:
        with pytest.raises(WeightsError) as caught:
            find_reference(f"clean-fid:{name}")
        assert f"run `genmetrics weights fetch clean-fid:{name}`" in str(caught.value)
    assert list(stats.iterdir()) == []


def test_other_weights_are_refused(stats: Path, inception_file: Path) -> None:
    np.savez(stats / FILES["clean"], **moments())
    found = find_reference(NAME)
    assert found is not None
    with pytest.raises(ProtocolMismatchError, match="sha256.*use it with the published weights"):
        found.entry(FID(weights=inception_file).spec)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (moments(width=64), "has 64 features, Inception 2048"),
        ({"mu": np.zeros(2048)}, "is damaged"),
        ({"mu": np.zeros(2048), "sigma": np.zeros((3, 2048))}, "must fit"),
        ({"mu": np.full(2048, np.nan), "sigma": np.eye(2048)}, "mu is not finite"),
        ({"mu": np.array([{}] * 2048), "sigma": np.eye(2048)}, "is damaged"),
        ({"mu": np.array(["1"] * 2048), "sigma": np.eye(2048)}, "numbers are needed"),
    ],
)
def test_arrays_that_cannot_be_the_statistics_are_refused(
    stats: Path, content: dict[str, Any], complaint: str
) -> None:
    np.savez(stats / FILES["clean"], **content)
    with pytest.raises(InputError, match=complaint) as caught:
        find_reference(NAME)
    assert str(stats / FILES["clean"]) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_features_serve_kernel_metrics_too(stats: Path, published_weights: dict[str, str]) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 2048)).astype(np.float32)
    np.savez(stats / "brecahad_clean_train_512_kid.npz", feats=rows)
    found = find_reference("clean-fid:brecahad-512-train-kid")
    assert found is not None
    metric = KID(weights=published_weights)
    metric.load_reference(found.entry(metric.spec))
    assert metric.reference_arrays()[0] == 12


def torchscript_look_alike(network: nn.Module, inside: bool) -> Callable[[Any], Any]:
    """What clean-fid's TorchScript file computes: with its resize, or behind clean-fid's own."""

    def run(batch: torch.Tensor) -> torch.Tensor:
        if inside:
            return network(batch.to(torch.uint8))[0]
        x = (batch - 128) / 128
        for name, block in network.named_children():
            if name != "fc":
                x = block(x)
        return x.flatten(1)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["clean", "tf1"])
def test_the_distance_is_clean_fids_on_the_same_file(
    protocol: str,
    stats: Path,
    published_weights: dict[str, str],
    torch_fidelity_inception: nn.Module,
    tmp_path: Path,
) -> None:
    """Its reader of files and statistics, resizer and distance; the network is torch-fidelity's."""
    from cleanfid import fid

    photos = tmp_path / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for i in range(6):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        coarse.resize((90, 90)).save(photos / f"{i}.png")
    network = torchscript_look_alike(torch_fidelity_inception, inside=protocol == "tf1")
    reference = fid.get_folder_features(
        str(photos), network, num_workers=0, num=4, batch_size=1, mode=MODES[protocol],
        device=torch.device("cpu"), verbose=False,
    )  # fmt: skip
    np.savez(
        stats / FILES[protocol],
        mu=reference.mean(axis=0) + 0.01,
        sigma=np.cov(reference, rowvar=False),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy on the matrix root that clean-fid asks for
        theirs = fid.compute_fid(
            str(photos), dataset_name="cat2dog", dataset_res=256, dataset_split="test",
            mode=MODES[protocol], custom_feat_extractor=network, num_workers=0, batch_size=1,
            device=torch.device("cpu"), verbose=False, use_dataparallel=False,
        )  # fmt: skip
    found = find_reference(NAME if protocol == "clean" else f"{NAME}@{protocol}")
    assert found is not None
    metric = FID(protocol, device="cpu", weights=published_weights)
    metric.load_reference(found.entry(metric.spec))
    pictures = [np.array(Image.open(path)) for path in sorted(photos.iterdir())]
    metric.update([torch.from_numpy(picture).permute(2, 0, 1) for picture in pictures])
    result = metric.compute()
    assert result.value == pytest.approx(theirs, rel=1e-3)
    assert result.n_reference == 500
