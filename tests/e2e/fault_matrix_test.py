"""One fault, given as three arguments: who it happens to, in which phase, and what.

    fault_matrix_test.py coordinator|worker PHASE kill|restart|late|stop

kill: SIGKILL (a coordinator is started again at once, a worker is not); restart: SIGKILL, started again at once; late: SIGKILL, started again after twice
the lease; stop: SIGSTOP past the lease, then SIGCONT. Whatever it is, the job ends, and in order; who is back takes part again.
"""

import re
import signal
import sys
import time
import unittest

from faults import DEADLINE_S, LEASE_S, OUTAGE_S, START_S, FaultFleet, bound_s, fault_job, stop_at
from fleet import main, wait_until

# What makes a phase of b1's last: arguments of its `join`.
LONG = {
    "distributing": ["--emulate-down", "300kB"],
    "pulling": ["--emulate-down", "600kB"],
    "training": ["--emulate-slowdown", "10"],
    "sending": ["--emulate-up", "400kB"],
}
# Where the coordinator stops itself in round 1, which makes version 2: the file is there, its row in the journal is not; the row is there, and
# before anybody is told the round's contributions go.
INSTANTS = {
    "checkpoint": "rename:model-000002",
    "announcement": "unlink:/f0_r1_",
}
# Where b1 stops itself as it joins: it has its certificate, and no configuration yet.
JOINING = "rename:worker.pem"
WHO, PHASE, WHAT = sys.argv[1:4] if len(sys.argv) == 4 else ("worker", "training", "kill")
# The open round waits for b1, whose work counts when it is back.
HELD = WHO == "worker" and WHAT == "stop" and PHASE in ("training", "sending")
# a1 does the rounds without b1, slowly and often enough that b1 is back before the last.
RETURNS = WHO == "worker" and WHAT != "kill" and PHASE != "joining" and not HELD
PACE = ("--emulate-slowdown", "5" if PHASE == "evaluating" else "20") if RETURNS else ()
ROUNDS = 12 if RETURNS else 4 if WHAT == "kill" or HELD else 6
CHANGES = {"quorum": 0.9, "deadline_s": 120} if HELD else {}


