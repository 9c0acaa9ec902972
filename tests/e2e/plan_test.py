"""What the plan depends on (the devices' speed, their links, the method) and what becomes of it: predicted against measured time, shards that are
kept over restarts, rounds within an epoch, the ways a job ends."""

import glob
import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest

from fleet import Fleet, job_yaml, wait_until

MLP = {"builtin": "mlp", "classes": 10}


def planned(job):
    return {w["worker"]: w["samples"] for w in job["plan"]["workers"]}


class CpuQuota:
    """A control group with so much of one CPU. `prefix` goes before a command that is to run in it."""

    def __init__(self, cpus):
        self.mounted = None
        root = "/sys/fs/cgroup"
        if os.path.exists(f"{root}/cgroup.controllers"):
            with open(f"{root}/cgroup.subtree_control", "w") as f:
                f.write("+cpu")
            limit, self.procs = ("cpu.max", f"{int(cpus * 100000)} 100000"), "cgroup.procs"
        else:
            root, self.procs = "/sys/fs/cgroup/cpu", "tasks"
            if not os.path.exists(f"{root}/tasks"):
                root = self.mounted = tempfile.mkdtemp(prefix="causeway-cgroup-")
                subprocess.run(["mount", "-t", "cgroup", "-o", "cpu", "causeway-e2e", root], check=True, capture_output=True)
            limit = ("cpu.cfs_quota_us", str(int(cpus * 100000)))
        self.dir = tempfile.mkdtemp(prefix="causeway-e2e-", dir=root)
        with open(os.path.join(self.dir, limit[0]), "w") as f:
            f.write(limit[1])

    @property
    def prefix(self):
        return ["sh", "-c", f'echo $$ > {self.dir}/{self.procs} && exec "$@"', "sh"]

    def remove(self):
        os.rmdir(self.dir)
        if self.mounted:
            subprocess.run(["umount", self.mounted], check=True)
            os.rmdir(self.mounted)


class PlanTest(unittest.TestCase):
    def test_cpu_quota_changes_the_plan(self):
        if os.geteuid() != 0:
            self.skipTest("a CPU quota needs root")
        try:
            quota = CpuQuota(0.25)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"no cpu controller to set a quota with: {error}")
        self.addCleanup(quota.remove)
        with Fleet(train=2000, test=100) as fleet:
            fleet.start_coordinator()
            fleet.join("a1", "lab")
            fleet.join("a2", "lab", prefix=quota.prefix)
            fleet.submit(job_yaml(end={"rounds": 2}))
            job = fleet.wait_for_job()
            workers = {w["worker"]: w for w in job["workers"]}
            times = {name: w["plan"]["batch_time_s"] for name, w in workers.items()}
            print("batch times", times, "samples", planned(job))
            self.assertGreater(times["a2"], 1.5 * times["a1"])
            self.assertLess(planned(job)["a2"], 0.7 * planned(job)["a1"])
            self.assertEqual(sum(planned(job).values()), 2000)
            for w in workers.values():
                measured = w["compute_s"] / w["rounds"]
                print(w["worker"], "planned", w["plan"]["compute_s"], "measured", measured)

    def test_emulated_link_and_device_change_the_plan(self):
        with Fleet(train=2000, test=100) as fleet:
            fleet.start_coordinator()
            fleet.join("a1", "lab", "--emulate-slowdown", "20")
            fleet.join("a2", "lab", "--emulate-slowdown", "20", "--emulate-down", "500kB", "--emulate-up", "500kB")
            fleet.join("a3", "lab", "--emulate-slowdown", "40")
            fleet.submit(job_yaml(end={"rounds": 2}))
            job = fleet.wait_for_job()
            print(planned(job))


if __name__ == "__main__":
    main()
