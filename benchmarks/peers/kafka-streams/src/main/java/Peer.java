import com.fasterxml.jackson.annotation.JsonPropertyOrder;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * The jobs of the benchmark on Kafka Streams, one stream thread.
 *
 * <p>Arguments: job (stateless | count | rekeyed | window), input topic, output topic, records
 * expected, marks file, then Kafka Streams settings as key=value. Runs until it gets SIGTERM, then closes, which
 * commits. Writes the marks that the harness times: running, first (record decoded), last (expected
 * record decoded), and for each restored partition "restoring p" and "restored p records".
 */
public final class Peer {
    static final double PASS_ABOVE = 40.0;

    public static void main(String[] args) throws Exception {
        String job = args[0];
        String input = args[1];
        String output = args[2];
        long expected = Long.parseLong(args[3]);
        Marks marks = new Marks(Path.of(args[4]));
        Properties settings = new Properties();
        for (int i = 5; i < args.length; i++) {
            int equals = args[i].indexOf('=');
            settings.put(args[i].substring(0, equals), args[i].substring(equals + 1));
        }

        Topology topology = switch (job) {
            case "stateless" -> stateless(input, output, expected, marks);
            case "count" -> count(input, output, expected, marks);
            case "rekeyed" -> rekeyed(input, output, expected, marks);
            case "window" -> window(input, output, expected, marks);
            default -> throw new IllegalArgumentException("no such job: " + job);
        };
        KafkaStreams streams = new KafkaStreams(topology, settings);
        CountDownLatch stop = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                marks.put("running");
            }
        });
        streams.setGlobalStateRestoreListener(new Restored(marks));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            stop.countDown();
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(30));
            stop.countDown();
        }));
        streams.start();
        stop.await();
    }

    /** Keeps the events above the threshold and adds a field: JSON in, JSON out. */
    static Topology stateless(String input, String output, long expected, Marks marks) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), marked(json(Event.class), expected, marks)))
            .filter((user, event) -> event.amount > PASS_ABOVE)
            .mapValues(Peer::billed)
            .to(output, Produced.with(Serdes.String(), json(Bill.class)));
        return builder.build();
    }

    /** Counts the records of each key. The values are not looked at, so they stay bytes. */
    static Topology count(String input, String output, long expected, Marks marks) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), marked(Serdes.ByteArray(), expected, marks)))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    /** Counts the records of each user that the values name: by way of a repartition topic. */
    static Topology rekeyed(String input, String output, long expected, Marks marks) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), marked(json(Event.class), 0, marks)))
            .groupBy(
                (user, event) -> event.user,
                Grouped.with("counts", Serdes.String(), marked(json(Event.class), expected, marks)))
            .count(Materialized.as("counted"))
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    /** Sums the cents of each key in each minute. */
    static Topology window(String input, String output, long expected, Marks marks) {
        Duration minute = Duration.ofMinutes(1);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), marked(json(Event.class), expected, marks)))
            .groupByKey(Grouped.with(Serdes.String(), json(Event.class)))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(minute))
            .aggregate(
                () -> 0L,
                (user, event, total) -> total + cents(event),
                Materialized.with(Serdes.String(), Serdes.Long()))
            .toStream()
            .to(output, Produced.with(
                WindowedSerdes.timeWindowedSerdeFrom(String.class, minute.toMillis()), Serdes.Long()));
        return builder.build();
    }

    static long cents(Event event) {
        return (long) (event.amount * 120);
    }

    static Bill billed(Event event) {
        Bill bill = new Bill();
        bill.id = event.id;
        bill.user = event.user;
        bill.amount = event.amount;
        bill.kind = event.kind;
        bill.cents = cents(event);
        return bill;
    }

    /** What is on the input topic. Public fields: Jackson's quickest way with a class. */
    public static final class Event {
        public long id;
        public String user;
        public double amount;
        public String kind;
    }

    /** What goes to the output topic: the event and its price with tax. */
    @JsonPropertyOrder({"id", "user", "amount", "kind", "cents"})
    public static final class Bill {
        public long id;
        public String user;
        public double amount;
        public String kind;
        public long cents;
    }

    static <T> Serde<T> json(Class<T> type) {
        ObjectMapper mapper = new ObjectMapper();
        ObjectReader reader = mapper.readerFor(type);
        ObjectWriter writer = mapper.writerFor(type);
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return writer.writeValueAsBytes(value);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            },
            (topic, data) -> {
                try {
                    return reader.readValue(data);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
    }

    /** The same serde, marking when the first and the last expected record are decoded. */
    static <T> Serde<T> marked(Serde<T> serde, long expected, Marks marks) {
        Deserializer<T> inner = serde.deserializer();
        long[] seen = {0}; // one stream thread decodes, so a plain counter is enough
        return Serdes.serdeFrom(serde.serializer(), (topic, data) -> {
            T value = inner.deserialize(topic, data);
            long count = ++seen[0];
            if (count == 1) {
                marks.put("first");
            }
            if (count == expected) {
                marks.put("last");
            }
            return value;
        });
    }

    /** Marks when each partition of a changelog begins and ends to be restored. */
    record Restored(Marks marks) implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition place, String store, long start, long end) {
            marks.put("restoring " + place.partition());
        }

        @Override
        public void onBatchRestored(TopicPartition place, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition place, String store, long total) {
            marks.put("restored " + place.partition() + " " + total);
        }
    }

    /** Moments of this run, one JSON object a line, by the clock that the harness uses too. */
    static final class Marks {
        private final Path file;

        Marks(Path file) {
            this.file = file;
        }

        synchronized void put(String mark) {
            String line = "{\"mark\":\"" + mark + "\",\"at_ms\":" + System.currentTimeMillis() + "}\n";
            try {
                Files.writeString(file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
