"""Hostile peers: workers with real certificates do what no worker should, each a thing of its own for some seconds, while two honest ones train.
Nothing of it counts, all of it is counted and told once a minute, nobody ends, and the honest workers' rounds take no longer.

Three of them are members of a job of their own: they go all the way that a worker goes, and do at every step what they should not. Killed right
after that, the coordinator starts again: its journal has taken nothing that it refuses to read.

Every process has a share of the CPUs of its own (cgroup v1), so that what is measured is the coordinator and not the machine. The times are
printed; with HOSTILE_COMPARE=1, on a machine that does nothing else, they are compared: no attack may cost the rounds 10 %.
HOSTILE_SECONDS: how long each attack lasts."""

import json
import os
import re
import statistics
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from fleet import BIN, DONE, USAGE, Fleet, job_yaml, main, wait_until  # noqa: E402

SECONDS = float(os.environ.get("HOSTILE_SECONDS", "10"))
COMPARE = os.environ.get("HOSTILE_COMPARE") == "1"
ATTACKS = ("wrong_lengths", "huge_sizes", "endless_streams", "garbage", "false_claims", "flood", "idle_connections")
# Each the only worker of a job of its own.
MEMBERS = ("participant", "slowest", "fastest")
# What `participant` does, how it is answered, and how often.
ANSWERS = {
    "impossible model: INVALID_ARGUMENT": 12,
    "model with another hash: DATA_LOSS": 1,
    "model: OK": 1,
    "initial of 0 bytes: wrong_shape": 1,
    "initial of 2^63-1 bytes: wrong_shape": 1,
    "initial of another layout: wrong_layout": 1,
    "initial that is not finite: INVALID_ARGUMENT": 1,
    "initial: counted": 1,
    "impossible profile: INVALID_ARGUMENT": 30,
    "profile: OK": 1,
    "data of no plan: INVALID_ARGUMENT": 5,
    "data of impossible size: INVALID_ARGUMENT": 3,
    "data in impossible time: INVALID_ARGUMENT": 1,
    "data: OK": 1,
    "impossible evaluation: INVALID_ARGUMENT": 7,
    "evaluation of no version: OK": 1,
    "push of 0 bytes: wrong_shape": 1,
    f"push of {2**40} bytes: wrong_shape": 1,
    f"push of {2**63 - 1} bytes: wrong_shape": 1,
    "push of -1 bytes: INVALID_ARGUMENT": 1,
    "push of -2^63 bytes: INVALID_ARGUMENT": 1,
    "weight that was not planned: wrong_weight": 3,
    "elements that do not fit: wrong_shape": 1,
    "part of many: wrong_shape": 1,
    "fragment: wrong_shape": 1,
    "short digest: wrong_shape": 1,
    "another layout: wrong_layout": 1,
    "former attempt: stale_round": 1,
    "coming round: stale_round": 1,
    "round 2^63-1: stale_round": 1,
    "former process: old_incarnation": 1,
    "more data than announced: DATA_LOSS": 1,
    "less data than announced: DATA_LOSS": 1,
    "data of another offset: DATA_LOSS": 4,
    "data of another total: DATA_LOSS": 3,
    "data with another digest: DATA_LOSS": 1,
    "empty data: DATA_LOSS": 1,
    "no data: DATA_LOSS": 1,
    "another digest of all: DATA_LOSS": 1,
    "values that are not finite: not_finite": 1,
    "values out of range: out_of_range": 1,
    "failure: OK": 90,
    "permanent failure: OK": 30,
}
# Counted by causeway_contributions_total; by causeway_failed_calls_total.
REASONS = ("counted", "wrong_shape", "wrong_layout", "wrong_weight", "stale_round", "old_incarnation", "not_finite", "out_of_range")
CODES = ("INVALID_ARGUMENT", "DATA_LOSS")
# Together less than the two cores that a small machine has.
SHARES = {"coordinator": 0.6, "w1": 0.35, "w2": 0.35, "hostile": 0.5}
CGROUPS = "/sys/fs/cgroup/cpu"


