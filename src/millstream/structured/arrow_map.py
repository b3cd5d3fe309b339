"""`DataFrame.mapInArrow` without pandas.

PySpark asks for pandas wherever one of its vectorized functions is made, also for those that see
nothing but Arrow. The workers need none for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ArrowMap = Callable[[Iterable[Any]], Iterator[Any]]


def map_in_arrow(frame: DataFrame, function: ArrowMap, schema: StructType | str) -> DataFrame:
    """What a function makes of the record batches of each partition.

    Args:
        frame: a classic DataFrame.
        function: record batches of pyarrow → such of the schema.
        schema: of what it gives.
    """
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    udf = UserDefinedFunction(
        function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF, deterministic=True
    )
    column: Any = udf(*(frame[f"`{name}`"] for name in frame.columns))
    return ClassicFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)
