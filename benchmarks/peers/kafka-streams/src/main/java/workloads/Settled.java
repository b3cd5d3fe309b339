package workloads;

/** A joined order and payment. */
public final class Settled {
    public long order;
    public long payment;
    public long due;

    static Settled of(Event order, Event payment) {
        Settled settled = new Settled();
        settled.order = order.id;
        settled.payment = payment.id;
        settled.due = order.cents() - payment.cents();
        return settled;
    }
}
