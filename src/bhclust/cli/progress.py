"""A progress bar with an estimate of the time left, on anything that takes long."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from bhclust._progress import Meter, metered
from bhclust.cli.output import can_show, terminal_width

# Nothing is shown before so many seconds, and then so often.
PATIENCE = 2.0
_INTERVAL = 0.2
_WIDTH = 24
# Below this share the time left is anybody's guess.
_LEAST_SHARE = 0.02
_ALL_BUT_DONE = 0.995


@contextlib.contextmanager
def progress(label: str, *, quiet: bool = False, stream: TextIO | None = None) -> Iterator[Meter]:
    """Show how far the computation inside is, once it has taken two seconds.

    Silent with ``quiet``, and where the stream (standard error) is no terminal.
    """
    stream = sys.stderr if stream is None else stream
    meter = Meter(label)
    if quiet or not stream.isatty():
        with metered(meter):
            yield meter
        return
    bar = _Bar(meter, stream)
    thread = threading.Thread(target=bar.run, name="bhclust progress", daemon=True)
    thread.start()
    try:
        with metered(meter):
            yield meter
    finally:
        bar.done.set()
        thread.join()
        bar.clear()


class _Bar:
    """Draws a meter now and then, from a thread of its own: compiled code holds up only the main
    one.
    """

    def __init__(self, meter: Meter, stream: TextIO) -> None:
        self.meter, self.stream = meter, stream
        self.done = threading.Event()
        self._began = time.monotonic()
        self._drawn = 0  # characters on the line
        unicode = can_show("█░", stream)
        self._full, self._empty = ("█", "░") if unicode else ("#", ".")

    def run(self) -> None:
        wait = PATIENCE
        while not self.done.wait(wait):
            self._draw()
            wait = _INTERVAL

    def line(self, elapsed: float) -> str:
        """Return what the line shows after so many seconds."""
        share = self.meter.fraction
        filled = int(share * _WIDTH)
        bar = self._full * filled + self._empty * (_WIDTH - filled)
        left = "estimating the time left"
        if share >= _ALL_BUT_DONE:
            left = "nearly done"
        elif share >= _LEAST_SHARE:
            left = f"about {duration(elapsed * (1 - share) / share)} left"
        return f"{bar} {100 * share:3.0f} %  {left}  ({self.meter.label})"

    def _draw(self) -> None:
        text = self.line(time.monotonic() - self._began)[: terminal_width() - 1]
        self._write("\r" + text.ljust(self._drawn))
        self._drawn = len(text)

    def clear(self) -> None:
        """Leave the line as it was."""
        if self._drawn:
            self._write("\r" + " " * self._drawn + "\r")

    def _write(self, text: str) -> None:
        encoding = getattr(self.stream, "encoding", None) or "ascii"
        with contextlib.suppress(OSError, ValueError):  # a terminal that has gone away
            self.stream.write(text.encode(encoding, "replace").decode(encoding))
            self.stream.flush()


def duration(seconds: float) -> str:
    """Return a time in words: 45 s, 3 min 20 s, 2 h 5 min.

    Examples
    --------
    >>> duration(45.2), duration(200), duration(7500)
    ('45 s', '3 min 20 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
