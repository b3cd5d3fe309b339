// Runs Kafka Streams' own assignors: reads groups as lines of JSON and prints the same lines with the assignments.
// In Kafka's package for access to constructors and methods that are not public.
package org.apache.kafka.streams.processor.internals.assignment;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.ProcessId;
import org.apache.kafka.streams.processor.internals.InternalTopicManager;
import org.apache.kafka.streams.processor.internals.TopologyMetadata.Subtopology;

public final class RecordAssignments {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode group = (ObjectNode) JSON.readTree(line);
            new RecordAssignments(group).decide();
            out.print(JSON.writeValueAsString(group) + "\n");
        }
    }

    private final ObjectNode group;
    private final TreeMap<ProcessId, ClientState> clients = new TreeMap<>();
    private final AssignmentConfigs configs;
    /** One broker in each rack. */
    private final Map<String, Node> brokers = new HashMap<>();

    private RecordAssignments(ObjectNode group) {
        this.group = group;
        for (JsonNode process : group.get("processes")) {
            ProcessId id = new ProcessId(UUID.fromString(process.get("id").asText()));
            Map<TaskId, Long> lags = new HashMap<>();
            process.get("lags").fields().forEachRemaining(e -> lags.put(TaskId.parse(e.getKey()), e.getValue().asLong()));
            Map<String, String> tags = new TreeMap<>();
            process.get("tags").fields().forEachRemaining(e -> tags.put(e.getKey(), e.getValue().asText()));
            clients.put(id, new ClientState(Set.of(), Set.of(), lags, tags, process.get("threads").asInt(), id));
        }
        List<String> tags = new ArrayList<>();
        group.get("tags").forEach(tag -> tags.add(tag.asText()));
        configs = new AssignmentConfigs(
            group.get("acceptable").asLong(),
            group.get("warmups").asInt(),
            group.get("standbys").asInt(),
            60_000L,
            tags,
            cost("traffic"),
            cost("overlap"),
            group.path("strategy").asText(StreamsConfig.RACK_AWARE_ASSIGNMENT_STRATEGY_NONE)
        );
    }

    private OptionalInt cost(String name) {
        JsonNode given = group.path(name);
        return given.isInt() ? OptionalInt.of(given.asInt()) : OptionalInt.empty();
    }

    private void decide() {
        RackAwareTaskAssignor racks = racks();
        switch (group.path("mode").asText("ha")) {
            case "ha":
                group.put("probing", new HighAvailabilityTaskAssignor().assign(clients, tasks(), stateful(), racks, configs));
                break;
            case "active":
                loadInitialAssignment();
                if (racks.canEnableRackAwareAssignor()) {
                    racks.optimizeActiveTasks(named(group.get("some")), clients, configs.rackAwareTrafficCost().orElse(1),
                        configs.rackAwareNonOverlapCost().orElse(10));
                }
                break;
            case "standby":
                loadInitialAssignment();
                if (racks.canEnableRackAwareAssignor()) {
                    racks.optimizeStandbyTasks(clients, configs.rackAwareTrafficCost().orElse(1),
                        configs.rackAwareNonOverlapCost().orElse(10), (source, destination, task, all) -> true);
                }
                break;
            default:
                throw new IllegalArgumentException(group.get("mode").asText());
        }
        ObjectNode result = JSON.createObjectNode();
        clients.forEach((id, client) -> {
            ObjectNode mine = result.putObject(id.id().toString());
            list(mine.putArray("active"), client.activeTasks());
            list(mine.putArray("standby"), client.standbyTasks());
        });
        group.set("result", result);
    }

    /** Loads the random initial assignment, which the optimization improves. */
    private void loadInitialAssignment() {
        clients.forEach((id, client) -> {
            JsonNode before = group.get("before").get(id.id().toString());
            named(before.get("active")).forEach(client::assignActive);
            named(before.get("standby")).forEach(client::assignStandby);
        });
    }

    private TreeSet<TaskId> tasks() {
        JsonNode tasks = group.get("tasks");
        return tasks.isArray() ? named(tasks) : keys(tasks);
    }

    private TreeSet<TaskId> stateful() {
        return group.has("stateful") ? named(group.get("stateful")) : keys(group.get("changelogs"));
    }

    private static TreeSet<TaskId> named(JsonNode names) {
        TreeSet<TaskId> tasks = new TreeSet<>();
        names.forEach(name -> tasks.add(TaskId.parse(name.asText())));
        return tasks;
    }

    private static TreeSet<TaskId> keys(JsonNode map) {
        TreeSet<TaskId> tasks = new TreeSet<>();
        map.fieldNames().forEachRemaining(name -> tasks.add(TaskId.parse(name)));
        return tasks;
    }

    private static void list(ArrayNode array, Set<TaskId> tasks) {
        new TreeSet<>(tasks).forEach(task -> array.add(task.toString()));
    }

    private RackAwareTaskAssignor racks() {
        Map<TaskId, Set<TopicPartition>> sources = partitions("tasks");
        Map<TaskId, Set<TopicPartition>> changelogs = partitions("changelogs");
        Map<Subtopology, Set<TaskId>> bySubtopology = new HashMap<>();
        for (TaskId task : tasks()) {
            bySubtopology.computeIfAbsent(new Subtopology(task.subtopology(), null), any -> new HashSet<>()).add(task);
        }
        Map<ProcessId, Map<String, Optional<String>>> racks = new HashMap<>();
        for (JsonNode process : group.get("processes")) {
            JsonNode rack = process.path("rack");
            racks.put(new ProcessId(UUID.fromString(process.get("id").asText())),
                Map.of("consumer", rack.isTextual() ? Optional.of(rack.asText()) : Optional.empty()));
        }
        List<PartitionInfo> infos = new ArrayList<>();
        sources.values().forEach(all -> all.forEach(partition -> {
            Node[] nodes = nodes(partition);
            infos.add(new PartitionInfo(partition.topic(), partition.partition(), nodes[0], nodes, nodes));
        }));
        Cluster cluster = new Cluster("cluster", brokers.values(), infos, Set.of(), Set.of());
        return new RackAwareTaskAssignor(cluster, sources, changelogs, bySubtopology, racks, new Topics(), configs, Time.SYSTEM);
    }

    private Map<TaskId, Set<TopicPartition>> partitions(String name) {
        Map<TaskId, Set<TopicPartition>> found = new TreeMap<>();
        JsonNode given = group.path(name);
        if (given.isObject()) {
            given.fields().forEachRemaining(e -> {
                Set<TopicPartition> all = new HashSet<>();
                e.getValue().forEach(each -> all.add(partition(each.asText())));
                found.put(TaskId.parse(e.getKey()), all);
            });
        }
        return found;
    }

    private static TopicPartition partition(String text) {
        int dash = text.lastIndexOf('-');
        return new TopicPartition(text.substring(0, dash), Integer.parseInt(text.substring(dash + 1)));
    }

    private Node[] nodes(TopicPartition partition) {
        List<Node> nodes = new ArrayList<>();
        group.get("racks").get(partition.toString()).forEach(rack -> nodes.add(
            brokers.computeIfAbsent(rack.asText(), name -> new Node(brokers.size(), name, 9092, name))));
        return nodes.toArray(new Node[0]);
    }

    /** Returns the replicas of changelogs, which the real class requests from the cluster. */
    private final class Topics extends InternalTopicManager {
        Topics() {
            super(Time.SYSTEM, (Admin) Proxy.newProxyInstance(Admin.class.getClassLoader(), new Class<?>[] {Admin.class},
                (proxy, method, arguments) -> null), new StreamsConfig(Map.of(
                    StreamsConfig.APPLICATION_ID_CONFIG, "app", StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092")));
        }

        @Override
        public Map<String, List<TopicPartitionInfo>> getTopicPartitionInfo(Set<String> topics) {
            Map<String, List<TopicPartitionInfo>> found = new HashMap<>();
            group.get("racks").fieldNames().forEachRemaining(name -> {
                TopicPartition partition = partition(name);
                if (topics.contains(partition.topic())) {
                    Node[] nodes = nodes(partition);
                    found.computeIfAbsent(partition.topic(), any -> new ArrayList<>()).add(
                        new TopicPartitionInfo(partition.partition(), nodes[0], List.of(nodes), List.of(nodes)));
                }
            });
            return found;
        }
    }
}
