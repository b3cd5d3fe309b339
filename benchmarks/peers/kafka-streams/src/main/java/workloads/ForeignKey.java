package workloads;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.state.KeyValueStore;

/** Joins a table of orders with a table of users, by the user in the order. */
public final class ForeignKey implements Workload {
    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        // A cache would forward users again when it is flushed, and join rows again.
        KTable<String, User> users = builder.table(
            job.otherTopic("users"),
            Consumed.with(Serdes.String(), Json.of(User.class)),
            Materialized.<String, User, KeyValueStore<Bytes, byte[]>>as("users").withCachingDisabled());
        KTable<String, Event> orders =
            builder.table(job.input, Consumed.with(Serdes.String(), job.marking(Json.of(Event.class))));
        orders
            .join(
                users,
                order -> order.user,
                (order, user) -> {
                    job.add();
                    return Located.of(order, user);
                },
                TableJoined.as("located"),
                Materialized.with(Serdes.String(), Json.of(Located.class)))
            .toStream()
            .to(job.output, Produced.with(Serdes.String(), Json.of(Located.class)));
        return builder.build();
    }

    @Override
    public long steps(long records) {
        return records - User.of(records);
    }
}
