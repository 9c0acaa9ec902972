"""What is not done twice: a worker goes on from its local state, a contribution from its last acknowledged byte."""

import json
import re
import time
import unittest

from faults import START_S, TRAIN, FaultFleet, bound_s, fault_job, wait_fast
from fleet import main, wait_until
from relay import Relay

WINDOW = 8 << 20  # dataplane/transfer.h, StreamSizes::window_bytes.


class ResumeTest(unittest.TestCase):
    def run_pinned(self, interrupted):
        """The final model of a job whose plan is pinned; `interrupted`: b1 is killed in mid-round, twice, and started again."""
        plan = {"schema": "causeway.plan/1", "allocation": {"method": "exact", "objective": "barrier", "workers": [
            {"name": "a1", "samples": 400, "batch_size": 32}, {"name": "b1", "samples": 200, "batch_size": 16}]}}
        with FaultFleet() as fleet:
            fleet.up("--emulate-slowdown", "15")
            path = fleet.path("plan.json")
            with open(path, "w") as f:
                json.dump(plan, f)
            # Nobody is planned anew while b1 starts again.
            fleet.submit(fault_job(rounds=4, quorum=1.0, replan_after_s=2 * START_S), "--plan", path)
            if interrupted:
                for after in (1, 2):
                    fleet.wait_phase("b1", "training", after_rounds=after, seconds=bound_s(2, faults=0))
                    fleet.kill("b1")
                    fleet.restart("b1")
            fleet.wait_for_job(seconds=bound_s(4, faults=2 if interrupted else 0))
            shown = fleet.check_books(self, 4)
            self.assertEqual([record["contributions"] for record in shown["rounds"]], [2] * 4)
            self.assertEqual([record["samples"] for record in shown["rounds"]], [TRAIN] * 4)
            if interrupted:
                self.assertEqual(fleet.log("coordinator").count("restarted=true"), 2)
            digests = [commit[2] for commit in fleet.commits()]
            fleet.check_ends(self)
            return digests

    def test_restarted_worker_comes_to_the_same_bytes(self):
        # Momentum included: without it the rounds after the first would differ.
        self.assertEqual(self.run_pinned(interrupted=True), self.run_pinned(interrupted=False))

    def test_no_acknowledged_byte_crosses_again(self):
        with FaultFleet() as fleet:
            relay = Relay(fleet.port)
            self.addCleanup(relay.close)
            fleet.init()
            config = fleet.path("coordinator", "coordinator.yaml")
            with open(config) as f:
                text = f.read()
            with open(config, "w") as f:
                # Bulk data goes to what is advertised, control to where the worker joined.
                f.write(re.sub(r"(?m)^advertise:.*", f"advertise: 127.0.0.1:{relay.port}", text))
            fleet.up("--emulate-up", "3MB", workers=("a1", "a2", "b1"))
            # 11 MiB, more than a window. Two rounds: after the second nobody sends a contribution any more.
            fleet.submit(fault_job(rounds=2, quorum=1.0, model={"builtin": "mlp", "classes": 20000}, batch={"per_worker": 16, "max": 16}))
            wait_fast("round 0 to end", bound_s(2, faults=0), lambda: fleet.committed() == 1)
            first = relay.sent_by(fleet.processes["b1"].pid)
            self.assertIsNone(fleet.partial("b1", 1), "nothing of round 1 has been sent")
            wait_fast("b1 to begin its contribution to round 1", bound_s(2, faults=0), lambda: fleet.partial("b1", 1) is not None)
            wait_until("a1 and a2 to be counted in round 1", bound_s(2, faults=0),
                       lambda: all(f"worker={name} round=1" in fleet.log("coordinator") for name in ("a1", "a2")))
            self.assertNotIn("contribution_counted job=job worker=b1 round=1", fleet.log("coordinator"))
            fleet.wait_half_sent("b1", 1, bound_s(1, faults=0))
            fleet.kill("coordinator")
            there, total = fleet.partial("b1", 1)
            self.assertGreater(total, WINDOW)
            time.sleep(0.5)  # What was under way has arrived at the relay.
            before = {name: relay.sent_by(fleet.processes[name].pid) for name in ("a1", "a2", "b1")}
            fleet.restart("coordinator")
            fleet.wait_for_job(seconds=bound_s(2))
            fleet.check_books(self, 2)
            again = {name: relay.sent_by(fleet.processes[name].pid) - before[name] for name in before}
            restored = re.findall(r"contribution_restored job=job worker=(\w+) round=1", fleet.log("coordinator"))
            self.assertEqual(sorted(restored), ["a1", "a2"])
            # TLS and gRPC add less than 2 % to the payload, a connection and its requests less than 64 KiB.
            slack = total // 50 + 65536
            for name in ("a1", "a2"):
                self.assertLess(again[name], slack, name)
            self.assertGreater(again["b1"], total - there)
            self.assertLess(again["b1"], total - there + slack)
            # Of what had been sent before, at most a window was lost.
            self.assertLess(before["b1"] - first - there, WINDOW + slack)
            fleet.check_ends(self)


if __name__ == "__main__":
    main()
