"""What the fault tests share: catching a process in a phase, and what must be right in everybody's books whatever happened.

Waits are derived from the timeouts below, so that nothing may wait without end.
"""

import glob
import hashlib
import json
import math
import os
import re
import signal
import sqlite3
import struct
import time

from fleet import BIN, DONE, Fleet, job_yaml, wait_until

LEASE_S, DEADLINE_S, REPLAN_AFTER_S = 4, 20, 4
OUTAGE_S = 2 * LEASE_S
START_S = 30  # A process's start on a busy machine.
CONFIG = {"lease": f"{LEASE_S}s", "profile_seconds": "300ms"}
SHIM = os.path.join(BIN, "libcrash_shim.so")
TRAIN, TEST = 600, 200


def bound_s(rounds, faults=1):
    """How long a job of so many rounds may take with so many faults: to be profiled and have its data, each round its deadline and the wait for a
    quorum, each fault an outage and a start."""
    return 2 * START_S + rounds * (DEADLINE_S + REPLAN_AFTER_S) + faults * (OUTAGE_S + LEASE_S + START_S)


def fault_job(name="job", rounds=4, quorum=0.4, deadline_s=DEADLINE_S, replan_after_s=REPLAN_AFTER_S, **changes):
    # Uniform: a slow device gets as much as any other, so that its phases are long.
    return job_yaml(name, **{"allocation": {"method": "uniform"}, "batch": {"per_worker": 32, "max": 32}, "end": {"rounds": rounds},
                             "rounds": {"every": "epoch", "quorum": quorum, "deadline": f"{deadline_s}s",
                                        "replan_after": f"{replan_after_s}s"},
                             **changes})


def stop_at(chain):
    """Environment of a process that stops itself (SIGSTOP) at an instant; crash_shim.cc."""
    return {"LD_PRELOAD": SHIM, "CAUSEWAY_STOP_AT": chain}


