"""`causeway plan --job` and `causeway simulate --job`: what the fleet has measured, and a plan that is pinned to a job."""

import json
import unittest

from fleet import REFUSED, USAGE, Fleet, job_yaml, main


class PlanJobTest(unittest.TestCase):
    def test_measured_profiles_become_a_plan_that_a_job_follows(self):
        model = {"builtin": "mlp", "classes": 10}
        with Fleet(train=1000, test=100, coordinator_config={"lease": "20s", "broken_stream_grace": "10s"}) as fleet:
            fleet.start_coordinator()
            for name in ("a1", "a2"):
                fleet.join(name, "lab")
            with open(fleet.path("next.yaml"), "w") as f:
                f.write(job_yaml(name="next", model=model, end={"epochs": 2}))
            self.assertIn("has measured mlp", fleet.cli("plan", "--job", f.name, expect=REFUSED).stderr)
            fleet.submit(job_yaml(name="first", model=model, end={"rounds": 1}))
            fleet.wait_for_job("first")

            result = fleet.cli("plan", "--job", f.name, "--output", "json")
            self.assertIn("no layer schedules", result.stderr)
            plan = json.loads(result.stdout)
            shares = {w["name"]: w["samples"] for w in plan["allocation"]["workers"]}
            self.assertEqual(set(shares), {"a1", "a2"})
            self.assertEqual(sum(shares.values()), 1000)
            self.assertNotIn("schedules", plan)
            self.assertTrue(fleet.json("simulate", "--job", f.name)["job"]["completed"])

            with open(fleet.path("plan.json"), "w") as p:
                p.write(result.stdout)
            fleet.cli("job", "submit", f.name, "--plan", p.name)
            job = fleet.wait_for_job("next")
            self.assertTrue(job["plan"]["pinned"])
            self.assertEqual({w["worker"]: w["samples"] for w in job["plan"]["workers"]}, shares)
            with open(p.name, "w") as p:
                json.dump({**plan, "schedule": {"period": 5}}, p)
            result = fleet.cli("job", "submit", f.name, "--plan", p.name, expect=USAGE)
            self.assertIn("schedule: a job cannot follow a layer schedule yet", result.stderr)


if __name__ == "__main__":
    main()
