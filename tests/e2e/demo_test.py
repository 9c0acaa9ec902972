"""`make demo` as a newcomer sees it, with a job of one round over a few samples, and the demo's own job."""

import os
import re
import signal
import subprocess
import unittest

from fleet import BIN, FASHION, SOURCE, Fleet, main, read_idx, write_idx

JOB = os.path.join(SOURCE, "deploy", "config", "demo-job.yaml")
WORKERS = ("lab-fast", "lab-slow", "home-fast", "home-slow")


def demo(folder, data, **env):
    """Runs it to its end, at most two minutes long; nothing that it started is left then. (exit code, stdout, stderr)"""
    process = subprocess.Popen([os.path.join(SOURCE, "tools", "demo.sh")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env={**os.environ, "CAUSEWAY_BIN": BIN, "CAUSEWAY_DEMO_DIR": folder, "CAUSEWAY_DEMO_DATA": data, **env})
    try:
        out, err = process.communicate(timeout=120)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        print("--- the demo so far:\n" + process.communicate()[0])
        raise
    return process.returncode, out, err


class DemoTest(unittest.TestCase):
    def write_data(self, folder):
        for name, count in (("train", 2000), ("t10k", 200)):
            for kind, shape, size in (("images-idx3", (count, 28, 28), 784), ("labels-idx1", (count,), 1)):
                _, body = read_idx(f"{FASHION}/{name}-{kind}-ubyte.gz")
                write_idx(f"{folder}/{name}-{kind}-ubyte.gz", shape, body[:count * size])

    def test_demo_trains_and_says_where_everything_is(self):
        with Fleet(train=0) as fleet:
            self.write_data(fleet.data)
            with open(JOB) as f:
                text = f.read()
            # Proportional: exact may leave a worker out, as it should when its link costs more than it helps.
            for key, value in (("name", "tiny"), ("end", "{rounds: 1}"), ("allocation", "{method: proportional}")):
                text, count = re.subn(rf"(?m)^{key}: .*", f"{key}: {value}", text)
                self.assertEqual(count, 1, key)
            job, folder = fleet.path("tiny.yaml"), fleet.path("demo")
            with open(job, "w") as f:
                f.write(text)
            code, out, err = demo(folder, fleet.data, CAUSEWAY_DEMO_JOB=job)
            self.assertEqual(code, 0, out + err)
            # The fleet, live and emulated.
            for worker in WORKERS:
                self.assertRegex(out, rf"(?m)^{worker} +(lab|home) ")
            # The plan, as watched and as shown, with what the even split would have taken.
            self.assertRegex(out, r"plan 1 .*lab-fast.*; predicted .* in all, even split \d")
            self.assertRegex(out, r"predicted \d.* bound by \w+; by the same measured figures the even split \d")
            for worker in WORKERS:
                self.assertRegex(out, rf"(?m)^ *{worker} .* \d+ +32 ", worker)
            # What it came to.
            self.assertIn("FINISHED", out)
            accuracy = re.search(r"evaluation  version 1: accuracy (0\.\d+), loss \d", out)
            self.assertIsNotNone(accuracy, out)
            # Where everything is.
            named = {line.split()[0]: line.split()[1:] for line in out.splitlines() if re.match(r"(model|logs|metrics|state)  ", line)}
            self.assertEqual(set(named), {"model", "logs", "metrics", "state"})
            self.assertEqual(len([p for p in named["logs"] if os.path.getsize(p) > 0]), 1 + len(WORKERS))
            for name in ("model", "metrics"):
                self.assertTrue(named[name][0].startswith(folder + "/"), named[name])
                self.assertGreater(os.path.getsize(named[name][0]), 1000)
            self.assertTrue(os.path.isdir(named["state"][0]))
            # Nothing is left running.
            for process in os.listdir("/proc"):
                if process.isdigit():
                    try:
                        with open(f"/proc/{process}/cmdline", "rb") as f:
                            self.assertNotIn(folder.encode(), f.read())
                    except OSError:  # It has just ended.
                        pass

    def test_demo_keeps_off_what_is_not_its_own(self):
        with Fleet(train=0) as fleet:
            self.write_data(fleet.data)
            code, out, err = demo(fleet.data, fleet.data)
            self.assertEqual(code, 1, out)
            self.assertIn("is not empty", err)
            self.assertEqual(len(os.listdir(fleet.data)), 4)

    def test_demo_job_is_valid(self):
        with Fleet(train=0) as fleet:
            fleet.cli("job", "validate", JOB)


if __name__ == "__main__":
    main()