def wait_fast(what, seconds, condition):
    """As wait_until, for what lasts only a moment."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.01)


class FaultFleet(Fleet):
    """A coordinator, a1 in site alpha and b1 in site beta, the one that things happen to."""

    def __init__(self, train=TRAIN, test=TEST, coordinator_config=None):
        super().__init__(train, test, {**CONFIG, **(coordinator_config or {})})
        self.killed = set()

    def up(self, *b1_arguments, a1_arguments=(), coordinator_env=None, workers=("a1", "b1")):
        arguments = {"a1": a1_arguments, "b1": b1_arguments}
        self.start_coordinator(env=coordinator_env)
        for name in workers:
            self.join(name, {"a": "alpha", "b": "beta", "c": "gamma"}[name[0]], *arguments.get(name, ()), wait=False)
        for name in workers:
            self.wait_live(name, 2 * START_S)

    def kill(self, name):
        super().kill(name)
        self.killed.add(name)

    def restart(self, name):
        self.killed.discard(name)
        if name == "coordinator":
            self.start_coordinator()
        else:
            self.start_worker(name, wait=False)

    def stopped(self, name):
        """Whether the process stands still (SIGSTOP)."""
        process = self.processes[name]
        assert process.poll() is None, f"{name} ended with {process.returncode}: {self.log(name)}"
        with open(f"/proc/{process.pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "T"

    def wait_stopped(self, name, seconds):
        wait_fast(f"{name} to stop at its instant", seconds, lambda: self.stopped(name))

    def stop_for(self, name, seconds):
        if not self.stopped(name):
            self.signal(name, signal.SIGSTOP)
        time.sleep(seconds)
        self.signal(name, signal.SIGCONT)

    # ---- Phases

    def http_of(self, name):
        return int(re.findall(r"worker_started .*http=127\.0\.0\.1:(\d+)", self.log(name))[-1])

    def in_phase(self, name, phase):
        return self.metric("causeway_worker_phase", port=self.http_of(name), phase=phase) == 1

    def committed(self, job="job"):
        """How many rounds the coordinator says it has committed, however often it was started."""
        return len(set(re.findall(rf"round_committed job={job} round=(\d+)", self.log("coordinator"))))

    def wait_phase(self, name, phase, after_rounds=0, seconds=60):
        wait_fast(f"{name} to be {phase} after {after_rounds} rounds", seconds,
                  lambda: self.committed() >= after_rounds and self.in_phase(name, phase))

    def partial(self, worker, round_number, job="job"):
        """(bytes there, bytes in all) of a worker's contribution that is on its way; None if there is none."""
        for path in glob.glob(self.path("coordinator", "spool", job, f"f0_r{round_number}_*_{worker}.partial")):
            try:
                return os.path.getsize(path), int(os.path.basename(path).split("_")[3])
            except FileNotFoundError:
                pass
        return None

    def wait_half_sent(self, worker, round_number, seconds=60):
        def half():
            found = self.partial(worker, round_number)
            return found is not None and found[1] * 0.2 < found[0] < found[1] * 0.9
        wait_fast(f"{worker}'s contribution to round {round_number} to be half sent", seconds, half)

    # ---- Books

    def journal(self, query, *arguments):
        """Rows of the coordinator's journal, read only, while it runs."""
        connection = sqlite3.connect(f"file:{self.path('coordinator', 'journal.db')}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(query, arguments).fetchall()
        finally:
            connection.close()

    def commits(self, job="job"):
        return self.journal("SELECT round, version, hex(sha256), path, samples FROM commits WHERE job = ? ORDER BY round", job)

    def check_books(self, test, rounds, job="job", train=TRAIN, cut_off=()):
        """Every round committed once, nothing left of contributions, the final model is what the journal says, the metrics say the same.
        `cut_off`: workers that run, but are not reached."""
        shown = self.job(job)
        test.assertEqual(shown["summary"]["state"], "FINISHED")
        commits = self.commits(job)
        test.assertEqual([row[0] for row in commits], list(range(-1, rounds)))
        test.assertEqual([row[1] for row in commits], list(range(rounds + 1)))
        test.assertEqual([record["samples"] for record in shown["rounds"]], [row[4] for row in commits[1:]])
        for row in commits[1:]:
            test.assertTrue(0 < row[4] <= train, row)
        test.assertEqual(self.journal("SELECT count(*) FROM contributions"), [(0,)])
        test.assertEqual(glob.glob(self.path("coordinator", "spool", job, "*")), [])
        test.assertTrue(shown["summary"]["evaluation"]["complete"])
        test.assertEqual(shown["summary"]["evaluation"]["version"], rounds)
        test.assertEqual(packed_sha256(self.fetch(job)), commits[-1][2].lower())
        self.check_metrics(rounds, job, cut_off)
        return shown

    def check_metrics(self, rounds, job, cut_off):
        log = self.log("coordinator")
        expected = {"version": rounds, "finished": 1}
        if log.count("coordinator_recovered") == 1:  # Counters begin anew with the process.
            expected.update(committed=rounds, dropped=log.count(f"round_dropped job={job} "))
        for worker in self.json("worker", "list")["workers"]:
            name = worker["worker"]
            expected[name] = int(self.processes[name].poll() is None and name not in cut_off)

        def shown():
            found = {"version": self.metric("causeway_job_version", job=job), "finished": self.metric("causeway_job_state", job=job, state="finished")}
            for name in expected.keys() - found.keys():
                found[name] = (self.metric("causeway_rounds_total", job=job, outcome=name) if name in ("committed", "dropped")
                               else self.metric("causeway_worker_up", worker=name)) or 0
            return found
        try:
            wait_until("the metrics", 2 * LEASE_S + START_S, lambda: shown() == expected)  # Gauges are set once a second.
        except TimeoutError as error:
            raise AssertionError(f"metrics: {shown()}, expected {expected}") from error

    def check_ends(self, test):
        """Who was killed is dead, everybody else ends in order."""
        for name, process in self.processes.items():
            if name not in self.killed:
                test.assertIsNone(process.poll(), name)
                process.terminate() if name != "coordinator" else None
        for name in [n for n in self.processes if n != "coordinator"] + ["coordinator"]:
            if name in self.killed:
                test.assertEqual(self.processes[name].returncode, -signal.SIGKILL, name)
            else:
                test.assertEqual(self.terminate(name, 30), DONE, name)


def packed(model):
    """A safetensors file's tensors in the model's own order (lenet's and mlp's: layers by name, weights first), as they cross the wire."""
    (length,) = struct.unpack("<Q", model[:8])
    header = json.loads(model[8:8 + length])
    header.pop("__metadata__", None)
    tensors = []
    for name in sorted(header, key=lambda n: (n.split(".")[0], n.endswith("bias"))):
        begin, end = header[name]["data_offsets"]
        assert end - begin == 4 * math.prod(header[name]["shape"])
        tensors.append(model[8 + length + begin:8 + length + end])
    return b"".join(tensors)


def packed_sha256(model):
    return hashlib.sha256(packed(model)).hexdigest()
