package workloads;

import com.fasterxml.jackson.annotation.JsonPropertyOrder;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/** Keeps the events above the threshold and adds a field: JSON in, JSON out. */
public class Stateless implements Workload {
    static final double PASS_ABOVE = 40.0;

    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.input, Consumed.with(Serdes.String(), job.counting(Json.of(Event.class))))
            .filter((user, event) -> event.amount > PASS_ABOVE)
            .mapValues(Stateless::billed)
            .to(job.output, Produced.with(Serdes.String(), Json.of(Bill.class)));
        return builder.build();
    }

    static Bill billed(Event event) {
        Bill bill = new Bill();
        bill.id = event.id;
        bill.user = event.user;
        bill.amount = event.amount;
        bill.kind = event.kind;
        bill.cents = event.cents();
        return bill;
    }

    /** A record of the output topic: the event and its price with tax. */
    @JsonPropertyOrder({"id", "user", "amount", "kind", "cents"})
    public static final class Bill {
        public long id;
        public String user;
        public double amount;
        public String kind;
        public long cents;
    }
}
