"""Writing store changes to changelog topics, and restoring stores from them.

All changes of a store go through its `StoreChangelog` (`store_changelog`). The layers in
`logged_stores` log each write; other stores call the changelog themselves. `restore` applies
changelog records.
"""
