package workloads;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Sums the cents of each key. */
public final class Sum implements Workload {
    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.input, Consumed.with(Serdes.String(), job.counting(Json.of(Event.class))))
            .groupByKey(Grouped.with(Serdes.String(), Json.of(Event.class)))
            .aggregate(
                () -> 0L,
                (user, event, total) -> total + event.cents(),
                Materialized.with(Serdes.String(), Serdes.Long()))
            .toStream()
            .to(job.output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }
}