class FaultMatrixTest(unittest.TestCase):
    def test_job_ends_in_order(self):
        prey = "b1" if WHO == "worker" else "coordinator"
        with FaultFleet(test=4000 if PHASE == "evaluating" else 200,
                        coordinator_config={"profile_seconds": "1s"} if PHASE == "profiling" else None) as fleet:
            if PHASE == "joining":
                self.joining(fleet, prey)
            else:
                fleet.up(*LONG.get(PHASE, ()), a1_arguments=PACE, coordinator_env=stop_at(INSTANTS[PHASE]) if PHASE in INSTANTS else None)
                if PHASE == "idle":
                    self.strike(fleet, prey)
                    fleet.submit(fault_job(rounds=ROUNDS))
                else:
                    fleet.submit(fault_job(rounds=ROUNDS, **CHANGES))
                    self.reach(fleet)
                    committed = fleet.commits()
                    if PHASE in INSTANTS:
                        self.assertEqual(len(committed), 2 if PHASE == "checkpoint" else 3)
                    self.strike(fleet, prey)
            back_at = len(fleet.log("coordinator"))
            fleet.wait_for_job(seconds=bound_s(ROUNDS))
            if WHO == "worker" and WHAT != "kill":
                self.assertIn("contribution_counted job=job worker=b1 ", fleet.log("coordinator")[back_at:])
                fleet.wait_live("b1", LEASE_S + START_S)
            shown = fleet.check_books(self, ROUNDS)
            if PHASE not in ("joining", "idle"):
                self.assertEqual(fleet.commits()[:len(committed)], committed)
            self.check_log(fleet)
            self.check_part(shown)
            fleet.check_ends(self)

    def joining(self, fleet, prey):
        fleet.start_coordinator()
        fleet.join("a1", "alpha")
        token, pin = fleet.add_site("beta")
        command = fleet.join_command("b1", token, pin)
        fleet.spawn("b1", command, env=stop_at(JOINING))
        fleet.wait_stopped("b1", START_S)
        if prey == "coordinator":
            self.strike(fleet, prey, meanwhile=lambda: fleet.signal("b1", signal.SIGCONT))
        elif WHAT == "stop":
            fleet.stop_for("b1", OUTAGE_S)
        else:
            fleet.kill("b1")
            if WHAT != "kill":
                time.sleep(OUTAGE_S if WHAT == "late" else 0)
                fleet.spawn("b1", command)  # The same token and key: it is the same worker that joins.
                fleet.killed.discard("b1")
        if "b1" not in fleet.killed:
            fleet.wait_live("b1", OUTAGE_S + START_S)
        fleet.submit(fault_job(rounds=ROUNDS))

    @staticmethod
    def reach(fleet):
        if PHASE in INSTANTS:
            fleet.wait_stopped("coordinator", bound_s(2, faults=0))
        elif PHASE == "sending":
            fleet.wait_half_sent("b1", 1, bound_s(2, faults=0))
        else:
            fleet.wait_phase("b1", {"distributing": "fetching"}.get(PHASE, PHASE), 0 if PHASE in ("profiling", "distributing") else 1,
                             bound_s(2, faults=0))

    @staticmethod
    def strike(fleet, prey, meanwhile=lambda: None):
        if WHAT == "stop":
            if prey == "coordinator":
                if not fleet.stopped(prey):
                    fleet.signal(prey, signal.SIGSTOP)
                meanwhile()
                fleet.stop_for(prey, OUTAGE_S)
                wait_until("the coordinator to answer", START_S, lambda: fleet.ready(fleet.http))
                return
            fleet.signal(prey, signal.SIGSTOP)
            if PHASE in INSTANTS:
                fleet.signal("coordinator", signal.SIGCONT)
            if HELD:
                wait_until("job show to name whom the round waits for", bound_s(1),
                           lambda: "worker_lost worker=b1" in fleet.log("coordinator") and fleet.job().get("waiting_for") == ["b1"])
            fleet.stop_for(prey, 0 if HELD else OUTAGE_S)
            return
        fleet.kill(prey)
        meanwhile()
        if prey != "coordinator" and PHASE in INSTANTS:
            fleet.signal("coordinator", signal.SIGCONT)
        if prey == "coordinator" or WHAT != "kill":
            time.sleep(OUTAGE_S if WHAT == "late" else 0)
            fleet.restart(prey)

    def check_log(self, fleet):
        """The log says who was lost, who is back, and whom a restarted coordinator waits for."""
        if WHO == "worker":
            if PHASE != "joining":
                # Restarted at once it may be back before anybody has missed it.
                lost = fleet.log("coordinator").count("worker_lost worker=b1")
                if WHAT != "restart":
                    self.assertGreaterEqual(lost, 1)
                restarted = fleet.log("coordinator").count("restarted=true")
                self.assertEqual(restarted, 0 if WHAT in ("kill", "stop") else 1)
            return
        self.assertIn("coordinator_lost", fleet.log("a1"))
        self.assertGreaterEqual(fleet.log("a1").count(" registered "), 2)
        if WHAT != "stop":
            recovered = re.findall(r"coordinator_recovered .*waiting_for=(\S+)", fleet.log("coordinator"))
            training = PHASE not in ("joining", "profiling", "distributing", "idle")
            self.assertEqual(recovered, ['""', "a1,b1" if training else '""'])
            self.assertNotIn("workers_not_back", fleet.log("coordinator"))

    def check_part(self, shown):
        """Who is there takes part: in the last round, if not before. Nobody waits until a deadline for who is not."""
        if WHO == "coordinator" and PHASE not in ("profiling", "distributing"):  # Planned before the others are back, it goes on with who is.
            self.assertEqual(shown["rounds"][-1]["contributions"], 2)
        if HELD:  # The other cells see to it that it goes on after that.
            self.assertEqual(shown["rounds"][1]["contributions"], 2)
            return
        if WHO == "worker":
            self.assertEqual(shown["rounds"][-1]["contributions"], 1 if WHAT == "kill" else 2)
        for record in shown["rounds"]:
            self.assertLess(record["seconds"], DEADLINE_S, record)


if __name__ == "__main__":
    sys.argv[1:] = []
    main()
