package workloads;

import org.apache.kafka.streams.Topology;

/** One job; the class is called like its file in benchmarks/workloads. */
public interface Workload {
    Topology topology(Job job);

    /** How much a job counts until the last record was there. */
    default long steps(long records) {
        return records;
    }
}
