package workloads;

/** A record of the input topic. */
public final class Event {
    public long id;
    public String user;
    public double amount;
    public String kind;

    /** The price with a tax of 20 %. */
    long cents() {
        return (long) (amount * 120);
    }
}
