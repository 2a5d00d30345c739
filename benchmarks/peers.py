"""Other people's FID from two folders of files to the number, on the CPU or a GPU.

  python -m benchmarks.peers NAME REAL FAKE WEIGHTS [--device cpu] [--batch 32] [--workers 2]

Prints one JSON line. ``seconds`` starts when everything is imported: building the network, reading
its weights, the files, the distance.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Task:
    """What to compare, and how."""

    real: str
    fake: str
    weights: str
    device: str
    batch: int
    workers: int


Score = Callable[[], float]


def clean_fid(task: Task) -> Score:
    """clean-fid's reader, resize and distance.

    Its own network is a TorchScript file of these weights that has to be downloaded; the network of
    torch-fidelity stands in for it, with the same arithmetic.
    """
    import torch
    from cleanfid import fid

    def score() -> float:
        blocks = [block for name, block in _port(task).named_children() if name != "fc"]

        def network(images: Any) -> Any:
            x = (images - 128) / 128
            for block in blocks:
                x = block(x)
            return x.flatten(1)

        return float(
            fid.compute_fid(
                task.real, task.fake, mode="clean", custom_feat_extractor=network,
                num_workers=task.workers, batch_size=task.batch, use_dataparallel=False,
                device=torch.device(task.device), verbose=False,
            )
        )  # fmt: skip

    return score


def pytorch_fid(task: Task) -> Score:
    """pytorch-fid as it is, with the address of its weights replaced by the file."""
    import torch
    from pytorch_fid import fid_score, inception

    def local(*_: Any, **__: Any) -> Any:
        return torch.load(task.weights, weights_only=True)

    inception.load_state_dict_from_url = local

    def score() -> float:
        return float(
            fid_score.calculate_fid_given_paths(
                [task.real, task.fake], task.batch, task.device, 2048, num_workers=task.workers
            )
        )

    return score


def torch_fidelity(task: Task) -> Score:
    """torch-fidelity as it is; it chooses its own number of workers."""
    import torch_fidelity

    def score() -> float:
        found = torch_fidelity.calculate_metrics(
            input1=task.fake, input2=task.real, fid=True, cuda=task.device != "cpu", cache=False,
            verbose=False, batch_size=task.batch,
            feature_extractor_weights_path=task.weights,
        )  # fmt: skip
        return float(found["frechet_inception_distance"])

    return score


def torchmetrics(task: Task) -> Score:
    """The metric of torchmetrics behind the data loader that its users write."""
    from torch.utils.data import DataLoader
    from torchmetrics.image.fid import FrechetInceptionDistance

    def score() -> float:
        metric = FrechetInceptionDistance(feature_extractor_weights_path=task.weights)
        metric = metric.to(task.device)
        for real, folder in ((True, task.real), (False, task.fake)):
            loader: Any = DataLoader(
                Photos(folder),  # type: ignore[arg-type]
                batch_size=task.batch,
                num_workers=task.workers,
                pin_memory=task.device != "cpu",
            )
            for images in loader:
                metric.update(images.to(task.device), real=real)
        return float(metric.compute())

    return score


class Photos:
    """A folder of equally large images as uint8 tensors."""

    def __init__(self, folder: str) -> None:
        self.files = sorted(Path(folder).iterdir())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        import numpy as np
        import torch
        from PIL import Image

        with Image.open(self.files[index]) as image:
            pixels = np.array(image.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1)


def _port(task: Task) -> Any:
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    network = FeatureExtractorInceptionV3(
        "peer", ["2048"], feature_extractor_weights_path=task.weights
    )
    return network.eval().to(task.device)


PEERS: dict[str, Callable[[Task], Score]] = {
    "clean-fid": clean_fid,
    "pytorch-fid": pytorch_fid,
    "torch-fidelity": torch_fidelity,
    "torchmetrics": torchmetrics,
}

PROTOCOLS = {
    "clean-fid": "fid@clean",
    "pytorch-fid": "fid@pytorch-fid",
    "torch-fidelity": "fid@tf1",
    "torchmetrics": "fid@torchmetrics",
}
"""Which of our protocols claims to be whose number."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=PEERS)
    for path in ("real", "fake", "weights"):
        parser.add_argument(path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    given = vars(parser.parse_args())
    warnings.simplefilter("ignore")  # what peers say about their own use of scipy
    score = PEERS[given.pop("name")](Task(**given))
    start = time.perf_counter()
    value = score()
    print(json.dumps({"seconds": time.perf_counter() - start, "value": value}))


if __name__ == "__main__":
    main()
