import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * The application of tests/support/running/topologies/moving.py on Kafka Streams: the same topology and names.
 *
 * <p>Arguments: the prefix of its topics, then settings, {@code key=value}. Prints RUNNING when it is
 * running, and for each input line TASKS and its active tasks; ends when its input ends.
 */
public class Moving {
    static final int GROUPS = 100;
    static final Duration HOUR = Duration.ofHours(1);
    static final Serde<String> TEXT = Serdes.String();

    static String placeOf(String value) {
        return "n" + Math.floorMod(Integer.parseInt(value), GROUPS);
    }

    static String groupOf(String value) {
        return "g" + Math.floorMod(Integer.parseInt(value), GROUPS);
    }

    static String add(String key, String value, String known) {
        return known.isEmpty() ? value : known + " " + value;
    }

    static String merge(String key, String one, String other) {
        return one.isEmpty() || other.isEmpty() ? one + other : one + " " + other;
    }

    static String started(Windowed<String> key) {
        return key.key() + "@" + key.window().start();
    }

    /** Counts the occurrences of each id, in stores that only the Processor API has. */
    static class Seen implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, String> plain;
        private WindowStore<String, String> times;

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            plain = context.getStateStore("plain");
            times = context.getStateStore("times");
        }

        @Override
        public void process(Record<String, String> record) {
            String before = plain.get(record.key());
            plain.put(record.key(), record.value());
            times.put(record.key(), record.value(), record.timestamp());
            int often = 0;
            try (WindowStoreIterator<String> found =
                    times.fetch(record.key(), record.timestamp(), record.timestamp())) {
                while (found.hasNext()) {
                    found.next();
                    often++;
                }
            }
            boolean again = often != 1 || before != null;
            String told = record.value() + " again, " + often + " times";
            context.forward(again ? record.withValue(told) : record);
        }
    }

    static Topology topology(String name) {
        Consumed<String, String> texts = Consumed.with(TEXT, TEXT);
        Produced<String, String> written = Produced.with(TEXT, TEXT);
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("plain"), TEXT, TEXT));
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("times", HOUR, Duration.ofSeconds(1), true), TEXT, TEXT));
        KStream<String, String> records = builder.stream(name + "-records", texts);
        KStream<String, String> others = builder.stream(name + "-others", texts);
        KTable<String, String> prices = builder.table(
            name + "-prices",
            texts,
            Materialized.as(Stores.persistentVersionedKeyValueStore("prices", HOUR)));
        KTable<String, String> kinds =
            builder.table(name + "-kinds", texts, Materialized.as("kinds"));
        GlobalKTable<String, String> places =
            builder.globalTable(name + "-places", texts, Materialized.as("places"));

        KGroupedStream<String, String> groups =
            records.groupBy((key, value) -> groupOf(value), Grouped.with("groups", TEXT, TEXT));
        groups.aggregate(
                () -> "",
                Moving::add,
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("ids")
                    .withKeySerde(TEXT).withValueSerde(TEXT))
            .toStream().to(name + "-ids", written);
        groups.aggregate(
                () -> "",
                Moving::add,
                Materialized.<String, String>as(Stores.inMemoryKeyValueStore("memory"))
                    .withKeySerde(TEXT).withValueSerde(TEXT))
            .toStream().to(name + "-memory", written);
        KTable<Windowed<String>, String> windows = groups
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), HOUR))
            .aggregate(
                () -> "",
                Moving::add,
                Materialized.<String, String, WindowStore<Bytes, byte[]>>as("windows")
                    .withKeySerde(TEXT).withValueSerde(TEXT));
        windows.toStream((key, value) -> started(key)).to(name + "-windows", written);
        windows
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())
                .withName("closed"))
            .toStream((key, value) -> started(key)).to(name + "-suppressed", written);
        groups.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(5), HOUR))
            .aggregate(
                () -> "",
                Moving::add,
                Moving::merge,
                Materialized.<String, String, SessionStore<Bytes, byte[]>>as("sessions")
                    .withKeySerde(TEXT).withValueSerde(TEXT))
            .toStream((key, value) -> started(key) + "-" + key.window().end())
            .to(name + "-sessions", written);

        records.selectKey((key, value) -> placeOf(value))
            .join(prices, (value, price) -> value, Joined.with(TEXT, TEXT, TEXT, "priced"))
            .to(name + "-priced", written);
        records.join(places, (key, value) -> placeOf(value), (value, place) -> value)
            .to(name + "-placed", written);
        records.join(
                others,
                (value, other) -> value,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMinutes(1), HOUR),
                StreamJoined.with(TEXT, TEXT, TEXT).withName("paired").withStoreName("paired"))
            .to(name + "-paired", written);
        records.process(Seen::new, "plain", "times").to(name + "-seen", written);
        KTable<String, String> latest = others.toTable(
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("latest")
                .withKeySerde(TEXT).withValueSerde(TEXT));
        latest.join(
                kinds,
                Moving::placeOf,
                (value, kind) -> value,
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("tabled")
                    .withKeySerde(TEXT).withValueSerde(TEXT))
            .toStream().to(name + "-tabled", written);
        return builder.build();
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        for (int i = 1; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        Topology topology = topology(args[0]);
        if (settings.isEmpty() || settings.containsKey("describe")) {
            System.out.print(topology.describe());
            return;
        }
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
        while (System.in.read() >= 0) {
            StringBuilder tasks = new StringBuilder("TASKS");
            streams.metadataForLocalThreads().forEach(
                thread -> thread.activeTasks().forEach(task -> tasks.append(' ').append(task.taskId())));
            System.out.println(tasks);
        }
        System.out.println(streams.close(Duration.ofSeconds(60)) ? "CLOSED" : "NOT CLOSED IN TIME");
        TimeUnit.MILLISECONDS.sleep(10);
        System.exit(0);
    }
}
