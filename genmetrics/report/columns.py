"""What a record is made of: samples, labels and what was left out, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from genmetrics.core.sample import Media

SCHEMA = "genmetrics.results/2"
"""What is written. ``genmetrics.results/1`` is read too."""


class Row(NamedTuple):
    """One sample of a run."""

    id: str
    path: str | None = None
    """Where its picture or clip lies: a file, or ``archive!member``."""
    prompt: str | None = None
    reason: str | None = None
    """Why a metric has no value for it."""


class Skipped(NamedTuple):
    """A sample that could not be used."""

    id: str
    side: str
    path: str | None
    reason: str
    model: str | None = None
    """The model that has nothing for it; its other metrics count it. None: no metric does."""

    @property
    def line(self) -> str:
        """Name the file, the reason and the model, each once: most reasons name them already."""
        name = self.path or self.id
        text = self.reason if name in self.reason else f"{name}: {self.reason}"
        named = self.model is None or self.model in self.reason.replace(name, "")
        return text if named else f"{text} ({self.model})"

    @property
    def cause(self) -> str:
        """The reason alone, where the file and the model stand beside it."""
        text = self.reason
        for known in (self.path or self.id, self.model):
            text = text.removeprefix(f"{known}: ")
        return text


class Samples(Mapping[str, Row]):
    """Samples by id, in natural order of id, as columns: a million take a few hundred megabytes.

    Args:
        ids: Their ids.
        paths: Where each lies; None where it is no file.
        prompts: Prompt of each, or None.
        reasons: Id to the reason why some metric has no value for it.
        media: Handles of the pictures, where the run just made has them still.
    """

    __slots__ = ("_index", "ids", "media", "paths", "prompts", "reasons")

    def __init__(
        self,
        ids: Sequence[str],
        paths: Sequence[str | None] | None = None,
        prompts: Sequence[str | None] | None = None,
        reasons: Mapping[str, str] | None = None,
        media: Sequence[Media | None] = (),
    ) -> None:
        nothing: list[str | None] = [None] * len(ids)
        self.ids: Sequence[str] = ids
        self.paths = nothing if paths is None else paths
        self.prompts = nothing if prompts is None else prompts
        self.reasons = dict(reasons or {})
        self.media = media
        self._index: dict[str, int] | None = None

    def place(self, id_: str) -> int:
        """Return the position of an id. Raises KeyError."""
        if self._index is None:
            self._index = {name: i for i, name in enumerate(self.ids)}
        return self._index[id_]

    def row(self, place: int) -> Row:
        """Return the sample at a position."""
        id_ = self.ids[place]
        return Row(id_, self.paths[place], self.prompts[place], self.reasons.get(id_))

    def __getitem__(self, id_: str) -> Row:
        return self.row(self.place(id_))

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Samples):
            return NotImplemented
        mine = (list(self.ids), list(self.paths), list(self.prompts), self.reasons)
        return mine == (list(other.ids), list(other.paths), list(other.prompts), other.reasons)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Samples({len(self)} samples)"


class Labels(Mapping[str, str]):
    """Sample id to label, as columns; samples without a label are left out.

    Args:
        ids: All sample ids.
        labels: A label for each, or None.
    """

    __slots__ = ("_index", "ids", "labels")

    def __init__(self, ids: Sequence[str], labels: Sequence[str | None]) -> None:
        self.ids, self.labels = ids, labels
        self._index: dict[str, str] | None = None

    def __getitem__(self, id_: str) -> str:
        if self._index is None:
            self._index = dict(self.items())
        return self._index[id_]

    def items(self) -> Any:
        """Pairs of id and label."""
        pairs = zip(self.ids, self.labels, strict=True)
        return ((id_, label) for id_, label in pairs if label is not None)

    def values(self) -> Any:
        """Labels, in the order of the ids."""
        return (label for label in self.labels if label is not None)

    def __iter__(self) -> Iterator[str]:
        return (id_ for id_, _ in self.items())

    def __len__(self) -> int:
        return sum(label is not None for label in self.labels)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]
