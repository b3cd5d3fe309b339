"""Raises an error with advice if pyarrow is missing.

Imported before the modules that need pyarrow.
"""

from __future__ import annotations

from millstream.operators.arrow import import_pyarrow

import_pyarrow("Reading stores and lake tables as DataFrames")