# Each of its own: what one has done is held against it for a while.
def name_of(kind):
    return "evil-" + kind.replace("_", "-")


class Quotas:
    """A cgroup for each name; prefix(name) starts a program in it."""

    def __init__(self):
        self.root = os.path.join(CGROUPS, f"causeway-peers-{os.getpid()}")
        self.there = True
        try:
            for name, share in SHARES.items():
                os.makedirs(os.path.join(self.root, name))
                self.write(name, "cpu.cfs_period_us", 20000)
                self.write(name, "cpu.cfs_quota_us", int(20000 * share))
        except OSError as error:
            self.there = False
            print(f"no CPU quotas ({error}): times are not compared")

    def write(self, name, key, value):
        with open(os.path.join(self.root, name, key), "w") as f:
            f.write(str(value))

    def prefix(self, name):
        if not self.there:
            return ()
        return ("sh", "-c", f'echo $$ > {self.root}/{name}/tasks; exec "$@"', "sh")

    def remove(self):
        for name in (*SHARES, ""):
            try:
                os.rmdir(os.path.join(self.root, name))
            except OSError:
                pass


class HostileTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.quotas = Quotas()
        self.addCleanup(self.quotas.remove)

    def attack(self, fleet, kind, job, seconds=SECONDS):
        result = subprocess.run([*self.quotas.prefix("hostile"), os.path.join(BIN, "hostile_peer"), f"127.0.0.1:{fleet.port}",
                                 fleet.path(name_of(kind)), kind, str(seconds), job], capture_output=True, text=True, timeout=seconds + 60)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return json.loads(result.stdout)

    def dark_worker(self, fleet, kind, site):
        token, pin = fleet.add_site(site)
        subprocess.run(fleet.join_command(name_of(kind), token, pin, "--no-start"), check=True, capture_output=True, timeout=30)

    def rounds_of(self, fleet, run):
        """(what `run` returned, seconds of the rounds that lay wholly in it)."""
        begin = fleet.job()["summary"]["round"]
        result = run()
        end = fleet.job()["summary"]["round"]
        seconds = [r["seconds"] for r in fleet.job()["rounds"] if begin < r["round"] < end]
        return result, seconds

    def test_nobody_else_is_slowed(self):
        with Fleet(train=2000, test=100, coordinator_config={"lease": "10s"}) as fleet:
            fleet.start_coordinator(prefix=self.quotas.prefix("coordinator"))
            for name in ("w1", "w2"):
                fleet.join(name, "lab", prefix=self.quotas.prefix(name))
            for kind in ATTACKS:
                self.dark_worker(fleet, kind, "dark")
            for kind in MEMBERS:
                self.dark_worker(fleet, kind, kind)
            yaml = dict(sites=["lab"], model={"builtin": "mlp", "classes": 10}, allocation={"method": "proportional"})
            fleet.submit(job_yaml("over", end={"rounds": 1}, **yaml))
            fleet.wait_for_job("over")
            fleet.submit(job_yaml(end={"rounds": 100000}, checkpoint={"every_rounds": 1000, "keep": 1}, **yaml))
            fleet.wait_for_round(3)
            began = time.monotonic()
            pids = {name: process.pid for name, process in fleet.processes.items()}

            quiet, report = [], {}
            for kind in ATTACKS:
                quiet += self.rounds_of(fleet, lambda: time.sleep(SECONDS / 3))[1]
                refused_before = fleet.metric("causeway_refused_calls_total") or 0
                answers, seconds = self.rounds_of(fleet, lambda kind=kind: self.attack(fleet, kind, "over" if kind == "false_claims" else "job"))
                answers["refused"] = fleet.metric("causeway_refused_calls_total") - refused_before
                report[kind] = (answers, seconds)
            base = statistics.median(quiet)
            print(f"{time.monotonic() - began:.0f} s; quiet: {len(quiet)} rounds, median {base:.3f} s")
            for kind, (answers, seconds) in report.items():
                ratio = statistics.median(seconds) / base
                print(f"{kind}: {answers['calls'] / answers['seconds']:.0f} calls/s, {answers['answers']}, {answers['refused']:.0f} refused; "
                      f"{len(seconds)} rounds, median {statistics.median(seconds):.3f} s, {100 * (ratio - 1):+.1f} %", flush=True)
            # Refused or failed, all of it; what a registered worker may do is registering.
            for kind, (answers, _) in report.items():
                allowed = {"garbage": 0.2, "huge_sizes": 0.25, "idle_connections": 1, "endless_streams": 0.2}.get(kind, 0.05)
                self.assertLessEqual(answers["answers"].get("OK", 0), max(3, allowed * answers["calls"]), (kind, answers))
            self.assertEqual(report["idle_connections"][0]["calls"], 1000)
            # They stay registered: what they ask for is refused for what it is.
            for kind in ("wrong_lengths", "false_claims"):
                self.assertNotIn("FAILED_PRECONDITION", report[kind][0]["answers"], kind)
            self.assertGreater(report["wrong_lengths"][0]["answers"]["stale_round"], 5)
            self.assertRegex(fleet.log("coordinator"), r"calls_failed peer=evil-huge-sizes reason=invalid_argument .*the shape is too large")
            self.assertLessEqual(report["idle_connections"][0]["answers"].get("connected", 0), 40)
            if self.quotas.there:
                self.assertGreater(report["flood"][0]["calls"] / report["flood"][0]["seconds"], 10000)
            job = fleet.job()
            self.assertEqual({r["contributions"] for r in job["rounds"]}, {2})
            self.assertEqual({r["samples"] for r in job["rounds"]}, {2000})
            self.assertLessEqual(set(job["rejected"]), {"stale_round", "not_participant", "not_uploader", "old_incarnation", "wrong_layout"})
            self.members(fleet)
            # Counted.
            self.assertGreater(fleet.metric("causeway_refused_calls_total", reason="too_many_calls"), 100)
            self.assertGreater(fleet.metric("causeway_refused_connections_total"), 10)
            for code in ("invalid_argument", "aborted"):
                self.assertGreater(fleet.metric("causeway_failed_calls_total", code=code), 5, code)
            # Who floods is not refused call by call, but as a whole; and stays there for ten seconds.
            self.assertGreaterEqual(fleet.metric("causeway_peers_cut_off_total"), 1)
            self.assertLess(report["flood"][0]["refused"], 2000 * (1 + SECONDS / 10))
            # Told, each thing once a minute; of what workers may do 20 of each in the first minute.
            minutes = SECONDS / 60 + 2
            lines = [l for l in fleet.log("coordinator").splitlines() if "peer=evil-" in l or "worker=evil-" in l]
            of_workers = [re.search(r" (worker_registered|worker_lost|worker_left_out|worker_reports_failure|contribution_rejected|push_broken) .*?"
                                    r"worker=(evil-\S+)", l) for l in lines]
            of_workers = [m.groups() for m in of_workers if m]
            for event in set(of_workers):
                self.assertLessEqual(of_workers.count(event), 20 + minutes, event)
            self.assertEqual(of_workers.count(("worker_reports_failure", "evil-participant")), 20)
            told = [re.search(r" (\w+) peer=(\S+) reason=(\w+)", l) for l in lines]
            for event in {m.groups() for m in told if m}:
                self.assertLessEqual(sum(1 for m in told if m and m.groups() == event), minutes, event)
            self.assertTrue({"calls_refused", "calls_failed", "connections_refused", "peer_cut_off"} <= {m[1] for m in told if m}, lines)
            self.assertIn("peer_cut_off peer=evil-flood reason=too_many_calls", fleet.log("coordinator"))
            # Nobody ended, and the coordinator answers as ever.
            for name, pid in pids.items():
                self.assertIsNone(fleet.processes[name].poll(), name)
                self.assertEqual(fleet.processes[name].pid, pid)
            self.assertNotIn("check_failed", fleet.log("coordinator"))
            self.starts_again(fleet)
            fleet.cli("job", "abort", "job")
            if self.quotas.there and COMPARE:
                for kind, (_, seconds) in report.items():
                    self.assertGreater(len(seconds), 3, kind)
                    self.assertLessEqual(statistics.median(seconds), 1.1 * base, kind)

    def counters(self, fleet):
        """What counts the doings of `participant`, by the words of its answers."""
        counted = {reason: fleet.metric("causeway_contributions_total", job="participant", outcome=reason) for reason in REASONS}
        counted.update({code: fleet.metric("causeway_failed_calls_total", code=code.lower()) for code in CODES})
        counted["refused"] = fleet.metric("causeway_refused_calls_total")
        return {word: count or 0 for word, count in counted.items()}

    def members(self, fleet):
        """Members of jobs attack them; the job of the honest ones goes on as ever."""
        for kind in MEMBERS:
            fleet.submit(job_yaml(kind, sites=[kind], model={"builtin": "mlp", "classes": 10}, allocation={"method": "proportional"},
                                  end={"rounds": 100000}, checkpoint={"every_rounds": 1000, "keep": 1}))
        begin = fleet.job()["summary"]["round"]
        before = self.counters(fleet)
        answers = self.attack(fleet, "participant", "participant", seconds=40)
        print(f"participant: {answers['calls']} calls in {answers['seconds']:.1f} s", flush=True)
        found = answers["answers"]
        self.assertEqual(found.pop("OK"), 1)
        rounds = found.pop("contribution: counted")
        self.assertEqual(found, ANSWERS)
        after = self.counters(fleet)
        expected = {word: sum(n for answer, n in ANSWERS.items() if answer.endswith(f": {word}")) for word in after}
        expected["counted"] = rounds  # Not the initial model.
        self.assertEqual({word: after[word] - before[word] for word in after}, expected)
        self.assertEqual(fleet.job("participant")["summary"]["round"], rounds)
        for kind in ("slowest", "fastest"):
            answers = self.attack(fleet, kind, kind, seconds=8)
            self.assertEqual(answers["answers"], {"OK": 1, "model: OK": 1, "initial: counted": 1, "profile: OK": 1, "data: OK": 1,
                                                  "contribution: counted": 5}, kind)
        self.assertGreater(fleet.job()["summary"]["round"], begin + 3)

    def starts_again(self, fleet):
        before = {kind: fleet.job(kind)["summary"] for kind in ("job", *MEMBERS)}
        fleet.kill("coordinator")
        fleet.start_coordinator(prefix=self.quotas.prefix("coordinator"))
        for kind in MEMBERS:
            self.assertGreaterEqual(fleet.job(kind)["summary"]["version"], before[kind]["version"], kind)
        fleet.wait_for_round(before["job"]["round"] + 3)
        self.assertEqual({r["contributions"] for r in fleet.job()["rounds"]}, {2})

    def test_names_that_are_paths(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            for name in ("../x", "/etc/x", "a/../b", "..", ".", "a\\b", "a\nb", "~root", "a..b", "\u00e9", "x" * 64):
                fleet.cli("site", "add", "--", name, expect=USAGE)
                fleet.submit(job_yaml(name), expect=USAGE)
            token, pin = fleet.add_site("lab")
            for name in ("../w", "/tmp/w", "w/../../x"):
                result = subprocess.run([*fleet.join_command("w", token, pin, "--no-start"), "--name", name], capture_output=True, text=True,
                                        timeout=30)
                self.assertEqual(result.returncode, USAGE, result.stderr)
            for name in ("../../etc/passwd", "..", "/"):
                self.assertNotEqual(fleet.cli("worker", "show", name, expect=None).returncode, DONE)
                self.assertNotEqual(fleet.cli("job", "show", name, expect=None).returncode, DONE)
                self.assertNotEqual(fleet.cli("model", "fetch", name, "--out", fleet.path("m"), expect=None).returncode, DONE)
            inside = {os.path.relpath(os.path.join(d, f), fleet.path("coordinator")) for d, _, files in os.walk(fleet.path("coordinator")) for f in files}
            self.assertEqual({f for f in inside if not f.startswith(("tls/", "journal.db"))}, {"coordinator.yaml", "lock"})


if __name__ == "__main__":
    main()
