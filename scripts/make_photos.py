"""Write a small set of real photographs and a degraded copy: crops of scikit-image's photos.

    python scripts/make_photos.py FOLDER [--count 64] [--size 256]

makes FOLDER/real (PNG) and FOLDER/degraded (JPEG after blur and noise), with the same stems, and
FOLDER/train, other crops of the same photos that serve as a reference set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter
from skimage import data

PHOTOS = (
    "astronaut",
    "chelsea",
    "coffee",
    "rocket",
    "hubble_deep_field",
    "retina",
    "immunohistochemistry",
)


def crops(count: int, size: int, seed: int) -> list[Image.Image]:
    """Cut ``count`` square crops, of varying extent, resized to ``size``."""
    rng = np.random.default_rng(seed)
    photos = [Image.fromarray(getattr(data, name)()).convert("RGB") for name in PHOTOS]
    found = []
    for i in range(count):
        photo = photos[i % len(photos)]
        side = int(rng.integers(min(photo.size) // 3, min(photo.size)))
        left = int(rng.integers(0, photo.width - side + 1))
        top = int(rng.integers(0, photo.height - side + 1))
        crop = photo.crop((left, top, left + side, top + side))
        found.append(crop.resize((size, size), Image.Resampling.LANCZOS))
    return found


def degrade(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Blur and add noise; the JPEG file format does the rest."""
    blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(1.5)), dtype=np.float64)
    noisy = blurred + rng.normal(0, 12, blurred.shape)
    return Image.fromarray(noisy.round().clip(0, 255).astype(np.uint8))


def main() -> None:
    """Write the three folders."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--size", type=int, default=256)
    arguments = parser.parse_args()
    folders = {name: arguments.folder / name for name in ("train", "real", "degraded")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2)
    for i, image in enumerate(crops(arguments.count, arguments.size, seed=0)):
        image.save(folders["train"] / f"{i:04d}.png")
    for i, image in enumerate(crops(arguments.count, arguments.size, seed=1)):
        image.save(folders["real"] / f"{i:04d}.png")
        degrade(image, rng).save(folders["degraded"] / f"{i:04d}.jpg", quality=30)


if __name__ == "__main__":
    main()
