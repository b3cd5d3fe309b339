package workloads;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** Sums the cents of each key and session; a session ends after 5 seconds without a record. */
public final class Sessions implements Workload {
    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.input, Consumed.with(Serdes.String(), job.counting(Json.of(Event.class))))
            .groupByKey(Grouped.with(Serdes.String(), Json.of(Event.class)))
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofSeconds(5)))
            .aggregate(
                () -> 0L,
                (user, event, total) -> total + event.cents(),
                (user, one, other) -> one + other,
                Materialized.with(Serdes.String(), Serdes.Long()))
            .toStream()
            .to(job.output, Produced.with(
                WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.Long()));
        return builder.build();
    }
}
