import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.KeyQuery;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.RangeQuery;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.StateQueryResult;
import org.apache.kafka.streams.query.TimestampedKeyQuery;
import org.apache.kafka.streams.query.TimestampedRangeQuery;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.query.WindowRangeQuery;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreType;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Queries the stores of running Kafka Streams applications: reads a scenario per line and prints it with the answers.
 *
 * <p>The argument is a broker. tests/conformance/queries/scenarios.py describes scenarios.
 */
@SuppressWarnings({"unchecked", "rawtypes"})
public final class RecordQueries {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long PATIENCE_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode scenario = (ObjectNode) JSON.readTree(line);
            try (Run run = new Run(scenario, arguments[0])) {
                for (JsonNode step : scenario.get("steps")) {
                    run.take((ObjectNode) step);
                }
            }
            out.print(JSON.writeValueAsString(scenario) + "\n");
        }
        System.exit(0);
    }

    static boolean isTimestamped(JsonNode store) {
        return store.get("kind").asText().startsWith("timestamped");
    }

    /** Executes the commands in the values of records on stores. */
    static final class Writer implements Processor<String, String, Void, Void> {
        private final Map<String, JsonNode> stores;
        private ProcessorContext<Void, Void> context;

        Writer(Map<String, JsonNode> stores) {
            this.stores = stores;
        }

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            this.context = context;
        }

        @Override
        public void process(Record<String, String> record) {
            try {
                for (JsonNode order : JSON.readTree(record.value())) {
                    obey(order);
                }
            } catch (Exception error) {
                throw new IllegalArgumentException(record.value(), error);
            }
        }

        private void obey(JsonNode order) throws Exception {
            switch (order.get(0).asText()) {
                case "commit":
                    context.commit();
                    return;
                case "later":
                    // By stream time, so that it has no record.
                    context.schedule(Duration.ofMillis(order.get(1).asLong()), PunctuationType.STREAM_TIME, now -> {
                        try {
                            obey(order.get(2));
                        } catch (Exception error) {
                            throw new IllegalArgumentException(error);
                        }
                    });
                    return;
                default:
                    write(order);
            }
        }

        private void write(JsonNode order) {
            String name = order.get(1).asText();
            JsonNode store = stores.get(name);
            Object key = store.path("key").asText("string").equals("long") ? (Object) order.get(2).asLong() : order.get(2).asText();
            String text = order.path(3).isTextual() ? order.get(3).asText() : null;
            long time = order.path(4).asLong();
            Object value = text != null && isTimestamped(store) ? ValueAndTimestamp.make(text, order.get(order.size() - 1).asLong()) : text;
            switch (order.get(0).asText()) {
                case "put": ((KeyValueStore) context.getStateStore(name)).put(key, value); return;
                case "put_if_absent": ((KeyValueStore) context.getStateStore(name)).putIfAbsent(key, value); return;
                case "delete": ((KeyValueStore) context.getStateStore(name)).delete(key); return;
                case "get": ((KeyValueStore) context.getStateStore(name)).get(key); return;
                case "put_window": ((WindowStore) context.getStateStore(name)).put(key, value, time); return;
                case "put_session":
                    ((SessionStore) context.getStateStore(name)).put(new Windowed<>(key, new SessionWindow(time, order.get(5).asLong())), value);
                    return;
                case "put_version": ((VersionedKeyValueStore) context.getStateStore(name)).put(key, value, time); return;
                default: throw new IllegalArgumentException(order.toString());
            }
        }
    }

    /** A scenario: its topics and its instances. */
    static final class Run implements AutoCloseable {
        private final JsonNode scenario;
        private final String application;
        private final String bootstrap;
        private final Admin admin;
        private final KafkaProducer<String, String> producer;
        private final TreeMap<String, KafkaStreams> instances = new TreeMap<>();
        /** The number of records that the current instances must have processed together. */
        private long fed;
        private final Map<TopicPartition, Long> ends = new HashMap<>();

        Run(JsonNode scenario, String bootstrap) throws Exception {
            this.scenario = scenario;
            this.bootstrap = bootstrap;
            this.application = scenario.get("name").asText();
            Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
            admin = Admin.create(settings);
            producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
            List<NewTopic> topics = new ArrayList<>();
            for (String topic : topics()) {
                topics.add(new NewTopic(real(topic), scenario.get("partitions").asInt(), (short) 1));
            }
            admin.createTopics(topics).all().get();
        }

        private Set<String> topics() {
            Set<String> all = new TreeSet<>(Set.of("in"));
            scenario.get("tables").forEach(table -> all.add(table.get("topic").asText()));
            return all;
        }

        /** Adds a prefix, since several scenarios share the broker. */
        private String real(String topic) {
            return application + "." + topic;
        }

        private Topology topology() {
            StreamsBuilder builder = new StreamsBuilder();
            Map<String, JsonNode> stores = new TreeMap<>();
            List<String> connected = new ArrayList<>();
            for (JsonNode store : scenario.get("stores")) {
                stores.put(store.get("name").asText(), store);
                connected.add(store.get("name").asText());
                builder.addStateStore(store(store));
            }
            Map<String, org.apache.kafka.streams.kstream.KStream<String, String>> streams = new HashMap<>();
            for (JsonNode table : scenario.get("tables")) {
                if (!table.get("kind").asText().startsWith("global")) {
                    connected.add(table.get("name").asText());
                }
                add(table, builder, streams);
            }
            builder.stream(real("in"), Consumed.with(Serdes.String(), Serdes.String()))
                .process(() -> new Writer(stores), connected.toArray(new String[0]));
            return builder.build();
        }

        private void add(JsonNode table, StreamsBuilder builder, Map<String, org.apache.kafka.streams.kstream.KStream<String, String>> streams) {
            String name = table.get("name").asText();
            String topic = real(table.get("topic").asText());
            boolean caching = table.path("caching").asBoolean(true);
            Consumed<String, String> consumed = Consumed.with(Serdes.String(), Serdes.String());
            Grouped<String, String> grouped = Grouped.with(Serdes.String(), Serdes.String());
            switch (table.get("kind").asText()) {
                case "table":
                    builder.table(topic, consumed, kept(Materialized.as(name), caching));
                    return;
                case "versioned_table":
                    builder.table(topic, consumed, Materialized.as(Stores.persistentVersionedKeyValueStore(name, Duration.ofMillis(table.get("history_ms").asLong()))));
                    return;
                case "global_table":
                    builder.globalTable(topic, consumed, Materialized.as(name));
                    return;
                default:
            }
            var by = streams.computeIfAbsent(topic, any -> builder.stream(topic, consumed)).groupByKey(grouped);
            switch (table.get("kind").asText()) {
                case "count":
                    by.count(kept(Materialized.as(name), caching));
                    return;
                case "reduce":
                    by.reduce((before, value) -> before + value, kept(Materialized.as(name), caching));
                    return;
                case "windows":
                    by.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(table.get("window_ms").asLong()), Duration.ofHours(1)))
                        .count(kept(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(name), caching));
                    return;
                case "sessions":
                    by.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(table.get("gap_ms").asLong()), Duration.ofHours(1)))
                        .count(kept(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as(name), caching));
                    return;
                default:
                    throw new IllegalArgumentException(table.toString());
            }
        }

        private static <S extends org.apache.kafka.streams.processor.StateStore, V> Materialized<String, V, S> kept(Materialized<String, V, S> as, boolean caching) {
            return caching ? as.withCachingEnabled() : as.withCachingDisabled();
        }

        private static StoreBuilder<?> store(JsonNode store) {
            String name = store.get("name").asText();
            boolean memory = store.path("memory").asBoolean();
            Serde key = store.path("key").asText("string").equals("long") ? Serdes.Long() : Serdes.String();
            Serde value = Serdes.String();
            Duration retention = Duration.ofMillis(store.path("retention_ms").asLong());
            Duration size = Duration.ofMillis(store.path("window_ms").asLong());
            boolean duplicates = store.path("duplicates").asBoolean();
            StoreBuilder<?> builder;
            switch (store.get("kind").asText()) {
                case "key_value":
                    builder = Stores.keyValueStoreBuilder(store.has("max_entries") ? Stores.lruMap(name, store.get("max_entries").asInt())
                        : memory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentKeyValueStore(name), key, value);
                    break;
                case "timestamped_key_value":
                    builder = Stores.timestampedKeyValueStoreBuilder(memory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentTimestampedKeyValueStore(name), key, value);
                    break;
                case "window":
                    builder = Stores.windowStoreBuilder(memory ? Stores.inMemoryWindowStore(name, retention, size, duplicates)
                        : Stores.persistentWindowStore(name, retention, size, duplicates), key, value);
                    break;
                case "timestamped_window":
                    builder = Stores.timestampedWindowStoreBuilder(memory ? Stores.inMemoryWindowStore(name, retention, size, duplicates)
                        : Stores.persistentTimestampedWindowStore(name, retention, size, duplicates), key, value);
                    break;
                case "session":
                    builder = Stores.sessionStoreBuilder(memory ? Stores.inMemorySessionStore(name, retention) : Stores.persistentSessionStore(name, retention), key, value);
                    break;
                case "versioned":
                    builder = Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore(name, Duration.ofMillis(store.get("history_ms").asLong())), key, value);
                    break;
                default:
                    throw new IllegalArgumentException(store.toString());
            }
            return store.path("caching").asBoolean() ? builder.withCachingEnabled() : builder;
        }

        private KafkaStreams made(String instance) throws Exception {
            Path folder = Path.of(System.getProperty("java.io.tmpdir"), application + "-" + instance);
            // Between two candidates for a task, the assignor prefers the lower process id, which is random otherwise.
            Path process = Files.createDirectories(folder.resolve(application)).resolve("kafka-streams-process-metadata");
            String id = "00000000-0000-0000-0000-00000000000" + (instance.equals("one") ? 1 : 2);
            Files.writeString(process, JSON.createObjectNode().put("processId", id).toString());
            Properties settings = new Properties();
            settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
            settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
            settings.put(StreamsConfig.STATE_DIR_CONFIG, folder.toString());
            settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 3_600_000);
            settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, scenario.path("standbys").asInt());
            settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 10_000_000);
            // Kafka Streams' own tests enable this setting; its name is not public.
            settings.put("__iq.consistency.offset.vector.enabled__", scenario.path("vectors").asBoolean());
            settings.put("auto.offset.reset", "earliest");
            // The records' timestamps are in the distant past, and brokers delete old records.
            settings.put(StreamsConfig.WINDOW_STORE_CHANGE_LOG_ADDITIONAL_RETENTION_MS_CONFIG, 4_000_000_000_000L);
            return new KafkaStreams(topology(), settings);
        }

        void take(ObjectNode step) throws Exception {
            String instance = step.path("instance").asText("one");
            switch (step.get("do").asText()) {
                case "make":
                    instances.put(instance, made(instance));
                    return;
                case "start":
                    instances.get(instance).start();
                    settle(step.path("all").asBoolean(true));
                    return;
                case "close":
                    close(at(instance));
                    fed = 0;
                    settle(step.path("all").asBoolean(true));
                    fed = (long) processed();
                    return;
                case "wipe":
                    instances.get(instance).cleanUp();
                    return;
                case "feed":
                    feed(step);
                    return;
                case "commit":
                    commit();
                    return;
                case "ask":
                    step.set("answer", ask(step));
                    return;
                default:
                    throw new IllegalArgumentException(step.toString());
            }
        }

        private static void close(KafkaStreams streams) {
            streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP).withTimeout(Duration.ofSeconds(30)));
        }

        /** Waits until every started instance runs and, with standbys, one has all tasks and the other all standbys. */
        private void settle(boolean all) throws Exception {
            if (!all) {
                return;
            }
            await("running", () -> instances.values().stream().allMatch(streams ->
                streams.state() == KafkaStreams.State.RUNNING || streams.state().hasNotStarted() || streams.state().hasCompletedShutdown()));
            long running = instances.values().stream().filter(each -> each.state() == KafkaStreams.State.RUNNING).count();
            if (running > 1) {
                await("a standby", () -> running(false) != null && running(true) != null);
            }
            if (running == 1) {
                await("all tasks", () -> running(true) != null);
            }
        }

        private KafkaStreams at(String instance) {
            return instance.equals("active") ? running(true) : instance.equals("standby") ? running(false) : instances.get(instance);
        }

        /** The instance with active tasks, or the one with only standbys. */
        private KafkaStreams running(boolean active) {
            for (KafkaStreams streams : instances.values()) {
                if (streams.state() != KafkaStreams.State.RUNNING) {
                    continue;
                }
                boolean works = streams.metadataForLocalThreads().stream().anyMatch(thread -> !thread.activeTasks().isEmpty());
                boolean follows = streams.metadataForLocalThreads().stream().anyMatch(thread -> !thread.standbyTasks().isEmpty());
                if (active ? works : follows && !works) {
                    return streams;
                }
            }
            return null;
        }

        private double processed() {
            double total = 0;
            for (KafkaStreams streams : instances.values()) {
                if (streams.state() == KafkaStreams.State.RUNNING) {
                    total += streams.metrics().entrySet().stream()
                        .filter(entry -> entry.getKey().name().equals("process-total") && entry.getKey().group().equals("stream-thread-metrics"))
                        .mapToDouble(entry -> (Double) entry.getValue().metricValue()).sum();
                }
            }
            return total;
        }

        private void feed(JsonNode step) throws Exception {
            for (JsonNode record : step.get("records")) {
                send(record.get("topic").asText(), record.get("partition").asInt(), record.path("key").asText("-"),
                    record.get("value").isNull() ? null : record.get("value").isTextual() ? record.get("value").asText() : record.get("value").toString(),
                    record.get("time").asLong());
            }
            await("processed", () -> processed() >= fed);
        }

        private void send(String topic, int partition, String key, String value, long time) throws Exception {
            long offset = producer.send(new ProducerRecord<>(real(topic), partition, time, key, value)).get().offset();
            ends.put(new TopicPartition(real(topic), partition), offset + 1);
            for (JsonNode table : scenario.get("tables")) {
                if (table.get("kind").asText().startsWith("global") && table.get("topic").asText().equals(topic)) {
                    // The global thread does not count records.
                    KafkaStreams streams = running(true);
                    ReadOnlyKeyValueStore<String, String> store = streams.store(StoreQueryParameters.fromNameAndType(table.get("name").asText(), QueryableStoreTypes.keyValueStore()));
                    await("global", () -> java.util.Objects.equals(store.get(key), value));
                    return;
                }
            }
            fed++;
        }

        private void commit() throws Exception {
            for (int partition = 0; partition < scenario.get("partitions").asInt(); partition++) {
                send("in", partition, "-", "[[\"commit\"]]", scenario.path("commit_time").asLong());
            }
            await("processed", () -> processed() >= fed);
            await("committed", () -> {
                try {
                    Map<TopicPartition, OffsetAndMetadata> committed = admin.listConsumerGroupOffsets(application).partitionsToOffsetAndMetadata().get();
                    return ends.entrySet().stream().filter(end -> end.getKey().topic().equals(real("in")))
                        .allMatch(end -> committed.containsKey(end.getKey()) && committed.get(end.getKey()).offset() >= end.getValue());
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            KafkaStreams standby = running(false);
            if (standby != null) {
                await("followed", () -> standby.allLocalStorePartitionLags().values().stream().allMatch(
                    partitions -> partitions.values().stream().allMatch(lag -> lag.offsetLag() == 0)));
            }
        }

        static void await(String what, BooleanSupplier condition) throws Exception {
            long end = System.currentTimeMillis() + PATIENCE_MS;
            while (!condition.getAsBoolean()) {
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException("waited in vain: " + what);
                }
                Thread.sleep(20);
            }
        }

        private JsonNode ask(JsonNode step) {
            ObjectNode answer = JSON.createObjectNode();
            KafkaStreams streams = at(step.path("instance").asText("one"));
            try {
                if (step.has("view")) {
                    answer.set("value", Answers.of(new View(streams, step).call()));
                } else {
                    told(streams.query(request(step)), answer);
                }
            } catch (Exception error) {
                answer.removeAll();
                answer.put("error", error.getClass().getSimpleName());
            }
            return answer;
        }

        private StateQueryRequest request(JsonNode step) {
            StateQueryRequest request = StateQueryRequest.inStore(step.get("store").asText()).withQuery(Queries.of(step.get("query")));
            if (step.has("bound")) {
                request = request.withPositionBound(PositionBound.at(position(step.get("bound"))));
            }
            if (step.has("partitions")) {
                Set<Integer> partitions = new HashSet<>();
                step.get("partitions").forEach(each -> partitions.add(each.asInt()));
                request = request.withPartitions(partitions);
            }
            request = step.path("active").asBoolean() ? request.requireActive() : request;
            return step.path("info").asBoolean() ? request.enableExecutionInfo() : request;
        }

        private Position position(JsonNode told) {
            Position position = Position.emptyPosition();
            told.fields().forEachRemaining(topic -> topic.getValue().fields().forEachRemaining(
                partition -> position.withComponent(real(topic.getKey()), Integer.parseInt(partition.getKey()), partition.getValue().asLong())));
            return position;
        }

        private JsonNode position(Position position) {
            if (position == null) {
                return null;
            }
            ObjectNode told = JSON.createObjectNode();
            for (String topic : new TreeSet<>(position.getTopics())) {
                ObjectNode offsets = told.putObject(topic.substring(application.length() + 1));
                new TreeMap<>(position.getPartitionPositions(topic)).forEach((partition, offset) -> offsets.put(String.valueOf(partition), offset));
            }
            return told;
        }

        private void told(StateQueryResult<?> result, ObjectNode answer) {
            if (result.getGlobalResult() != null) {
                answer.set("global", told(result.getGlobalResult()));
            }
            ObjectNode partitions = answer.putObject("partitions");
            new TreeMap<>(result.getPartitionResults()).forEach((partition, each) -> partitions.set(String.valueOf(partition), told(each)));
            answer.set("position", position(result.getPosition()));
            try {
                QueryResult<?> only = result.getOnlyPartitionResult();
                answer.put("only", only == null ? "none" : "one");
            } catch (IllegalArgumentException several) {
                answer.put("only", "several");
            }
        }

        private ObjectNode told(QueryResult<?> result) {
            ObjectNode told = JSON.createObjectNode();
            if (result.isSuccess()) {
                told.set("value", Answers.of(result.getResult()));
            } else {
                told.put("failure", result.getFailureReason().name());
            }
            told.set("position", position(result.getPosition()));
            if (!result.getExecutionInfo().isEmpty()) {
                ArrayNode info = told.putArray("info");
                result.getExecutionInfo().forEach(line -> info.add(line.replaceAll("[a-zA-Z0-9.$]*\\.", "").replaceAll("@[0-9a-f]+|\\d+(?=ns)", "")));
            }
            return told;
        }

        @Override
        public void close() {
            instances.values().forEach(streams -> streams.close(Duration.ofSeconds(30)));
            producer.close();
            admin.close();
        }
    }

    /** The queries of Kafka Streams' second interface. */
    static final class Queries {
        static Query<?> of(JsonNode asked) {
            Object key = key(asked.get("key"));
            Object lo = key(asked.get("lo"));
            Object hi = key(asked.get("hi"));
            boolean skips = asked.path("skip_cache").asBoolean();
            String order = asked.path("order").asText();
            switch (asked.get("kind").asText()) {
                case "key": {
                    KeyQuery<Object, Object> query = KeyQuery.withKey(key);
                    return skips ? query.skipCache() : query;
                }
                case "timestamped_key": {
                    TimestampedKeyQuery<Object, Object> query = TimestampedKeyQuery.withKey(key);
                    return skips ? query.skipCache() : query;
                }
                case "range": {
                    RangeQuery<Object, Object> query = RangeQuery.withRange(lo, hi);
                    return order.equals("descending") ? query.withDescendingKeys() : order.equals("ascending") ? query.withAscendingKeys() : query;
                }
                case "timestamped_range": {
                    TimestampedRangeQuery<Object, Object> query = TimestampedRangeQuery.withRange(lo, hi);
                    return order.equals("descending") ? query.withDescendingKeys() : order.equals("ascending") ? query.withAscendingKeys() : query;
                }
                case "window_key": return WindowKeyQuery.withKeyAndWindowStartRange(key, time(asked, "from"), time(asked, "to"));
                case "window_range": return WindowRangeQuery.withWindowStartRange(time(asked, "from"), time(asked, "to"));
                case "sessions": return WindowRangeQuery.withKey(key);
                case "version": {
                    VersionedKeyQuery<Object, Object> query = VersionedKeyQuery.withKey(key);
                    return asked.has("as_of") ? query.asOf(time(asked, "as_of")) : query;
                }
                case "versions": {
                    MultiVersionedKeyQuery<Object, Object> query = MultiVersionedKeyQuery.withKey(key);
                    query = asked.has("from") ? query.fromTime(time(asked, "from")) : query;
                    query = asked.has("to") ? query.toTime(time(asked, "to")) : query;
                    return order.equals("descending") ? query.withDescendingTimestamps() : order.equals("ascending") ? query.withAscendingTimestamps() : query;
                }
                default: throw new IllegalArgumentException(asked.toString());
            }
        }

        static Object key(JsonNode given) {
            return given == null || given.isNull() ? null : given.isTextual() ? given.asText() : (Object) given.asLong();
        }

        static Instant time(JsonNode asked, String name) {
            return Instant.ofEpochMilli(asked.get(name).asLong());
        }
    }

    /** The calls of its first interface. */
    static final class View {
        private final KafkaStreams streams;
        private final JsonNode step;
        private final List<Object> given = new ArrayList<>();

        View(KafkaStreams streams, JsonNode step) {
            this.streams = streams;
            this.step = step;
            step.get("arguments").forEach(each -> given.add(Queries.key(each)));
        }

        Object call() {
            switch (step.get("view").asText()) {
                case "key_value": return keyValue(store(QueryableStoreTypes.keyValueStore()));
                case "timestamped_key_value": return keyValue(store(QueryableStoreTypes.timestampedKeyValueStore()));
                case "window": return window(store(QueryableStoreTypes.windowStore()));
                case "timestamped_window": return window(store(QueryableStoreTypes.timestampedWindowStore()));
                case "session": return session(store(QueryableStoreTypes.sessionStore()));
                default: throw new IllegalArgumentException(step.toString());
            }
        }

        private <T> T store(QueryableStoreType<?> type) {
            StoreQueryParameters<?> parameters = StoreQueryParameters.fromNameAndType(step.get("store").asText(), type);
            parameters = step.has("partition") ? parameters.withPartition(step.get("partition").asInt()) : parameters;
            parameters = step.path("stale").asBoolean() ? parameters.enableStaleStores() : parameters;
            return (T) streams.store(parameters);
        }

        private Object keyValue(ReadOnlyKeyValueStore store) {
            switch (step.get("call").asText()) {
                case "get": return store.get(given.get(0));
                case "range": return store.range(given.get(0), given.get(1));
                case "reverse_range": return store.reverseRange(given.get(0), given.get(1));
                case "all": return store.all();
                case "reverse_all": return store.reverseAll();
                case "prefix_scan": return store.prefixScan(given.get(0), new StringSerializer());
                case "approximate_num_entries": return store.approximateNumEntries();
                default: throw new IllegalArgumentException(step.toString());
            }
        }

        private Object window(ReadOnlyWindowStore store) {
            switch (step.get("call").asText()) {
                case "fetch": return given.size() == 2 ? store.fetch(given.get(0), number(1)) : store.fetch(given.get(0), time(1), time(2));
                case "backward_fetch": return store.backwardFetch(given.get(0), time(1), time(2));
                case "fetch_range": return store.fetch(given.get(0), given.get(1), time(2), time(3));
                case "backward_fetch_range": return store.backwardFetch(given.get(0), given.get(1), time(2), time(3));
                case "all": return store.all();
                case "backward_all": return store.backwardAll();
                case "fetch_all": return store.fetchAll(time(0), time(1));
                case "backward_fetch_all": return store.backwardFetchAll(time(0), time(1));
                default: throw new IllegalArgumentException(step.toString());
            }
        }

        private Object session(ReadOnlySessionStore store) {
            switch (step.get("call").asText()) {
                case "fetch": return store.fetch(given.get(0));
                case "backward_fetch": return store.backwardFetch(given.get(0));
                case "fetch_range": return store.fetch(given.get(0), given.get(1));
                case "backward_fetch_range": return store.backwardFetch(given.get(0), given.get(1));
                case "fetch_session": return store.fetchSession(given.get(0), number(1), number(2));
                case "find_sessions": return store.findSessions(given.get(0), number(1), number(2));
                case "backward_find_sessions": return store.backwardFindSessions(given.get(0), number(1), number(2));
                case "find_sessions_range": return store.findSessions(given.get(0), given.get(1), number(2), number(3));
                case "backward_find_sessions_range": return store.backwardFindSessions(given.get(0), given.get(1), number(2), number(3));
                default: throw new IllegalArgumentException(step.toString());
            }
        }

        private long number(int index) {
            return (Long) given.get(index);
        }

        private Instant time(int index) {
            return Instant.ofEpochMilli(number(index));
        }
    }

    /** Results as JSON. */
    static final class Answers {
        static JsonNode of(Object value) {
            if (value instanceof VersionedRecordIterator) {
                try (VersionedRecordIterator<?> all = (VersionedRecordIterator<?>) value) {
                    return list(all);
                }
            }
            if (value instanceof org.apache.kafka.streams.state.KeyValueIterator) {
                try (var all = (org.apache.kafka.streams.state.KeyValueIterator<?, ?>) value) {
                    return list(all);
                }
            }
            if (value instanceof KeyValue) {
                KeyValue<?, ?> pair = (KeyValue<?, ?>) value;
                return JSON.createArrayNode().add(of(pair.key)).add(of(pair.value));
            }
            if (value instanceof Windowed) {
                Windowed<?> key = (Windowed<?>) value;
                return JSON.createArrayNode().add(of(key.key())).add(key.window().start()).add(key.window().end());
            }
            if (value instanceof ValueAndTimestamp) {
                ValueAndTimestamp<?> timed = (ValueAndTimestamp<?>) value;
                return ((ObjectNode) JSON.createObjectNode().set("value", of(timed.value()))).put("timestamp", timed.timestamp());
            }
            if (value instanceof VersionedRecord) {
                VersionedRecord<?> version = (VersionedRecord<?>) value;
                ObjectNode told = ((ObjectNode) JSON.createObjectNode().set("value", of(version.value()))).put("timestamp", version.timestamp());
                return told.put("valid_to", version.validTo().orElse(null));
            }
            return JSON.valueToTree(value);
        }

        private static JsonNode list(Iterator<?> all) {
            ArrayNode list = JSON.createArrayNode();
            all.forEachRemaining(each -> list.add(of(each)));
            return list;
        }
    }
}
