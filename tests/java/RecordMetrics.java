// Lists the metrics of Kafka Streams: a line of JSON for each, with its group, name, labels, recording level and description.
// Every sensor is created by the same method as in Kafka Streams.
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.state.internals.metrics.RocksDBMetrics;

public final class RecordMetrics {
    private static final String INTERNALS = "org.apache.kafka.streams.processor.internals.";
    private static final String[] MAKERS = {
        "org.apache.kafka.streams.internals.metrics.ClientMetrics",
        INTERNALS + "metrics.ThreadMetrics",
        INTERNALS + "metrics.RebalanceListenerMetrics",
        INTERNALS + "metrics.TaskMetrics",
        INTERNALS + "metrics.ProcessorNodeMetrics",
        INTERNALS + "metrics.TopicMetrics",
        "org.apache.kafka.streams.state.internals.metrics.StateStoreMetrics",
        "org.apache.kafka.streams.state.internals.metrics.NamedCacheMetrics",
        "org.apache.kafka.streams.state.internals.metrics.RocksDBMetrics",
    };
    private static final Sensor.RecordingLevel[] LEVELS = {
        Sensor.RecordingLevel.INFO, Sensor.RecordingLevel.DEBUG, Sensor.RecordingLevel.TRACE,
    };

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TreeMap<String, ObjectNode> FOUND = new TreeMap<>();

    public static void main(String[] arguments) throws Exception {
        for (Sensor.RecordingLevel level : LEVELS) {
            for (String maker : MAKERS) {
                for (Method method : Class.forName(maker).getDeclaredMethods()) {
                    if (Modifier.isPublic(method.getModifiers()) && Modifier.isStatic(method.getModifiers()) && takesMetrics(method)) {
                        make(method, level);
                    }
                }
            }
            stateUpdater(level);
        }
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (ObjectNode metric : FOUND.values()) {
            out.println(JSON.writeValueAsString(metric));
        }
    }

    private static boolean takesMetrics(Method method) {
        return List.of(method.getParameterTypes()).contains(StreamsMetricsImpl.class);
    }

    private static Metrics metricsAt(Sensor.RecordingLevel level) {
        return new Metrics(new MetricConfig().recordLevel(level));
    }

    private static void make(Method method, Sensor.RecordingLevel level) throws Exception {
        Metrics metrics = metricsAt(level);
        StreamsMetricsImpl streams = new StreamsMetricsImpl(metrics, "client", Time.SYSTEM);
        Set<MetricName> before = new HashSet<>(metrics.metrics().keySet());
        List<Object> given = new ArrayList<>();
        for (Class<?> type : method.getParameterTypes()) {
            given.add(value(type, streams));
        }
        Object made = method.invoke(null, given.toArray());
        note(metrics, before, made instanceof Sensor sensor ? sensor : null, level);
    }

    private static void stateUpdater(Sensor.RecordingLevel level) throws Exception {
        Metrics metrics = metricsAt(level);
        StreamsMetricsImpl streams = new StreamsMetricsImpl(metrics, "client", Time.SYSTEM);
        Set<MetricName> before = new HashSet<>(metrics.metrics().keySet());
        Constructor<?> constructor = Class.forName(INTERNALS + "DefaultStateUpdater$StateUpdaterMetrics").getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        constructor.newInstance(null, streams, "thread");
        note(metrics, before, null, level);
    }

    private static Object value(Class<?> type, StreamsMetricsImpl streams) {
        if (type == StreamsMetricsImpl.class) return streams;
        if (type == String.class) return "x";
        if (type == long.class) return 0L;
        if (type == int.class) return 0;
        if (type == Sensor[].class) return new Sensor[0];
        if (type == RocksDBMetrics.RocksDBMetricContext.class) return new RocksDBMetrics.RocksDBMetricContext("0_0", "rocksdb", "store");
        if (type == Gauge.class) return (Gauge<Object>) (config, now) -> 0;
        return null;
    }

    private static void note(Metrics metrics, Set<MetricName> before, Sensor sensor, Sensor.RecordingLevel level) {
        for (KafkaMetric metric : metrics.metrics().values()) {
            MetricName name = metric.metricName();
            boolean records = sensor != null ? sensor.shouldRecord() : metric.config().recordLevel().shouldRecord(level.id);
            if (before.contains(name) || !records) {
                continue;
            }
            ObjectNode told = JSON.createObjectNode();
            told.put("group", name.group());
            told.put("name", name.name());
            told.put("level", level.name());
            told.put("labels", String.join(",", new TreeSet<>(name.tags().keySet())));
            told.put("description", name.description());
            FOUND.putIfAbsent(name.group() + " " + name.name(), told);
        }
    }
}
