"""What a processor node does, as data: one frozen dataclass for each operation.

A description holds the user's functions, the names of stores and a few flags, and nothing that
runs. So it can be compared, printed, pickled with cloudpickle, and read by whoever looks at a
topology. `millstream.runtime.task.compile_operator` makes the operators of a task of them.

`operation` is what all have in common, `streams` the operations on streams, `processors` the user's
own, `aggregations` those of grouped streams and tables, `tables` those on tables, `joins` those of
streams, `foreign_keys` the steps of a join of tables by a foreign key.
"""
