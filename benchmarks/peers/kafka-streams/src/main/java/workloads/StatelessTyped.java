package workloads;

/** The same as `stateless`, whose values already have types. */
public final class StatelessTyped extends Stateless {}
