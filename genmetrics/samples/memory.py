"""Sets without a folder: lists of paths, tensors, arrays, Pillow images, data sets with images."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from PIL import Image

from genmetrics.core.errors import InputError, one_line, shown
from genmetrics.core.files import is_path
from genmetrics.core.sample import Decoded, Sample
from genmetrics.samples.image import from_pillow
from genmetrics.samples.listing import quoted, unique_ids
from genmetrics.samples.media import FileMedia

TAKEN = (
    "a path, or a list of paths, a uint8 tensor (N, 3, H, W) or list of (3, H, W), a uint8 array"
    " (N, H, W, 3), a list of Pillow images, or a data set whose rows have an 'image'"
)


def described(source: Any) -> str:
    """Say in a few words what a set is: its path, or how many images of which kind."""
    if is_path(source):
        return os.fspath(source)
    kind, count = type(source).__name__, len(source) if hasattr(source, "__len__") else 0
    if isinstance(source, list | tuple) and source:
        return f"{kind} of {count} {type(source[0]).__name__}"
    return f"{kind} of {count} images"


class MemoryMedia:
    """A picture that the program holds, or makes when asked; never kept decoded.

    Args:
        name: What errors and reports call it, such as ``"generated[3]"``.
        get: Returns it: a Pillow image, a uint8 array ``(H, W, 3)`` or tensor ``(3, H, W)``.
    """

    def __init__(self, name: str, get: Callable[[], Any]) -> None:
        self.name = name
        self._get = get
        self._digest: str | None = None

    def __reduce__(self) -> NoReturn:
        raise InputError(
            f"{self.name} is held by one program, and ranks share what they list; pass a path"
        )

    def digest(self) -> str:
        """Hex sha256 of shape and pixels; of an array in a file it is the same."""
        if self._digest is None:
            self._digest = _sha256(self._decoded().pixels)
        return self._digest

    def size(self) -> tuple[int, int]:
        """Width and height."""
        height, width, _ = self._decoded().pixels.shape
        return width, height

    def load(self) -> Decoded:
        """Return it as uint8 RGB ``(H, W, 3)``.

        Raises:
            InputError: It is no picture, or not the one any more that :meth:`digest` told of, or
                what makes it raised.
        """
        found = self._decoded()
        if self._digest is not None and _sha256(found.pixels) != self._digest:
            raise InputError(
                f"{self.name} changed while the run was under way; pass a copy of what changes"
            )
        return found

    def _decoded(self) -> Decoded:
        try:
            value = self._get()
        except Exception as error:  # whatever the user's data set raises: this row cannot be used
            raise InputError(
                f"{self.name} cannot be read: {_cause(error)}; mend or remove it"
            ) from error
        if isinstance(value, Image.Image):
            return from_pillow(value, self.name)
        if _is_tensor(value):
            value = value.detach().cpu().movedim(0, -1).numpy() if value.ndim == 3 else value
        pixels = np.asarray(value) if isinstance(value, np.ndarray) else None
        if pixels is None or not _is_picture(pixels):
            raise InputError(
                f"{self.name} is {_what(value)}; pass a Pillow image, a uint8 array (H, W, 3) or a"
                " uint8 tensor (3, H, W)"
            )
        return Decoded(np.ascontiguousarray(pixels), ())


def samples_in_memory(source: Any, name: str) -> list[Sample]:
    """Make samples of what the program holds.

    Args:
        source: One of :data:`TAKEN`, but a path.
        name: Name of the set, which its pictures are called by.

    Returns:
        Samples in the order of the source; ids are file names without suffix, or numbers.

    Raises:
        InputError: Something else, or nothing in it; of a data set only the first row that can be
            read is looked at.
    """
    if isinstance(source, list | tuple) and source and all(map(is_path, source)):
        return _of_paths([os.fspath(path) for path in source], name)
    getters = _getters(source, name)
    if getters is None:
        raise InputError(f"{name} is {_what(source)}; pass {TAKEN}")
    if not getters:
        raise InputError(f"{name} holds no images ({described(source)}); pass {TAKEN}")
    return [
        Sample(id=str(i), image=MemoryMedia(f"{name}[{i}]", get)) for i, get in enumerate(getters)
    ]


def _getters(source: Any, name: str) -> Sequence[Callable[[], Any]] | None:
    """What returns each picture; None for what holds none."""
    if _is_tensor(source) or isinstance(source, np.ndarray):
        axis = 1 if _is_tensor(source) else 3
        fits = source.ndim == 4 and _is_uint8(source) and source.shape[axis] == 3
        return [_item(source, i) for i in range(len(source))] if fits else None
    if isinstance(source, list | tuple):
        wrong = [each for each in source if not _is_held(each)]
        return None if wrong else [_item(source, i) for i in range(len(source))]
    if isinstance(source, Mapping | str | bytes) or not _is_sequence(source):
        return None
    if len(source) and not _has_image(_first_row(source, name)):
        return None
    return [_row(source, i) for i in range(len(source))]


def _first_row(source: Any, name: str) -> Any:
    """Return the first row that can be read; one that cannot is found by name when it is read."""
    failed: Exception | None = None
    for i in range(min(len(source), _TRIED)):
        try:
            row = source[i]
        except Exception as error:  # as in MemoryMedia
            failed = failed or error
        else:
            if row is not None:
                return row
    if failed is None:
        return None
    raise InputError(
        f"{name} ({described(source)}) has no row among its first {_TRIED} that can be read:"
        f" {_cause(failed)}; pass {TAKEN}"
    ) from failed


_TRIED = 16


def _cause(error: Exception) -> str:
    """Say what was raised; an exception's text alone may be a bare key."""
    kind, said = type(error).__name__, one_line(error)
    return said if said == kind else f"{kind}: {said}"


