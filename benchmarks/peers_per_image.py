"""torchmetrics' SSIM and CLIPScore from files to the number, as their users write it.

  python -m benchmarks.peers_per_image ssim IMAGES REFERENCES
  python -m benchmarks.peers_per_image ssim-inside IMAGES REFERENCES
  python -m benchmarks.peers_per_image clipscore IMAGES PROMPTS MODEL

Each takes ``[--batch 32] [--workers 2]`` and prints one JSON line. ``seconds`` starts when
everything is imported: building the network, reading its weights, the files, the score.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import Photos

BORDER = 5
"""Half of SSIM's window of 11: as wide as the rim in which windows leave the picture."""


@dataclass(frozen=True)
class Task:
    """What to score, and how; ``beside`` are the references or the file of prompts."""

    images: str
    beside: str
    model: str | None
    batch: int
    workers: int


Score = Callable[[], float]


class Pairs:
    """Equal positions of two lists, as a data loader reads them."""

    def __init__(self, images: Photos, others: Photos | list[str]) -> None:
        self.images, self.others = images, others

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[index], self.others[index]


def batches(task: Task, others: Photos | list[str]) -> Iterator[tuple[Any, Any]]:
    """Yield uint8 images ``(n, 3, h, w)`` and what belongs to them, read by worker processes."""
    from torch.utils.data import DataLoader

    pairs: Any = Pairs(Photos(task.images), others)
    yield from DataLoader(pairs, batch_size=task.batch, num_workers=task.workers)


def ssim(task: Task) -> Score:
    """The metric as it is: float32, and windows at the rim that see a reflection of the picture."""
    from torchmetrics.image import StructuralSimilarityIndexMeasure

    def score() -> float:
        metric: Any = StructuralSimilarityIndexMeasure(data_range=255.0)
        for images, references in batches(task, Photos(task.beside)):
            metric.update(images.float(), references.float())
        return float(metric.compute())

    return score


def ssim_inside(task: Task) -> Score:
    """The same map without its rim, which is what Wang et al. (2004) average."""
    from torchmetrics.functional.image import structural_similarity_index_measure

    def score() -> float:
        found: list[float] = []
        for images, references in batches(task, Photos(task.beside)):
            _, whole = structural_similarity_index_measure(
                images.float(), references.float(), data_range=255.0, return_full_image=True
            )
            inside = whole[..., BORDER:-BORDER, BORDER:-BORDER]
            found += inside.double().mean(dim=(1, 2, 3)).tolist()
        return sum(found) / len(found)

    return score


def clipscore(task: Task) -> Score:
    """The metric as it is, on a model of transformers in a local directory.

    The directory is opened here because the metric takes paths of four publishers only.
    """
    from torchmetrics.multimodal import CLIPScore
    from transformers import CLIPModel, CLIPProcessor

    lines = map(json.loads, Path(task.beside).read_text().splitlines())
    prompts = {line["id"]: line["prompt"] for line in lines}

    def score() -> float:
        model = Tensors(CLIPModel.from_pretrained(task.model))
        processor = CLIPProcessor.from_pretrained(task.model)
        metric: Any = CLIPScore(model_name_or_path=lambda: (model, processor))
        own = [prompts[file.stem] for file in Photos(task.images).files]
        for images, texts in batches(task, own):
            metric.update(images, list(texts))
        return float(metric.compute())

    return score


class Tensors:
    """A model whose embeddings are tensors: torchmetrics 1.9 expects them, transformers 5 has not.

    Everything else is the model's own.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def to(self, device: Any) -> Tensors:
        self.model.to(device)
        return self

    def get_image_features(self, *given: Any) -> Any:
        found = self.model.get_image_features(*given)
        return getattr(found, "pooler_output", found)

    def get_text_features(self, *given: Any) -> Any:
        found = self.model.get_text_features(*given)
        return getattr(found, "pooler_output", found)


PEERS: dict[str, Callable[[Task], Score]] = {
    "ssim": ssim,
    "ssim-inside": ssim_inside,
    "clipscore": clipscore,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("images")
    parser.add_argument("beside", help="references, or a file of prompts")
    parser.add_argument("model", nargs="?", help="directory of a CLIP")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    given = vars(parser.parse_args())
    warnings.simplefilter("ignore")  # what peers say about their own dependencies
    score = PEERS[given.pop("name")](Task(**given))
    start = time.perf_counter()
    value = score()
    print(json.dumps({"seconds": time.perf_counter() - start, "value": value}))


if __name__ == "__main__":
    main()
