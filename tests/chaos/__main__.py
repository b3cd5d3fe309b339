"""What `make chaos` runs: `storm`, or with `--kind` `parallel_storm` or `query_storm`, each with
arguments of its own."""

import sys

from chaos import parallel_storm, query_storm, storm


def _main() -> int:
    if "--kind" not in sys.argv:
        return storm.main()
    return query_storm.main() if "queries" in sys.argv else parallel_storm.main()


if __name__ == "__main__":
    sys.exit(_main())
