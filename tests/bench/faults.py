#!/usr/bin/env python3
"""What faults cost: time to the next committed round after a kill, goodput under random faults, and that long life costs nothing.

    faults.py RESULT.json [--kills 20] [--goodput-seconds 600] [--rounds 200] [--only CASE,...]

Cases: worker_kill, worker_stop, coordinator_kill, goodput, long_life. Devices are slowed down, so that they sleep most of the time and a machine of two
cores holds them all. Times are those of the coordinator's log.
"""

import argparse
import datetime
import json
import os
import random
import re
import signal
import statistics
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "e2e"))
from faults import START_S, FaultFleet, fault_job  # noqa: E402
from fleet import wait_until  # noqa: E402

LEASE_S = 3
SLOWDOWN = "10"
SITES = {"a": "alpha", "b": "beta", "c": "gamma"}
FAULT_EVERY_S, DOWN_S = 20, 5


class BenchFleet(FaultFleet):
    def __init__(self, workers, train, slow=(), **job):
        super().__init__(train=train, test=100, coordinator_config={"lease": f"{LEASE_S}s"})
        self.names = workers
        self.start_coordinator()
        for name in workers:
            arguments = ("--emulate-slowdown", SLOWDOWN if name not in slow else str(8 * int(SLOWDOWN)))
            self.join(name, SITES[name[0]], *arguments, wait=False)
        for name in workers:
            self.wait_live(name, 2 * START_S)
        self.submit(fault_job(rounds=100000, quorum=0.5, **job))
        self.wait_steady()

    def commits(self):
        """(wall time, round, samples, contributions, seconds) of each committed round."""
        found = re.findall(r"(?m)^(\S+)Z I coordinator round_committed job=job round=(\d+) .*?samples=(\d+) contributions=(\d+) .*?seconds=(\S+)",
                           self.log("coordinator"))
        return [(datetime.datetime.fromisoformat(at + "+00:00").timestamp(), int(r), int(n), int(k), float(s)) for at, r, n, k, s in found]

    def wait_steady(self, rounds=3, seconds=180):
        """Until so many rounds with everybody were committed from now on; the median time from commit to commit."""

        start = time.time()
        def steady():
            full = [c for c in self.commits() if c[0] > start and c[3] == len(self.names)]
            return full if len(full) > rounds else None
        ends = [c[0] for c in wait_until("rounds with everybody", seconds, steady)]
        return statistics.median(b - a for a, b in zip(ends, ends[1:]))

    def next_commit_after(self, moment, seconds=120):
        return wait_until("the next committed round", seconds, lambda: next((c[0] for c in self.commits() if c[0] > moment), None))


def row(case, metric, values, unit, reference, reference_value, goal):
    worst, median = max(values), statistics.median(values)
    rows = []
    for name, value in (("median", median), ("max", worst)):
        rows.append({"case": case, "metric": f"{metric}_{name}", "value": value, "unit": unit, "reference": reference,
                     "reference_value": reference_value, "ratio": value / reference_value if reference_value else None,
                     "repeats": len(values), "goal": {"max": goal} if name == "max" else None})
        if rows[-1]["goal"] is None:
            del rows[-1]["goal"]
    print(f"{case}: {metric} median {median:.2f} {unit}, max {worst:.2f} {unit} of {len(values)}, goal at most {goal:.2f}", flush=True)
    return rows


def faults_of(case, kills):
    """Seconds by which the round that a fault falls into lasts longer than an undisturbed one, from commit to commit; without a coordinator's
    restart."""
    values, restarts, undisturbed = [], [], []
    rng = random.Random(1)
    with BenchFleet(("a1", "a2", "b1", "b2"), 800) as fleet:
        for i in range(kills):
            quiet = fleet.wait_steady()
            undisturbed.append(quiet)
            time.sleep(rng.random() * quiet)
            prey = "coordinator" if case == "coordinator_kill" else rng.choice(fleet.names)
            moment = time.time()
            if case == "worker_stop":
                fleet.signal(prey, signal.SIGSTOP)
            else:
                fleet.kill(prey)
            restart_s = 0
            if case == "coordinator_kill":
                fleet.restart(prey)
                restart_s = time.time() - moment
                restarts.append(restart_s)
            # From the commit before: the whole round that the fault fell into.
            began = max(c[0] for c in fleet.commits() if c[0] <= moment)
            values.append(fleet.next_commit_after(moment) - began - quiet - restart_s)
            print(f"{case} {i}: {prey}, {values[-1]:.2f} s more than {quiet:.2f} s", flush=True)
            if case == "worker_stop":
                time.sleep(max(0, moment + LEASE_S + 2 - time.time()))
                fleet.signal(prey, signal.SIGCONT)
            elif case == "worker_kill":
                fleet.restart(prey)
    goal = 2 + (LEASE_S if case == "worker_stop" else 0)
    rows = row(case, "round_longer_by", values, "s", "an undisturbed round", statistics.median(undisturbed), goal)
    if restarts:
        rows += row(case, "restart", restarts, "s", "an undisturbed round", statistics.median(undisturbed), START_S)
    return rows


