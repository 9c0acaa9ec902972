"""The network goes away, for a while or for good: b1 sits in a network namespace of its own, whose link is taken down."""

import os
import re
import subprocess
import time
import unittest

from faults import DEADLINE_S, LEASE_S, OUTAGE_S, START_S, FaultFleet, bound_s, fault_job
from fleet import DONE, main, wait_until
from plan_test import Link


class FarFleet(FaultFleet):
    """As FaultFleet; `link` is b1's, the coordinator has an address there."""

    def __init__(self, link, **options):
        super().__init__(**options)
        self.link = link

    def up_far(self, *b1_arguments):
        self.init()
        config = self.path("coordinator", "coordinator.yaml")
        with open(config) as f:
            text = f.read()
        with open(config, "w") as f:
            text = re.sub(r"(?m)^advertise:.*", f"advertise: {self.link.address}:{self.port}", text)
            f.write(text.replace(f"listen: 127.0.0.1:{self.port}", f"listen: 0.0.0.0:{self.port}"))
        self.start_coordinator()
        self.join("a1", "alpha", wait=False)
        token, pin = self.add_site("beta")
        command = self.join_command("b1", token, pin, *b1_arguments)
        command[command.index("join") + 1] = f"{self.link.address}:{self.port}"
        self.spawn("b1", command, prefix=self.link.prefix)
        for name in ("a1", "b1"):
            self.wait_live(name, 2 * START_S)

    def cut(self, down=True):
        Link.run(*self.link.prefix, "ip", "link", "set", f"{self.link.name}b", "down" if down else "up")

    def in_phase(self, name, phase):
        # The far worker's pages are on the loopback of its namespace; its own words come over heartbeats.
        if name != "b1":
            return super().in_phase(name, phase)
        worker = self.worker(name)
        return worker["progress"].get("phase", "").endswith(phase.upper())


class NetworkTest(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        try:
            self.link = Link(kbit=100000)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"no network namespace: {error}")
        self.addCleanup(self.link.remove)

    def check_work_counts(self, outage_s, fleet, rounds):
        """b1 is cut off while it trains; what it trained meanwhile counts, and nothing is trained twice."""
        fleet.wait_phase("b1", "training", after_rounds=1, seconds=bound_s(2, faults=0))
        fleet.cut()
        time.sleep(outage_s)
        self.assertEqual(fleet.committed(), 1)  # The quorum needs b1.
        fleet.cut(down=False)
        fleet.wait_for_job(seconds=bound_s(rounds) + outage_s)
        shown = fleet.check_books(self, rounds)
        self.assertEqual([record["contributions"] for record in shown["rounds"]], [2] * rounds)
        self.assertEqual(re.findall(r"round_trained .*round=(\d+)", fleet.log("b1")), [str(r) for r in range(rounds)])
        self.assertNotIn("round_dropped", fleet.log("coordinator"))

    def test_network_gone_for_5_s(self):
        # Shorter than the lease: nobody is lost.
        with FarFleet(self.link, coordinator_config={"lease": "20s"}) as fleet:
            fleet.up_far("--emulate-slowdown", "12")
            fleet.submit(fault_job(rounds=3, quorum=0.9))
            self.check_work_counts(5, fleet, 3)
            self.assertNotIn("worker_lost worker=b1", fleet.log("coordinator"))
            fleet.check_ends(self)

    def test_network_gone_for_45_s(self):
        with FarFleet(self.link) as fleet:
            fleet.up_far("--emulate-slowdown", "12")
            fleet.submit(fault_job(rounds=2, quorum=0.9, deadline_s=120))
            self.check_work_counts(45, fleet, 2)
            self.assertRegex(fleet.log("coordinator"), r"worker_lost worker=b1")
            self.assertIn("coordinator_lost", fleet.log("b1"))
            fleet.check_ends(self)

    def test_network_gone_for_good(self):
        orphan_s = 5
        with FarFleet(self.link) as fleet:
            fleet.up_far("--emulate-slowdown", "12")
            fleet.submit(fault_job(rounds=4, orphan_timeout=f"{orphan_s}s"))
            fleet.wait_phase("b1", "training", after_rounds=1, seconds=bound_s(2, faults=0))
            fleet.cut()
            started = time.monotonic()
            fleet.wait_for_job(seconds=bound_s(4))
            shown = fleet.check_books(self, 4, cut_off=("b1",))
            self.assertRegex(fleet.log("coordinator"), r"worker_lost worker=b1 .*reason=")
            self.assertEqual([w["worker"] for w in shown["plan"]["workers"] if w["samples"] > 0], ["a1"])
            # The round it was lost in did not wait for its deadline.
            self.assertLess(shown["rounds"][1]["seconds"], LEASE_S + DEADLINE_S)
            wait_until("b1 to set its job aside", orphan_s + 2 * LEASE_S + START_S, lambda: "job_set_aside" in fleet.log("b1"))
            self.assertEqual(fleet.terminate("b1", 25), DONE)
            self.assertLess(time.monotonic() - started, bound_s(4) + 2 * START_S + OUTAGE_S)


if __name__ == "__main__":
    main()
