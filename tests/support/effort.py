"""How much random tests try."""

from __future__ import annotations

import os
from typing import Final

#: Random topologies and inputs of each property. Each run makes up others, so what `make test` does
#: not find today it finds another day: few at a time keep it short, `make fuzz` tries 2,000.
EXAMPLES: Final = int(os.environ.get("MILLSTREAM_EXAMPLES", "75"))
