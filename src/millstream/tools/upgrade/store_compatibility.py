"""Comparing the stores of two versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from millstream.tools.topology_facts import StoreFacts, TopologyFacts
from millstream.tools.upgrade.findings import (
    UNKNOWN,
    UpgradeFinding,
    breaks,
    changes,
    compare_formats,
    compare_origins,
    stays,
)

_KIND: Final = "store"
_stays = partial(stays, _KIND)
_changes = partial(changes, _KIND)
_breaks = partial(breaks, _KIND)
_RENAME_OR_RESET: Final = (
    "Rename the new store to build it up from new records only, or reset the application "
    "(millstream reset) to recompute it."
)


def compare_stores(old: TopologyFacts, new: TopologyFacts) -> Iterator[UpgradeFinding]:
    before = {store.name: store for store in old.stores}
    after = {store.name: store for store in new.stores}
    gone = {name: store for name, store in before.items() if name not in after}
    come = {name: store for name, store in after.items() if name not in before}
    renamed = _renamed(gone, come)
    moved = _moved(old, new)
    for name, store in before.items():
        if name in after:
            yield from _compare_store(store, after[name], moved.get(name))
        elif name in renamed:
            yield _renamed_store(store, come[renamed[name]])
        else:
            yield _removed_store(store)
    for name, store in come.items():
        if name not in renamed.values():
            what = "is new: it starts empty and contains new records only"
            remedy = "Reset the application if it should include earlier records."
            yield _changes(name, what, remedy if store.changelog else "")


def _compare_store(
    old: StoreFacts, new: StoreFacts, moved: tuple[int, int] | None
) -> Iterator[UpgradeFinding]:
    found = [*_formats(old, new), *_times(old, new), *_changelogs(old, new)]
    found += compare_origins(_KIND, old, new)
    if old.storage != new.storage and UNKNOWN not in (old.storage, new.storage):
        restored = "it is restored from its changelog" if new.changelog else "it starts empty"
        finding = _changes if new.changelog else _breaks
        found.append(
            finding(old.name, f"is stored in {new.storage} instead of {old.storage}: {restored}")
        )
    if moved is not None:
        what = f"moves from sub-topology {moved[0]} to {moved[1]}, so its folders have other names"
        if new.changelog is not None:
            remedy = "It is restored from its changelog once, which may take a while."
            found.append(_changes(old.name, what, remedy))
        else:
            remedy = "It has no changelog, so its content on disk is lost."
            found.append(_breaks(old.name, what, remedy))
    yield from found or [_stays(old.name)]


def _formats(old: StoreFacts, new: StoreFacts) -> Iterator[UpgradeFinding]:
    """Yield the differences in the format of the store and its changelog."""
    if old.kind != new.kind or old.is_global != new.is_global:
        was, is_ = (f"{'global ' * each.is_global}{each.kind}" for each in (old, new))
        what = f"was a {was} store and is a {is_} store: its content cannot be read"
        yield _breaks(old.name, what, _RENAME_OR_RESET)
        return
    yield from compare_formats(_KIND, old, new, _RENAME_OR_RESET)
    if old.retain_duplicates != new.retain_duplicates:
        what = "changes whether windows keep several values of a key, and so the keys on disk"
        yield _breaks(old.name, what, _RENAME_OR_RESET)
    if old.timestamped != new.timestamped:
        what = f"values {'gain' if new.timestamped else 'lose'} timestamps"
        if old.changelog and new.changelog:
            remedy = "The changelog stays valid; the content on disk is restored from it once."
            yield _changes(old.name, what, remedy)
        else:
            yield _breaks(old.name, what, _RENAME_OR_RESET)
    if old.time_ordered != new.time_ordered:
        what = "changes whether windows are sorted by time: it is restored from its changelog"
        yield _changes(old.name, what)


def _times(old: StoreFacts, new: StoreFacts) -> Iterator[UpgradeFinding]:
    if old.kind != new.kind:
        return
    if old.window_size_ms != new.window_size_ms:
        what = (
            f"windows were {_span(old.window_size_ms)} long and would be "
            f"{_span(new.window_size_ms)}: existing windows would be read with the new length"
        )
        yield _breaks(old.name, what, _RENAME_OR_RESET)
    was, is_ = old.retention_ms or 0, new.retention_ms or 0
    if is_ < was:
        what = f"keeps {_span(is_)} instead of {_span(was)}: older entries are dropped"
        yield _changes(old.name, what)
    elif is_ > was:
        what = f"keeps {_span(is_)} instead of {_span(was)}: dropped entries are not recovered"
        remedy = (
            f"Kafka still applies the retention with which {old.changelog} was created: raise its "
            "retention.ms."
        )
        yield _changes(old.name, what, remedy if old.changelog else "")


def _changelogs(old: StoreFacts, new: StoreFacts) -> Iterator[UpgradeFinding]:
    if old.changelog == new.changelog:
        return
    if old.is_global:
        what = f"is filled from {new.changelog} instead of {old.changelog}"
        yield _changes(old.name, what, "It is read from the beginning.")
    elif new.changelog is None:
        what = f"no longer has a changelog ({old.changelog})"
        remedy = "The content is on local disks only: a task that moves starts empty."
        yield _breaks(old.name, what, remedy)
    elif new.source_changelog:
        what = f"is restored from its input {new.changelog} instead of {old.changelog}"
        remedy = f"{old.changelog} is no longer needed and can be deleted."
        yield _changes(old.name, what, remedy)
    else:
        before = "nothing" if old.changelog is None else old.changelog
        what = f"is restored from {new.changelog}, which is empty, instead of {before}"
        remedy = (
            f"{new.changelog} does not contain the current content, which is lost when a task "
            "moves or a disk fails: reset the application, or keep the old changelog."
        )
        yield _breaks(old.name, what, remedy)


def _renamed_store(old: StoreFacts, new: StoreFacts) -> UpgradeFinding:
    what = f"is now called {new.name}, which starts empty"
    if old.generated:
        remedy = (
            "Its generated name contains the number of preceding operators. Set the old name, "
            f"store={old.name!r}, to keep the content, and name all stores for the future."
        )
    else:
        remedy = f"Restore the old name, store={old.name!r}, or reset the application."
    return _breaks(old.name, what, remedy)


def _removed_store(old: StoreFacts) -> UpgradeFinding:
    remedy = ""
    if old.changelog and not old.source_changelog and not old.is_global:
        remedy = (
            f"Its changelog {old.changelog} stays on the cluster. Delete it when it is no longer "
            "needed."
        )
    return _changes(old.name, "was removed", remedy)


def _renamed(gone: Mapping[str, StoreFacts], come: Mapping[str, StoreFacts]) -> dict[str, str]:
    """Match removed stores with new ones that differ only in their names."""
    left = list(come.values())
    pairs: dict[str, str] = {}
    for name, store in gone.items():
        twin = next((each for each in left if _alike(store, each)), None)
        if twin is not None:
            left.remove(twin)
            pairs[name] = twin.name
    return pairs


def _alike(one: StoreFacts, other: StoreFacts) -> bool:
    return (one.kind, one.key, one.value, one.window_size_ms, one.is_global) == (
        other.kind,
        other.key,
        other.value,
        other.window_size_ms,
        other.is_global,
    ) and bool(one.changelog) == bool(other.changelog)


def _moved(old: TopologyFacts, new: TopologyFacts) -> dict[str, tuple[int, int]]:
    """Return the stores whose sub-topology has another number."""
    before = {store: part.id for part in old.subtopologies for store in part.stores}
    after = {store: part.id for part in new.subtopologies for store in part.stores}
    return {
        store: (number, after[store])
        for store, number in before.items()
        if store in after and after[store] != number
    }


def _span(span_ms: int | None) -> str:
    if span_ms is None:
        return "of no fixed length"
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if span_ms % length == 0 and span_ms:
            return f"{span_ms // length} {unit}"
    return f"{span_ms} ms"
