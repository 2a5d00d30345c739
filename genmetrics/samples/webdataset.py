"""WebDataset shards: tars in which files of one key, such as 000.jpg and 000.txt, are one sample.

The key is a name up to the first dot behind its last slash, the rest is the name of a field, as in
the ``webdataset`` package.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from genmetrics.core.errors import InputError, UsageError
from genmetrics.core.sample import Sample
from genmetrics.samples.archives import TARS, TarMembers, scan_tar, without_shared_folders
from genmetrics.samples.kinds import SUFFIXES, is_image, kind_of
from genmetrics.samples.listing import ListedSamples, begins_as_picture, no_images, quoted
from genmetrics.samples.media import SpanMedia
from genmetrics.samples.tables import PROMPTS, pairs_once

_KEY = re.compile(r"(?s)((?:.*/)?[^./][^./]*)\.([^/]*)")
_META = re.compile(r"__[^/]*__($|/)")  # bookkeeping of the webdataset package
_LONGEST = 8 << 20  # bytes of a prompt or JSON member


class _Found(NamedTuple):
    """A sample of one shard."""

    shard: str
    name: str
    """The key, and the suffix of its image."""
    image: SpanMedia
    fields: Mapping[str, SpanMedia]


class _Shard(NamedTuple):
    """What a shard holds: samples, keys without an image, kinds of files that belong to none."""

    found: list[_Found]
    bare: list[str]
    ignored: list[str]


def read_webdataset(
    shards: Sequence[str],
    chosen: Mapping[str, str] | None = None,
    *,
    allow_missing: bool = False,
    scan: Callable[[Path], TarMembers] = scan_tar,
) -> ListedSamples:
    """List the samples of shards from the headers of their tars; of contents, only texts are read.

    The image is the member whose field is an image suffix (``jpg``, ``png``); other images of a key
    (``000.mask.png``) are further fields. The prompt is ``txt``, else ``prompt``, ``caption`` or
    ``text`` of ``json``, whose object ``spec`` is the spec. Other members are never read.

    Args:
        shards: Paths of tars, also compressed.
        chosen: ``image`` and ``prompt`` may name other fields, such as ``edited.png``.
        allow_missing: Leave out keys that have texts but no image.
        scan: What lists a tar; for a caller that has done so already.

    Returns:
        Samples in the order of the shards. The id is the key without the folders that all keys
        share, behind the name of its shard where two shards have it. Also keys that have no image,
        and files that are no pictures and belong to none, and members that come twice.

    Raises:
        InputError: A damaged shard, a key with several images or none, a text that cannot be read.
    """
    chosen = chosen or {}
    if "id" in chosen:
        raise UsageError(f"{shards[0]}: the id of a sample in a tar is its key; drop id=")
    found: list[_Found] = []
    ignored: Counter[str] = Counter()
    missing: list[str] = []
    twice: list[str] = []
    seen = 0
    for shard in shards:
        members = scan(Path(shard))
        seen += members.seen
        twice += [f"{shard}!{name}" for name in members.twice]
        inside = _read_shard(shard, members, chosen)
        if inside.bare and not allow_missing:
            what = f"{chosen['image']!r}" if chosen.get("image") else "image"
            raise InputError(
                f"{shard}: {len(inside.bare)} keys have no {what}: {quoted(inside.bare)}; add"
                " them, or pass --allow-missing"
            )
        found += inside.found
        ignored.update(inside.ignored)
        missing += inside.bare
    if not found:
        raise no_images(Path(shards[0]), seen, f"; {len(shards)} shards")
    samples = [
        Sample(id=id_, image=one.image, prompt=prompt, spec=spec)
        for one, id_ in zip(found, _ids(found), strict=True)
        for prompt, spec in [_texts(one, chosen.get("prompt"))]
    ]
    return ListedSamples(samples, ignored, missing, twice)


def is_webdataset(members: TarMembers) -> bool:
    """Tell whether some image of a tar shares its key with a file that is no image."""
    keys = {parts[0] for name in members.images if (parts := _split(name))}
    return any((parts := _split(name)) and parts[0] in keys for name in members.others)


def _split(name: str) -> tuple[str, str] | None:
    """Cut a name into key and field (in lower case); None for one that has no field."""
    match = _KEY.fullmatch(name.removeprefix("./"))
    return (match[1], match[2].lower()) if match and not _META.match(match[0]) else None


def _read_shard(shard: str, members: TarMembers, chosen: Mapping[str, str]) -> _Shard:
    inside = _Shard([], [], [])
    for key, fields in _fields_by_key(shard, members).items():
        image = _image_field(shard, key, fields, chosen.get("image"))
        if image is not None:
            name = f"{key}.{image.rsplit('.', 1)[-1]}"
            inside.found.append(_Found(shard, name, fields[image], fields))
        elif chosen.get("image") or {"txt", "json"} & fields.keys():
            inside.bare.append(key)
        else:
            inside.ignored.extend(kind_of(media.member) for media in fields.values())
    return inside


def _fields_by_key(shard: str, members: TarMembers) -> dict[str, dict[str, SpanMedia]]:
    """Group members by key; one without any dot is the field ``""`` of its name."""
    groups: dict[str, dict[str, SpanMedia]] = {}
    for name, media in {**members.images, **members.others}.items():
        if _META.match(name.removeprefix("./")):
            continue
        key, field = _split(name) or (name.removeprefix("./"), "")
        twin = groups.setdefault(key, {}).setdefault(field, media)
        if twin is not media:
            raise InputError(f"{shard}: {twin.member!r} and {name!r} are one field; rename one")
    return groups


def _image_field(
    shard: str, key: str, fields: Mapping[str, SpanMedia], asked: str | None
) -> str | None:
    if asked:
        return asked.lower() if asked.lower() in fields else None
    # formats that are not read count where nothing else does: they fail by their name
    images = [field for field in fields if f".{field}".endswith(SUFFIXES)] or [
        field for field, media in fields.items() if _is_picture(field, media)
    ]
    plain = [field for field in images if "." not in field]
    best = plain or images
    if len(best) > 1:
        raise InputError(
            f"{shard}: key {key!r} has {len(best)} images ({', '.join(best)}); a key ends at the"
            f" first dot: choose one with '{shard}:image={best[0]}', or rename the members"
        )
    return best[0] if best else None


def _is_picture(field: str, media: SpanMedia) -> bool:
    return is_image(f".{field}") or begins_as_picture(media.member, media)


def _ids(found: Sequence[_Found]) -> list[str]:
    """Return the keys; with the names of shards where two shards have one."""
    keys = [name.rpartition(".")[0] for name in without_shared_folders(one.name for one in found)]
    counts = Counter(keys)
    if len(counts) == len(keys):
        return keys
    shards = {one.shard: Path(one.shard).name for one in found}
    if len(set(shards.values())) < len(shards):  # as in run-1/0.tar and run-2/0.tar
        shards = {one.shard: Path(one.shard).as_posix() for one in found}
    ids = [
        f"{_stem(shards[one.shard])}/{key}" if counts[key] > 1 else key
        for key, one in zip(keys, found, strict=True)
    ]
    twice = [id_ for id_, count in Counter(ids).items() if count > 1]
    if twice:
        raise InputError(f"{found[0].shard}: the ids {quoted(twice)} come twice; rename the shards")
    return ids


def _stem(shard: str) -> str:
    suffix = next(
        suffix for suffix in sorted(TARS, key=len)[::-1] if shard.lower().endswith(suffix)
    )
    return shard[: -len(suffix)]


def _texts(one: _Found, asked: str | None) -> tuple[str | None, Mapping[str, Any] | None]:
    """Read the prompt and the spec of a sample."""
    plain = asked.lower() if asked else "txt"
    prompt = _text(one.fields[plain]) if plain in one.fields else None
    if "json" not in one.fields:
        return prompt, None
    media = one.fields["json"]
    try:
        row = json.loads(_text(media), object_pairs_hook=pairs_once(media.name))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{media.name} is not JSON: {error}; write it again") from error
    if not isinstance(row, dict):
        return prompt, None
    if prompt is None:
        texts = (row.get(name) for name in ([asked] if asked else PROMPTS))
        prompt = next((text for text in texts if isinstance(text, str)), None)
    spec = row.get("spec")
    return prompt, spec if isinstance(spec, dict) else None


def _text(media: SpanMedia) -> str:
    if media.length > _LONGEST:
        raise InputError(f"{media.name} has {media.length} bytes; a text has at most {_LONGEST}")
    try:
        return media.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{media.name} is not UTF-8 at byte {error.start}; save it as UTF-8"
        ) from error
