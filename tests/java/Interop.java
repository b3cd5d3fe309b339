import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The application of tests/support/running/topologies/interop.py on Kafka Streams: the same topology, names and answers.
 *
 * <p>Arguments are settings, {@code key=value}. Prints RUNNING when it is running, STATE at each change
 * of its state, and RESTORED with the store and the number of records for each restored store; ends
 * when its input ends.
 */
public class Interop {
    static final Duration KEPT = Duration.ofHours(1);
    static final Duration SECOND = Duration.ofSeconds(1);
    static final long GAP_MS = 5_000;
    static final String[] STORES = {
        "kv", "timed", "windows", "timed-windows", "duplicates", "sessions", "versions", "counts",
        "minutes", "visits"
    };

    /** Writes each record to every kind of store, and returns their contents for queries. */
    static class Remember implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, String> kv;
        private TimestampedKeyValueStore<String, String> timed;
        private WindowStore<String, String> windows;
        private TimestampedWindowStore<String, String> timedWindows;
        private WindowStore<String, String> duplicates;
        private SessionStore<String, String> sessions;
        private VersionedKeyValueStore<String, String> versions;
        private TimestampedKeyValueStore<String, Long> counts;
        private TimestampedWindowStore<String, Long> minutes;
        private SessionStore<String, Long> visits;

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            kv = context.getStateStore("kv");
            timed = context.getStateStore("timed");
            windows = context.getStateStore("windows");
            timedWindows = context.getStateStore("timed-windows");
            duplicates = context.getStateStore("duplicates");
            sessions = context.getStateStore("sessions");
            versions = context.getStateStore("versions");
            counts = context.getStateStore("counts");
            minutes = context.getStateStore("minutes");
            visits = context.getStateStore("visits");
        }

        @Override
        public void process(Record<String, String> record) {
            if (record.key().equals("?")) {
                // The value contains the id of the query and the start time of old versions.
                long since = Long.parseLong(record.value().split("@")[1]);
                String answer = String.join("\n", contents(since));
                context.forward(record.withKey(record.value()).withValue(answer));
                return;
            }
            String key = record.key();
            String value = record.value();
            long time = record.timestamp();
            long second = time - time % 1_000;
            boolean deletes = value.startsWith("delete");
            kv.put(key, deletes ? null : value);
            timed.put(key, deletes ? null : ValueAndTimestamp.make(value, time));
            windows.put(key, deletes ? null : value, second);
            timedWindows.put(key, deletes ? null : ValueAndTimestamp.make(value, time), second);
            duplicates.put(key, value, second);
            versions.put(key, deletes ? null : value, time);
            extendSession(key, value, time);
        }

        private void extendSession(String key, String value, long time) {
            long start = time;
            long end = time;
            StringBuilder values = new StringBuilder();
            List<Windowed<String>> merged = new ArrayList<>();
            try (KeyValueIterator<Windowed<String>, String> found =
                    sessions.findSessions(key, time - GAP_MS, time + GAP_MS)) {
                while (found.hasNext()) {
                    KeyValue<Windowed<String>, String> next = found.next();
                    start = Math.min(start, next.key.window().start());
                    end = Math.max(end, next.key.window().end());
                    values.append(next.value).append('+');
                    merged.add(next.key);
                }
            }
            merged.forEach(sessions::remove);
            sessions.put(new Windowed<>(key, new SessionWindow(start, end)), values + value);
        }

        private List<String> contents(long since) {
            List<String> lines = new ArrayList<>();
            kv.all().forEachRemaining(e -> lines.add("kv " + e.key + " " + e.value));
            timed.all().forEachRemaining(e -> lines.add("timed " + e.key + " " + text(e.value)));
            windows.all().forEachRemaining(
                e -> lines.add("windows " + start(e.key) + " " + e.value));
            timedWindows.all().forEachRemaining(
                e -> lines.add("timed-windows " + start(e.key) + " " + text(e.value)));
            duplicates.all().forEachRemaining(
                e -> lines.add("duplicates " + start(e.key) + " " + e.value));
            counts.all().forEachRemaining(e -> {
                lines.add("counts " + e.key + " " + text(e.value));
                addContents(e.key, since, lines);
            });
            minutes.all().forEachRemaining(
                e -> lines.add("minutes " + start(e.key) + " " + text(e.value)));
            return lines;
        }

        private void addContents(String key, long since, List<String> lines) {
            sessions.fetch(key).forEachRemaining(
                e -> lines.add("sessions " + span(e.key) + " " + e.value));
            // fetch() would search the cache for each minute since 1970.
            visits.findSessions(key, since, since + KEPT.toMillis()).forEachRemaining(
                e -> lines.add("visits " + span(e.key) + " " + e.value));
            lines.add("versions " + key + " " + text(versions.get(key)));
            for (long time = since; time <= since + 40_000; time += 10_000) {
                lines.add("versions " + key + "@" + time + " " + text(versions.get(key, time)));
            }
        }

        private static String text(ValueAndTimestamp<?> value) {
            return value.value() + "@" + value.timestamp();
        }

        private static String text(VersionedRecord<?> value) {
            return value == null ? "-" : value.value() + "@" + value.timestamp();
        }

        private static String start(Windowed<String> key) {
            return key.key() + "@" + key.window().start();
        }

        private static String span(Windowed<String> key) {
            return start(key) + "-" + key.window().end();
        }
    }

    static Topology topology(String records, String answers, String words) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore("kv"), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore("timed"), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.persistentWindowStore("windows", KEPT, SECOND, false),
            Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.timestampedWindowStoreBuilder(
            Stores.persistentTimestampedWindowStore("timed-windows", KEPT, SECOND, false),
            Serdes.String(), Serdes.String()).withCachingEnabled());
        builder.addStateStore(Stores.windowStoreBuilder(
            Stores.inMemoryWindowStore("duplicates", KEPT, SECOND, true),
            Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.sessionStoreBuilder(
            Stores.persistentSessionStore("sessions", KEPT), Serdes.String(), Serdes.String()));
        builder.addStateStore(Stores.versionedKeyValueStoreBuilder(
            Stores.persistentVersionedKeyValueStore("versions", KEPT),
            Serdes.String(), Serdes.String()));
        KStream<String, String> stream =
            builder.stream(records, Consumed.with(Serdes.String(), Serdes.String()));
        KStream<String, String> data = stream.filterNot((key, value) -> key.equals("?"));
        data.groupByKey().count(Materialized.as("counts"));
        data.groupByKey()
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
            .count(
                Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("minutes")
                    .withRetention(KEPT));
        data.groupByKey()
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(
                Duration.ofMillis(GAP_MS), Duration.ofHours(1)))
            .count(Materialized.as("visits"));
        data.groupBy((key, value) -> value, Grouped.as("by-word"))
            .count(Materialized.as("words"))
            .toStream()
            .to(words, Produced.with(Serdes.String(), Serdes.Long()));
        stream.process(Remember::new, STORES)
            .to(answers, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        for (int i = 3; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        KafkaStreams streams = new KafkaStreams(topology(args[0], args[1], args[2]), settings);
        CountDownLatch running = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println("STATE " + now);
            if (now == KafkaStreams.State.RUNNING) {
                running.countDown();
            }
        });
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition place, String store, long start, long end) {
            }

            @Override
            public void onBatchRestored(TopicPartition place, String store, long end, long count) {
            }

            @Override
            public void onRestoreEnd(TopicPartition place, String store, long total) {
                System.out.println("RESTORED " + store + " " + total);
            }
        });
        streams.start();
        running.await();
        System.out.println("RUNNING");
        while (System.in.read() >= 0) {
            // The test closes the input to stop this program.
        }
        System.out.println(streams.close(Duration.ofSeconds(30)) ? "CLOSED" : "NOT CLOSED IN TIME");
        System.exit(0);
    }
}
