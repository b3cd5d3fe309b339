package workloads;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Counts the records of each user in the values, through a repartition topic. */
public final class Rekeyed implements Workload {
    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.input, Consumed.with(Serdes.String(), job.marking(Json.of(Event.class))))
            .groupBy(
                (user, event) -> event.user,
                Grouped.with("counts", Serdes.String(), job.counting(Json.of(Event.class))))
            .count(Materialized.as("counted"))
            .toStream()
            .to(job.output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }
}
