"""The rules of GenEval (Ghosh, Hajishirzi and Schmidt, 2023), which need no model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from genmetrics.core.errors import InputError, TooFewSamplesError, shown
from genmetrics.extractors.recorded import Detection, as_detection

TASKS = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
"""The six tasks of the published benchmark, as ``tag`` in its metadata."""

COLORS = (
    "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white",
)  # fmt: skip
"""The colours the benchmark asks for and tells apart."""


class Verdict(NamedTuple):
    """What the rules say of one image.

    Attributes:
        correct: Whether everything asked for is there and nothing that must not be.
        reason: One line for each thing that is wrong; empty when correct.
        tag: The task.
        prompt: The prompt, None if the metadata holds none.
    """

    correct: bool
    reason: str
    tag: str
    prompt: str | None


class Summary(NamedTuple):
    """The aggregates that are quoted as GenEval, under distinct names.

    Attributes:
        tasks: Share of correct images of each task.
        overall: Unweighted mean of the tasks: the published number.
        images: Share of correct images.
        prompts: Share of prompts with at least one correct image.
        n_images: Number of images.
        n_prompts: Number of prompts.
    """

    tasks: dict[str, float]
    overall: float
    images: float
    prompts: float
    n_images: int
    n_prompts: int


def check(
    metadata: Mapping[str, Any],
    detections: Sequence[Mapping[str, Any]],
    *,
    threshold: float = 0.3,
    counting_threshold: float = 0.9,
    max_objects: int = 16,
    max_overlap: float = 1.0,
    position_threshold: float = 0.1,
) -> Verdict:
    """Judge one image by what a detector found in it.

    Of each class the detections scoring above the threshold count, best first, ``max_objects`` at
    most. Each ``include`` clause takes the best ``count`` of its class; all of them must have the
    colour, and stand in the relation to every object of the clause it points to. An ``exclude``
    clause fails if ``count`` objects are found.

    Args:
        metadata: A row of the benchmark: ``tag``, ``include``, perhaps ``exclude`` and ``prompt``.
        detections: Mappings with ``label``, ``box`` (x1, y1, x2, y2), ``score``, and ``color``
            where a colour is asked for.
        threshold: Scores must exceed this.
        counting_threshold: The same for the task ``counting``.
        max_objects: Detections kept of each class.
        max_overlap: Below 1, a detection overlapping a better one of its class by this much
            (intersection over union, edges inclusive) is dropped.
        position_threshold: Share of the two extents by which centres must be apart to count.

    Returns:
        The verdict, with a reason for each failed clause.

    Raises:
        InputError: Metadata or a detection lacks a field, or a colour is asked for and the
            detection has none.

    Examples:
        >>> dog = {"label": "dog", "box": [0, 0, 9, 9], "score": 0.8}
        >>> asked = {"tag": "single_object", "include": [{"class": "cat", "count": 1}]}
        >>> check(asked, [dog]).reason
        'expected cat>=1, found 0'

    Verdicts and reasons equal those of the benchmark's own script (af4902f) on 400 recorded cases.
    """
    if "tag" not in metadata or "include" not in metadata:
        raise InputError(
            f"GenEval metadata has {', '.join(metadata) or 'no fields'}; expected tag and include"
        )
    objects = _objects(
        [as_detection(value, f"detection {i}") for i, value in enumerate(detections)],
        counting_threshold if metadata["tag"] == "counting" else threshold,
        max_objects,
        max_overlap,
    )
    reasons: list[str] = []
    groups: list[list[Detection]] = []  # empty for a clause that failed
    for clause in _clauses(metadata, "include"):
        found = objects.get(clause["class"], [])[: clause["count"]]
        reason = _failure(clause, found, groups, position_threshold)
        groups.append([] if reason else found)
        reasons += [reason] if reason else []
    for clause in _clauses(metadata, "exclude"):
        n = len(objects.get(clause["class"], []))
        if n >= clause["count"]:
            reasons.append(f"expected {clause['class']}<{clause['count']}, found {n}")
    return Verdict(not reasons, "\n".join(reasons), metadata["tag"], metadata.get("prompt"))


def _clauses(metadata: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Check the clauses of one kind.

    Raises:
        InputError: One is not of the form the benchmark's metadata have.
    """
    clauses = metadata.get(name) or []
    if not isinstance(clauses, Sequence) or isinstance(clauses, str):
        raise InputError(f"GenEval {name} is {shown(clauses)}; expected a list of clauses")
    for i, clause in enumerate(clauses):
        where = f"GenEval {name} clause {i}"
        if not isinstance(clause, Mapping) or not isinstance(clause.get("class"), str):
            raise InputError(f"{where} is {shown(clause)}; expected a mapping with class and count")
        count = clause.get("count")
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InputError(f"{where} has count {count!r}; expected a whole number")
        position = clause.get("position")
        if position is not None and not _is_position(position):
            raise InputError(f"{where} has position {shown(position)}; expected [relation, clause]")
    return list(clauses)


def _is_position(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int)
    )


