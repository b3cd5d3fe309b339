"""The program of `make chaos`: `storm`, or `parallel_storm` or `query_storm` for some values of
`--kind`. Each has its own arguments."""

import argparse
import sys

from chaos import parallel_storm, query_storm, storm


def _main() -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--kind")
    kind = parser.parse_known_args()[0].kind
    if kind is None:
        return storm.main()
    return query_storm.main() if kind == "queries" else parallel_storm.main()


if __name__ == "__main__":
    sys.exit(_main())
