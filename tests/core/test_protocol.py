from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from genmetrics.core.protocol import LOCAL, Protocol, differences


@dataclass(frozen=True, kw_only=True)
class Inner(Protocol):
    resize: str = "clean"
    size: tuple[int, int] = (299, 299)


@dataclass(frozen=True, kw_only=True)
class Outer(Protocol):
    metric: str = "fid@clean"
    extractor: Inner = Inner()
    path: str | None = field(default=None, metadata=LOCAL)


def test_the_fingerprint_is_the_hash_of_the_canonical_json():
    text = '{"extractor":{"resize":"clean","size":[299,299]},"metric":"fid@clean"}'
    assert Outer().fingerprint == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_a_local_path_moves_no_fingerprint():
    assert Outer(path="/somewhere").fingerprint == Outer().fingerprint


def test_every_other_field_does():
    assert Outer(extractor=Inner(resize="tf1")).fingerprint != Outer().fingerprint


def test_differences_name_nested_fields_and_both_values():
    mine, other = Outer().to_dict(), Outer(extractor=Inner(resize="tf1")).to_dict()
    assert differences(mine, other) == ["extractor.resize: 'clean' against 'tf1'"]
    assert differences(mine, mine) == []


def test_a_field_only_one_side_has_is_a_difference():
    assert differences({"a": 1}, {"a": 1, "b": None}) == ["b: None against None"]
