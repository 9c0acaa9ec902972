"""`causeway plan FILE` and `causeway simulate FILE`: the real program, and nothing else running."""

import glob
import json
import os
import subprocess
import tempfile
import unittest

from fleet import BIN, DONE, SOURCE, USAGE, main

PROFILES = os.path.join(SOURCE, "tests", "data", "profiles")

# docs/planning.md: an allocation by hand.
CLUSTER = {"schema": "causeway.plan-input/1", "samples": 60, "sample_bytes": 10, "model_bytes": 100, "epochs": 2,
           "workers": [{"name": "w1", "bandwidth_bytes_per_s": 100, "batch_time_s": 1, "batch_size": 1},
                       {"name": "w2", "bandwidth_bytes_per_s": 100, "uplink_bytes_per_s": 50, "batch_time_s": 1, "batch_size": 2}]}

# P / H of the published profiles, from an independent dynamic programme on times rounded to 1e-8 s.
EXACT = {"resnet18-32workers": (5, .169832), "gpt2-16workers-1gbit": (10, .598994), "gpt2-16workers-5gbit": (10, .145729),
         "llama2-124m-16workers-10gbit": (10, .129717)}


class PlanFileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="causeway-plan-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def causeway(self, *arguments, expect=DONE, stdin=""):
        result = subprocess.run([os.path.join(BIN, "causeway"), *arguments], capture_output=True, text=True, timeout=60, input=stdin,
                                env={**os.environ, "XDG_CONFIG_HOME": self.folder})
        self.assertEqual(result.returncode, expect, result.stdout + result.stderr)
        return result

    def plan(self, document, *arguments):
        return json.loads(self.causeway("plan", "-", "--output", "json", *arguments, stdin=json.dumps(document)).stdout)

    def test_allocation_by_hand(self):
        expected = {"exact": (49.9, [21, 39]), "uniform": (67, [30, 30]), "proportional": (50, [20, 40])}
        for method, (total, samples) in expected.items():
            allocation = self.plan({**CLUSTER, "allocation": {"method": method}})["allocation"]
            self.assertAlmostEqual(allocation["total_s"], total, places=12)
            self.assertEqual([w["samples"] for w in allocation["workers"]], samples)
            self.assertAlmostEqual(allocation["lower_bound_s"], 118 / 30 + 2 * 68 / 3, places=9)

    def test_published_profiles(self):
        for path in glob.glob(f"{PROFILES}/*.json"):
            name = os.path.basename(path)[:-len(".json")]
            period, mean = EXACT[name]
            plan = json.loads(self.causeway("plan", path, "--compare", "--output", "json").stdout)
            self.assertEqual(plan["schedule"]["period"], period, name)
            self.assertAlmostEqual(plan["schedule"]["objective_s"] / period, mean, delta=1e-6, msg=name)
            self.assertTrue(plan["schedule"]["optimal"])
            simulated = json.loads(self.causeway("simulate", path, "--compare", "--output", "json").stdout)
            for method in simulated["methods"]:
                self.assertAlmostEqual(method["iteration_s"], method["planned_s"], delta=1e-9 * method["planned_s"], msg=method)

    def test_bad_input_names_the_field(self):
        for change, field in (({"samples": -1}, "samples"), ({"sample_bytes": float("nan")}, "sample_bytes"),
                              ({"workers": []}, "workers"), ({"colour": "red"}, "colour"), ({"site_sync": {"period": 0}}, "site_sync.period"),
                              ({"layers": [{}] * 1000000}, "layers[")):
            result = self.causeway("plan", "-", expect=USAGE, stdin=json.dumps({**CLUSTER, **change}))
            self.assertIn(f": {field}", result.stderr)
            self.assertEqual(result.stdout, "")
        result = self.causeway("simulate", "-", expect=USAGE, stdin="]")
        self.assertIn("(standard input):1: not valid YAML", result.stderr)

    def test_tables_and_timeline(self):
        with open(os.path.join(self.folder, "input.json"), "w") as f:
            json.dump(CLUSTER, f)
        self.assertIn("allocation (exact, barrier): 49.900s", self.causeway("plan", f.name).stdout)
        trace = os.path.join(self.folder, "trace.json")
        self.assertIn("job (exact): 49.900s; planned 49.900s", self.causeway("simulate", f.name, "--timeline", trace).stdout)
        with open(trace) as f:
            self.assertGreater(len(json.load(f)["traceEvents"]), 80)


if __name__ == "__main__":
    main()
