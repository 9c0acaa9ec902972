"""What is done counts when there is no time for all: a deadline, drain, SIGTERM, pause and resume; and a coordinator that does not come back."""

import array
import glob
import re
import signal
import unittest

from faults import DEADLINE_S, LEASE_S, REPLAN_AFTER_S, START_S, FaultFleet, bound_s, fault_job, packed, stop_at
from fleet import DONE, main, wait_until

DRAIN_S = 20  # drain_timeout's default.
SLOW = ("--emulate-slowdown", "12")  # Profiling takes so many times longer, too.
TRAIN = 1800


def floats(path):
    with open(path, "rb") as f:
        return array.array("f", f.read())


def furthest(xs, ys):
    return max(abs(x - y) for x, y in zip(xs, ys))


class LeaveTest(unittest.TestCase):
    def in_mid_round(self, fleet, **changes):
        fleet.up(*SLOW)
        # With this quorum the round does not end without b1.
        fleet.submit(fault_job(quorum=0.9, **changes))
        fleet.wait_phase("b1", "training", after_rounds=1, seconds=bound_s(2, faults=0))

    def check_partial_work(self, fleet):
        trained = re.search(r"round_trained .*round=1 .*\bsamples=(\d+) planned_samples=(\d+)", fleet.log("b1"))
        self.assertIsNotNone(trained, fleet.log("b1"))
        self.assertTrue(0 < int(trained[1]) < int(trained[2]), trained[0])
        self.assertRegex(fleet.log("coordinator"), r"worker_lost worker=b1 .*reason=left")
        fleet.wait_for_job(seconds=bound_s(4))
        shown = fleet.check_books(self, 4, train=TRAIN)
        self.assertEqual(shown["rounds"][1]["contributions"], 2)
        self.assertEqual(shown["rounds"][1]["samples"], TRAIN - int(trained[2]) + int(trained[1]))
        self.assertEqual([w["worker"] for w in shown["plan"]["workers"] if w["samples"] > 0], ["a1"])
        self.assertEqual(fleet.metric("causeway_rounds_total", job="job", outcome="dropped") or 0, 0)

    def test_deadline_passes(self):
        deadline_s = 5
        with FaultFleet(train=2 * TRAIN) as fleet:
            # The coordinator stops itself before the commit, while the contributions are still there.
            fleet.up("--emulate-slowdown", "20", coordinator_env=stop_at("rename:model-000001"))
            fleet.submit(fault_job(rounds=1, quorum=0.9, deadline_s=deadline_s))
            fleet.wait_stopped("coordinator", bound_s(1, faults=0))
            log = fleet.log("coordinator")
            self.assertRegex(log, r'round_asks_for_what_is_done job=job round=0 .*why="the deadline has passed" waiting_for=b1 ')
            counted = dict(re.findall(r"contribution_counted job=job worker=(\w+) round=0 .*?(samples=\d+ planned_samples=\d+)", log))
            self.assertEqual(counted["a1"], f"samples={TRAIN} planned_samples={TRAIN}")
            done, planned = map(int, re.findall(r"\d+", counted["b1"]))
            self.assertTrue(0 < done < planned == TRAIN, counted["b1"])
            (a1,), (b1,) = (glob.glob(fleet.path("coordinator", "spool", "job", f"f0_r0_*_{name}.whole")) for name in ("a1", "b1"))
            contributed = floats(a1), floats(b1)
            fleet.signal("coordinator", signal.SIGCONT)
            fleet.wait_for_job(seconds=bound_s(1))
            shown = fleet.check_books(self, 1, train=2 * TRAIN)
            self.assertEqual((shown["rounds"][0]["contributions"], shown["rounds"][0]["samples"]), (2, TRAIN + done))
            self.assertGreaterEqual(shown["rounds"][0]["seconds"], deadline_s)
            # The model is the mean by samples done, not by samples planned.
            mean = [(x * TRAIN + y * done) / (TRAIN + done) for x, y in zip(*contributed)]
            model = array.array("f", packed(fleet.fetch()))
            self.assertEqual(len(model), len(mean))
            self.assertLess(furthest(model, mean), 1e-6)
            self.assertGreater(furthest(*contributed), 1e-3)
            fleet.check_ends(self)

    def test_drained_worker_delivers_what_it_has_done(self):
        with FaultFleet(train=TRAIN) as fleet:
            self.in_mid_round(fleet)
            fleet.cli("worker", "drain", "b1")
            self.assertEqual(fleet.processes["b1"].wait(timeout=DRAIN_S + 10), DONE)
            self.assertRegex(fleet.log("coordinator"), r"worker_drains job=job worker=b1 round=1")
            self.check_partial_work(fleet)
            # Started again it serves again.
            fleet.start_worker("b1")
            fleet.submit(fault_job("more", rounds=1))
            fleet.wait_for_job("more", seconds=bound_s(1))
            self.assertEqual(fleet.job("more")["rounds"][0]["contributions"], 2)

    def test_sigterm_delivers_what_is_done(self):
        with FaultFleet(train=TRAIN) as fleet:
            self.in_mid_round(fleet)
            self.assertEqual(fleet.terminate("b1", DRAIN_S + 10), DONE)
            self.assertIn("draining", fleet.log("b1"))
            self.check_partial_work(fleet)

    def test_paused_job_stays_paused_over_a_restart(self):
        with FaultFleet(train=TRAIN) as fleet:
            self.in_mid_round(fleet)
            fleet.cli("job", "pause", "job")
            fleet.wait_for_job(state="PAUSED", seconds=DEADLINE_S + REPLAN_AFTER_S)
            self.assertRegex(fleet.log("coordinator"), r"round_asks_for_what_is_done job=job round=1 .*waiting_for=(a1,)?b1")
            commits = fleet.commits()
            # What they had done is committed, and less than planned.
            self.assertEqual(len(commits), 3)
            self.assertTrue(0 < commits[2][4] < TRAIN)
            fleet.kill("coordinator")
            fleet.restart("coordinator")
            for name in ("a1", "b1"):
                fleet.wait_live(name, LEASE_S + START_S)
            self.assertEqual(fleet.state(), "PAUSED")
            # Nobody is given work: two leases later nothing has been committed.
            with self.assertRaises(TimeoutError):
                wait_until("another round", 2 * LEASE_S, lambda: fleet.commits() != commits or fleet.state() != "PAUSED")
            fleet.cli("job", "resume", "job")
            fleet.wait_for_job(seconds=bound_s(3))
            fleet.check_books(self, 4, train=TRAIN)
            self.assertEqual(fleet.commits()[:3], commits)
            fleet.check_ends(self)

    def test_coordinator_gone_for_good(self):
        orphan_s = 3
        with FaultFleet(train=TRAIN) as fleet:
            self.in_mid_round(fleet, orphan_timeout=f"{orphan_s}s")
            fleet.kill("coordinator")
            for name in ("a1", "b1"):
                # Whatever it did is given up: the device is free.
                wait_until(f"{name} to set its job aside", orphan_s + LEASE_S + START_S, lambda: "job_set_aside" in fleet.log(name))
                self.assertIn("the coordinator has been away for orphan_timeout", fleet.log(name))
                wait_until(f"{name} to be idle", START_S, lambda: fleet.in_phase(name, "idle"))
                self.assertEqual(fleet.ready(fleet.http_of(name)), False)
            # Nobody is there to deliver to; it does not wait for anybody either.
            self.assertEqual(fleet.terminate("a1", DRAIN_S), DONE)
            self.assertEqual(fleet.metric("causeway_worker_connected", port=fleet.http_of("b1")), 0)
            # For good is not for ever: it is back, and so is what was on disk.
            fleet.restart("coordinator")
            fleet.restart("a1")
            fleet.wait_for_job(seconds=bound_s(4))
            fleet.check_books(self, 4, train=TRAIN)
            fleet.check_ends(self)


if __name__ == "__main__":
    main()
