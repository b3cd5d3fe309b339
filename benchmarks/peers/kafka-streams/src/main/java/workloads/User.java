package workloads;

/** A row of the table of users. */
public final class User {
    public String user;
    public String town;

    /** How many of so many records are rows of that table. */
    static long of(long records) {
        return Math.min(10_000, records / 10);
    }
}
