package workloads;

/** Identical to `stateless`, whose values already have types. */
public final class StatelessTyped extends Stateless {}
