"""The coordinator's memory while eight contributions of a large model are half sent at once."""

import re
import unittest

from faults import START_S, FaultFleet, fault_job
from fleet import main, wait_until

WORKERS = tuple(f"{site}{i}" for site in "ab" for i in (1, 2, 3, 4))


class MemoryTest(unittest.TestCase):
    def test_eight_contributions_half_sent(self):
        with open("/proc/meminfo") as f:
            available = int(re.search(r"MemAvailable:\s+(\d+) kB", f.read())[1]) * 1024
        if available < 9 << 30:
            self.skipTest(f"eight workers with a model of 100 MB each need 9 GiB of memory, {available >> 30} GiB are there")
        with FaultFleet(train=64, test=16, coordinator_config={"lease": "30s", "profile_seconds": "100ms"}) as fleet:
            fleet.start_coordinator()
            for name in WORKERS:
                # So slow that all are under way at once.
                fleet.join(name, {"a": "alpha", "b": "beta"}[name[0]], "--emulate-up", "1500kB", wait=False)
            for name in WORKERS:
                fleet.wait_live(name, 4 * START_S)
            fleet.submit(fault_job(rounds=1, quorum=1.0, deadline_s=300, model={"builtin": "mlp", "classes": 195000},
                                   batch={"per_worker": 8, "max": 8}))

            model = int(wait_until("the model", START_S * 4, lambda: re.search(r"model_built .*bytes=(\d+)", fleet.log("a1")))[1])
            self.assertGreater(model, 100e6)

            def half_sent():
                parts = [fleet.partial(name, 0) for name in WORKERS]
                return all(part is not None and part[0] > model / 2 for part in parts)
            wait_until("more than half of each of eight contributions to be there", 300, half_sent)
            fleet.wait_for_job(seconds=300)
            with open(f"/proc/{fleet.processes['coordinator'].pid}/status") as f:
                peak = int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1]) * 1024
            print(f"peak {peak / 1e6:.0f} MB, model {model / 1e6:.0f} MB")
            self.assertLess(peak, 4 * model + 200e6)
            fleet.check_books(self, 1, train=64)


if __name__ == "__main__":
    main()
