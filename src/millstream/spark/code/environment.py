"""Compares a worker's Python and package versions with the driver's.

A pickle from one version of Python or of a library may fail in obscure ways under another version,
so all differences are reported in one error before anything is unpickled.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from millstream.errors import EnvironmentMismatchError
from millstream.native import loaded_version

#: A package, the driver's version and the worker's version; None for a package that is not
#: installed.
Difference = tuple[str, str | None, str | None]

PACKAGES: Final = (
    "millstream",
    "confluent-kafka",
    "kafka-python",
    "rocksdict",
    "cloudpickle",
    "msgspec",
    "orjson",
)

#: Packages that the driver may lack. If it has them, the workers need the same versions: a topology
#: or a DataFrame that was built with such a package uses it in the workers.
OPTIONAL_PACKAGES: Final = ("pyarrow",)

#: The C extension, which either side may lack. It is not a package of its own.
EXTENSION: Final = "the C extension"


def installed_versions() -> dict[str, str | None]:
    """Return the versions that must be equal on driver and workers, by package."""
    versions: dict[str, str | None] = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    for package in PACKAGES + OPTIONAL_PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {**versions, EXTENSION: loaded_version()}


def checked_task(
    versions: Mapping[str, str | None], plan: bytes
) -> Callable[[Iterable[Any]], list[Any]]:
    """Return the function of the Spark task that runs a pickled plan.

    Before it runs the plan, the function compares the versions of packages. It returns one element:
    the encoded `ThreadExit`, or the list of differences. It must run even if the worker lacks
    Millstream or has another version. Therefore, it is a closure, which Spark's pickler ships by
    value (it would ship a module-level function by name), and it uses only the standard library
    until it has compared the versions.

    The function does not read its input. PySpark never reuses a worker whose task left input
    unread, even if reuse is enabled, so the memory of a stream thread is freed with its process.
    """
    drivers = dict(versions)
    optional = OPTIONAL_PACKAGES
    extension = EXTENSION

    def run_thread(_: Iterable[Any]) -> list[Any]:
        import importlib.metadata as metadata
        import sys as system

        differences = []
        for package, drivers_version in drivers.items():
            workers_version: str | None
            if package == "python":
                workers_version = f"{system.version_info[0]}.{system.version_info[1]}"
            elif package == extension:
                # An earlier version of Millstream has no such module, and is reported as such.
                try:
                    from millstream.native import loaded_version

                    workers_version = loaded_version()
                except ImportError:
                    workers_version = None
            else:
                try:
                    workers_version = metadata.version(package)
                except metadata.PackageNotFoundError:
                    workers_version = None
            if package in optional and drivers_version is None:
                continue
            if package == extension and None in (drivers_version, workers_version):
                continue
            if workers_version != drivers_version:
                differences.append((package, drivers_version, workers_version))
        if differences:
            return [differences]
        from millstream.spark.worker.worker_task import run_plan

        return [run_plan(plan)]

    return run_thread


def mismatch_error(differences: Sequence[Difference]) -> EnvironmentMismatchError:
    listed = "; ".join(
        f"{package}: {drivers or 'not installed'} in the driver, "
        f"{workers or 'not installed'} in the worker"
        for package, drivers, workers in differences
    )
    return EnvironmentMismatchError(
        f"The Python environment of Spark's workers differs from the driver's: {listed}. Install "
        "the same versions on the executors, or give them the driver's environment (a packed "
        "environment in spark.archives, or PYSPARK_PYTHON set to the same interpreter).",
        differences=differences,
    )
