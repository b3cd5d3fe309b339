"""Whether a worker's Python and packages are those of the driver.

Spark ships code, not packages. What was pickled by one version of Python or of a library may fail
in odd ways under another, so the difference is reported before anything is unpickled, all of it in
one error.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from millstream.errors import EnvironmentMismatchError

#: A package, the driver's version and the worker's; None where it is not installed.
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


#: A package that may be missing on either side, but where both have it must be of one version.
OPTIONAL_PACKAGES: Final = ("millstream-speedups",)


def installed_versions() -> dict[str, str | None]:
    """The versions that driver and workers must agree on, by name of the package."""
    versions: dict[str, str | None] = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    for package in PACKAGES + OPTIONAL_PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def checked_task(
    versions: Mapping[str, str | None], plan: bytes
) -> Callable[[Iterable[Any]], list[Any]]:
    """The function of the Spark task: compares versions, then runs the plan.

    It has to run where Millstream, or the right version of it, may be missing. So it is a closure,
    which Spark's pickler ships as code (a module's function would be shipped as a name to import),
    and uses nothing but the standard library until the comparison is done.

    It leaves its input unread. PySpark does not give another task to a worker that did, even where
    it is set to reuse them: so whatever a stream thread left in memory goes with its process.

    Args:
        versions: the driver's, from `installed_versions`.
        plan: a pickled `ThreadPlan`.

    Returns:
        A function that returns one element: the pickled `ThreadExit`, or the list of differences.
    """
    drivers = dict(versions)
    optional = OPTIONAL_PACKAGES

    def run_thread(_: Iterable[Any]) -> list[Any]:
        import importlib.metadata as metadata
        import sys as system

        differences = []
        for package, drivers_version in drivers.items():
            workers_version: str | None
            if package == "python":
                workers_version = f"{system.version_info[0]}.{system.version_info[1]}"
            else:
                try:
                    workers_version = metadata.version(package)
                except metadata.PackageNotFoundError:
                    workers_version = None
            is_missing = drivers_version is None or workers_version is None
            if package in optional and is_missing:
                continue
            if workers_version != drivers_version:
                differences.append((package, drivers_version, workers_version))
        if differences:
            return [differences]
        from millstream.spark.worker.worker_task import run_plan

        return [run_plan(plan)]

    return run_thread


def mismatch(differences: Sequence[Difference]) -> EnvironmentMismatchError:
    """The error that lists every difference."""
    listed = "; ".join(
        f"{package}: {drivers or 'not installed'} in the driver, "
        f"{workers or 'not installed'} in the worker"
        for package, drivers, workers in differences
    )
    return EnvironmentMismatchError(
        f"The Python environment of Spark's workers differs from the driver's: {listed}. Install "
        "the same versions on the executors, or ship the driver's environment to them "
        "(spark.archives with a packed environment, or PYSPARK_PYTHON naming the same "
        "interpreter).",
        differences=differences,
    )
