"""One command against the four tools it replaces, run live on the same files and weights."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

COUNT = 48


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders of real photographs: mixed sizes, PNG and JPEG, larger and smaller than 299."""
    from scripts.make_photos import crops, degrade

    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    sizes = [(256, 256), (512, 384), (300, 420), (96, 128), (299, 299), (640, 360)]
    for name, seed in (("real", 0), ("fake", 1)):
        (root / name).mkdir()
        for i, crop in enumerate(crops(COUNT, 448, seed)):
            image = crop.resize(sizes[i % len(sizes)], Image.Resampling.BICUBIC)
            if name == "fake":
                image = degrade(image, rng)
            if i % 2:
                image.save(root / name / f"{i:03d}.jpg", quality=85)
            else:
                image.save(root / name / f"{i:03d}.png")
    return root / "real", root / "fake"


@pytest.fixture(scope="module")
def ours(photos, inception_file, tmp_path_factory) -> dict[str, float]:
    real, fake = photos
    out = tmp_path_factory.mktemp("out")
    names = "fid@clean,fid@tf1,fid@pytorch-fid,fid@torchmetrics,kid@tf1:subset_size=40,is@tf1"
    command = [
        sys.executable, "-m", "genmetrics", "eval", str(fake), "--ref", str(real), "-m", names,
        "--weights", f"inception-2015-12-05={inception_file}", "--no-cache", "--out", str(out),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads((out / "results.json").read_text())
    return {name: entry["value"] for name, entry in document["metrics"].items()}


def tensors(folder: Path) -> list:
    return [
        torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1)
        for path in sorted(folder.iterdir())
    ]


@pytest.fixture(scope="module")
def peer_network(inception_file):
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    return FeatureExtractorInceptionV3(
        "peer", ["2048"], feature_extractor_weights_path=str(inception_file)
    )


@pytest.mark.slow
def test_clean_fid(ours, photos, peer_network):
    """clean-fid's own folder reader, resizer and distance, on the network it publishes."""
    from cleanfid import fid

    def network(batch):
        return blocks(peer_network, (batch - 128) / 128)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy on the matrix root that clean-fid asks for
        peer = fid.compute_fid(
            *map(str, photos), custom_feat_extractor=network, num_workers=0, batch_size=1,
            device=torch.device("cpu"), verbose=False, use_dataparallel=False,
        )  # fmt: skip
    assert ours["fid@clean"] == pytest.approx(peer, rel=1e-3)


@pytest.mark.slow
def test_torch_fidelity(ours, photos, inception_file):
    import torch_fidelity

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = torch_fidelity.calculate_metrics(
            input1=str(photos[1]), input2=str(photos[0]), fid=True, kid=True, isc=True,
            kid_subset_size=40, cuda=False, verbose=False, batch_size=1, cache=False,
            feature_extractor_weights_path=str(inception_file),
        )  # fmt: skip
    assert ours["fid@tf1"] == pytest.approx(peer["frechet_inception_distance"], rel=1e-3)
    assert ours["kid@tf1"] == pytest.approx(peer["kernel_inception_distance_mean"], rel=1e-3)
    assert ours["is@tf1"] == pytest.approx(peer["inception_score_mean"], rel=1e-3)


@pytest.mark.slow
def test_pytorch_fid(ours, photos, inception_file, monkeypatch):
    from pytorch_fid import fid_score, inception

    def local(*args, **kwargs):
        return torch.load(inception_file, weights_only=True)

    monkeypatch.setattr(inception, "load_state_dict_from_url", local)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = fid_score.calculate_fid_given_paths(
            [str(path) for path in photos], 1, "cpu", 2048, num_workers=0
        )
    assert ours["fid@pytorch-fid"] == pytest.approx(peer, rel=1e-3)


@pytest.mark.slow
def test_torchmetrics(ours, photos, inception_file):
    from torchmetrics.image.fid import FrechetInceptionDistance

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = FrechetInceptionDistance(feature_extractor_weights_path=str(inception_file))
        for real, folder in ((True, photos[0]), (False, photos[1])):
            for image in tensors(folder):
                peer.update(image[None], real=real)
        value = float(peer.compute())
    assert ours["fid@torchmetrics"] == pytest.approx(value, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["clean", "tf1"])
def test_features_of_the_same_files(photos, inception_file, peer_network, protocol):
    """Each photograph's features, file by file, to 1e-5 relative."""
    from cleanfid.resize import build_resizer

    import genmetrics as gm
    from genmetrics.core.sample import Item
    from genmetrics.extractors.inception import InceptionSpec

    extractor = InceptionSpec.create(protocol, weights=inception_file).build("cpu")
    resize = build_resizer("clean")
    for path in sorted(photos[1].iterdir())[:12]:
        item = Item(id=path.stem, image=gm.load_image(path))
        mine = extractor.forward([extractor.prepare(item)])["2048"][0]
        with Image.open(path) as image, torch.no_grad():
            pixels = np.array(image.convert("RGB"))
            if protocol == "tf1":
                theirs = peer_network(torch.from_numpy(pixels).permute(2, 0, 1)[None])[0][0]
            else:
                x = torch.from_numpy(resize(pixels)).permute(2, 0, 1)[None]
                theirs = blocks(peer_network, (x - 128) / 128)[0]
        difference = np.linalg.norm(mine - theirs.numpy()) / np.linalg.norm(theirs.numpy())
        assert difference < 1e-5, path


def blocks(network, x):
    """Run torch-fidelity's network from its first block to the pool, without its own resize."""
    for name, block in network.named_children():
        if name == "fc":
            break
        x = block(x)
    return x.flatten(1)


@pytest.mark.slow
def test_the_four_protocols_are_four_numbers(ours):
    values = [value for name, value in ours.items() if name.startswith("fid")]
    assert len(values) == 4
    assert max(values) / min(values) > 1.01
