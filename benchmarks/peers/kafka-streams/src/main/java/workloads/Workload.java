package workloads;

import org.apache.kafka.streams.Topology;

/** A job. The name of the class corresponds to its file in benchmarks/workloads. */
public interface Workload {
    Topology topology(Job job);

    /** The count at the last record of a job. */
    default long steps(long records) {
        return records;
    }
}
