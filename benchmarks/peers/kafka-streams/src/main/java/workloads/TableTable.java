package workloads;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** Joins the tables of the latest order and the latest payment of each user. */
public final class TableTable implements Workload {
    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        table(builder, job, job.input, "table-0")
            .join(table(builder, job, job.otherTopic("payments"), "table-1"), Settled::of)
            .toStream()
            .to(job.output, Produced.with(Serdes.String(), Json.of(Settled.class)));
        return builder.build();
    }

    private static KTable<String, Event> table(StreamsBuilder builder, Job job, String topic, String store) {
        return builder.table(
            topic,
            Consumed.with(Serdes.String(), job.counting(Json.of(Event.class), topic)),
            Materialized.<String, Event, KeyValueStore<Bytes, byte[]>>as(store));
    }
}
