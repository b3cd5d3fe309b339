package workloads;

import java.util.Arrays;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Counts the words of lines, through a repartition topic. */
public final class Wordcount implements Workload {
    private static final int WORDS_OF_A_LINE = 8;

    @Override
    public Topology topology(Job job) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(job.input, Consumed.with(Serdes.String(), job.marking(Serdes.String())))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy(
                (user, word) -> word,
                Grouped.with("counts", Serdes.String(), job.counting(Serdes.String())))
            .count(Materialized.as("counted"))
            .toStream()
            .to(job.output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    @Override
    public long steps(long records) {
        return records * WORDS_OF_A_LINE;
    }
}
