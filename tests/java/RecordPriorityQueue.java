// Records how java.util.PriorityQueue breaks ties: reads lines of JSON and prints them with the polled order of the elements.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Comparator;
import java.util.PriorityQueue;

public final class RecordPriorityQueue {
    /** An input partition with the timestamp of its first record. */
    private record Element(int number, long timestamp) { }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode sequence = (ObjectNode) json.readTree(line);
            PriorityQueue<Element> queue = new PriorityQueue<>(Comparator.comparingLong(Element::timestamp));
            for (JsonNode timestamp : sequence.get("first")) {
                queue.offer(new Element(queue.size(), timestamp.asLong()));
            }
            ArrayNode polled = json.createArrayNode();
            for (JsonNode added : sequence.get("added")) {
                Element first = queue.poll();
                polled.add(first.number());
                queue.offer(new Element(first.number(), first.timestamp() + added.asLong()));
            }
            sequence.set("polled", polled);
            out.print(json.writeValueAsString(sequence) + "\n");
        }
    }
}
