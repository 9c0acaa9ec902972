"""The whole path with real processes: from `init` to a fetched model, and what must hold when a process dies."""

import json
import struct
import subprocess
import time
import unittest

from fleet import DONE, Fleet, job_yaml, main


def tensors(model):
    """Name -> (dtype, shape, bytes) of a safetensors file."""
    (length,) = struct.unpack("<Q", model[:8])
    header = json.loads(model[8:8 + length])
    header.pop("__metadata__", None)
    body = model[8 + length:]
    return {name: (t["dtype"], t["shape"], body[t["data_offsets"][0]:t["data_offsets"][1]]) for name, t in header.items()}


def two_sites(fleet):
    fleet.start_coordinator()
    fleet.join("a1", "alpha")
    fleet.join("a2", "alpha")
    fleet.join("b1", "beta", "--emulate-slowdown", "2", "--emulate-down", "4MB", "--emulate-up", "4MB")


def small_job(**changes):
    # Not exact: that may leave a worker out, as it should when its link costs more than it helps.
    return job_yaml(allocation={"method": "proportional"}, **changes)


class SpineTest(unittest.TestCase):
    def test_from_init_to_a_fetched_model(self):
        with Fleet() as fleet:
            two_sites(fleet)
            workers = {w["worker"]: w for w in fleet.json("worker", "list")["workers"]}
            self.assertEqual(set(workers), {"a1", "a2", "b1"})
            self.assertIn("yes", next(line for line in fleet.cli("worker", "list").stdout.splitlines() if line.startswith("b1")))
            fleet.submit(small_job())
            watch = fleet.cli("job", "watch", "job", timeout=120)
            self.assertIn("FINISHED", watch.stdout)
            job = fleet.job()
            self.assertEqual(len(job["rounds"]), 3)
            plan = {w["worker"]: w for w in job["plan"]["workers"]}
            self.assertEqual(sum(w["samples"] for w in plan.values()), 2000)
            self.assertLess(plan["b1"]["samples"], plan["a1"]["samples"])
            for record in job["rounds"]:
                self.assertEqual(record["samples"], 2000)
                self.assertEqual(record["contributions"], 3)
            self.assertGreater(job["summary"]["evaluation"]["accuracy"], 0.3)
            self.assertEqual(job["summary"]["evaluation"]["total"], 500)
            loaded = tensors(fleet.fetch())
            self.assertEqual(loaded["conv1.weight"][0], "F32")
            listed = fleet.json("model", "list", "job")["models"]
            self.assertEqual([m["version"] for m in listed if m["final"]], [3])
            # Metrics of either daemon pass the linter, and say what the job came to.
            for daemon in (fleet.http, fleet.worker("a1")["http_port"]):
                status, text = fleet.get(daemon, "/metrics")
                self.assertEqual(status, 200)
                check = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
                self.assertEqual(check.returncode, 0, check.stdout + check.stderr)
                self.assertEqual(fleet.get(daemon, "/healthz")[0], 200)
                self.assertEqual(fleet.get(daemon, "/readyz")[0], 200)
            self.assertEqual(fleet.metric("causeway_samples_total", job="job"), 6000)
            self.assertEqual(fleet.metric("causeway_contributions_total", job="job", outcome="counted"), 9)
            # SIGTERM ends each daemon cleanly within 5 s.
            for name in ("a1", "a2", "b1", "coordinator"):
                self.assertEqual(fleet.terminate(name), DONE, name)

    def test_same_seed_and_pinned_plan_give_the_same_bytes(self):
        plan = {"schema": "causeway.plan/1", "allocation": {"method": "exact", "objective": "barrier", "workers": [
            {"name": "a1", "samples": 1200, "batch_size": 32}, {"name": "a2", "samples": 500, "batch_size": 16},
            {"name": "b1", "samples": 300, "batch_size": 8}]}}
        models = []
        for _ in range(2):
            with Fleet() as fleet:
                two_sites(fleet)
                path = fleet.path("plan.json")
                with open(path, "w") as f:
                    json.dump(plan, f)
                fleet.submit(small_job(rounds={"every": {"per_epoch": 2}}, end={"epochs": 2}), "--plan", path)
                job = fleet.wait_for_job()
                self.assertEqual([w["samples"] for w in job["plan"]["workers"]], [1200, 500, 300])
                models.append(tensors(fleet.fetch()))
        self.assertEqual(models[0], models[1])

    def test_killed_worker_does_not_stop_the_job(self):
        with Fleet() as fleet:
            two_sites(fleet)
            fleet.submit(small_job(end={"rounds": 8}))
            fleet.wait_for_round(2)
            fleet.kill("b1")
            job = fleet.wait_for_job()
            self.assertEqual(fleet.log("coordinator").count("worker_lost worker=b1"), 1)
            self.assertTrue(any(record["contributions"] == 2 for record in job["rounds"]))
            # Its samples went to the others.
            plan = {w["worker"]: w["samples"] for w in job["plan"]["workers"]}
            self.assertEqual(set(plan), {"a1", "a2"})
            self.assertEqual(sum(plan.values()), 2000)
            self.assertTrue(job["summary"]["evaluation"]["complete"])

    def test_killed_coordinator_goes_on_after_a_restart(self):
        with Fleet() as fleet:
            two_sites(fleet)
            fleet.submit(small_job(end={"rounds": 8}))
            fleet.wait_for_round(3)
            before = fleet.job()["rounds"]
            fleet.kill("coordinator")
            time.sleep(1)
            fleet.start_coordinator()
            job = fleet.wait_for_job()
            self.assertEqual(job["rounds"][:len(before)], before)
            self.assertEqual([record["round"] for record in job["rounds"]], list(range(8)))
            self.assertEqual([record["samples"] for record in job["rounds"]], [2000] * 8)
            for name in ("a1", "a2", "b1"):
                self.assertIsNone(fleet.processes[name].poll())


if __name__ == "__main__":
    main()
