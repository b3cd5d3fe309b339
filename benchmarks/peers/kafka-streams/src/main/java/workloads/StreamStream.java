package workloads;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/** Joins orders with the payments of the same user within 5 seconds before and after. */
public final class StreamStream implements Workload {
    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        Serde<Event> counting = job.counting(Json.of(Event.class));
        KStream<String, Event> orders = builder.stream(job.input, Consumed.with(Serdes.String(), counting));
        KStream<String, Event> payments =
            builder.stream(job.otherTopic("payments"), Consumed.with(Serdes.String(), counting));
        orders
            .join(
                payments,
                Settled::of,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(5), Duration.ofMinutes(1)),
                StreamJoined.with(Serdes.String(), Json.of(Event.class), Json.of(Event.class)))
            .to(job.output, Produced.with(Serdes.String(), Json.of(Settled.class)));
        return builder.build();
    }
}
