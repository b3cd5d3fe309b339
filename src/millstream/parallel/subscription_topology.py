"""What a subscription is to the engine: sources, its own operation, and sinks."""

from __future__ import annotations

from millstream.serdes import BYTES
from millstream.subscriptions.plan import Role, SubscriptionPart, SubscriptionPlan
from millstream.topology.call_site import call_site
from millstream.topology.operations.subscriptions import Subscribe
from millstream.topology.physical.topology import Topology


def subscription_topology(plan: SubscriptionPlan, topic: str, shaping: str | None) -> Topology:
    """Each of its topics is a sub-topology of its own, so that each partition is a task.

    Args:
        plan: the subscription.
        topic: its topic.
        shaping: the topic for tasks of keys above their quota; None without one.
    """
    topology = Topology()
    _add_part(topology, plan, topic, "origin", topic, shaping)
    if plan.retry is not None:
        _add_part(topology, plan, plan.retry.topic_for(topic), "retry", topic, None)
    if shaping is not None:
        _add_part(topology, plan, shaping, "shaping", topic, None)
    return topology


def _add_part(
    topology: Topology,
    plan: SubscriptionPlan,
    topic: str,
    role: Role,
    origin: str,
    shaping: str | None,
) -> None:
    name = f"{plan.name}-{role}"
    source = f"{name}-source"
    topology.add_source(source, topic, key=BYTES, value=BYTES)
    retry = plan.retry
    sinks = {
        "retries": retry.topic_for(origin) if retry else None,
        "dead_letters": retry.dead_letter_topic if retry else None,
        "shaping": shaping,
    }
    nodes = {what: f"{name}-{what}" for what, to in sinks.items() if to is not None}
    topology._add_operation(
        name, Subscribe(SubscriptionPart(plan, topic, role, **nodes)), source, call_site()
    )
    for what, node in nodes.items():
        to = sinks[what]
        assert to is not None
        topology.add_sink(node, to, name, key=BYTES, value=BYTES)
