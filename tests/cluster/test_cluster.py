"""scratch"""

from pathlib import Path

from support.cluster.standalone import Cluster
from support.cluster.hosts import STATE
from support.running.identified import Identified
from support.waiting import wait_for
import json, time


import pytest
@pytest.mark.slow
def test_it(tmp_path):
    t = time.monotonic()
    cluster = Cluster(tmp_path)
    print("cluster", time.monotonic() - t)
    app = Identified(cluster.kafka, tmp_path / "none")
    script = Path(__file__).parents[1] / "support/running/identified_instance.py"
    with cluster.submitted(
        script,
        cluster.kafka.bootstrap_servers,
        app.application_id,
        str(STATE / "app"),
        json.dumps({"num_stream_threads": 4}),
    ) as program:
        try:
            wait_for(lambda: any('"RUNNING"' in l for l in program.lines), 90)
            print("running", time.monotonic() - t)
            app.write(1000)
            print(app.check())
        finally:
            print("\n".join(program.lines))
            print(program.errors[-6000:])
    cluster.close()
