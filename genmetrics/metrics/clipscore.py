"""CLIPScore: how well an image fits its prompt, by the angle between CLIP's embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from genmetrics.core.errors import InputError, TooFewSamplesError, UsageError, did_you_mean
from genmetrics.core.extractor import ExtractorSpec, Features
from genmetrics.core.metric import MetricProtocol
from genmetrics.core.registry import register
from genmetrics.core.rows import vectors
from genmetrics.core.sample import Sample
from genmetrics.metrics.base import SampleMetric

Convention = Literal["hessel", "100", "cos"]

_SUSPICIOUS = 20  # pairs; with fewer, a sign test seldom finds anything


class _Rule(NamedTuple):
    """What a published convention scales by, cuts, asks and runs on."""

    scale: float
    floor: bool
    prefix: str
    model: str
    pretrained: str | None


_RULES: Mapping[str, _Rule] = {
    "hessel": _Rule(2.5, True, "A photo depicts ", "ViT-B-32", "openai"),
    "100": _Rule(100.0, True, "", "openai/clip-vit-large-patch14", None),
    "cos": _Rule(1.0, False, "", "ViT-B-32", "openai"),
}


def score(cosine: float, convention: Convention = "hessel") -> float:
    """Turn the cosine of an image and a text into a CLIPScore.

    ``hessel`` is 2.5 max(cos, 0) (Hessel et al., 2021), ``100`` is 100 max(cos, 0), ``cos`` is the
    cosine as it is.

    Raises:
        UsageError: Unknown convention.
        InputError: Not a cosine: outside -1..1.

    Examples:
        >>> score(0.25), score(0.25, "100"), score(-0.1), score(-0.1, "cos")
        (0.625, 25.0, 0.0, -0.1)
    """
    if not abs(cosine) <= 1 + 1e-6:
        raise InputError(f"{cosine} is no cosine; pass the product of unit vectors, -1 to 1")
    return float(_scores(np.asarray([cosine]), _rule(convention))[0])


class Swapped(NamedTuple):
    """How much better images fit their own prompts than others.

    Attributes:
        difference: Mean of score(prompt) - score(swapped).
        share: Share of pairs in which the own prompt scores higher.
        p_value: Two-sided sign test; ties stay out.
        n: Pairs compared.
    """

    difference: float
    share: float
    p_value: float
    n: int

    @property
    def doubtful(self) -> bool:
        """Whether there are enough pairs, and own prompts still do not win clearly."""
        return self.n >= _SUSPICIOUS and (self.share <= 0.5 or self.p_value > 0.05)


def swapped(scores: Sequence[float] | np.ndarray, others: Sequence[float] | np.ndarray) -> Swapped:
    """Sanity check of a score: does it tell an image's own prompt from a swapped one?

    Args:
        scores: Score of each image with its own prompt.
        others: Score of the same images with another prompt ("a red cube" for "a blue cube", or the
            prompt of another image).

    Raises:
        InputError: The two differ in length, are empty or hold NaN.
    """
    own, other = np.asarray(scores, dtype=np.float64), np.asarray(others, dtype=np.float64)
    if own.shape != other.shape or own.ndim != 1 or not len(own):
        raise InputError(f"scores have shapes {own.shape} and {other.shape}; give one each a pair")
    difference = own - other
    if not np.isfinite(difference).all():
        raise InputError("scores hold values that are not finite; drop those pairs")
    won, lost = int((difference > 0).sum()), int((difference < 0).sum())
    return Swapped(
        difference=float(difference.mean()),
        share=won / len(own),
        p_value=_sign_test(won, lost),
        n=len(own),
    )


def _sign_test(won: int, lost: int) -> float:
    """Two-sided probability of a split at least this uneven if both were equally likely."""
    from scipy.special import bdtr

    return 1.0 if won == lost else min(1.0, 2.0 * float(bdtr(min(won, lost), won + lost, 0.5)))


def _scores(cosines: np.ndarray, rule: _Rule) -> np.ndarray:
    # rounding may leave -1..1 in the last digit
    clipped = np.clip(cosines, 0.0 if rule.floor else -1.0, 1.0)
    return np.asarray(rule.scale * clipped)


def _rule(convention: str) -> _Rule:
    if convention not in _RULES:
        raise UsageError(
            f"clipscore has no convention {convention!r}{did_you_mean(convention, _RULES)};"
            f" there is {', '.join(_RULES)}"
        )
    return _RULES[convention]


@dataclass(frozen=True, kw_only=True)
class CLIPScoreProtocol(MetricProtocol):
    """Every choice that moves a CLIPScore. The floor at zero is on each sample, not on the mean."""

    image: ExtractorSpec
    text: ExtractorSpec
    scale: float
    floor: bool


@register
class CLIPScore(SampleMetric):
    """Scaled cosine of CLIP's image and text embeddings for each image, then the mean.

    Three conventions are in use and their numbers must not be mixed:

    - ``hessel`` (Hessel et al., 2021): 2.5 max(cos, 0), ViT-B/32 of OpenAI, prompts behind
      "A photo depicts ". In float32; the paper's code runs in float16 on a GPU.
    - ``100``: 100 max(cos, 0), ViT-L/14 of OpenAI, no prefix. Equals torchmetrics 1.9 to 1e-5 as
      long as no cosine is negative: that library floors the mean and not each sample.
    - ``cos``: the raw cosine, ViT-B/32 of OpenAI, no prefix.

    ``parts`` holds the check against swapped prompts (see :meth:`swapped`) where there are two
    prompts or more, and ``n_truncated``, the prompts that were longer than the model reads.

    Args:
        convention: One of the three.
        model: Replaces the model: an open_clip name (with ``pretrained``), a hub id,
            ``id@revision`` or a local directory of transformers.
        pretrained: Tag or checkpoint file of an open_clip model.
        prefix: Replaces the convention's text before each prompt.
        device: Where the models run.
        weights: A path, or a mapping from weight id to path.
    """

    id = "clipscore"
    summary = "How well images fit their prompts: scaled cosine of CLIP embeddings"
    inputs = ("image", "prompt")
    higher_is_better = True
    bounds = (-1.0, 100.0)
    variants = tuple(_RULES)
    default_variant = "hessel"

    def __init__(
        self,
        convention: Convention = "hessel",
        *,
        model: str | None = None,
        pretrained: str | None = None,
        prefix: str | None = None,
        device: str = "auto",
        weights: Any = None,
    ) -> None:
        from genmetrics.extractors.clip import ClipImageSpec, ClipTextSpec

        name = self.variant_id(convention)
        rule = self._rule = _RULES[convention]
        if model is None:
            model, pretrained = rule.model, pretrained or rule.pretrained
        protocol = CLIPScoreProtocol(
            metric=name,
            image=ClipImageSpec.create(model=model, pretrained=pretrained, weights=weights),
            text=ClipTextSpec.create(
                model=model,
                pretrained=pretrained,
                weights=weights,
                prefix=rule.prefix if prefix is None else prefix,
            ),
            scale=rule.scale,
            floor=rule.floor,
        )
        super().__init__(protocol, device=device)

    def update_features(
        self,
        samples: Sequence[Sample],
        features: Mapping[str, Features],
        *,
        real: bool = False,
    ) -> None:
        """Keep the rows. Raises :class:`InputError` that lists the samples without a prompt."""
        empty = [sample.id for sample in samples if not (sample.prompt or "").strip()]
        if empty:
            shown = ", ".join(map(repr, empty[:5])) + (", ..." if len(empty) > 5 else "")
            raise InputError(
                f"{len(empty)} of {len(samples)} prompts are empty: {shown}; an empty text fits"
                " nothing, so give the prompts the images were made from"
            )
        super().update_features(samples, features, real=real)

    def scores(self, samples: Sequence[Sample], features: Mapping[str, Features]) -> np.ndarray:
        """Scaled cosine of each image with its own prompt."""
        images, texts = _units(features)
        return _scores((images * texts).sum(axis=1), self._rule)

    def swapped(self) -> Swapped:
        """Compare each image's score with that for the next sample's prompt, in order of id.

        The next prompt is the next that differs. A share near one half says that prompts and images
        do not belong together, or that the model cannot tell.

        Raises:
            TooFewSamplesError: Fewer than two different prompts.
        """
        samples, features = self._rows.ordered()
        found = self._swapped(samples, features, self.scores(samples, features))
        if found is None:
            raise TooFewSamplesError("swapping needs at least 2 different prompts")
        return found

    def _swapped(
        self, samples: Sequence[Sample], features: Mapping[str, Features], own: np.ndarray
    ) -> Swapped | None:
        prompts = [sample.prompt for sample in samples]
        if len(set(prompts)) < 2:
            return None
        images, texts = _units(features)
        other = texts[_next_different(prompts)]
        return swapped(own, _scores((images * other).sum(axis=1), self._rule))

    def parts(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> dict[str, float]:
        """Truncated prompts, and the check against swapped prompts."""
        parts = {"n_truncated": float(_truncated(features).sum())}
        check = self._swapped(samples, features, scores)
        if check is not None:
            parts["swapped/difference"] = check.difference
            parts["swapped/share"] = check.share
            parts["swapped/p"] = check.p_value
        return parts

    def notes(
        self, samples: Sequence[Sample], features: Mapping[str, Features], scores: np.ndarray
    ) -> list[str]:
        """Warn of cut prompts, and of images that fit other prompts as well as their own."""
        notes = []
        cut = [s.id for s, flag in zip(samples, _truncated(features), strict=True) if flag]
        if cut:
            limit = getattr(self.extractors["text"], "context_length", None)
            notes.append(
                f"{len(cut)} of {len(samples)} prompts were cut to the model's {limit} tokens"
                f" (first: {cut[0]!r})"
            )
        check = self._swapped(samples, features, scores)
        if check is not None and check.doubtful:
            notes.append(
                f"only {check.share:.0%} of {check.n} images fit their own prompt better than"
                " the next one's; check that prompts and images belong together"
            )
        return notes


def _units(features: Mapping[str, Features]) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings as float64 unit vectors ``(n, d)``: of the images, and of the texts."""
    rows = (vectors(features[role], "embedding").astype(np.float64) for role in ("image", "text"))
    images, texts = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in rows)
    return images, texts


def _truncated(features: Mapping[str, Features]) -> np.ndarray:
    return np.asarray(features["text"]["truncated"]) > 0


def _next_different(prompts: Sequence[str | None]) -> np.ndarray:
    """Position of the next prompt that differs, going around; there must be two."""
    n = len(prompts)
    found = np.zeros(n, dtype=np.intp)
    for i in range(2 * n - 1, -1, -1):  # twice around, so that the end knows the start
        here, following = i % n, (i + 1) % n
        differs = prompts[following] != prompts[here]
        found[here] = following if differs else found[following]
    return found
