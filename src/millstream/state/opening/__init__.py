"""Opening stores: building the stack of layers that a store builder describes.

`store_layers` assembles the layers of each kind of store. `open_store` defines the environment that
the task provides (`StoreEnvironment`), the lowest layers, and the result (`OpenStore`).
"""
