"""Certificates that live for seconds: they are renewed while a job runs, and nobody notices; and the command line around it."""

import json
import os
import re
import struct
import time
import unittest

from fleet import BIN, DONE, REFUSED, USAGE, Fleet, job_yaml, main, wait_until


def certificates(fleet):
    """(holder, name) -> what `cert show` says."""
    return {(c["holder"], c["name"]): c for c in fleet.json("cert", "show")["certificates"]}


class CertTest(unittest.TestCase):
    def test_renewed_in_a_job_without_a_restart(self):
        # 12 s, of which 7.6 pass before a renewal: the certificates that the job began with are over before it ends.
        with Fleet(train=600, test=100, coordinator_config={"certificate_lifetime": "12s"}) as fleet:
            fleet.start_coordinator()
            for name in ("w1", "w2"):
                fleet.join(name, "lab", "--emulate-slowdown", "8")
            fleet.cli("cert", "renew", "coordinator")  # `init` made one for a year.
            wait_until("the coordinator's short one", 10, lambda: certificates(fleet)["COORDINATOR", ""]["expires_ms"] < time.time() * 1000 + 13000)
            first, begin = certificates(fleet), time.monotonic()
            fleet.submit(job_yaml(end={"rounds": 100}, allocation={"method": "proportional"}))
            fleet.wait_for_round(1)
            wait_until("three generations of certificates", 60, lambda: time.monotonic() - begin > 30)
            committed = fleet.job()["summary"]["round"]
            fleet.wait_for_round(committed + 1)
            last = certificates(fleet)
            for who in (("COORDINATOR", ""), ("WORKER", "w1"), ("WORKER", "w2")):
                self.assertNotEqual(first[who]["serial"], last[who]["serial"])
                self.assertGreater(last[who]["expires_ms"], time.time() * 1000)
            for name in ("w1", "w2"):
                self.assertIsNone(fleet.processes[name].poll(), fleet.log(name))
                self.assertGreaterEqual(fleet.log(name).count("certificate_renewed"), 3)
                self.assertNotIn("coordinator_lost", fleet.log(name))
                self.assertNotIn("task_failed", fleet.log(name))
                port = fleet.worker(name)["http_port"]
                self.assertEqual(fleet.metric("causeway_worker_connections_total", port=port), 1)
                left = fleet.metric("causeway_certificate_expiry_seconds", port=port)
                self.assertTrue(0 < left <= 12, left)
            left = fleet.metric("causeway_certificate_expiry_seconds")
            self.assertTrue(0 < left <= 12, left)
            job = fleet.job()
            self.assertEqual({r["contributions"] for r in job["rounds"]}, {2})
            self.assertEqual(job["rejected"], {})
            # A restart finds what it needs.
            fleet.terminate("w1")
            fleet.start_worker("w1")
            fleet.cli("job", "abort", "job")

    def test_asked_for_by_an_operator(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            fleet.join("w1", "lab")
            first = certificates(fleet)
            self.assertEqual({h for h, _ in first}, {"CA", "COORDINATOR", "OPERATOR", "WORKER"})
            result = fleet.json("cert", "renew")
            self.assertEqual((result["operator_renewed"], sorted(result["asked"])), (True, ["coordinator", "w1"]))
            self.assertFalse(os.path.exists(fleet.path("operator", "operator.key")))
            wait_until("all to be renewed", 15, lambda: all(
                certificates(fleet)[who]["serial"] != first[who]["serial"] for who in first if who[0] != "CA"))
            self.assertEqual(certificates(fleet)["CA", ""]["sha256"], first["CA", ""]["sha256"])
            self.assertFalse(certificates(fleet)["WORKER", "w1"]["renewal_asked"])
            # Everybody goes on after a restart of everybody.
            fleet.terminate("w1")
            fleet.terminate("coordinator")
            fleet.start_coordinator()
            fleet.start_worker("w1")
            fleet.cli("worker", "remove", "w1")
            self.assertEqual(fleet.processes["w1"].wait(timeout=10), REFUSED)
            self.assertNotIn(("WORKER", "w1"), certificates(fleet))
            fleet.cli("cert", "renew", "w1", expect=REFUSED)

    def test_an_operator_by_the_authoritys_key(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            before = certificates(fleet)["OPERATOR", "admin"]["serial"]
            fleet.cli("cert", "renew", "operator", "--dir", fleet.path("coordinator"))
            self.assertNotEqual(certificates(fleet)["OPERATOR", "admin"]["serial"], before)

    def test_a_worker_that_cannot_start(self):
        """With an exit code that systemd does not answer with a restart."""
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            token, pin = fleet.add_site("lab")
            self.assertEqual(fleet.spawn("w1", fleet.join_command("w1", token, pin, "--no-start")).wait(timeout=20), DONE)

            def start(env=None):
                fleet.start_worker("w1", wait=False, env=env)
                return fleet.processes["w1"].wait(timeout=20), fleet.log("w1").splitlines()[-1]

            clock = fleet.path("clock")
            with open(clock, "wb") as f:
                f.write(struct.pack("=q", 400 * 86400))
            code, said = start({"LD_PRELOAD": os.path.join(BIN, "libclock_shim.so"), "CAUSEWAY_CLOCK_FILE": clock})
            self.assertEqual(code, REFUSED, said)
            self.assertIn("worker.pem has expired at", said)
            certificate, aside = fleet.path("w1", "tls", "worker.pem"), fleet.path("aside.pem")
            os.rename(certificate, aside)
            code, said = start()
            self.assertEqual(code, USAGE, said)
            self.assertIn("worker.pem: join first", said)
            os.rename(aside, certificate)
            with open(fleet.path("w1", "worker.yaml")) as f:
                text = f.read()
            with open(fleet.path("w1", "worker.yaml"), "w") as f:
                f.write(re.sub(r"(?m)^device:.*", "device: cuda", text))
            code, said = start()
            self.assertEqual(code, USAGE, said)
            self.assertIn('not on "cuda"', said)


if __name__ == "__main__":
    main()
