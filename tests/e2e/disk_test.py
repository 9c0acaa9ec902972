"""Disks that are full, and then are not: folders on a small tmpfs of their own."""

import os
import re
import subprocess
import unittest

from faults import START_S, FaultFleet, bound_s, fault_job
from fleet import FAILED, main, wait_until

RETRY_S = 2  # The coordinator tries again so often.
PHASE_TIMEOUT_S = 120  # So long the others wait for who gets nowhere before training.


class SmallDisk:
    """`path` on a tmpfs of so many bytes."""

    def __init__(self, path, size):
        self.path = path
        self.ballast = os.path.join(path, "ballast")
        os.makedirs(path, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "causeway-e2e", path], check=True, capture_output=True)

    def fill(self, leave=0):
        """Until so many bytes are left."""
        with open(self.ballast, "wb") as f:
            stat = os.statvfs(self.path)
            os.posix_fallocate(f.fileno(), 0, stat.f_bavail * stat.f_frsize - leave)

    def free(self):
        os.remove(self.ballast)

    def unmount(self):
        subprocess.run(["umount", "-l", self.path], check=True, capture_output=True)


class DiskTest(unittest.TestCase):
    def small_disk(self, path, size):
        if os.geteuid() != 0:
            self.skipTest("mounting a small disk needs root")
        try:
            disk = SmallDisk(path, size)
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no tmpfs can be mounted: {error.stderr.decode().strip()}")
        self.addCleanup(disk.unmount)
        return disk

    def test_full_disk_of_the_coordinator(self):
        with FaultFleet() as fleet:
            disk = self.coordinator_disk(fleet)
            fleet.up("--emulate-slowdown", "20")
            fleet.submit(fault_job(rounds=5, quorum=0.9))
            # No room for b1's contribution.
            self.wait_for_a1s_contribution(fleet)
            disk.fill()
            self.stands_still_then_goes_on(fleet, disk)
            # Room for it (0.8 MB), none for the checkpoint.
            self.wait_for_a1s_contribution(fleet)
            disk.fill(leave=1 << 20)
            self.stands_still_then_goes_on(fleet, disk)
            fleet.wait_for_job(seconds=bound_s(5))
            shown = fleet.check_books(self, 5)
            self.assertEqual([record["contributions"] for record in shown["rounds"]], [2] * 5)
            fleet.check_ends(self)

    def coordinator_disk(self, fleet):
        disk = self.small_disk(fleet.path("disk"), 64 << 20)
        os.makedirs(fleet.path("disk", "coordinator"))
        os.symlink(fleet.path("disk", "coordinator"), fleet.path("coordinator"))
        fleet.init()
        return disk

    def test_submission_to_a_full_disk(self):
        with FaultFleet() as fleet:
            disk = self.coordinator_disk(fleet)
            fleet.up()
            disk.fill()
            for _ in range(2):
                refused = fleet.submit(fault_job(rounds=1), expect=FAILED)
                self.assertRegex(refused.stderr, r"No space left on device|database or disk is full")
                self.assertEqual(fleet.json("job", "list")["jobs"], [])
            disk.free()
            fleet.submit(fault_job(rounds=1))
            fleet.wait_for_job(seconds=bound_s(1))
            self.assertEqual(fleet.check_books(self, 1)["rounds"][0]["contributions"], 2)
            fleet.check_ends(self)

    def wait_for_a1s_contribution(self, fleet):
        """Until b1 trains and the spool holds nothing but what a1 has contributed to the same round: no room comes by itself."""
        after = fleet.committed() + 1
        fleet.wait_phase("b1", "training", after_rounds=after, seconds=bound_s(2, faults=0))
        wait_until("the others' contributions to be cleared away", START_S,
                   lambda: [re.sub(r".*_(r\d+)_.*_", r"\1_", name) for name in os.listdir(fleet.path("coordinator", "spool", "job"))]
                   == [f"r{fleet.committed()}_a1.whole"])

    def stands_still_then_goes_on(self, fleet, disk):
        committed = fleet.commits()
        # The reason is one that an operator can act on.
        wait_until("job show to give the reason", bound_s(1, faults=0),
                   lambda: re.match(r"stands still until this succeeds: .*No space left on device", fleet.job()["summary"].get("reason", "")))
        self.assertEqual(fleet.commits(), committed)
        disk.free()
        wait_until("the job to go on by itself", bound_s(1), lambda: len(fleet.commits()) > len(committed))
        self.assertEqual(fleet.commits()[:len(committed)], committed)
        wait_until("the reason to go", RETRY_S + START_S, lambda: "stands still" not in fleet.job()["summary"].get("reason", ""))

    def test_full_disk_of_a_worker_that_fetches(self):
        with FaultFleet() as fleet:
            disk = self.small_disk(fleet.path("b1"), 16 << 20)
            fleet.up()
            disk.fill(leave=128 << 10)  # Its shard does not fit.
            fleet.submit(fault_job(rounds=1000))
            wait_until("rounds without b1", PHASE_TIMEOUT_S + bound_s(2), lambda: fleet.committed() >= 2)
            self.assertRegex(fleet.log("coordinator"), r"worker_reports_failure job=job worker=b1 .* permanent=false .*No space left on device")
            self.assertRegex(fleet.log("coordinator"), r"worker_left_out job=job worker=b1 .*No space left on device")
            shown = fleet.job()
            self.assertEqual([w["worker"] for w in shown["plan"]["workers"] if w["samples"] > 0], ["a1"])
            # With room it is back by itself, in the same job.
            disk.free()
            wait_until("b1 to contribute", bound_s(2), lambda: "contribution_counted job=job worker=b1" in fleet.log("coordinator"))
            fleet.cli("job", "abort", "job")
            fleet.submit(fault_job("more", rounds=1))
            fleet.wait_for_job("more", seconds=bound_s(1))
            shown = fleet.check_books(self, 1, job="more")
            self.assertEqual(shown["rounds"][0]["contributions"], 2)
            fleet.check_ends(self)

    def test_full_disk_of_a_worker_that_trains(self):
        with FaultFleet() as fleet:
            disk = self.small_disk(fleet.path("b1"), 16 << 20)
            fleet.up("--emulate-slowdown", "10")
            fleet.submit(fault_job(rounds=4, quorum=0.9))
            fleet.wait_phase("b1", "training", after_rounds=1, seconds=bound_s(2, faults=0))
            disk.fill()
            fleet.wait_for_job(seconds=bound_s(4))
            # What it cannot keep it does not need to go on.
            shown = fleet.check_books(self, 4)
            self.assertEqual([record["contributions"] for record in shown["rounds"]], [2] * 4)
            self.assertRegex(fleet.log("b1"), r"optimizer_state_not_saved .*No space left on device")
            fleet.check_ends(self)


if __name__ == "__main__":
    main()
