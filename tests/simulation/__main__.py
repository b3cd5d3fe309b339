
from simulation.history import History
import sys, logging, time
seed=int(sys.argv[1]); n=int(sys.argv[2])
h=History(seed, keep_trace=True)
class H(logging.Handler):
    def emit(self, r):
        h.scheduler.tell(f"  [{h.scheduler.current.name}] {r.levelname} {r.getMessage()[:200]}")
logging.getLogger("millstream").setLevel(logging.INFO if len(sys.argv)>3 else logging.CRITICAL)
logging.getLogger("millstream").addHandler(H()); logging.getLogger("millstream").propagate=False
t=time.process_time()
r=h.run()
print("\n".join(r.trace[-n:]))
r.trace=[]
print(r, time.process_time()-t)
