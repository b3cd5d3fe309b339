package workloads;

/** A row of the table of users. */
public final class User {
    public String user;
    public String town;

    /** The number of rows in the table for this number of records. */
    static long of(long records) {
        return Math.min(10_000, records / 10);
    }
}
