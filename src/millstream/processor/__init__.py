"""The Processor API: user code that processes single records, and its interfaces.

`processor` contains the base classes, `processor_context` their contexts, `punctuation` the types
of scheduled calls, `handlers` exception handlers, and `timestamps` timestamp extractors.
`task_context` defines the context that all nodes of a task share.

Each task creates its own processors and uses them from one thread. Operators process batches;
`operators.process` calls the processors record by record, and collects the records that they
forward. `runtime.task` implements the contexts.
"""
