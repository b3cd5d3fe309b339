"""The number of examples of random tests."""

from __future__ import annotations

import os
from typing import Final

#: The number of random topologies and inputs per property. Each run generates new ones, so a later
#: run may find a fault that this one misses: a small number keeps `make test` short; `make fuzz`
#: tries 2,000.
EXAMPLES: Final = int(os.environ.get("MILLSTREAM_EXAMPLES", "75"))
