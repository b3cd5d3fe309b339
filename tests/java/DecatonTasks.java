// Decaton 9.5 at one end of two topics, one of them in the format of Decaton before version 9.
// Arguments: write or read, bootstrap servers, the topic, the topic with the old format, the number of tasks in each.
// Reading prints for each task, separated by tabs: topic, key, text, time, application, instance, retries, scheduled time.
import com.linecorp.decaton.client.DecatonClient;
import com.linecorp.decaton.client.DecatonClient.TaskMetadata;
import com.linecorp.decaton.processor.DecatonProcessor;
import com.linecorp.decaton.processor.runtime.ProcessorProperties;
import com.linecorp.decaton.processor.runtime.ProcessorSubscription;
import com.linecorp.decaton.processor.runtime.ProcessorsBuilder;
import com.linecorp.decaton.processor.runtime.Property;
import com.linecorp.decaton.processor.runtime.StaticPropertySupplier;
import com.linecorp.decaton.processor.runtime.SubscriptionBuilder;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class DecatonTasks {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[4]);
        if (args[0].equals("write")) {
            write(args[1], args[2], false, count);
            write(args[1], args[3], true, count);
            return;
        }
        CountDownLatch left = new CountDownLatch(2 * count);
        try (ProcessorSubscription tasks = read(args[1], args[2], false, left);
             ProcessorSubscription old = read(args[1], args[3], true, left)) {
            if (!left.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " tasks did not come");
            }
        }
    }

    private static void write(String servers, String topic, boolean old, int count) throws Exception {
        Properties producer = new Properties();
        producer.put("bootstrap.servers", servers);
        try (DecatonClient<String> client = DecatonClient
                .<String>producing(topic, task -> task.getBytes(StandardCharsets.UTF_8))
                .applicationId("decaton")
                .instanceId("java")
                .producerConfig(producer)
                .produceInOldTaskRequest(old)
                .build()) {
            for (int i = 0; i < count; i++) {
                Long due = i % 2 == 0 ? null : Long.valueOf(i);
                client.put("key-" + i, "task-" + i, TaskMetadata.builder().timestamp(1_000L + i).scheduledTime(due).build())
                    .get();
            }
        }
    }

    private static ProcessorSubscription read(String servers, String topic, boolean old, CountDownLatch left)
            throws Exception {
        Properties consumer = new Properties();
        consumer.put("bootstrap.servers", servers);
        consumer.put("group.id", topic);
        consumer.put("client.id", topic);
        consumer.put("auto.offset.reset", "earliest");
        DecatonProcessor<String> print = (context, task) -> {
            var metadata = context.metadata();
            System.out.println(String.join("\t", topic, new String(context.key(), StandardCharsets.UTF_8), task,
                Long.toString(metadata.timestampMillis()), metadata.sourceApplicationId(), metadata.sourceInstanceId(),
                Long.toString(metadata.retryCount()), Long.toString(metadata.scheduledTimeMillis())));
            left.countDown();
        };
        return SubscriptionBuilder.newBuilder(topic)
            .consumerConfig(consumer)
            .processorsBuilder(ProcessorsBuilder.consuming(topic, new StringDeserializer()).thenProcess(print))
            .addProperties(StaticPropertySupplier.of(
                Property.ofStatic(ProcessorProperties.CONFIG_LEGACY_PARSE_FALLBACK_ENABLED, old)))
            .buildAndStart();
    }
}
