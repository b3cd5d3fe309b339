"""The line by which Java's clients are told of a login."""

from __future__ import annotations

import re
from typing import Final

_JAAS_OPTION: Final = re.compile(
    r"""([A-Za-z_][\w.]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))"""
)


def jaas_options(line: str) -> dict[str, str]:
    """The options of a JAAS line: `...PlainLoginModule required username="a" password="b";`."""
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else (single or plain)
        for name, quoted, single, plain in _JAAS_OPTION.findall(line)
    }
