"""What the benchmarks judge: photographs that come with scikit-image, and random weights.

python -m benchmarks.dataset photos FOLDER [--count 384] [--size 512] [--seed 0] [--blur 0]
python -m benchmarks.dataset weights FILE
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from PIL import ImageFilter

from scripts.make_photos import crops


def write_photos(folder: Path, *, count: int, size: int, seed: int, blur: float = 0.0) -> None:
    """Write ``count`` different JPEGs of ``size`` x ``size``, the same ones for the same seed."""
    folder.mkdir(parents=True)
    for i, image in enumerate(crops(count, size, seed)):
        blurred = image.filter(ImageFilter.GaussianBlur(blur)) if blur else image
        blurred.save(folder / f"{i:05d}.jpg", quality=90)


def write_inception_weights(file: Path, *, seed: int = 0) -> None:
    """Write random weights of FID's network under its public key names.

    Convolutions are drawn so that activations stay of order one at every depth: features then
    depend on the picture as those of a trained network do, and arithmetic takes as long.
    """
    import torch
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    class Blank(FeatureExtractorInceptionV3):  # type: ignore[misc]
        def load_state_dict(self, *_: Any, **__: Any) -> None:
            pass

    with tempfile.NamedTemporaryFile(suffix=".pth") as empty:
        # the constructor insists on a file; the blank network ignores what is in it
        torch.save({}, empty.name)
        network = Blank("blank", ["2048"], feature_extractor_weights_path=empty.name)
    generator = torch.Generator().manual_seed(seed)
    state = {name: _draw(name, value, generator) for name, value in network.state_dict().items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, file)


def _draw(name: str, value: Any, generator: Any) -> Any:
    import torch

    if name.endswith("num_batches_tracked"):
        return value
    if name.endswith(("running_var", "bn.weight")):
        return 0.75 + torch.rand(value.shape, generator=generator) * 0.5
    scale = (2 / value[0].numel()) ** 0.5 if value.ndim > 1 else 0.1
    return torch.randn(value.shape, generator=generator) * scale


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    photos = kinds.add_parser("photos")
    photos.add_argument("folder", type=Path)
    photos.add_argument("--count", type=int, default=384)
    photos.add_argument("--size", type=int, default=512)
    photos.add_argument("--seed", type=int, default=0)
    photos.add_argument("--blur", type=float, default=0.0)
    kinds.add_parser("weights").add_argument("file", type=Path)
    given = parser.parse_args()
    if given.kind == "weights":
        write_inception_weights(given.file)
    else:
        write_photos(
            given.folder, count=given.count, size=given.size, seed=given.seed, blur=given.blur
        )


if __name__ == "__main__":
    main()
