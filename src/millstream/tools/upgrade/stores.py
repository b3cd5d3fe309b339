"""Stores of two versions: which are the same, which are read as something else, which are lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from millstream.tools.facts import StoreFacts, TopologyFacts
from millstream.tools.upgrade.findings import Finding, Level
from millstream.tools.upgrade.formats import UNKNOWN, compare_formats, same_origin

_KIND: Final = "store"
_ANEW: Final = (
    "Give the new one another name, and it is built up from what comes from now on; or reset the "
    "application (millstream reset), and all of it is computed anew."
)


def compare_stores(old: TopologyFacts, new: TopologyFacts) -> Iterator[Finding]:
    """What becomes of each store."""
    before = {store.name: store for store in old.stores}
    after = {store.name: store for store in new.stores}
    gone = {name: store for name, store in before.items() if name not in after}
    come = {name: store for name, store in after.items() if name not in before}
    renamed = _renamed(gone, come)
    moved = _moved(old, new)
    for name, store in before.items():
        if name in after:
            yield from _same_name(store, after[name], moved.get(name))
        elif name in renamed:
            yield _lost_by_name(store, come[renamed[name]])
        else:
            yield _gone(store)
    for name, store in come.items():
        if name not in renamed.values():
            what = "is new: it begins empty, with what comes from now on"
            remedy = "If it is to know what came before, reset the application."
            yield Finding(Level.CHANGES, _KIND, name, what, remedy if store.changelog else "")


def _same_name(
    old: StoreFacts, new: StoreFacts, moved: tuple[int, int] | None
) -> Iterator[Finding]:
    found = [*_formats(old, new), *_times(old, new), *_changelogs(old, new)]
    found += same_origin(_KIND, old, new)
    if old.storage != new.storage and UNKNOWN not in (old.storage, new.storage):
        restored = "it is restored from its changelog" if new.changelog else "it begins empty"
        level = Level.CHANGES if new.changelog else Level.BREAKS
        what = f"is kept in {new.storage} instead of {old.storage}: {restored}"
        found.append(Finding(level, _KIND, old.name, what))
    if moved is not None:
        what = f"moves from sub-topology {moved[0]} to {moved[1]}, and its tasks' folders with it"
        if new.changelog is not None:
            remedy = "It is restored from its changelog once, which takes its time."
            found.append(Finding(Level.CHANGES, _KIND, old.name, what, remedy))
        else:
            remedy = "It has no changelog, so what is on disk is not found again."
            found.append(Finding(Level.BREAKS, _KIND, old.name, what, remedy))
    yield from found or [Finding(Level.STAYS, _KIND, old.name)]


def _formats(old: StoreFacts, new: StoreFacts) -> Iterator[Finding]:
    """What is in the store and its changelog, and would be read as something else."""
    if old.kind != new.kind or old.is_global != new.is_global:
        was, is_ = (f"{'global ' * each.is_global}{each.kind}" for each in (old, new))
        what = f"was a {was} store and is a {is_} one: what is kept cannot be read"
        yield Finding(Level.BREAKS, _KIND, old.name, what, _ANEW)
        return
    yield from compare_formats(_KIND, old, new, _ANEW)
    if old.retain_duplicates != new.retain_duplicates:
        what = "keeps several values of a key in a window, or did: keys on disk are others"
        yield Finding(Level.BREAKS, _KIND, old.name, what, _ANEW)
    if old.timestamped != new.timestamped:
        what = f"values {'get' if new.timestamped else 'lose'} their timestamps"
        remedy = "The changelog stays as it is; what is on disk is restored from it once."
        level = Level.CHANGES if old.changelog and new.changelog else Level.BREAKS
        yield Finding(level, _KIND, old.name, what, remedy if level is Level.CHANGES else _ANEW)
    if old.time_ordered != new.time_ordered:
        what = "windows are sorted by time first, or were: they are restored from the changelog"
        yield Finding(Level.CHANGES, _KIND, old.name, what)


def _times(old: StoreFacts, new: StoreFacts) -> Iterator[Finding]:
    if old.kind != new.kind:
        return
    if old.window_size_ms != new.window_size_ms:
        what = (
            f"windows were {_span(old.window_size_ms)} long and would be "
            f"{_span(new.window_size_ms)}: those of before would be read with the new length"
        )
        yield Finding(Level.BREAKS, _KIND, old.name, what, _ANEW)
    was, is_ = old.retention_ms or 0, new.retention_ms or 0
    if is_ < was:
        what = f"keeps {_span(is_)} instead of {_span(was)}: what is older is dropped"
        yield Finding(Level.CHANGES, _KIND, old.name, what)
    elif is_ > was:
        what = f"keeps {_span(is_)} instead of {_span(was)}: what was dropped does not come back"
        remedy = (
            f"Kafka deletes from {old.changelog} as was set when that was created: raise its "
            "retention.ms."
        )
        yield Finding(Level.CHANGES, _KIND, old.name, what, remedy if old.changelog else "")


def _changelogs(old: StoreFacts, new: StoreFacts) -> Iterator[Finding]:
    if old.changelog == new.changelog:
        return
    if old.is_global:
        what = f"is filled from {new.changelog} instead of {old.changelog}"
        yield Finding(Level.CHANGES, _KIND, old.name, what, "It is read from the beginning.")
    elif new.changelog is None:
        what = f"has no changelog any more ({old.changelog})"
        remedy = "What is on a disk is all there is: a task that moves begins empty."
        yield Finding(Level.BREAKS, _KIND, old.name, what, remedy)
    elif new.source_changelog:
        what = f"is restored from its input {new.changelog} instead of {old.changelog}"
        remedy = f"{old.changelog} is not needed any more, and can be deleted."
        yield Finding(Level.CHANGES, _KIND, old.name, what, remedy)
    else:
        before = "nothing" if old.changelog is None else old.changelog
        what = f"is restored from {new.changelog}, which is empty, instead of {before}"
        remedy = (
            "What was there before is not in it, and is lost when a task moves or its disk does: "
            "reset the application, or leave the changelog as it was."
        )
        yield Finding(Level.BREAKS, _KIND, old.name, what, remedy)


def _lost_by_name(old: StoreFacts, new: StoreFacts) -> Finding:
    what = f"is called {new.name} now, which begins empty"
    if old.generated:
        remedy = (
            "Its name was made of the number of operators before it. Give it the old one, "
            f"store={old.name!r}, and it goes on; and name all stores for the next time."
        )
    else:
        remedy = f"Give it the old name back, store={old.name!r}, or reset the application."
    return Finding(Level.BREAKS, _KIND, old.name, what, remedy)


def _gone(old: StoreFacts) -> Finding:
    what = "is not there any more"
    remedy = ""
    if old.changelog and not old.source_changelog and not old.is_global:
        remedy = f"Its changelog {old.changelog} stays on the cluster: delete it when it is sure."
    return Finding(Level.CHANGES, _KIND, old.name, what, remedy)


def _renamed(gone: Mapping[str, StoreFacts], come: Mapping[str, StoreFacts]) -> dict[str, str]:
    """Which stores that have gone are most likely which new ones: alike but for their names."""
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
    """The stores that are in a sub-topology of another number."""
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
