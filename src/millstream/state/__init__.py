"""What an application remembers: state stores, layer upon layer.

A store's way: `stores` makes its builder (`builders`), `task_stores` opens it with all others of a
task (`opening`), restores, commits and closes them. What is opened are layers: bytes at the bottom
(`storage`), then what writes the changelog (`changelogs`), then perhaps a cache (`caches`), and on
top what processors and operators use (`keyvalue`, `windows`, `versioned`, `buffers`). `directories`
is where all of that lies on disk. Rooms know those to their left only: storage, changelogs, caches,
builders and keyvalue, then windows, versioned and buffers, opening.
"""
