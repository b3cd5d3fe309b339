"""What all operators have in common whose work on a record goes on beside the loop."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from millstream.operators.apart.calls import Call, Units
from millstream.operators.apart.equipment import Equipment, ReleasedTime
from millstream.operators.batch import Batch, Order, Origin
from millstream.operators.operator import Operator, Output
from millstream.record import Headers

#: About 100 bytes each, and the bytes of each as it was read.
_MOST_PENDING: Final = 100_000


class ApartOperator(Operator):
    """Takes records and gives the results later, when the loop asks for them.

    What it has taken is in flight until `release` has given it back, and an input record is not
    done before, wherever its offset lies.
    """

    equipment: Equipment

    def equip(self, equipment: Equipment) -> None:
        """Called before `init`."""
        self.equipment = equipment

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """How many records were taken and not given back."""

    @property
    @abstractmethod
    def room(self) -> int:
        """How many more may be taken."""

    @property
    def most_pending(self) -> int:
        """How many records of an input partition may be in flight, or done behind one that is."""
        return _MOST_PENDING

    @property
    @abstractmethod
    def has_landed(self) -> bool:
        """Whether `release` may have something to do."""

    @property
    def awaits_sent(self) -> bool:
        """Whether records wait for what they have sent to arrive."""
        return False

    def sent(self) -> None:
        """Everything that was sent has arrived, or was refused."""

    @abstractmethod
    def halt(self) -> None:
        """Begin nothing more: what is not running is given up."""

    @property
    @abstractmethod
    def may_land(self) -> bool:
        """Whether anything in flight may still come to its end: after `halt` only what runs."""

    @abstractmethod
    def release(self, output: Output) -> Sequence[Batch]:
        """Emit what is finished and may go on now; the records that are not in flight any more.

        Raises:
            ProcessingError: user code failed on a record, and the handler says FAIL.
        """


class UnitsOperator(ApartOperator):
    """One whose calls are all made by the same units, each of which gives records their values."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._is_halted = False
        self._units: Units

    @property
    def in_flight(self) -> int:
        """How many records were taken and not given back."""
        return self._in_flight

    def halt(self) -> None:
        """Begin no more calls."""
        self._is_halted = True
        self._units.halt()

    @property
    def may_land(self) -> bool:
        """Whether calls may still end."""
        return not self._is_halted or self._units.are_running or self.has_landed

    def close(self) -> None:
        """What is in flight is done again by the next owner."""
        self._units.close()

    def _hold(self, batch: Batch) -> None:
        """The records of a batch are in flight."""
        self.equipment.flights.hold(batch)
        self._in_flight += len(batch)

    def _let_go(self, done: list[Batch]) -> Sequence[Batch]:
        """These are not any more."""
        self._in_flight -= sum(map(len, done))
        return done


def released(calls: Sequence[Call], time: ReleasedTime) -> Batch:
    """The records of calls, with the results as their values, as if they arrived together now.

    Fewer than there are calls, where somebody is to be called by stream time in between.

    Args:
        calls: of which records, in the order in which they go on; at least one.
        time: that of what lies behind.
    """
    times = time.pass_on([call.batch.timestamps[call.index] for call in calls])
    calls = calls[: len(times)]
    first = calls[0].batch
    alike = all(call.batch is first for call in calls)
    source = first.take([call.index for call in calls]) if alike else _gathered(calls)
    source = source.with_values([call.result for call in calls])
    return _arrived(source, times, ordered=first.order is not None)


def arriving(batch: Batch, time: ReleasedTime, *, ordered: bool) -> Batch:
    """The records of a batch as if they arrived together now, or the first of them, where somebody
    is to be called by stream time in between.

    Args:
        batch: at least one record.
        time: that of what lies behind.
        ordered: whether they need places in depth-first order.
    """
    times = time.pass_on(batch.timestamps)
    if len(times) < len(batch):
        batch = batch.take(range(len(times)))
    return _arrived(batch, times, ordered=ordered)


def failure_of(call: Call) -> Exception | None:
    """What a call has raised that handlers are asked about; None if it has a result.

    Raises:
        BaseException: what it has raised is none of that, but ends the process, such as SystemExit.
    """
    error = call.error
    if error is None or isinstance(error, Exception):
        return error
    raise error


def _arrived(source: Batch, times: list[int], *, ordered: bool) -> Batch:
    """Records with an origin of their own, at these stream times."""
    places, offsets = source.read_at()
    origin = Origin(
        [place for place, _ in zip(places, times, strict=False)],
        list(offsets),
        source.all_headers(),
        lambda: times,
    )
    order: list[Order] | None = None
    if ordered:
        order = [(index,) for index in range(len(times))]
    return Batch(source.keys, source.values, source.timestamps, range(len(times)), origin, order)


def _gathered(calls: Sequence[Call]) -> Batch:
    """Records of several batches, in the order of the calls."""
    pairs = [(call.batch, call.index) for call in calls]
    headers: list[Headers] = [batch.headers_of(index) for batch, index in pairs]
    metadata = [(batch.origin, batch.rows[index]) for batch, index in pairs]
    origin = Origin(
        [origin.place(row) for origin, row in metadata],
        [origin.offsets[row] for origin, row in metadata],
        headers if any(headers) else None,
    )
    return Batch(
        [batch.keys[index] for batch, index in pairs],
        [batch.values[index] for batch, index in pairs],
        [batch.timestamps[index] for batch, index in pairs],
        range(len(pairs)),
        origin,
    )
