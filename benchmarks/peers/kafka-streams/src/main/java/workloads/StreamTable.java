package workloads;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;

/** Adds to each event the town of its user, from a table. */
public final class StreamTable implements Workload {
    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, User> users =
            builder.table(job.otherTopic("users"), Consumed.with(Serdes.String(), Json.of(User.class)));
        builder.stream(job.input, Consumed.with(Serdes.String(), job.counting(Json.of(Event.class))))
            .join(users, Located::of, Joined.with(Serdes.String(), Json.of(Event.class), Json.of(User.class)))
            .to(job.output, Produced.with(Serdes.String(), Json.of(Located.class)));
        return builder.build();
    }

    @Override
    public long steps(long records) {
        return records - User.of(records);
    }
}
