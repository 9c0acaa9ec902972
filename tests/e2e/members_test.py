"""Workers that come and go while a job runs."""

import os
import re
import shutil
import unittest

from faults import DEADLINE_S, LEASE_S, OUTAGE_S, START_S, FaultFleet, bound_s, fault_job, packed_sha256, wait_fast
from fleet import BIN, main, wait_until
from relay import Relay


class MembersTest(unittest.TestCase):
    def test_last_workers_of_a_site_lost(self):
        with FaultFleet() as fleet:
            fleet.up(workers=("a1", "b1", "b2"))
            generation = wait_until("the metric", START_S, lambda: fleet.metric("causeway_site_generation", site="beta"))
            fleet.submit(fault_job(rounds=6, quorum=0.3))
            fleet.wait_phase("b1", "training", after_rounds=1, seconds=bound_s(2, faults=0))
            fleet.kill("b2")
            fleet.kill("b1")
            fleet.wait_for_job(seconds=bound_s(6))
            fleet.check_books(self, 6)
            self.assertEqual(fleet.metric("causeway_workers", site="beta", state="live"), 0)
            self.assertEqual(fleet.metric("causeway_workers", site="beta", state="lost"), 2)
            self.assertEqual(fleet.metric("causeway_site_generation", site="beta"), generation + 2)
            # The other site notices nothing.
            self.assertEqual(len(re.findall(r"worker_lost worker=a1", fleet.log("coordinator"))), 0)
            self.assertEqual(fleet.log("a1").count(" registered "), 1)
            fleet.check_ends(self)

    def test_all_workers_lost_and_back(self):
        with FaultFleet() as fleet:
            fleet.up("--emulate-slowdown", "10")
            fleet.submit(fault_job(rounds=4))
            fleet.wait_phase("b1", "training", after_rounds=1, seconds=bound_s(2, faults=0))
            for name in ("a1", "b1"):
                fleet.kill(name)
            waiting = wait_until("job show to name whom it waits for", LEASE_S + DEADLINE_S, lambda: fleet.job().get("waiting_for"))
            self.assertTrue(set(waiting) <= {"a1", "b1"} and waiting)
            wait_until("both to be lost", LEASE_S + DEADLINE_S,
                       lambda: all(f"worker_lost worker={name}" in fleet.log("coordinator") for name in ("a1", "b1")))
            self.assertEqual(fleet.state(), "TRAINING")
            for name in ("a1", "b1"):
                fleet.restart(name)
            fleet.wait_for_job(seconds=bound_s(4, faults=2))
            shown = fleet.check_books(self, 4)
            self.assertEqual(shown["rounds"][3]["contributions"], 2)
            fleet.check_ends(self)

    def test_what_a_stopped_worker_has_done_counts(self):
        with FaultFleet() as fleet:
            fleet.up("--emulate-slowdown", "6")
            # The round stays open: its quorum needs b1.
            fleet.submit(fault_job(rounds=3, quorum=0.9, deadline_s=60))
            fleet.wait_phase("b1", "training", after_rounds=1, seconds=bound_s(2, faults=0))
            fleet.stop_for("b1", OUTAGE_S)
            fleet.wait_for_job(seconds=bound_s(3))
            shown = fleet.check_books(self, 3)
            self.assertRegex(fleet.log("coordinator"), r"worker_lost worker=b1")
            self.assertEqual([record["contributions"] for record in shown["rounds"]], [2] * 3)
            self.assertEqual(re.findall(r"round_trained .*round=(\d+)", fleet.log("b1")), ["0", "1", "2"])
            self.assertNotIn("round_dropped", fleet.log("coordinator"))
            fleet.check_ends(self)

    def test_joining_worker_holds_nobody_up(self):
        with FaultFleet(train=2000) as fleet:
            fleet.up("--emulate-slowdown", "10")
            fleet.submit(fault_job(rounds=200))
            fleet.wait_phase("b1", "training", after_rounds=1, seconds=bound_s(2, faults=0))
            # More than a megabyte to fetch.
            fleet.join("c1", "gamma", "--emulate-down", "100kB")
            wait_fast("c1 to fetch its shard", START_S + LEASE_S, lambda: fleet.in_phase("c1", "fetching"))
            before = fleet.committed()
            wait_until("rounds without c1", bound_s(3, faults=0), lambda: fleet.committed() >= before + 2)
            self.assertNotIn("shard_in_place", fleet.log("c1"))
            self.assertNotIn("c1", fleet.job().get("waiting_for", []))
            # Then it is planned in.
            wait_until("c1 to contribute", bound_s(3), lambda: "contribution_counted job=job worker=c1" in fleet.log("coordinator"))
            self.assertNotIn("round_dropped", fleet.log("coordinator"))
            fleet.cli("job", "abort", "job")

    def test_slow_download_keeps_its_version(self):
        """Of a version that is neither the newest nor kept any more, while round after round is committed."""
        with FaultFleet() as fleet:
            fleet.up()
            # 5.6 MB: more than the sockets in between hold.
            fleet.submit(fault_job(rounds=1000, model={"builtin": "mlp", "classes": 10000}, checkpoint={"every_rounds": 1, "keep": 2}))
            relay = Relay(fleet.port, down_bytes_per_s=500e3)
            self.addCleanup(relay.close)
            shutil.copytree(fleet.path("operator"), fleet.path("far"))
            with open(fleet.path("far", "context.yaml"), "r+") as f:
                text = f.read().replace(f"127.0.0.1:{fleet.port}", f"127.0.0.1:{relay.port}")
                f.seek(0)
                f.write(text)
            wait_until("three versions", bound_s(3, faults=0), lambda: fleet.committed() >= 3)
            version = fleet.json("model", "list", "job")["models"][-1]["version"] - 1
            out = fleet.path("old.safetensors")
            fetch = fleet.spawn("fetch", [os.path.join(BIN, "causeway"), "--context", fleet.path("far") + "/", "model", "fetch", "job",
                                          "--version", str(version), "--out", out])
            wait_until("the transfer to begin", START_S, lambda: relay.down.get(fetch.pid, 0) > 200e3)
            digests, paths = ({row[1]: row[column] for row in fleet.commits()} for column in (2, 3))
            path, next_path = (fleet.path("coordinator", paths[v]) for v in (version, version + 1))  # join() keeps absolute ones.
            last = fleet.committed()
            wait_until("five more rounds", bound_s(5, faults=0), lambda: fleet.committed() >= last + 5)
            self.assertIsNone(fetch.poll(), "it was to take longer than five rounds")
            self.assertTrue(os.path.exists(path))
            self.assertFalse(os.path.exists(next_path), "the next one is not kept")
            self.assertEqual(fetch.wait(timeout=2 * START_S), 0, fleet.log("fetch"))
            with open(out, "rb") as f:
                self.assertEqual(packed_sha256(f.read()), digests[version].lower())
            last = fleet.committed()
            wait_until("two more rounds", bound_s(2, faults=0), lambda: fleet.committed() >= last + 2)
            wait_until("the version to be removed", START_S, lambda: not os.path.exists(path))
            fleet.cli("job", "abort", "job")


if __name__ == "__main__":
    main()
