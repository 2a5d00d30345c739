"""What a run tells about how far it is. Rendering is the caller's."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of a run."""

    def begin(self, what: str, total: int, reused: int) -> None:
        """A stage of ``total`` samples starts; ``reused`` more need no work."""

    def advance(self, count: int) -> None:
        """``count`` samples are done."""

    def end(self) -> None:
        """The stage is over."""


class Silent:
    """Tells nobody."""

    def begin(self, what: str, total: int, reused: int) -> None:
        """Do nothing."""

    def advance(self, count: int) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""
