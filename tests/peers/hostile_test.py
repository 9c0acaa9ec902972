"""Hostile peers: workers with real certificates do what no worker should, each a thing of its own for some seconds, while two honest ones train.
Nothing of it counts, all of it is counted and told once a minute, nobody ends, and the honest workers' rounds take no longer.

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
    def setUp(self):
        self.quotas = Quotas()
        self.addCleanup(self.quotas.remove)

    def attack(self, fleet, kind, job):
        result = subprocess.run([*self.quotas.prefix("hostile"), os.path.join(BIN, "hostile_peer"), f"127.0.0.1:{fleet.port}",
                                 fleet.path(name_of(kind)), kind, str(SECONDS), job], capture_output=True, text=True, timeout=SECONDS + 60)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return json.loads(result.stdout)

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
                token, pin = fleet.add_site("dark")
                subprocess.run(fleet.join_command(name_of(kind), token, pin, "--no-start"), check=True, capture_output=True, timeout=30)
            yaml = dict(sites=["lab"], model={"builtin": "mlp", "classes": 10}, allocation={"method": "proportional"})
            fleet.submit(job_yaml("over", end={"rounds": 1}, **yaml))
            fleet.wait_for_job("over")
            fleet.submit(job_yaml(end={"rounds": 100000}, checkpoint={"every_rounds": 1000, "keep": 1}, **yaml))
            fleet.wait_for_round(3)
            pids = {name: process.pid for name, process in fleet.processes.items()}

            quiet, report = [], {}
            for kind in ATTACKS:
                quiet += self.rounds_of(fleet, lambda: time.sleep(SECONDS / 2))[1]
                refused_before = fleet.metric("causeway_refused_calls_total") or 0
                answers, seconds = self.rounds_of(fleet, lambda kind=kind: self.attack(fleet, kind, "over" if kind == "false_claims" else "job"))
                answers["refused"] = fleet.metric("causeway_refused_calls_total") - refused_before
                report[kind] = (answers, seconds)
            base = statistics.median(quiet)
            print(f"quiet: {len(quiet)} rounds, median {base:.3f} s")
            for kind, (answers, seconds) in report.items():
                ratio = statistics.median(seconds) / base
                print(f"{kind}: {answers['calls'] / answers['seconds']:.0f} calls/s, {answers['answers']}, {answers['refused']:.0f} refused; "
                      f"{len(seconds)} rounds, median {statistics.median(seconds):.3f} s, {100 * (ratio - 1):+.1f} %", flush=True)
            # Refused or failed, all of it; what a registered worker may do is registering.
            for kind, (answers, _) in report.items():
                allowed = {"garbage": 0.2, "huge_sizes": 0.2, "idle_connections": 1, "endless_streams": 0.2}.get(kind, 0.05)
                self.assertLessEqual(answers["answers"].get("OK", 0), max(3, allowed * answers["calls"]), (kind, answers))
            self.assertLessEqual(report["idle_connections"][0]["answers"].get("connected", 0), 40)
            job = fleet.job()
            self.assertEqual({r["contributions"] for r in job["rounds"]}, {2})
            self.assertEqual({r["samples"] for r in job["rounds"]}, {2000})
            self.assertLessEqual(set(job["rejected"]), {"stale_round", "not_participant", "not_uploader", "old_incarnation", "wrong_layout"})
            # Counted.
            self.assertGreater(fleet.metric("causeway_refused_calls_total", reason="too_many_calls"), 100)
            self.assertGreater(fleet.metric("causeway_refused_connections_total"), 10)
            for code in ("invalid_argument", "aborted"):
                self.assertGreater(fleet.metric("causeway_failed_calls_total", code=code), 5, code)
            # Who floods is not refused call by call, but as a whole; and stays there for ten seconds.
            self.assertGreaterEqual(fleet.metric("causeway_peers_cut_off_total"), 1)
            self.assertLess(report["flood"][0]["refused"], 2000 * (1 + SECONDS / 10))
            # Told, each thing once a minute.
            lines = [l for l in fleet.log("coordinator").splitlines() if "peer=evil-" in l or "worker=evil-" in l]
            told = [re.search(r" (\w+) peer=(\S+) reason=(\w+)", l) for l in lines]
            minutes = SECONDS / 60 + 2
            for event in {m.groups() for m in told if m}:
                self.assertLessEqual(sum(1 for m in told if m and m.groups() == event), minutes, event)
            self.assertTrue({"calls_refused", "calls_failed", "connections_refused", "peer_cut_off"} <= {m[1] for m in told if m}, lines)
            self.assertIn("peer_cut_off peer=evil-flood reason=too_many_calls", fleet.log("coordinator"))
            # Nobody ended, and the coordinator answers as ever.
            for name, pid in pids.items():
                self.assertIsNone(fleet.processes[name].poll(), name)
                self.assertEqual(fleet.processes[name].pid, pid)
            self.assertNotIn("check_failed", fleet.log("coordinator"))
            fleet.cli("job", "abort", "job")
            if self.quotas.there and COMPARE:
                for kind, (_, seconds) in report.items():
                    self.assertGreater(len(seconds), 3, kind)
                    self.assertLessEqual(statistics.median(seconds), 1.1 * base, kind)

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
