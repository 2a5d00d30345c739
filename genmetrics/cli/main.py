"""The ``genmetrics`` command: its sub-commands, and how it fails."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from genmetrics.cli import cache, stats, weights
from genmetrics.cli.env import env
from genmetrics.cli.eval import evaluate
from genmetrics.cli.list import list_metrics
from genmetrics.cli.output import ARGUMENTS, prepare_streams, release_stderr, tell
from genmetrics.cli.show import show
from genmetrics.cli.signals import Ending
from genmetrics.cli.usage import bare_flags, explain
from genmetrics.core.errors import (
    GenmetricsError,
    ModelError,
    PluginWarning,
    RankError,
    UsageError,
    did_you_mean,
)
from genmetrics.core.memory import keep_freed_memory
from genmetrics.run.meeting import STARTER, have_met, launched_world

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

# What typer raises for bad usage: click's class in older releases, its own copy in newer ones.
_Usage: type[Exception] = typer.BadParameter.__mro__[2]


class Commands(TyperGroup):
    """A group that shows its help when called bare and suggests the closest command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the group's own options; none at all asks for help."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the sub-command.

        Raises:
            UsageError: There is none of that name.
        """
        if self.get_command(ctx, args[0]) is None:
            raise UsageError(
                f"{ctx.command_path} has no command {args[0]!r}"
                f"{did_you_mean(args[0], self.commands)}; see `{ctx.command_path} --help`"
            )
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find a sub-command by its name; its help shows no type behind a flag."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            bare_flags(found.get_params(ctx))
        return found

    def get_params(self, ctx: Any) -> Any:
        """Return the group's own parameters; its help shows no type behind a flag."""
        return bare_flags(super().get_params(ctx))


app = typer.Typer(
    name="genmetrics",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    help="How good is this image or video generator? One pass, intervals, fingerprints.",
    epilog="Exit codes: 0 all fine; 1 a metric failed or samples were skipped; 2 bad input.",
)
app.command("eval")(evaluate)
app.command("list")(list_metrics)
app.command("show")(show)
app.add_typer(stats.app, name="stats", cls=Commands)
app.add_typer(weights.app, name="weights", cls=Commands)
app.add_typer(cache.app, name="cache", cls=Commands)
app.command("env")(env)


def _version(wanted: bool) -> None:
    if wanted:
        from genmetrics import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def command() -> int:
    """Run the command line in a process that ends with it."""
    keep_freed_memory()
    return leave(main())


def leave(code: int) -> int:
    """Return the exit code; one of several ranks whose run failed ends here and now.

    Where a rank died inside an exchange, torch's threads aborted one survivor in some hundred while
    Python shut down, after it had said why.
    """
    if code != OK and have_met():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # full, closed, or none
                stream.flush()
        os._exit(code)
    # The last garbage collection would go through all that torch has loaded, 0.3 s, for memory that
    # is given back anyway.
    gc.freeze()
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: Arguments; those of the process by default.
    """
    prepare_streams()
    ARGUMENTS[:] = sys.argv[1:] if argv is None else argv
    try:
        with Ending() as ending, _warnings_as_lines():
            return _run(argv, ending)
    finally:
        release_stderr()


def _run(argv: Sequence[str] | None, ending: Ending) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(
            args=None if argv is None else list(argv),
            prog_name="genmetrics",
            standalone_mode=False,
        )
    except (ModelError, RankError) as error:
        return _fail(str(error), FAILED)
    except GenmetricsError as error:
        return _fail(str(error))
    except _Usage as error:
        return _fail(explain(error, sys.argv[1:] if argv is None else argv))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if ending.number:  # also where the exception it raised was lost
        code = 128 + ending.number
    if code == INTERRUPTED:
        tell("interrupted", quiet=not _speaks())
    return code if isinstance(code, int) else OK


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show a warning of ours as a line for a human, without the place in the code that gave it."""
    before = warnings.showwarning

    def show_warning(
        message: Warning | str, category: type[Warning], *place: Any, **rest: Any
    ) -> None:
        if issubclass(category, PluginWarning):
            tell(f"warning: {message}", quiet=not _speaks())
        else:
            before(message, category, *place, **rest)

    warnings.showwarning = show_warning
    try:
        yield
    finally:
        warnings.showwarning = before


def _fail(message: str, code: int = BAD_INPUT) -> int:
    tell(f"error: {' '.join(message.splitlines())}", quiet=not _speaks())
    return code


def _speaks() -> bool:
    """Tell whether this process speaks: of ranks that have met, the first does for all."""
    started = STARTER in os.environ  # by rank 0, which says the same
    return launched_world() == 1 or os.environ["RANK"] == "0" or not (started or have_met())


if __name__ == "__main__":
    sys.exit(command())
