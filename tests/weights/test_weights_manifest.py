"""The manifest itself: what it says must agree with itself and with the tools it quotes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from genmetrics import weights
from genmetrics.core.errors import UsageError, WeightsError
from genmetrics.weights.references import entry_of


def test_sums_agree_with_the_digits_in_published_names() -> None:
    checked = 0
    for entry in weights.entries().values():
        for url in entry.urls:
            head = re.search(r"-([0-9a-f]{8})\.pth$", url) or re.search(r"/([0-9a-f]{64})/", url)
            if head:
                assert entry.sha256.startswith(head[1]), entry.id
                checked += 1
        if entry.pinned and entry.kind != "hub":
            assert len(entry.sha256) == 64, entry.id
    assert checked == 2 + 3 + 9 * 2


def test_packaged_files_are_what_the_manifest_says() -> None:
    for id in ("efficientnet-lite0", "lpips-alex", "lpips-vgg", "lpips-squeeze"):
        check = weights.verify(id)
        assert check.status == "ok", check
        assert weights.require(id).stat().st_size == entry_of(id).bytes


def test_addresses_are_those_the_other_tools_use() -> None:
    import open_clip
    import pytorch_fid.inception
    import torch_fidelity.feature_extractor_inceptionv3 as torch_fidelity
    from torchvision.models import AlexNet_Weights, SqueezeNet1_1_Weights, VGG16_Weights

    inception = entry_of("inception-2015-12-05").urls
    assert pytorch_fid.inception.FID_WEIGHTS_URL in inception
    assert torch_fidelity.URL_INCEPTION_V3 in inception
    for id, enum in {
        "torchvision-alexnet": AlexNet_Weights.IMAGENET1K_V1,
        "torchvision-vgg16": VGG16_Weights.IMAGENET1K_V1,
        "torchvision-squeezenet1_1": SqueezeNet1_1_Weights.IMAGENET1K_V1,
    }.items():
        assert enum.url in entry_of(id).urls
    for id, name in {"openai-clip-vit-b-32": "ViT-B-32", "openai-clip-rn50x4": "RN50x4"}.items():
        assert open_clip.get_pretrained_cfg(name, "openai")["url"] in entry_of(id).urls


def test_unknown_id_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'inception' are unknown.*did you mean 'inception-2015"):
        weights.locate("inception")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[weights]]\nid = "a"\nkind = "file"\n', "missing 2 required"),
        ('kind = "file"', "weights"),
        ("not toml", "after a key"),
        ('[[weights]]\nid="a"\nkind="file"\nused_for=""\nlicence=""\n', "lacks what it needs"),
        (
            '[[weights]]\nid="a"\nkind="file"\nused_for=""\nlicence=""\nurls=["http://x.org/f"]',
            "not https",
        ),
        (
            '[[weights]]\nid="a"\nkind="hub"\nused_for=""\nlicence=""\nsha256="ABC"',
            "8 to 64 lower-case digits",
        ),
    ],
)
def test_a_bad_manifest_is_named(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.toml"
    path.write_text(text)
    monkeypatch.setenv("GENMETRICS_MANIFEST", str(path))
    with pytest.raises(WeightsError, match=complaint) as caught:
        weights.entries()
    assert str(path) in str(caught.value)


def test_a_missing_manifest_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENMETRICS_MANIFEST", str(tmp_path / "none.toml"))
    with pytest.raises(WeightsError, match=r"none\.toml: No such file"):
        weights.entries()
