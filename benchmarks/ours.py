"""A workload on Millstream, one stream thread."""

from __future__ import annotations

from pathlib import Path

import asking
import marks
import workload
from arguments import parse
from progress import Progress

from millstream import KafkaStreams, StreamsConfig, TopicPartition
from millstream.runtime.states import ClientState


class Restored:
    """Marks when each partition of a changelog begins and ends to be restored."""

    def __init__(self, file: str) -> None:
        self.file = file

    def on_restore_start(self, place: TopicPartition, store: str, start: int, end: int) -> None:
        marks.put(self.file, f"restoring {place.partition}")

    def on_batch_restored(self, place: TopicPartition, store: str, end: int, count: int) -> None:
        """Batches are not timed."""

    def on_restore_end(self, place: TopicPartition, store: str, total: int) -> None:
        marks.put(self.file, f"restored {place.partition} {total}")


def main() -> None:
    arguments = parse(__doc__)
    job = workload.find(arguments.job)
    topology = job.topology(arguments, Progress(arguments, job.steps(arguments.records)))
    settings = dict(arguments.settings)
    rate, asked = settings.pop(asking.RATE, None), settings.pop(asking.FILE, "")
    over_http = settings.pop(asking.OVER_HTTP, "") == "true"
    silent = settings.pop(asking.SILENT, "") == "true"
    streams = KafkaStreams(topology, StreamsConfig.from_properties(settings))
    asks = None
    if rate is not None:
        asks = asking.Asking(
            streams,
            "counts",
            float(rate),
            Path(arguments.marks),
            Path(asked),
            over_http=over_http,
            silent=silent,
        )

    def on_state(new: ClientState, _: ClientState) -> None:
        if new is ClientState.RUNNING:
            marks.put(arguments.marks, "running")

    streams.set_state_listener(on_state)
    streams.set_global_state_restore_listener(Restored(arguments.marks))
    if asks is not None:
        asks.start()
    marks.put(arguments.marks, "starting")
    streams.run()
    if asks is not None:
        asks.close()


if __name__ == "__main__":
    main()
