package workloads;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** Sums the cents of each key in windows of a minute that begin every 20 seconds. */
public final class Hopping implements Workload {
    @Override
    public Topology topology(Job job) {
        Duration minute = Duration.ofMinutes(1);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.input, Consumed.with(Serdes.String(), job.counting(Json.of(Event.class))))
            .groupByKey(Grouped.with(Serdes.String(), Json.of(Event.class)))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(minute).advanceBy(Duration.ofSeconds(20)))
            .aggregate(
                () -> 0L,
                (user, event, total) -> total + event.cents(),
                Materialized.with(Serdes.String(), Serdes.Long()))
            .toStream()
            .to(job.output, Produced.with(
                WindowedSerdes.timeWindowedSerdeFrom(String.class, minute.toMillis()), Serdes.Long()));
        return builder.build();
    }
}
