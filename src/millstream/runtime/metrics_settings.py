"""How metrics are recorded, by the settings."""

from __future__ import annotations

from millstream.config import StreamsConfig
from millstream.metrics.registry import Recording, RecordingLevel
from millstream.metrics.sensors import Windows


def recording_of(config: StreamsConfig) -> Recording:
    """`metrics.recording.level`, `metrics.num.samples` and `metrics.sample.window.ms`."""
    return Recording(
        RecordingLevel[config.metrics_recording_level],
        Windows(config.metrics_num_samples, config.metrics_sample_window_ms),
    )
