"""Tables with a column of images: Parquet and Arrow files, as the ``datasets`` library writes them.

They are read by pyarrow alone. The library notes in the metadata of the schema which columns are
images, whose values are the encoded file (``bytes``) and its former name (``path``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from genmetrics.core.errors import InputError, MissingExtraError, UsageError
from genmetrics.core.sample import Media, Sample
from genmetrics.samples.arrow import ArrowTable, arrow_errors
from genmetrics.samples.image import open_file
from genmetrics.samples.listing import quoted, unique_ids
from genmetrics.samples.parquet import ParquetTable
from genmetrics.samples.tables import PROMPTS, Row, require_once

IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp", "picture")
IDS = ("id", "key", "__key__")
FILE_NAMES = ("file_name", "filename", "file")
"""Names of columns, in order of preference; an id from a file name loses its suffix."""


class Columns(NamedTuple):
    """The columns of a table that make its samples; None where there is none."""

    image: str
    prompt: str | None
    id: str | None
    spec: str | None

    @property
    def texts(self) -> list[str]:
        """Columns besides the image."""
        return [name for name in self[1:] if name is not None]


class Table(Protocol):
    """One file: its schema at once, the rest on demand."""

    @property
    def schema(self) -> Any:
        """Arrow schema."""

    def texts(self, names: Sequence[str]) -> Mapping[str, list[Any]]:
        """Read whole columns of texts."""

    def media(self, column: str) -> list[Media]:
        """Return a handle for the image of each row; no image is read."""


def read_columns(files: Sequence[str], chosen: Mapping[str, str] | None = None) -> list[Sample]:
    """List the samples of Parquet or Arrow files; only ids, prompts and specs are read.

    The image column is the one of type ``Image``, else the one of binary values (of several, the
    first of ``image``, ``img``, ``jpg`` and so on). The id is the column ``id``, ``key``,
    ``__key__``, ``file_name``, ``filename`` or ``file``, else the number of the row over all files,
    with zeros in front; the prompt is ``prompt``, ``caption`` or ``text``, the spec a JSON object
    in ``spec``.

    Args:
        files: Paths in order; all must have the columns of the first.
        chosen: ``image``, ``prompt`` and ``id`` may name other columns; an empty ``id`` numbers the
            rows.

    Raises:
        InputError: A damaged file, no rows, a column that is missing, of another type or there
            twice, an id that is missing or comes twice.
        UsageError: It is not clear which column is the image.
        MissingExtraError: pyarrow is not installed.
    """
    columns: Columns | None = None
    media: list[Media] = []
    rows: list[Row] = []
    for file in files:
        with arrow_errors(file):
            table = open_table(file)
            require_once(table.schema.names, file)
            columns = columns or choose(table.schema, chosen or {}, file)
            _require(columns, table.schema, file)
            found = table.media(columns.image)
            texts = table.texts(columns.texts)
        media += found
        rows += [
            Row(f"{file} row {i}", {name: texts[name][i] for name in texts})
            for i in range(len(found))
        ]
    if not media or columns is None:
        raise InputError(f"{files[0]} holds no rows ({len(files)} files seen); check the path")
    return [
        Sample(
            id=id_,
            image=image,
            prompt=row.text(columns.prompt) if columns.prompt else None,
            spec=row.record(columns.spec) if columns.spec else None,
        )
        for id_, image, row in zip(_ids(rows, columns.id, files[0]), media, rows, strict=True)
    ]


def open_table(file: str) -> Table:
    """Open a Parquet or Arrow file by its suffix."""
    open_file(file).close()  # missing, a folder, a pipe: the plain message
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"reading {file}", "pyarrow", "datasets") from error
    if file.lower().endswith(".parquet"):
        return ParquetTable(file)
    return ArrowTable(file)


def choose(schema: Any, chosen: Mapping[str, str], file: str) -> Columns:
    """Decide by the schema of the first file which columns count."""
    spec = "spec" if "spec" in schema.names and _is_text(schema.field("spec").type) else None
    for what, name in chosen.items():
        if name and name not in schema.names:
            raise UsageError(f"{file} has no column {name!r} for {what}; {_described(schema)}")
    prompts = (n for n in PROMPTS if n in schema.names and _is_text(schema.field(n).type))
    ids = (name for name in (*IDS, *FILE_NAMES) if name in schema.names)
    return Columns(
        image=chosen.get("image") or _image_column(schema, file),
        prompt=chosen.get("prompt") or next(prompts, None),
        id=(chosen["id"] or None) if "id" in chosen else next(ids, None),
        spec=spec,
    )


def _image_column(schema: Any, file: str) -> str:
    declared = [name for name in _declared_images(schema) if name in schema.names]
    fitting = declared or [field.name for field in schema if holds_bytes(field.type)]
    if len(fitting) == 1:
        return fitting[0]
    named = [name for name in IMAGES if name in fitting]
    if not named:
        what = f"{len(fitting)} columns of images" if fitting else "no column of images"
        raise UsageError(
            f"{file} has {what}; {_described(schema)}: choose one with '{file}:image=COLUMN'"
        )
    return named[0]


def _declared_images(schema: Any) -> list[str]:
    """Return the columns that the ``datasets`` library says are images."""
    try:
        noted = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = noted.get("info", {}).get("features", {})
        return [
            name
            for name, kind in features.items()
            if isinstance(kind, dict) and kind.get("_type") == "Image"
        ]
    except (ValueError, AttributeError, RecursionError):
        return []  # of other origin or damaged: the types decide


def holds_bytes(kind: Any) -> bool:
    """Tell whether values are encoded images: binary, or a structure with binary ``bytes``."""
    import pyarrow.types as types

    if types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and holds_bytes(kind.field(index).type)
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _require(columns: Columns, schema: Any, file: str) -> None:
    """Refuse a file without the columns, or in which they have other types."""
    import pyarrow.types as types

    for name in (columns.image, *columns.texts):
        if name not in schema.names:
            raise InputError(f"{file} has no column {name!r}; {_described(schema)}")
    kind = schema.field(columns.image).type
    if not holds_bytes(kind):
        raise InputError(
            f"{file}: column {columns.image!r} holds {kind}; expected encoded images (binary)"
        )
    for name in columns.texts:
        kind = schema.field(name).type
        if not _is_text(kind) and not (name == columns.id and types.is_integer(kind)):
            fix = f"choose one with '{file}:id=COLUMN', or ':id=' for row numbers"
            raise InputError(
                f"{file}: column {name!r} holds {kind}; expected text"
                + (f" or whole numbers; {fix}" if name == columns.id else "")
            )


def _described(schema: Any) -> str:
    return f"its columns are {quoted([f'{field.name}: {field.type}' for field in schema])}"


def _ids(rows: Sequence[Row], column: str | None, file: str) -> list[str]:
    if column is None:
        width = len(str(len(rows) - 1))
        return [f"{number:0{width}d}" for number in range(len(rows))]
    first: dict[str, str] = {}
    fix = f"choose another with '{file}:id=COLUMN', or ':id=' for row numbers"
    for row in rows:
        id_ = row.text(column)
        if not id_:
            raise InputError(f"{row.where} has no {column!r}; {fix}")
        if id_ in first:
            raise InputError(
                f"{row.where} gives {column!r} {id_!r} again (first: {first[id_]}); {fix}"
            )
        first[id_] = row.where
    return unique_ids(list(first)) if column in FILE_NAMES else list(first)
