package workloads;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** A processor that sums amounts, and forwards and deletes the sums with each minute of stream time. */
public final class Punctuated implements Workload {
    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore("sums"), Serdes.String(), Serdes.Long()));
        builder.stream(job.input, Consumed.with(Serdes.String(), job.marking(Json.of(Event.class))))
            .process(() -> new Minutes(job), "sums")
            .to(job.output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    private static final class Minutes implements Processor<String, Event, String, Long> {
        private final Job job;
        private ProcessorContext<String, Long> context;
        private KeyValueStore<String, Long> sums;
        private long pending;

        Minutes(Job job) {
            this.job = job;
        }

        @Override
        public void init(ProcessorContext<String, Long> context) {
            this.context = context;
            sums = context.getStateStore("sums");
            context.schedule(Duration.ofMinutes(1), PunctuationType.STREAM_TIME, this::forwardSums);
        }

        @Override
        public void process(Record<String, Event> record) {
            pending++;
            if (!record.value().kind.equals("tick")) {
                Long sum = sums.get(record.key());
                sums.put(record.key(), (sum == null ? 0 : sum) + record.value().cents());
            }
        }

        private void forwardSums(long time) {
            try (KeyValueIterator<String, Long> all = sums.all()) {
                while (all.hasNext()) {
                    KeyValue<String, Long> one = all.next();
                    context.forward(new Record<>(one.key, one.value, time));
                    sums.delete(one.key);
                }
            }
            job.add(pending);
            pending = 0;
        }
    }
}
