"""`causeway backup` while the coordinator runs, `causeway restore` at another address, and a fleet that follows it there."""

import hashlib
import json
import os
import re
import shutil
import unittest

from fleet import FAILED, REFUSED, Fleet, free_port, job_yaml, main


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def edit(path, pattern, replacement):
    with open(path) as f:
        text = f.read()
    changed = re.sub(pattern, replacement, text)
    assert changed != text, f"{path} has no {pattern}"
    with open(path, "w") as f:
        f.write(changed)


def versions(fleet):
    """version -> sha256 of the packed model, as the coordinator tells it."""
    return {m["version"]: m["sha256"] for m in fleet.json("model", "list", "job")["models"]}


class BackupTest(unittest.TestCase):
    ROUNDS = 8

    def start(self, fleet):
        fleet.start_coordinator()
        fleet.join("a1", "alpha")
        fleet.join("b1", "beta", "--emulate-slowdown", "2")
        fleet.submit(job_yaml(allocation={"method": "proportional"}, end={"rounds": self.ROUNDS}, checkpoint={"keep": 100}))

    def check_manifest(self, folder):
        """Every file has the digest that the manifest says, and no file is left over."""
        with open(os.path.join(folder, "manifest.json")) as f:
            manifest = json.load(f)
        self.assertEqual(manifest["schema"], "causeway.backup/1")
        named = {file["path"]: file for file in manifest["files"]}
        found = {os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names}
        self.assertEqual(found - {"manifest.json"}, set(named))
        for path, file in named.items():
            self.assertEqual(sha256(os.path.join(folder, path)), file["sha256"], path)
        return named

    def test_moved_to_another_address_while_it_trains(self):
        with Fleet() as fleet:
            self.start(fleet)
            fleet.wait_for_round(2)
            # Several, so that some fall into commits.
            for i in range(4):
                made = fleet.json("backup", "--dir", fleet.path("coordinator"), "--out", fleet.path(f"backup{i}"))
                self.assertEqual(made["left_out"], 0)
                self.assertEqual(made["manifest_sha256"], sha256(fleet.path(f"backup{i}", "manifest.json")))
                named = self.check_manifest(fleet.path(f"backup{i}"))
            saved = sorted(path for path in named if path.startswith("jobs/job/"))
            self.assertGreaterEqual(len(saved), 3)
            # The job goes on meanwhile: what is committed after the backup will be done again.
            fleet.wait_for_round(fleet.job()["summary"]["round"] + 1)
            before = versions(fleet)
            fleet.kill("coordinator")

            port, address = fleet.port, None
            while fleet.port == port:
                fleet.port = free_port()
            address = f"127.0.0.1:{fleet.port}"
            restored = fleet.json("restore", fleet.path("backup3"), "--dir", fleet.path("moved"), "--address", address)
            self.assertEqual((restored["advertise"], restored["listen"]), (address, address))
            self.assertEqual(restored["data_root"], fleet.data)
            for path in saved:
                self.assertEqual(sha256(fleet.path("moved", path)), named[path]["sha256"], path)
            shutil.rmtree(fleet.path("coordinator"))  # Nothing of the old one is needed.
            os.rename(fleet.path("moved"), fleet.path("coordinator"))
            fleet.start_coordinator()

            # What docs/operations.md says: one line in each worker.yaml and in the operators' context.yaml, then a restart.
            edit(fleet.path("operator", "context.yaml"), r"(?m)^coordinator:.*", f'coordinator: "{address}"')
            for worker in ("a1", "b1"):
                fleet.kill(worker)
                edit(fleet.path(worker, "worker.yaml"), r"(?m)^coordinator:.*", f'coordinator: "{address}"')
                fleet.start_worker(worker)
            job = fleet.wait_for_job(seconds=180)
            self.assertEqual(len(job["rounds"]), self.ROUNDS)
            self.assertEqual({r["samples"] for r in job["rounds"]}, {2000})

            # Versions that were committed before the backup are the same ones, to the bit.
            after = versions(fleet)
            kept = {int(re.search(r"(\d+)\.safetensors", path)[1]) for path in saved}
            for version in kept:
                self.assertEqual(after[version], before[version], f"version {version}")
                self.assertEqual(sha256(fleet.path("coordinator", f"jobs/job/model-{version:06}.safetensors")),
                                 named[f"jobs/job/model-{version:06}.safetensors"]["sha256"])
            self.assertEqual(max(after), self.ROUNDS)
            self.assertTrue(fleet.fetch())

    def test_refused_by_name(self):
        with Fleet() as fleet:
            self.start(fleet)
            fleet.wait_for_round(1)
            fleet.cli("backup", "--dir", fleet.path("coordinator"), "--out", fleet.path("backup"))
            again = fleet.cli("backup", "--dir", fleet.path("coordinator"), "--out", fleet.path("backup"), expect=REFUSED)
            self.assertIn("is there already", again.stderr)
            onto = fleet.cli("restore", fleet.path("backup"), "--dir", fleet.path("coordinator"), expect=REFUSED)
            self.assertIn("is not empty", onto.stderr)
            with open(fleet.path("backup", "tls", "ca.pem"), "r+b") as f:
                f.seek(100)
                f.write(b"!")
            os.remove(fleet.path("backup", "coordinator.yaml"))
            damaged = fleet.cli("restore", fleet.path("backup"), "--dir", fleet.path("new"), expect=FAILED)
            self.assertIn("tls/ca.pem has another SHA-256", damaged.stderr)
            self.assertIn("coordinator.yaml is missing", damaged.stderr)
            self.assertFalse(os.path.exists(fleet.path("new")))


if __name__ == "__main__":
    main()
