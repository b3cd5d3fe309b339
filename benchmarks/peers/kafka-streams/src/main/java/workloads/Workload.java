package workloads;

import org.apache.kafka.streams.Topology;

/** A job; the class is named like its file in benchmarks/workloads. */
public interface Workload {
    Topology topology(Job job);

    /** The count at the last record of a job. */
    default long steps(long records) {
        return records;
    }
}
