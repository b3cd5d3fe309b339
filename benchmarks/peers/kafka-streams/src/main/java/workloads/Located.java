package workloads;

import com.fasterxml.jackson.annotation.JsonPropertyOrder;

/** An event and the town of its user. */
@JsonPropertyOrder({"id", "user", "amount", "kind", "town"})
public final class Located {
    public long id;
    public String user;
    public double amount;
    public String kind;
    public String town;

    static Located of(Event event, User user) {
        Located located = new Located();
        located.id = event.id;
        located.user = event.user;
        located.amount = event.amount;
        located.kind = event.kind;
        located.town = user.town;
        return located;
    }
}
