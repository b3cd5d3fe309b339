package workloads;

import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** The topics of a run, and the marks of its first and last record. */
public final class Job {
    public final String input;
    public final String output;
    private final long expected;
    private final Marks marks;
    // Only one stream thread counts, so plain fields are sufficient.
    private boolean hasBegun;
    private long done;

    public Job(String input, String output, long expected, Marks marks) {
        this.input = input;
        this.output = output;
        this.expected = expected;
        this.marks = marks;
    }

    /** The name of another input topic. */
    public String otherTopic(String name) {
        return input + "-" + name;
    }

    /** Counts a record, and marks the end when the expected count is reached. */
    public void add() {
        add(1);
    }

    public void add(long count) {
        done += count;
        if (count > 0 && done == expected) {
            marks.put("last");
        }
    }

    private void begin() {
        if (!hasBegun) {
            hasBegun = true;
            marks.put("first");
        }
    }

    /** A wrapped serde that marks the first decoded record. */
    public <T> Serde<T> marking(Serde<T> serde) {
        Deserializer<T> inner = serde.deserializer();
        return Serdes.serdeFrom(serde.serializer(), (topic, data) -> {
            T value = inner.deserialize(topic, data);
            begin();
            return value;
        });
    }

    /** A wrapped serde that also counts decoded records. */
    public <T> Serde<T> counting(Serde<T> serde) {
        Deserializer<T> inner = serde.deserializer();
        return Serdes.serdeFrom(serde.serializer(), (topic, data) -> {
            T value = inner.deserialize(topic, data);
            begin();
            add();
            return value;
        });
    }

    /** Only counts one topic, because a store may use the same serde. */
    public <T> Serde<T> counting(Serde<T> serde, String of) {
        Deserializer<T> inner = serde.deserializer();
        return Serdes.serdeFrom(serde.serializer(), (topic, data) -> {
            T value = inner.deserialize(topic, data);
            begin();
            if (topic.equals(of)) {
                add();
            }
            return value;
        });
    }
}
