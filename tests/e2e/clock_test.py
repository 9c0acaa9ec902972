"""The wall clock of one side is stepped by an hour, forth and back, while a job runs: nothing but certificates goes by it."""

import os
import signal
import struct
import unittest

from faults import LEASE_S, START_S, FaultFleet, bound_s, fault_job
from fleet import BIN, main, wait_until

HOUR = 3600


class ClockTest(unittest.TestCase):
    def step(self, side):
        with FaultFleet() as fleet:
            path = fleet.path("clock")

            def set_clock(offset):
                with open(path, "r+b" if os.path.exists(path) else "wb") as f:
                    f.write(struct.pack("=q", offset))

            set_clock(0)
            env = {"LD_PRELOAD": os.path.join(BIN, "libclock_shim.so"), "CAUSEWAY_CLOCK_FILE": path}
            fleet.start_coordinator(env=env if side == "coordinator" else None)
            fleet.join("a1", "alpha", wait=False)
            fleet.join("b1", "beta", "--emulate-slowdown", "10", wait=False, env=env if side == "worker" else None)
            for name in ("a1", "b1"):
                fleet.wait_live(name)
            fleet.submit(fault_job(rounds=6, quorum=0.9))
            for after, offset in ((1, HOUR), (3, 0), (4, -HOUR)):
                fleet.wait_phase("b1", "training", after_rounds=after, seconds=bound_s(2, faults=0))
                set_clock(offset)
            expected = HOUR if side == "coordinator" else -HOUR
            wait_until("the offset to be seen", bound_s(1, faults=0), lambda: abs(
                (fleet.metric("causeway_worker_clock_offset_seconds", worker="b1") or 0) - expected) < 60)
            fleet.wait_for_job(seconds=bound_s(6))
            shown = fleet.check_books(self, 6)
            # Nobody was lost, nothing done twice.
            self.assertEqual([record["contributions"] for record in shown["rounds"]], [2] * 6)
            for record in shown["rounds"]:
                self.assertTrue(0 < record["seconds"] < bound_s(1, faults=0), record)
            self.assertNotIn("worker_lost", fleet.log("coordinator"))
            self.assertNotIn("coordinator_lost", fleet.log("b1"))
            fleet.check_ends(self)

    def test_a_wait_is_not_lengthened(self):
        """The clock goes back while the coordinator waits for nothing but a lease to end: nobody sends, nobody asks."""
        with FaultFleet() as fleet:
            path = fleet.path("clock")
            with open(path, "wb") as f:
                f.write(struct.pack("=q", 0))
            fleet.start_coordinator(env={"LD_PRELOAD": os.path.join(BIN, "libclock_shim.so"), "CAUSEWAY_CLOCK_FILE": path})
            fleet.join("a1", "alpha")
            fleet.signal("a1", signal.SIGSTOP)
            with open(path, "r+b") as f:
                f.write(struct.pack("=q", -HOUR))
            wait_until("the lease to end", LEASE_S + START_S, lambda: "worker_lost" in fleet.log("coordinator"))
            fleet.signal("a1", signal.SIGCONT)
            fleet.wait_live("a1")

    def test_coordinators_clock_is_stepped(self):
        self.step("coordinator")

    def test_workers_clock_is_stepped(self):
        self.step("worker")


if __name__ == "__main__":
    main()
