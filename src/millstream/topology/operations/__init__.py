"""Descriptions of the operations of processor nodes.

There is one frozen dataclass per operation. A description contains the user's functions, the names
of stores and a few flags, but nothing that runs. Descriptions can be compared, printed, inspected,
and pickled with cloudpickle. `millstream.runtime.task.compile_operator` creates the operators of a
task from them.
"""
