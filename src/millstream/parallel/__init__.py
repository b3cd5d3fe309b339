"""Many records of one partition at a time, in order by key: Decaton's subscriptions."""

from millstream.parallel.properties.file import PropertiesFile
from millstream.parallel.properties.properties import Properties
from millstream.parallel.retry import ExponentialBackoff, Retry

__all__ = ["ExponentialBackoff", "Properties", "PropertiesFile", "Retry"]
