"""The number of examples of random tests."""

from __future__ import annotations

import os
from typing import Final

#: Random topologies and inputs per property. Each run generates others, so a fault that `make test`
#: misses today is found another day: a small number keeps it short, `make fuzz` tries 2,000.
EXAMPLES: Final = int(os.environ.get("MILLSTREAM_EXAMPLES", "75"))
