// Prints how Decaton 9.5 writes and reads tasks. Each line is a request of words separated by tabs, with texts and bytes in hexadecimal.
//   put APPLICATION INSTANCE TIMESTAMP SCHEDULED OLD KEY TASK  ->  KEY VALUE HEADER    the record of DecatonClient
//   write TIMESTAMP APPLICATION INSTANCE RETRIES SCHEDULED     ->  BYTES
//   read BYTES                                                 ->  the five words above, or "refused"
//   request BYTES                                              ->  those, and TASK, or "refused"
import com.linecorp.decaton.client.DecatonClient;
import com.linecorp.decaton.client.DecatonClient.TaskMetadata;
import com.linecorp.decaton.protocol.Decaton.TaskMetadataProto;
import com.linecorp.decaton.protocol.internal.DecatonInternal.DecatonTaskRequest;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Properties;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class RecordDecatonTasks {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split("\t", -1);
            System.out.println(switch (words[0]) {
                case "put" -> put(words);
                case "write" -> HEX.formatHex(metadata(words, 1).toByteArray());
                case "read" -> read(HEX.parseHex(words[1]));
                case "request" -> request(HEX.parseHex(words[1]));
                default -> throw new IllegalArgumentException(line);
            });
        }
    }

    private static String put(String[] words) throws Exception {
        MockProducer<byte[], byte[]> producer =
            new MockProducer<>(true, new ByteArraySerializer(), new ByteArraySerializer());
        TaskMetadata metadata = TaskMetadata.builder()
            .timestamp(Long.parseLong(words[3]))
            .scheduledTime(words[4].isEmpty() ? null : Long.valueOf(words[4]))
            .build();
        try (DecatonClient<byte[]> client = DecatonClient.<byte[]>producing("tasks", task -> task)
                .applicationId(text(words[1]))
                .instanceId(text(words[2]))
                .producerConfig(new Properties())
                .producerSupplier(config -> producer)
                .produceInOldTaskRequest(Boolean.parseBoolean(words[5]))
                .build()) {
            client.put(words[6].equals("null") ? null : text(words[6]), HEX.parseHex(words[7]), metadata).get();
        }
        ProducerRecord<byte[], byte[]> record = producer.history().get(0);
        Header header = record.headers().lastHeader("dt_meta");
        return String.join("\t", hex(record.key()), hex(record.value()), hex(header == null ? null : header.value()));
    }

    private static TaskMetadataProto metadata(String[] words, int from) {
        return TaskMetadataProto.newBuilder()
            .setTimestampMillis(Long.parseLong(words[from]))
            .setSourceApplicationId(text(words[from + 1]))
            .setSourceInstanceId(text(words[from + 2]))
            .setRetryCount(Long.parseLong(words[from + 3]))
            .setScheduledTimeMillis(Long.parseLong(words[from + 4]))
            .build();
    }

    private static String read(byte[] data) {
        try {
            return told(TaskMetadataProto.parseFrom(data));
        } catch (Exception refused) {
            return "refused";
        }
    }

    private static String request(byte[] data) {
        try {
            DecatonTaskRequest request = DecatonTaskRequest.parseFrom(data);
            return told(request.getMetadata()) + "\t" + hex(request.getSerializedTask().toByteArray());
        } catch (Exception refused) {
            return "refused";
        }
    }

    private static String told(TaskMetadataProto metadata) {
        return String.join("\t", Long.toString(metadata.getTimestampMillis()), hex(bytes(metadata.getSourceApplicationId())),
            hex(bytes(metadata.getSourceInstanceId())), Long.toString(metadata.getRetryCount()),
            Long.toString(metadata.getScheduledTimeMillis()));
    }

    private static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String hex(byte[] data) {
        return data == null ? "null" : HEX.formatHex(data);
    }
}
