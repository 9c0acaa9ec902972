#!/usr/bin/env python3
"""The demo's devices under exact, proportional and uniform allocation: measured seconds per epoch, beside the predicted ones.

One fleet, one run: the methods take turns, so that the machine's moods hit all alike. Argument: the file to write.
"""

import json
import os
import statistics
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "tests", "e2e"))
from fleet import Fleet, job_yaml  # noqa: E402

SAMPLES = 30000
TEST = 500  # Evaluating is no part of what is predicted.
ROUNDS = 4  # Two to an epoch, as in the demo.
REPEATS = 3
METHODS = ("uniform", "proportional", "exact")
# As in tools/demo.sh: name, site, slow-down, down, up.
WORKERS = (("lab-fast", "lab", "2", "40MB", "20MB"), ("lab-slow", "lab", "4", "40MB", "20MB"),
           ("home-fast", "home", "3", "4MB", "1MB"), ("home-slow", "home", "8", "2MB", "500kB"))


def measure(fleet, method, repeat):
    name = f"{method}-{repeat}"
    fleet.submit(job_yaml(name, end={"rounds": ROUNDS}, rounds={"every": {"per_epoch": 2}},
                          optimizer={"name": "sgd", "learning_rate": 0.05, "momentum": 0.9,
                                     "schedule": {"name": "cosine", "warmup_samples": 10000}},
                          allocation={"method": method, "objective": "barrier"}))
    job = fleet.wait_for_job(name, seconds=600)
    # The first round of a job warms up connections and caches.
    measured = 2 * statistics.median(record["seconds"] for record in job["rounds"][1:])
    predicted = max(w["compute_s"] + w["comm_s"] for w in job["plan"]["workers"] if w["samples"] > 0)
    print(f"{name}: {measured:.2f} s an epoch, predicted {predicted:.2f} s; " +
          ", ".join(f"{w['worker']} {w['samples']}" for w in job["plan"]["workers"]), flush=True)
    return measured, predicted


def main():
    results = {method: [] for method in METHODS}
    with Fleet(train=SAMPLES, test=TEST, coordinator_config={"profile_seconds": "2s"}) as fleet:
        fleet.start_coordinator()
        for name, site, slowdown, down, up in WORKERS:
            fleet.join(name, site, "--emulate-slowdown", slowdown, "--emulate-down", down, "--emulate-up", up)
        for repeat in range(REPEATS):
            for method in METHODS:
                results[method].append(measure(fleet, method, repeat))
    rows = []
    uniform = statistics.median(measured for measured, _ in results["uniform"])
    for method in METHODS:
        measured = statistics.median(m for m, _ in results[method])
        predicted = statistics.median(p for _, p in results[method])
        rows.append({"case": method, "metric": "epoch_measured", "value": measured, "unit": "s", "reference": "uniform, measured",
                     "reference_value": uniform, "ratio": measured / uniform, "repeats": REPEATS})
        rows.append({"case": method, "metric": "epoch_predicted", "value": predicted, "unit": "s", "reference": "measured",
                     "reference_value": measured, "ratio": predicted / measured, "repeats": REPEATS})
    with open(sys.argv[1], "w") as f:
        json.dump({"schema": "causeway.bench/1", "rows": rows}, f, indent=1)
    print(f"\n{'method':14}{'measured s/epoch':>18}{'of uniform':>12}{'predicted':>11}{'predicted/measured':>20}")
    for i in range(0, len(rows), 2):
        measured, predicted = rows[i], rows[i + 1]
        print(f"{measured['case']:14}{measured['value']:>18.2f}{measured['ratio']:>12.2f}{predicted['value']:>11.2f}{predicted['ratio']:>20.2f}")


if __name__ == "__main__":
    main()