def summarise(verdicts: Iterable[Verdict | Mapping[str, Any]]) -> Summary:
    """Aggregate verdicts in the three ways that are in use.

    Args:
        verdicts: What :func:`check` gave, or mappings with ``correct``, ``tag`` and ``prompt`` such
            as the rows of the benchmark's result files. Without a prompt, each image is a prompt of
            its own.

    Raises:
        TooFewSamplesError: No verdicts.
        InputError: A mapping lacks ``correct`` or ``tag``.
    """
    rows = [v if isinstance(v, Verdict) else _verdict(v) for v in verdicts]
    if not rows:
        raise TooFewSamplesError("GenEval has no verdicts to summarise; needs at least 1")
    tags: dict[str, list[bool]] = {}
    prompts: dict[Any, bool] = {}
    for i, row in enumerate(rows):
        tags.setdefault(row.tag, []).append(row.correct)
        key = i if row.prompt is None else (row.tag, row.prompt)
        prompts[key] = prompts.get(key, False) or row.correct
    order = [tag for tag in TASKS if tag in tags] + sorted(set(tags) - set(TASKS))
    tasks = {tag: sum(tags[tag]) / len(tags[tag]) for tag in order}
    return Summary(
        tasks=tasks,
        overall=sum(tasks.values()) / len(tasks),
        images=sum(row.correct for row in rows) / len(rows),
        prompts=sum(prompts.values()) / len(prompts),
        n_images=len(rows),
        n_prompts=len(prompts),
    )


def relations(
    box: Sequence[float], target: Sequence[float], *, position_threshold: float = 0.1
) -> list[str]:
    """How a box stands to another: of ``"left of"``, ``"right of"``, ``"above"``, ``"below"``.

    The offset of the centres is shrunk on each axis by the threshold times the sum of both extents,
    then divided by its own unshrunk length; more than half of it along an axis is a relation.

    Examples:
        >>> relations([0, 0, 100, 100], [40, 0, 140, 100])
        []
        >>> relations([0, 0, 100, 100], [100, 100, 200, 200])
        ['left of', 'above']
    """
    shrunk, offset = [], []
    for low, high in ((0, 2), (1, 3)):
        apart = (box[low] + box[high]) / 2 - (target[low] + target[high]) / 2
        extents = abs(box[high] - box[low]) + abs(target[high] - target[low])
        offset.append(apart)
        shrunk.append(math.copysign(max(abs(apart) - position_threshold * extents, 0.0), apart))
    if max(map(abs, shrunk)) < 1e-3:
        return []
    dx, dy = (value / math.hypot(*offset) for value in shrunk)
    held = {"left of": dx < -0.5, "right of": dx > 0.5, "above": dy < -0.5, "below": dy > 0.5}
    return [name for name, holds in held.items() if holds]


def _objects(
    detections: Sequence[Detection], threshold: float, max_objects: int, max_overlap: float
) -> dict[str, list[Detection]]:
    """Detections that count, by class, best first."""
    classes: dict[str, list[Detection]] = {}
    for detection in sorted(detections, key=lambda d: -d["score"]):
        kept = classes.setdefault(detection["label"], [])
        if detection["score"] > threshold and len(kept) < max_objects:
            kept.append(detection)
    if max_overlap < 1:
        classes = {label: _suppress(kept, max_overlap) for label, kept in classes.items()}
    return classes


def _suppress(ordered: Sequence[Detection], max_overlap: float) -> list[Detection]:
    """Greedy suppression: each survivor drops what overlaps it too much."""
    kept: list[Detection] = []
    for detection in ordered:
        if all(_overlap(better["box"], detection["box"]) < max_overlap for better in kept):
            kept.append(detection)
    return kept


def _overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union; a box includes its last pixel, so sides are x2 - x1 + 1."""

    def area(x1: float, y1: float, x2: float, y2: float) -> float:
        return max(x2 - x1 + 1, 0.0) * max(y2 - y1 + 1, 0.0)

    both = area(max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))
    union = area(*a) + area(*b) - both
    return both / union if union else 0.0


def _failure(
    clause: Mapping[str, Any],
    found: Sequence[Detection],
    groups: Sequence[Sequence[Detection]],
    position_threshold: float,
) -> str | None:
    """Why an ``include`` clause fails, or None."""
    label, count = clause["class"], clause["count"]
    if len(found) < count:
        return f"expected {label}>={count}, found {len(found)}"
    if clause.get("color"):
        colors = [_color(detection) for detection in found]
        wanted = clause["color"]
        if colors.count(wanted) < count:
            order = [c for c in COLORS if c in colors] + sorted(set(colors) - set(COLORS))
            seen = ", ".join(f"{colors.count(c)} {c}" for c in order)
            return (
                f"expected {wanted} {label}>={count}, found {colors.count(wanted)} {wanted};"
                f" and {seen}"
            )
    if clause.get("position"):
        wanted, index = clause["position"]
        if not 0 <= index < len(groups):
            raise InputError(
                f"GenEval clause {label!r} points to clause {index}; {len(groups)} came before it"
            )
        if not groups[index]:  # "all left of nothing" is no success
            return f"no target for {label} to be {wanted}"
        for detection in found:
            for target in groups[index]:
                held = relations(
                    detection["box"], target["box"], position_threshold=position_threshold
                )
                if wanted not in held:
                    return f"expected {label} {wanted} target, found {' and '.join(held)} target"
    return None


def _color(detection: Detection) -> str:
    if "color" not in detection:
        raise InputError(
            f"a colour is asked of {detection['label']!r} and the detection has none; classify"
            " colours (color_model=) or record them as 'color'"
        )
    return detection["color"]


def _verdict(row: Mapping[str, Any]) -> Verdict:
    if "correct" not in row or "tag" not in row:
        raise InputError(f"a GenEval result has {', '.join(row)}; expected correct and tag")
    return Verdict(bool(row["correct"]), str(row.get("reason", "")), row["tag"], row.get("prompt"))
