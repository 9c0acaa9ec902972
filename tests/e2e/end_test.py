"""How a job ends that cannot go well, and that everybody's books agree about one that did."""

import math
import struct
import unittest

from fleet import DONE, FAILED, Fleet, job_yaml, main, wait_until
from spine_test import tensors

MLP = {"builtin": "mlp", "classes": 10}


def fleet_of_few_samples():
    # A lease that also a busy machine keeps: a worker that is lost for a moment does its round again, and here they are counted.
    return Fleet(train=400, test=100, coordinator_config={"lease": "10s"})


class EndTest(unittest.TestCase):
    def test_diverging_job_fails_and_its_last_good_model_stays(self):
        with fleet_of_few_samples() as fleet:
            fleet.start_coordinator()
            fleet.join("a1", "alpha")
            fleet.join("b1", "beta")
            fleet.submit(job_yaml(model=MLP, optimizer={"name": "sgd", "learning_rate": 1e6}, end={"rounds": 5},
                                  allocation={"method": "uniform"}))
            watch = fleet.cli("job", "watch", "job", timeout=100, expect=FAILED)
            self.assertIn("FAILED", watch.stdout)
            job = fleet.job()
            self.assertEqual(job["summary"]["state"], "FAILED")
            reason = job["summary"]["reason"]
            self.assertIn("round 0 was dropped 3 times in a row: contributions rejected (", reason)
            self.assertRegex(reason, r"[ab]1: (not_finite|out_of_range|change_too_large)\b")
            self.assertIn("the last good model is version 0", reason)
            self.assertIn(reason, watch.stdout + watch.stderr)
            # Nothing of it came into the model.
            self.assertEqual(job["rounds"], [])
            self.assertGreaterEqual(sum(int(count) for count in job["rejected"].values()), 3)
            self.assertLessEqual(set(job["rejected"]), {"not_finite", "out_of_range", "change_too_large"})
            loaded = tensors(fleet.fetch())
            self.assertGreater(len(loaded), 0)
            for name, (dtype, shape, data) in loaded.items():
                self.assertEqual(dtype, "F32", name)
                values = struct.unpack(f"<{math.prod(shape)}f", data)
                self.assertTrue(all(math.isfinite(value) and abs(value) < 10 for value in values), name)
            # The workers outlive it: a job that can go well does.
            fleet.submit(job_yaml("sane", model=MLP, end={"rounds": 1}))
            fleet.wait_for_job("sane", seconds=60)

    def test_worker_hears_of_every_contribution(self):
        # With a single worker every contribution ends its round, and the last one the job, while its answer is still under way.
        with fleet_of_few_samples() as fleet:
            fleet.start_coordinator()
            fleet.join("w1", "lab")
            fleet.submit(job_yaml(model=MLP, end={"rounds": 6}))
            job = fleet.wait_for_job()
            self.assertEqual(len(job["rounds"]), 6)
            self.assertEqual(fleet.metric("causeway_contributions_total", job="job", outcome="counted"), 6)
            http = fleet.worker("w1")["http_port"]
            wait_until("the worker to count 6 contributions", 10, lambda: fleet.metric(
                "causeway_worker_contributions_total", port=http, job="job", outcome="counted") == 6)
            self.assertEqual(fleet.terminate("w1"), DONE)
            log = fleet.log("w1")
            self.assertEqual(log.count(" round_trained "), 6)
            self.assertEqual(log.count(" contribution_answered "), 6)
            self.assertEqual(log.count("outcome=counted"), 6)


if __name__ == "__main__":
    main()
