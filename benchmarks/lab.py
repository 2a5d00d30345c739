"""Measured processes, side by side.

This process imports neither torch nor numpy: on Linux a child's peak memory starts at that of its
parent, so the parent has to stay small.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INCEPTION = "inception-2015-12-05"

Command = Sequence[str]
"""Words of a command. ``{round}`` is replaced by the round, ``{start}`` by the clock at start."""


class SideError(Exception):
    """A measured command failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One process from start to exit.

    Attributes:
        benchmark: Which benchmark it belongs to.
        side: What was run.
        round: 1, 2, ...: all sides of a round ran one after the other.
        wall: Seconds from start to exit.
        cpu: Seconds of processor time, those of its children included.
        peak_mib: Peak resident memory of the largest process, in MiB.
        load: Load average of the machine before the start.
        output: What the command reported about itself.
    """

    benchmark: str
    side: str
    round: int
    wall: float
    cpu: float
    peak_mib: float
    load: float
    output: Mapping[str, Any]


@dataclass(frozen=True)
class Runs:
    """Measurements of one benchmark, by side."""

    by_side: Mapping[str, Sequence[Measurement]]

    def median(self, side: str, name: str = "wall") -> float:
        """Median of a field of the measurements, or of what the command reported."""
        return median(self.values(side, name))

    def values(self, side: str, name: str) -> list[float]:
        """One number a round."""
        return [
            float(m.output[name] if name in m.output else getattr(m, name))
            for m in self.by_side[side]
        ]

    def last(self, side: str) -> Mapping[str, Any]:
        """What the command reported in the last round."""
        return self.by_side[side][-1].output

    def seconds(self, name: str = "wall") -> dict[str, float]:
        """Median of every side."""
        return {side: self.median(side, name) for side in self.by_side}


@dataclass
class Lab:
    """A folder with the data, and everything measured so far."""

    folder: Path
    repeats: int
    cores: int
    device: str = "cpu"
    measurements: list[Measurement] = field(default_factory=list)

    # -- commands ----------------------------------------------------------------------------------

    def script(self, module: str, *arguments: object) -> list[str]:
        """Return the command that runs a module of this package."""
        return [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]

    def evaluate(self, generated: Path, reference: Path, metrics: str, *more: object) -> list[str]:
        """Return the command of a user: ``genmetrics eval``, keeping no features by default."""
        return [sys.executable, "-m", "genmetrics", *self.eval_words(generated, reference, metrics),
                *map(str, more or ("--no-cache",))]  # fmt: skip

    def score(self, images: Path, metric: str, *beside: object) -> list[str]:
        """Return the command that scores images one by one, by what ``beside`` says they need."""
        return [sys.executable, "-m", "genmetrics", "eval", str(images), "-m", metric,
                *map(str, beside), "--device", self.device, "--json", "--no-cache"]  # fmt: skip

    def eval_words(self, generated: Path, reference: Path, metrics: str) -> list[str]:
        """Return the words behind ``genmetrics``."""
        weights = f"{INCEPTION}={self.inception()}"
        return ["eval", str(generated), "--ref", str(reference), "-m", metrics, "--weights",
                weights, "--device", self.device, "--json"]  # fmt: skip

    # -- data --------------------------------------------------------------------------------------

    def photos(self, count: int, size: int, seed: int, blur: float = 0.0) -> Path:
        """Return a folder of photographs, made at its first use."""
        blurred = f"-blur-{blur:g}" if blur else ""
        folder = self.folder / f"photos-{count}-{size}-{seed}{blurred}"
        words = ("--count", count, "--size", size, "--seed", seed, "--blur", blur)
        return self._made(folder, "photos", *words)

    def inception(self) -> Path:
        """Return a file of random Inception weights, made at its first use."""
        return self._made(self.folder / "inception.pth", "weights")

    def prompts(self, count: int) -> Path:
        """Return a file with a prompt for each photograph, made at its first use."""
        return self._made(self.folder / f"prompts-{count}.jsonl", "prompts", "--count", count)

    def tiles(self, count: int, seed: int) -> Path:
        """Return a folder of tars of tiny pictures, made at its first use."""
        words = ("--count", count, "--seed", seed)
        return self._made(self.folder / f"tiles-{count}-{seed}", "tiles", *words)

    def clip(self, width: int, layers: int) -> Path:
        """Return the directory of a CLIP of random weights, made at its first use."""
        words = ("--width", width, "--layers", layers)
        return self._made(self.folder / f"clip-{width}-{layers}", "clip", *words)

    def _made(self, path: Path, kind: str, *words: object) -> Path:
        if not path.exists():
            unfinished = path.with_name(f"unfinished-{path.name}")
            if unfinished.is_dir():
                shutil.rmtree(unfinished)
            self.run("dataset", "make", 0, self.script("dataset", kind, unfinished, *words))
            unfinished.rename(path)
        return path

    # -- measuring ---------------------------------------------------------------------------------

    def rounds(
        self,
        benchmark: str,
        sides: Mapping[str, Command],
        *,
        repeats: int | None = None,
        contenders: Sequence[str] = (),
    ) -> Runs:
        """Run all sides one after the other, and again, so that a slow minute meets all of them.

        Args:
            benchmark: What the measurements are filed under.
            sides: Name to command.
            repeats: Rounds; those of the lab by default.
            contenders: Sides of which only the fastest is wanted: after each round the slower half
                of those that are left goes.
        """
        found: dict[str, list[Measurement]] = {side: [] for side in sides}
        left = list(contenders)
        for number in range(1, (repeats or self.repeats) + 1):
            for side, command in sides.items():
                if side in left or side not in contenders:
                    found[side].append(self.run(benchmark, side, number, command))
            left.sort(key=lambda side: median(m.wall for m in found[side]))
            left = left[: -(-len(left) // 2)]
        self.measurements += [m for measured in found.values() for m in measured]
        return Runs(found)

    def run(self, benchmark: str, side: str, number: int, command: Command) -> Measurement:
        """Run one command and measure it from outside.

        Raises:
            SideError: It failed, or did not end its output with JSON.
        """
        self.tell(f"{benchmark}: {side}, round {number}")
        scratch = self.folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        load = os.getloadavg()[0]
        with tempfile.TemporaryFile(dir=scratch) as out, tempfile.TemporaryFile(dir=scratch) as err:
            start = time.monotonic()
            values = {"{round}": str(number), "{start}": repr(start)}
            process = subprocess.Popen(
                [_filled(word, values) for word in command],
                stdout=out, stderr=err, cwd=ROOT, env=self._environment(scratch),
            )  # fmt: skip
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.monotonic() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0), err.seek(0)
            said, complained = (f.read().decode(errors="replace") for f in (out, err))
        if process.returncode != 0:
            ends = " | ".join(complained.strip().splitlines()[-3:])
            raise SideError(f"{benchmark}/{side} ended with {process.returncode}: {ends}")
        unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
        return Measurement(
            benchmark=benchmark,
            side=side,
            round=number,
            wall=round(wall, 4),
            cpu=round(usage.ru_utime + usage.ru_stime, 3),
            peak_mib=round(usage.ru_maxrss / unit, 1),
            load=round(load, 2),
            output=_report(said) if said.strip() else {},
        )

    def _environment(self, scratch: Path) -> dict[str, str]:
        """Every side gets all cores, and nothing of the user's own settings of genmetrics."""
        own = {k: v for k, v in os.environ.items() if not k.startswith("GENMETRICS_")}
        threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        return {
            **own,
            **dict.fromkeys(threads, str(self.cores)),
            "GENMETRICS_HOME": str(self.folder / "home"),
            "GENMETRICS_OFFLINE": "1",
            "TMPDIR": str(scratch),
        }

    @staticmethod
    def tell(text: str) -> None:
        """Say how far the run is."""
        print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)

    def as_json(self) -> list[dict[str, Any]]:
        """Every single measurement, as plain values."""
        return [asdict(measurement) for measurement in self.measurements]


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _report(text: str) -> dict[str, Any]:
    """Read what a command printed: the document of ``genmetrics eval``, or a last line of JSON."""
    try:
        found = json.loads(text if text.lstrip().startswith("{\n") else text.splitlines()[-1])
    except ValueError as error:
        raise SideError(f"no JSON at the end of the output: {text[-200:]!r}") from error
    if str(found.get("schema", "")).startswith("genmetrics.results/"):
        values = {name: entry["value"] for name, entry in found["metrics"].items()}
        return {"values": values, "runtime": found["runtime"]}
    return dict(found)
