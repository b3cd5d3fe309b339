import com.linecorp.decaton.processor.DecatonProcessor;
import com.linecorp.decaton.processor.runtime.ProcessorProperties;
import com.linecorp.decaton.processor.runtime.ProcessorSubscription;
import com.linecorp.decaton.processor.runtime.ProcessorsBuilder;
import com.linecorp.decaton.processor.runtime.Property;
import com.linecorp.decaton.processor.runtime.StaticPropertySupplier;
import com.linecorp.decaton.processor.runtime.SubscriptionBuilder;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Processes the tasks in a topic with a Decaton subscription.
 *
 * <p>Arguments: bootstrap servers, topic, group, concurrency per partition, work (sleep | noop | http), number of tasks, and for
 * http the URL. Reads the topic from its start, and prints the nanoseconds between the start of the first task and the end of the
 * last one, then, after committing and closing, the total number of tasks.
 */
public final class DecatonPeer {
    static final long SLEEP_MS = 10;

    public static void main(String[] args) throws Exception {
        long expected = Long.parseLong(args[5]);
        DecatonProcessor<byte[]> work = switch (args[4]) {
            case "sleep" -> (context, task) -> Thread.sleep(SLEEP_MS);
            case "noop" -> (context, task) -> {};
            case "http" -> http(URI.create(args[6]));
            default -> throw new IllegalArgumentException("no such work: " + args[4]);
        };
        AtomicLong firstAt = new AtomicLong();
        AtomicLong lastAt = new AtomicLong();
        AtomicLong started = new AtomicLong();
        AtomicLong done = new AtomicLong();
        CountDownLatch allDone = new CountDownLatch(1);
        DecatonProcessor<byte[]> timed = (context, task) -> {
            if (started.getAndIncrement() == 0) {
                firstAt.set(System.nanoTime());
            }
            work.process(context, task);
            if (done.incrementAndGet() == expected) {
                lastAt.set(System.nanoTime());
                allDone.countDown();
            }
        };
        Properties consumer = new Properties();
        consumer.put("bootstrap.servers", args[0]);
        consumer.put("group.id", args[2]);
        consumer.put("client.id", args[2]);
        consumer.put("auto.offset.reset", "earliest");
        ProcessorSubscription subscription = SubscriptionBuilder.newBuilder(args[2])
            .consumerConfig(consumer)
            .processorsBuilder(ProcessorsBuilder.consuming(args[1], new ByteArrayDeserializer()).thenProcess(timed))
            .addProperties(StaticPropertySupplier.of(
                Property.ofStatic(ProcessorProperties.CONFIG_PARTITION_CONCURRENCY, Integer.valueOf(args[3])),
                // The MDC is for logging in tasks; these tasks do not log.
                Property.ofStatic(ProcessorProperties.CONFIG_LOGGING_MDC_ENABLED, false)))
            .buildAndStart();
        allDone.await();
        System.out.println("NANOSECONDS " + (lastAt.get() - firstAt.get()));
        subscription.close();
        System.out.println("TASKS " + done.get());
    }

    /** Sends a request and waits for the response. */
    static DecatonProcessor<byte[]> http(URI url) {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        HttpRequest request = HttpRequest.newBuilder(url).build();
        return (context, task) -> {
            try {
                int status = client.send(request, HttpResponse.BodyHandlers.ofByteArray()).statusCode();
                if (status != 200) {
                    throw new IllegalStateException("status " + status);
                }
            } catch (java.io.IOException error) {
                // Otherwise Decaton would count the task as processed.
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        };
    }
}
