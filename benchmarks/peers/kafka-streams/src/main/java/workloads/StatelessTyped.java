package workloads;

/** The same as `stateless`: its values have types already. */
public final class StatelessTyped extends Stateless {}
