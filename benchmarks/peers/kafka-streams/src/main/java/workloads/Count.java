package workloads;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Counts the records of each key. The values are not decoded. */
public final class Count implements Workload {
    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.input, Consumed.with(Serdes.String(), job.counting(Serdes.ByteArray())))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(job.output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }
}
