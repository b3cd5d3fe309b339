"""Beginning an application anew: offsets, internal topics and local state of before go.

Source of the semantics: Kafka's `StreamsResetter`.
"""
