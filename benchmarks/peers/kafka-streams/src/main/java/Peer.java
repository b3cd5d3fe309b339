import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.processor.StateRestoreListener;
import workloads.Job;
import workloads.Marks;
import workloads.Workload;

/**
 * Runs a workload of the benchmark on Kafka Streams, with one stream thread.
 *
 * <p>Arguments: the workload (stream_table is the class workloads.StreamTable), input topic, output
 * topic, number of records, marks file, then Kafka Streams settings as key=value. Runs until SIGTERM,
 * then closes, which commits. Writes the marks for the harness: running, first (record decoded), last
 * (expected record decoded), and for each restored partition "restoring p" and "restored p records".
 */
public final class Peer {
    public static void main(String[] args) throws Exception {
        Workload workload = workload(args[0]);
        Marks marks = new Marks(Path.of(args[4]));
        Job job = new Job(args[1], args[2], workload.steps(Long.parseLong(args[3])), marks);
        Properties settings = new Properties();
        for (int i = 5; i < args.length; i++) {
            int equals = args[i].indexOf('=');
            settings.put(args[i].substring(0, equals), args[i].substring(equals + 1));
        }

        Topology topology = workload.topology(job);
        KafkaStreams streams = new KafkaStreams(topology, settings);
        CountDownLatch stop = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                marks.put("running");
            }
        });
        streams.setGlobalStateRestoreListener(new Restored(marks));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            stop.countDown();
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(30));
            stop.countDown();
        }));
        streams.start();
        stop.await();
    }

    private static Workload workload(String name) throws ReflectiveOperationException {
        StringBuilder type = new StringBuilder("workloads.");
        for (String word : name.split("_")) {
            type.append(Character.toUpperCase(word.charAt(0))).append(word.substring(1));
        }
        return (Workload) Class.forName(type.toString()).getDeclaredConstructor().newInstance();
    }

    /** Marks the start and end of the restoration of each partition. */
    record Restored(Marks marks) implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition place, String store, long start, long end) {
            marks.put("restoring " + place.partition());
        }

        @Override
        public void onBatchRestored(TopicPartition place, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition place, String store, long total) {
            marks.put("restored " + place.partition() + " " + total);
        }
    }
}