def _item(source: Any, i: int) -> Callable[[], Any]:
    return lambda: source[i]


def _row(source: Any, i: int) -> Callable[[], Any]:
    def get() -> Any:
        row = source[i]
        return row["image"] if _has_image(row) else row

    return get


def _has_image(row: Any) -> bool:
    return isinstance(row, Mapping) and "image" in row


def _is_sequence(source: Any) -> bool:
    return hasattr(source, "__len__") and hasattr(source, "__getitem__")


def _is_held(value: Any) -> bool:
    if _is_tensor(value):
        return bool(value.ndim == 3 and value.shape[0] == 3 and _is_uint8(value))
    if isinstance(value, np.ndarray):
        return _is_picture(value)
    return isinstance(value, Image.Image)


def _is_picture(pixels: np.ndarray) -> bool:
    return (
        pixels.dtype == np.uint8
        and pixels.ndim == 3
        and pixels.shape[2] == 3
        and 0 not in pixels.shape
    )


def _is_tensor(value: Any) -> bool:
    # without the import: whoever passes a tensor has torch
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "movedim")


def _is_uint8(value: Any) -> bool:
    return str(value.dtype).rpartition(".")[2] == "uint8"


def _what(value: Any) -> str:
    """Describe what was passed, with what decides: type, and dtype and shape of numbers."""
    name = type(value).__name__
    kind = f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{kind} of {value.dtype} with shape {tuple(value.shape)}"
    if isinstance(value, list | tuple) and value:
        odd = [i for i, each in enumerate(value) if not (_is_held(each) or is_path(each))]
        if not odd:
            return f"{kind} of paths and pictures at once"
        return f"{kind} with {_what(value[odd[0]])} at {odd[0]}"
    return f"{kind} ({shown(value)})"


def _of_paths(paths: Sequence[str], name: str) -> list[Sample]:
    """Files as samples; the id is the path below the folder that all share, without suffix."""
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise InputError(f"{name} names {quoted(twice)} more than once; pass each file once")
    parents = {os.path.abspath(Path(path).parent) for path in paths}  # noqa: PTH100  # keeps links
    shared = os.path.commonpath(parents)
    names = [Path(os.path.relpath(path, shared)).as_posix() for path in paths]
    media = [FileMedia(path) for path in paths]
    return [
        Sample(id=id_, image=image) for id_, image in zip(unique_ids(names), media, strict=True)
    ]


def _sha256(pixels: np.ndarray) -> str:
    return hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).hexdigest()
