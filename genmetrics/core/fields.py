"""What can belong to a sample, as one table. A further field is one more row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from genmetrics.core.errors import UsageError, did_you_mean

Kind = Literal["picture", "mask", "clip", "text", "record"]
"""``picture``: uint8 RGB; ``mask``: True where white; ``clip``: frames one after another;
``text``: a string; ``record``: a mapping or list of JSON values."""

Joins = Literal["name", "table", "layout"]
"""How a field comes to its sample: another set whose files have the samples' names; a column of a
table with a row a sample; or only with the layout or manifest that lists the samples."""

STORED: tuple[Kind, ...] = ("picture", "mask", "clip")
"""Kinds that lie in files of their own, and are opened when they are needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One thing that can belong to a sample.

    Attributes:
        name: Attribute of samples and items, and column of manifests.
        plural: Keyword of ``Metric.update``, and what the field is called in a report's inputs.
        kind: What it is.
        joins: How it comes to its sample.
        option: What to pass to have it, for messages.
        noun: What messages call it.
        optional: Whether samples without it can be judged; its absence is content, too.
    """

    name: str
    plural: str
    kind: Kind
    joins: Joins
    option: str
    noun: str = ""
    optional: bool = False

    @property
    def called(self) -> str:
        """The noun, by default the name."""
        return self.noun or self.name

    @property
    def several(self) -> str:
        """The noun for more than one."""
        return self.plural if " " in self.called or not self.noun else f"{self.noun}s"

    @property
    def stored(self) -> bool:
        """Whether it lies in a file of its own."""
        return self.kind in STORED


def _table(*rows: Field) -> dict[str, Field]:
    return {row.name: row for row in rows}


FIELDS = _table(
    Field(
        name="image",
        plural="images",
        kind="picture",
        joins="layout",
        option="a set of images",
    ),
    Field(
        name="video",
        plural="videos",
        kind="clip",
        joins="layout",
        option="a manifest with a column video",
    ),
    Field(
        name="prompt",
        plural="prompts",
        kind="text",
        joins="table",
        option="--prompts FILE (jsonl or csv with id and prompt)",
    ),
    Field(
        name="reference",
        plural="references",
        kind="picture",
        joins="name",
        option="--pair-with DIR",
        noun="counterpart",
    ),
    Field(
        name="mask",
        plural="masks",
        kind="mask",
        joins="name",
        option="--masks DIR",
        optional=True,
    ),
    Field(
        name="spec",
        plural="specs",
        kind="record",
        joins="layout",
        option="a layout that carries it, such as --layout geneval",
    ),
    Field(
        name="questions",
        plural="questions",
        kind="record",
        noun="list of questions",
        joins="table",
        option="--with questions=FILE (jsonl with id and questions)",
    ),
    Field(
        name="boxes",
        plural="boxes",
        kind="record",
        noun="list of boxes",
        joins="table",
        option="--with boxes=FILE (jsonl with id and boxes)",
    ),
)
"""Every field by name, in the order in which reports name them."""

_TAKEN = frozenset(
    {"id", "ids", "path", "file", "fields", "real", "value_range", "decoded", "names", "part",
     "parts", "question", "conversions", "having", "digest", "reference_set"}
)  # fmt: skip

REFERENCE_SET = "reference_set"
"""In a metric's ``inputs``: a second set of images, which is no field of a sample."""


def register_field(row: Field) -> Field:
    """Add a field, for packages of metrics that read more than ours.

    Raises:
        UsageError: Its name or plural is another field's.
    """
    for name in (row.name, row.plural):
        if not name.isidentifier() or name in _TAKEN or row.kind not in get_args(Kind):
            raise UsageError(
                f"sample field {row.name!r} ({row.plural!r}, {row.kind!r}) cannot be: name and"
                f" plural are names of Python but not {', '.join(sorted(_TAKEN))}; kinds are"
                f" {', '.join(get_args(Kind))}"
            )
    for known in FIELDS.values():
        if known != row and {known.name, known.plural} & {row.name, row.plural}:
            raise UsageError(f"sample field {row.name!r} is taken; choose another name and plural")
    return FIELDS.setdefault(row.name, row)


def field_of(name: str) -> Field:
    """Return a row of the table.

    Raises:
        UsageError: No such field; the message suggests the closest.
    """
    if name not in FIELDS:
        raise UsageError(
            f"samples have no field {name!r}{did_you_mean(name, FIELDS)}; there is"
            f" {', '.join(FIELDS)}"
        )
    return FIELDS[name]
