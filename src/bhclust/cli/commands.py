"""The group of commands: how it ends, whatever happens."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import click

import bhclust
from bhclust._validation import BhclustError

DATA_ERROR = 1
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143


class Commands(click.Group):
    """A group whose errors are one line on standard error.

    Exit status: 1 for a mistake in the data or a file, 2 for one in the command line, 130 when
    interrupted, 141 when whoever reads the output has stopped reading, 143 when terminated.
    """

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        extra["standalone_mode"] = False
        try:
            with _ended_by_signals():
                # In this mode click hands the status of --help and --version back.
                status = super().main(args, *rest, **extra) or 0
                sys.stdout.flush()
        except BrokenPipeError:
            _stop_writing()
        except click.UsageError as error:
            command = "bhclust" if error.ctx is None else error.ctx.command_path
            _fail(f"{error.format_message()} Try '{command} --help'.", error.exit_code)
        except click.ClickException as error:
            _fail(error.format_message(), error.exit_code)
        except click.Abort:
            _fail("interrupted", INTERRUPTED)
        except (BhclustError, ImportError) as error:
            _fail(str(error), DATA_ERROR)
        except OSError as error:
            _fail(_reason(error), DATA_ERROR)
        except MemoryError:
            _fail("there is not enough memory for a table of this size.", DATA_ERROR)
        sys.exit(status)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # click itself would put an empty line before our one line.
            raise click.Abort from None
        except Exception as error:
            signalled = _beneath(error)
            if isinstance(signalled, KeyboardInterrupt):
                raise click.Abort from None
            if signalled is not None:
                raise signalled from None
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise _PipeClosed from None  # click has a way of its own with these
            raise


def _beneath(error: BaseException) -> KeyboardInterrupt | SystemExit | None:
    """Return what a signal raised, if the error was raised while that was on its way up.

    Compiled code that a signal stops may end in an error of another kind.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, KeyboardInterrupt | SystemExit):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


class _PipeClosed(click.ClickException):
    """Nobody reads what we write."""

    exit_code = PIPE_CLOSED

    def __init__(self) -> None:
        super().__init__("")


def _fail(message: str, status: int) -> NoReturn:
    if status == PIPE_CLOSED:
        _stop_writing()
    with contextlib.suppress(OSError):
        click.echo(f"bhclust: {' '.join(message.split())}", err=True)
    sys.exit(status)


def _stop_writing() -> NoReturn:
    """End in silence; the interpreter must not try to flush what nobody will read."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(PIPE_CLOSED)


def _reason(error: OSError) -> str:
    # The library's own messages are whole sentences; the system's need the name of the file.
    text = str(error.strerror or error)
    return f"{error.filename}: {text}." if error.filename else text


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let a polite kill unwind like an error, and let no signal be lost on the way up.

    Unwinding removes half-written files. Where Python cannot raise, as in what a compiler calls
    back, it drops what the signal raised and goes on; the signal is then sent once more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears of signals
        return

    def stop(number: int, frame: object) -> NoReturn:
        sys.exit(TERMINATED)

    def report(dropped: sys.UnraisableHookArgs) -> None:
        number = _signal_of(dropped.exc_value)
        if number is None:
            report_before(dropped)
        else:
            threading.Timer(0.05, signal.raise_signal, (number,)).start()

    report_before, sys.unraisablehook = sys.unraisablehook, report
    stop_before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, stop_before or signal.SIG_DFL)  # None: not Python's own
        sys.unraisablehook = report_before


def _signal_of(error: BaseException | None) -> signal.Signals | None:
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit) and error.code == TERMINATED:
        return signal.SIGTERM
    return None


@click.group(
    name="bhclust",
    cls=Commands,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(bhclust.__version__, prog_name="bhclust")
def main() -> None:
    """Bayesian hierarchical clustering: a table in, a tree with probabilities out.

    \b
    Examples:
      bhclust fit flowers.csv --out result
      bhclust predict result more-flowers.csv > labels.csv
      bhclust cut result --clusters 3
      bhclust export result --out tree.nexus
      bhclust compare flowers.csv --model gaussian --model diagonal-gaussian

    \b
    Exit status: 0 done, 1 a mistake in the data or a file, 2 a mistake in the
    command line, 130 interrupted.
    """
