package workloads;

import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** The topics of a run, and the marks of its first record and of the last one. */
public final class Job {
    public final String input;
    public final String output;
    private final long expected;
    private final Marks marks;
    // One stream thread counts, so plain fields are enough.
    private boolean hasBegun;
    private long done;

    public Job(String input, String output, long expected, Marks marks) {
        this.input = input;
        this.output = output;
        this.expected = expected;
        this.marks = marks;
    }

    /** Another topic of the input. */
    public String beside(String name) {
        return input + "-" + name;
    }

    /** Counts one more; marks the end when all that is expected was there. */
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

    /** The same serde, which also tells that a first record is decoded. */
    public <T> Serde<T> reading(Serde<T> serde) {
        Deserializer<T> inner = serde.deserializer();
        return Serdes.serdeFrom(serde.serializer(), (topic, data) -> {
            T value = inner.deserialize(topic, data);
            begin();
            return value;
        });
    }

    /** The same serde, which also counts what is decoded. */
    public <T> Serde<T> counting(Serde<T> serde) {
        Deserializer<T> inner = serde.deserializer();
        return Serdes.serdeFrom(serde.serializer(), (topic, data) -> {
            T value = inner.deserialize(topic, data);
            begin();
            add();
            return value;
        });
    }

    /** The same of one topic only, as a store may decode with the same serde. */
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
