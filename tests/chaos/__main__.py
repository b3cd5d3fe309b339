"""What `make chaos` runs: `storm`, or with `--kind` `parallel_storm`, each with arguments of its
own."""

import sys

from chaos import parallel_storm, storm

if __name__ == "__main__":
    sys.exit(parallel_storm.main() if "--kind" in sys.argv else storm.main())
