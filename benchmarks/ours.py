"""Runs a workload on Millstream, with one stream thread."""

from __future__ import annotations

from pathlib import Path

import marks
import query_load
import workload
from arguments import parse
from progress import Progress

from millstream import KafkaStreams, StreamsConfig, TopicPartition
from millstream.runtime.states.thread_states import ClientState


class RestoreMarks:
    """Marks the start and end of the restoration of each partition."""

    def __init__(self, file: str) -> None:
        self.file = file

    def on_restore_start(self, place: TopicPartition, store: str, start: int, end: int) -> None:
        marks.put(self.file, f"restoring {place.partition}")

    def on_batch_restored(self, place: TopicPartition, store: str, end: int, count: int) -> None:
        """Do nothing: batches are not timed."""

    def on_restore_end(self, place: TopicPartition, store: str, total: int) -> None:
        marks.put(self.file, f"restored {place.partition} {total}")


def main() -> None:
    arguments = parse(__doc__)
    job = workload.find(arguments.job)
    topology = job.topology(arguments, Progress(arguments, job.steps(arguments.records)))
    settings = dict(arguments.settings)
    rate, query_file = settings.pop(query_load.RATE, None), settings.pop(query_load.FILE, "")
    over_http = settings.pop(query_load.OVER_HTTP, "") == "true"
    silent = settings.pop(query_load.SILENT, "") == "true"
    streams = KafkaStreams(topology, StreamsConfig.from_properties(settings))
    load = None
    if rate is not None:
        load = query_load.QueryLoad(
            streams,
            "counts",
            float(rate),
            Path(arguments.marks),
            Path(query_file),
            over_http=over_http,
            silent=silent,
        )

    def on_state(new: ClientState, _: ClientState) -> None:
        if new is ClientState.RUNNING:
            marks.put(arguments.marks, "running")

    streams.set_state_listener(on_state)
    streams.set_global_state_restore_listener(RestoreMarks(arguments.marks))
    if load is not None:
        load.start()
    marks.put(arguments.marks, "starting")
    streams.run()
    if load is not None:
        load.close()


if __name__ == "__main__":
    main()
