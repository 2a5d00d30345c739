"""Names that passed through another system: letters in another Unicode form are the same letters.

``é`` is one code point (NFC) or two (NFD, as macOS writes file names). Both look alike, so names
meet under NFC, but only where no other name could be meant.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping


def nfc(name: str) -> str:
    """Return a name with composed letters."""
    return unicodedata.normalize("NFC", name)


def partners(names: Collection[str], others: Collection[str]) -> dict[str, str]:
    """Map each name to its equal among the others.

    Names without an equal meet under NFC, where exactly one on either side has that form.
    """
    known = set(others)
    found = {name: name for name in names if name in known}
    if len(found) == len(names) or all(map(str.isascii, [*names, *others])):
        return found
    counts = Counter(map(nfc, names))
    composed = unambiguous((nfc(other), other) for other in others)
    for name in names:
        if name not in found and counts[nfc(name)] == 1 and nfc(name) in composed:
            found[name] = composed[nfc(name)]
    return found


def unambiguous(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return key to value, without keys of several values."""
    listed = list(pairs)
    values = Counter(key for key, _ in set(listed))
    return {key: value for key, value in listed if values[key] == 1}


def forms_differ(left: Iterable[str], right: Iterable[str]) -> str:
    """Say, for an error, that some names differ from others in their Unicode form only."""
    forms = {nfc(name): name for name in right if not name.isascii()}
    for name in left:
        twin = forms.get(nfc(name))
        if twin is not None and twin != name:
            return (
                f"{name!r} and {twin!r} ({name!a}, {twin!a}) differ only in Unicode form,"
                " and other names have that form too, so rename one; "
            )
    return ""
