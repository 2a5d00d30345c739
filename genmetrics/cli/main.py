"""The ``genmetrics`` command: its sub-commands, and how it fails."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
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
from genmetrics.core.errors import GenmetricsError, RankError, UsageError, did_you_mean
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


app = typer.Typer(
    name="genmetrics",
    cls=Commands,
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
        with Ending() as ending:
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
    except RankError as error:
        return _fail(str(error), FAILED)
    except GenmetricsError as error:
        return _fail(str(error))
    except _Usage as error:
        return _fail(_explain(error, sys.argv[1:] if argv is None else argv))
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if ending.number:  # also where the exception it raised was lost
        code = 128 + ending.number
    if code == INTERRUPTED:
        tell("interrupted", quiet=not _speaks())
    return code if isinstance(code, int) else OK


def _fail(message: str, code: int = BAD_INPUT) -> int:
    tell(f"error: {' '.join(message.splitlines())}", quiet=not _speaks())
    return code


def _speaks() -> bool:
    """Tell whether this process speaks: of ranks that have met, the first does for all."""
    started = STARTER in os.environ  # by rank 0, which says the same
    return launched_world() == 1 or os.environ["RANK"] == "0" or not (started or have_met())


def _explain(error: Any, argv: Sequence[str]) -> str:
    """Put the parser's complaint into one line that names the option and the value found."""
    path = error.ctx.command_path if getattr(error, "ctx", None) else "genmetrics"
    where = f"see `{path} --help`"
    if hasattr(error, "possibilities"):
        known = [name for parameter in error.ctx.command.params for name in parameter.opts]
        hint = _closest(error.option_name, known)
        return f"{path} has no option {error.option_name}{hint}; {where}"
    given = _given(getattr(error, "param", None), argv)
    message = f"{given}: {error.message}" if given and error.message else error.format_message()
    return f"{message.rstrip('.')}; {where}"


def _given(parameter: Any, argv: Sequence[str]) -> str | None:
    """Return an option as it stands on the command line, such as ``--limit 'many'``."""
    names = () if parameter is None else parameter.opts
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        name, separator, value = word.partition("=")
        if name in names:
            return f"{name} {(value if separator else following)!r}"
    return None


def _closest(wrong: str, known: Iterable[str]) -> str:
    """Suggest an option; one that is a beginning of the other comes first (--output, --out)."""
    names = [name for name in known if name.startswith("--")]
    begins = [n for n in names if wrong.startswith(n) or (len(wrong) > 3 and n.startswith(wrong))]
    return did_you_mean(begins[0], begins) if begins else did_you_mean(wrong, names)


if __name__ == "__main__":
    sys.exit(command())