def goodput(seconds):
    """Samples that count per second under random faults, of what the devices that were there could have done."""
    rng = random.Random(2)
    with BenchFleet(("a1", "a2", "b1", "b2", "c1", "c2"), 2400) as fleet:
        def rate(start, end):
            inside = [c for c in fleet.commits() if start <= c[0] <= end]
            return sum(c[2] for c in inside[1:]) / (inside[-1][0] - inside[0][0])

        def measure_quiet():
            start = time.time()
            time.sleep(min(60, seconds / 4))
            return rate(start, time.time())

        quiet = [measure_quiet()]
        lost_s, faults = 0, 0
        start = time.time()
        due = []  # (when, what)
        next_fault = start
        while time.time() < start + seconds:
            now = time.time()
            for item in [d for d in due if d[0] <= now]:
                due.remove(item)
                item[1]()
            if now >= next_fault:
                next_fault += FAULT_EVERY_S
                faults += 1
                kind, prey = rng.choice(("kill", "stop", "coordinator")), rng.choice(fleet.names)
                print(f"goodput: {kind} {prey if kind != 'coordinator' else ''}", flush=True)
                if kind == "coordinator":
                    fleet.kill("coordinator")
                    fleet.restart("coordinator")
                elif kind == "kill":
                    fleet.kill(prey)
                    due.append((now + DOWN_S, lambda prey=prey: fleet.restart(prey)))
                    lost_s += DOWN_S
                else:
                    fleet.signal(prey, signal.SIGSTOP)
                    due.append((now + DOWN_S, lambda prey=prey: fleet.signal(prey, signal.SIGCONT)))
                    lost_s += DOWN_S
            time.sleep(0.1)
        faulty = rate(start, time.time())
        for item in due:
            item[1]()
        fleet.wait_steady()
        quiet.append(measure_quiet())
    possible = statistics.mean(quiet) * (1 - lost_s / (6 * seconds))
    print(f"goodput: {faulty:.0f} samples/s with {faults} faults in {seconds} s; {quiet[0]:.0f} and {quiet[1]:.0f} without before and after; "
          f"{faulty / possible:.2f} of what the devices that were there could do, goal at least 0.90", flush=True)
    return [{"case": "goodput", "metric": "samples_per_s", "value": faulty, "unit": "1/s", "reference": "what the surviving devices could do",
             "reference_value": possible, "ratio": faulty / possible, "repeats": faults, "goal": {"min": 0.9 * possible}}]


def long_life(rounds):
    """Memory and descriptors of the coordinator while half of the workers miss every deadline."""
    with BenchFleet(("a1", "a2", "b1", "b2"), 800, slow=("b1", "b2"), deadline_s=1) as fleet:
        pid = fleet.processes["coordinator"].pid

        def now():
            with open(f"/proc/{pid}/status") as f:
                memory = int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024
            return memory, len(os.listdir(f"/proc/{pid}/fd"))

        samples = []
        for at in range(20, rounds + 1, 10):
            wait_until(f"{at} rounds", 600, lambda: fleet.committed() >= at)
            samples.append(now())
        late = fleet.log("coordinator").count("round_asks_for_what_is_done")
        print(f"long_life: asked for what is done in {late} rounds", flush=True)
    rows = []
    for i, (metric, unit) in enumerate((("memory", "MiB"), ("descriptors", "1"))):
        first, last = samples[0][i], statistics.median(s[i] for s in samples[-3:])
        print(f"long_life: {metric} {first:.1f} after 20 rounds, {last:.1f} after {rounds}", flush=True)
        rows.append({"case": "long_life", "metric": metric, "value": last, "unit": unit, "reference": "after 20 rounds", "reference_value": first,
                     "ratio": last / first, "repeats": 1, "goal": {"max": 1.05 * first}})
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("result")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--goodput-seconds", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--only", default="worker_kill,worker_stop,coordinator_kill,goodput,long_life")
    options = parser.parse_args()
    rows = []
    for case in options.only.split(","):
        if case == "goodput":
            rows += goodput(options.goodput_seconds)
        elif case == "long_life":
            rows += long_life(options.rounds)
        else:
            rows += faults_of(case, options.kills)
        with open(options.result, "w") as f:
            json.dump({"schema": "causeway.bench/1", "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
