// Prints the bytes of subscriptions and assignments from Kafka Streams' own encoders: one JSON object with hexadecimal strings.
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo;
import org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo;
import org.apache.kafka.streams.state.HostInfo;

public final class RecordWireFormats {
    private static final int LATEST = 11;
    private static final ProcessId PROCESS = new ProcessId(UUID.fromString("123e4567-e89b-12d3-a456-426614174000"));
    private static final TaskId A = new TaskId(0, 0), B = new TaskId(0, 1), C = new TaskId(1, 2);

    private final ObjectNode subscriptions;
    private final ObjectNode assignments;

    private RecordWireFormats(ObjectNode all) {
        subscriptions = all.putObject("subscription");
        assignments = all.putObject("assignment");
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        ObjectNode all = json.createObjectNode();
        RecordWireFormats recorder = new RecordWireFormats(all);
        recorder.subscriptions();
        recorder.assignments();
        System.out.write((json.writeValueAsString(all) + "\n").getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private void subscriptions() {
        Map<TaskId, Long> sums = new TreeMap<>(Map.of(A, -2L, B, 10L, C, Long.MAX_VALUE));
        Map<String, String> tags = new LinkedHashMap<>();
        tags.put("cluster", "k1");
        tags.put("zone", "eu-1");
        for (int version = LATEST; version >= 7; version--) {
            subscription("full, version " + version, version, LATEST, "localhost:8080", sums, 3, 0, tags);
        }
        subscription("empty", LATEST, LATEST, "", Map.of(), 0, 0, Map.of());
        subscription("shutdown requested", LATEST, LATEST, "", Map.of(), -1, 4, Map.of());
        subscription("named topology", LATEST, LATEST, "h:1", Map.of(new TaskId(0, 1, "first"), 5L), 127, 0, Map.of());
        subscription("version 6", 6, LATEST, "localhost:8080", sums, 3, 0, Map.of());
        subscription("latest version 13", LATEST, 13, "", Map.of(), 0, 0, Map.of());
    }

    private void subscription(String name, int version, int latest, String endPoint, Map<TaskId, Long> sums, int unique,
                              int error, Map<String, String> tags) {
        put(subscriptions, name, new SubscriptionInfo(version, latest, PROCESS, endPoint, sums, (byte) unique, error, tags).encode());
    }

    private void assignments() {
        Map<TaskId, Set<TopicPartition>> standby = new LinkedHashMap<>();
        standby.put(B, set(tp("in", 1), tp("other", 1)));
        standby.put(C, Set.of());
        Map<HostInfo, Set<TopicPartition>> hosts = new LinkedHashMap<>();
        hosts.put(new HostInfo("localhost", 8080), set(tp("in", 0), tp("in", 1)));
        hosts.put(new HostInfo("other", 9090), set(tp("second", 2)));
        Map<HostInfo, Set<TopicPartition>> standbyHosts = Map.of(new HostInfo("other", 9090), set(tp("in", 1)));
        for (int version = LATEST; version >= 6; version--) {
            String name = version == 6 ? "version 6" : "full, version " + version;
            put(assignments, name, new AssignmentInfo(version, LATEST, List.of(A, A, C), standby, hosts, standbyHosts, 0).encode());
        }
        put(assignments, "rebalance now", due(0));
        put(assignments, "rebalance later", due(1_700_000_000_123L));
        for (int error = 0; error <= 4; error++) {
            put(assignments, "error " + error, new AssignmentInfo(LATEST, List.of(), Map.of(), Map.of(), Map.of(), error).encode());
        }
        List<TaskId> named = List.of(new TaskId(0, 1, "first"));
        put(assignments, "named topology", new AssignmentInfo(LATEST, named, Map.of(), Map.of(), Map.of(), 0).encode());
        Map<HostInfo, Set<TopicPartition>> notAscii = Map.of(new HostInfo("h\u00e9", 1), set(tp("t\u20ac", 0)));
        put(assignments, "not ASCII", new AssignmentInfo(LATEST, List.of(), Map.of(), notAscii, Map.of(), 0).encode());
    }

    private static ByteBuffer due(long timeMs) {
        AssignmentInfo info = new AssignmentInfo(LATEST, List.of(A), Map.of(), Map.of(), Map.of(), 0);
        info.setNextRebalanceTime(timeMs);
        return info.encode();
    }

    private static TopicPartition tp(String topic, int partition) {
        return new TopicPartition(topic, partition);
    }

    private static Set<TopicPartition> set(TopicPartition... partitions) {
        return new LinkedHashSet<>(List.of(partitions));
    }

    private static void put(ObjectNode all, String name, ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        all.put(name, HexFormat.of().formatHex(copy));
    }
}
