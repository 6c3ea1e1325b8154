"""How far a long computation has come, for whoever wants to show it.

A computation says what it is doing (`begin`) and how far it is (`follow`, `callback`); it neither
knows nor cares whether somebody looks. Who wants to look runs it inside `metered` and reads the
`Meter` from another thread. Without a meter every call here returns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Share = Callable[[], float]
Callback = Callable[[int, int], None]


class Meter:
    """Work that is done, being done and expected, in any unit that is proportional to time.

    Attributes
    ----------
    label : str
        What is being done; until a step begins, whatever the meter was made for.

    Examples
    --------
    >>> meter = Meter()
    >>> meter.begin("reading", work=1, after=3)
    >>> meter.fraction
    0.0
    >>> meter.begin("fitting", work=3)
    >>> meter.follow(lambda: 0.5)
    >>> meter.fraction
    0.625
    """

    def __init__(self, label: str = "") -> None:
        self.label = label
        self._begun = False
        self._done = self._after = self._reserved = 0.0
        self._work = 1.0  # until a first step begins there is one thing to do
        self._share: Share = _nothing

    def begin(self, label: str, work: float = 1.0, after: float = 0.0) -> None:
        """Start the next step, the last one being done; ``after`` is work expected behind it."""
        self._done += self._work if self._begun else 0.0
        self._begun = True
        self.label, self._work, self._after = label, float(work), float(after)
        self._share = _nothing

    def reserve(self, work: float) -> None:
        """Expect so much work at the end, whatever the steps until then say."""
        self._reserved = float(work)

    def follow(self, share: Share) -> None:
        """Ask this function for the share of the step that is done."""
        self._share = share

    def advance(self, done: int, total: int) -> None:
        """Set the share of the step that is done."""
        share = done / max(total, 1)
        self._share = lambda: share

    @property
    def fraction(self) -> float:
        """The share of all work that is done, as far as it can be told."""
        total = self._done + self._work + self._after + self._reserved
        share = min(max(self._share(), 0.0), 1.0)
        return (self._done + share * self._work) / total if total else 0.0


def _nothing() -> float:
    return 0.0


_current: ContextVar[Meter | None] = ContextVar("bhclust_meter", default=None)


@contextmanager
def metered(meter: Meter) -> Iterator[Meter]:
    """Let everything that is computed inside report to a meter."""
    token = _current.set(meter)
    try:
        yield meter
    finally:
        _current.reset(token)


def begin(label: str, work: float = 1.0, after: float = 0.0) -> None:
    """Say that the next step begins; see `Meter.begin`."""
    if (meter := _current.get()) is not None:
        meter.begin(label, work, after)


def reserve(work: float) -> None:
    """Say how much work is to come at the end; see `Meter.reserve`."""
    if (meter := _current.get()) is not None:
        meter.reserve(work)


def follow(share: Share) -> None:
    """Say how to find out how far the step is; see `Meter.follow`."""
    if (meter := _current.get()) is not None:
        meter.follow(share)


def callback() -> Callback | None:
    """Return a function of (done, total) that reports, or None where nobody looks."""
    meter = _current.get()
    return None if meter is None else meter.advance


@contextmanager
def part(place: int, total: int, label: str | None = None) -> Iterator[None]:
    """Report what is computed inside as one of several parts of equal work.

    Without a label it goes by that of the whole.

    Examples
    --------
    >>> with metered(Meter()) as meter:
    ...     meter.begin("all")
    ...     with part(1, 4, "second"):
    ...         begin("inner")
    ...         follow(lambda: 0.5)
    ...         meter.fraction, meter.label
    (0.375, 'second')
    """
    outer = _current.get()
    if outer is None:
        yield
        return
    inner = Meter()
    outer.label = outer.label if label is None else label
    outer.follow(lambda: (place + inner.fraction) / total)
    with metered(inner):
        yield
    outer.follow(lambda: (place + 1) / total)
