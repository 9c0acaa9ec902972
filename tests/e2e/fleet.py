"""A coordinator and its workers as real processes on loopback, for tests.

    with Fleet() as fleet:
        fleet.start_coordinator()
        fleet.add_site("lab")
        fleet.join("w1", "lab")
        fleet.submit({...})
        fleet.wait_for_job("job", "FINISHED")

Everything lies in one temporary folder; every process is ended by its pid when the block is left. Every wait has a limit and a name.
"""

import gzip
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("CAUSEWAY_BIN", os.path.join(SOURCE, "build", "bin"))
FASHION = "/usr/share/datasets/fashion-mnist"

# Exit codes, docs/reference.md.
DONE, FAILED, USAGE, TIMED_OUT, REFUSED = range(5)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(what, seconds, condition):
    """Returns the first true value of condition(); raises naming `what` after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s in vain for {what}")
        time.sleep(0.05)


def read_idx(path):
    """(dims, bytes) of a gzip idx file of unsigned bytes."""
    with gzip.open(path) as f:
        data = f.read()
    n = data[3]
    dims = struct.unpack(f">{n}I", data[4:4 + 4 * n])
    return dims, data[4 + 4 * n:]


def write_idx(path, dims, body):
    data = struct.pack(f">BBBB{len(dims)}I", 0, 0, 8, len(dims), *dims) + body
    with (gzip.open(path, "wb", compresslevel=1) if path.endswith(".gz") else open(path, "wb")) as f:
        f.write(data)


def write_fashion_subset(folder, train, test):
    """The first `train` and `test` samples of Fashion-MNIST as train-images, train-labels, test-images, test-labels."""
    os.makedirs(folder, exist_ok=True)
    for source, name, count in (("train", "train", train), ("t10k", "test", test)):
        dims, body = read_idx(f"{FASHION}/{source}-images-idx3-ubyte.gz")
        write_idx(f"{folder}/{name}-images", (count, 28, 28), body[:count * 784])
        dims, body = read_idx(f"{FASHION}/{source}-labels-idx1-ubyte.gz")
        write_idx(f"{folder}/{name}-labels", (count,), body[:count])


def job_yaml(name="job", **changes):
    """A small job over the subset, as JSON (which is YAML); `changes` replace top-level keys."""
    job = {
        "name": name,
        "model": {"builtin": "lenet", "classes": 10},
        "data": {
            "train": {"format": "idx", "images": "train-images", "labels": "train-labels",
                      "normalize": {"mean": [0.286], "std": [0.353]}},
            "test": {"format": "idx", "images": "test-images", "labels": "test-labels"},
        },
        "batch": {"per_worker": 32, "max": 64},
        "optimizer": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9},
        "end": {"rounds": 3},
        "site_sync": {"method": "none"},
        "rounds": {"every": "epoch"},
        "seed": 1,
    }
    job.update(changes)
    return json.dumps({k: v for k, v in job.items() if v is not None}, indent=1)


def main():
    """unittest.main() for ctest: when every test that was asked for is skipped it says why and exits with 77."""
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.skipped and len(result.skipped) >= result.testsRun:  # A class that is skipped as a whole counts as no test.
        print("SKIPPED: " + "; ".join(reason for _, reason in result.skipped))
        sys.exit(77)


class Fleet:
    def __init__(self, train=2000, test=500, coordinator_config=None):
        self.dir = tempfile.mkdtemp(prefix="causeway-e2e-")
        self.config = {"lease": "3s", "profile_seconds": "500ms", **(coordinator_config or {})}
        self.port, self.http = free_port(), free_port()
        self.processes = {}
        self.data = os.path.join(self.dir, "data")
        if train:
            write_fashion_subset(self.data, train, test)
        else:
            os.makedirs(self.data)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        if kind is not None:
            for name in sorted(self.processes):
                print(f"--- the end of {name}.log:\n" + "".join(self.log(name).splitlines(True)[-25:]))
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- Processes

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def log(self, name):
        try:
            with open(self.path(name + ".log"), errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def spawn(self, name, command, env=None, prefix=()):
        with open(self.path(name + ".log"), "ab") as log:
            self.processes[name] = subprocess.Popen([*prefix, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                                    env={**os.environ, **(env or {})})
        return self.processes[name]

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def terminate(self, name, seconds=5):
        """SIGTERM; returns the exit code, raises after `seconds`."""
        self.processes[name].terminate()
        return self.processes[name].wait(timeout=seconds)

    def cli(self, *arguments, expect=DONE, timeout=60, context=None):
        """Runs `causeway`; returns the completed process. `expect`: its exit code, None for any."""
        result = subprocess.run([os.path.join(BIN, "causeway"), "--context", (context or self.path("operator")) + "/", *arguments],
                                capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
        if expect is not None and result.returncode != expect:
            raise AssertionError(f"causeway {' '.join(arguments)}: exit {result.returncode}, expected {expect}\n{result.stdout}{result.stderr}")
        return result

    def json(self, *arguments, **options):
        return json.loads(self.cli(*arguments, "--output", "json", **options).stdout)

    # ---- The coordinator

    def init(self):
        self.cli("init", "--address", f"127.0.0.1:{self.port}", "--dir", self.path("coordinator"), "--data-root", self.data)
        path = self.path("coordinator", "coordinator.yaml")
        with open(path) as f:
            text = f.read()
        text = re.sub(r"(?m)^listen:.*", f"listen: 127.0.0.1:{self.port}", text).replace("127.0.0.1:7480", f"127.0.0.1:{self.http}")
        for key, value in self.config.items():
            text = re.sub(rf"(?m)^{key}:.*\n", "", text) + f"\n{key}: {value}\n"
        with open(path, "w") as f:
            f.write(text)

    def start_coordinator(self, wait=True, **options):
        if not os.path.exists(self.path("coordinator")):
            self.init()
        process = self.spawn("coordinator", [os.path.join(BIN, "causeway-coordinator"), "--config",
                                             self.path("coordinator", "coordinator.yaml")], **options)
        if wait:
            wait_until("the coordinator", 30, lambda: process.poll() is not None or self.ready(self.http))
            assert process.poll() is None, self.log("coordinator")
        return process

    @staticmethod
    def get(port, path, timeout=5):
        """(status, body) of a GET on loopback."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (OSError, urllib.error.URLError):
            return 0, ""

    def ready(self, port):
        return self.get(port, "/readyz")[0] == 200

    def metric(self, name, port=None, **labels):
        """The sum of the metric's samples that carry these labels; None if there is none."""
        total = None
        for line in self.get(port or self.http, "/metrics")[1].splitlines():
            match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if match and match[1] == name:
                found = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
                if all(found.get(k) == v for k, v in labels.items()):
                    total = (total or 0) + float(match[3])
        return total

    # ---- Workers

    def add_site(self, site, *arguments):
        """The token and pin of the join line."""
        line = self.cli("site", "add", site, *arguments).stdout
        return re.search(r"--token (\S+)", line)[1], re.search(r"--ca-pin (\S+)", line)[1]

    def join_command(self, name, token, pin, *arguments):
        return [os.path.join(BIN, "causeway-worker"), "join", f"127.0.0.1:{self.port}", "--token", token, "--ca-pin", pin, "--name", name,
                "--dir", self.path(name), "--threads", "1", *arguments]

    def join(self, name, site, *arguments, wait=True, **options):
        token, pin = self.add_site(site)
        self.spawn(name, self.join_command(name, token, pin, *arguments), **options)
        if wait:
            self.wait_live(name)

    def start_worker(self, name, wait=True, **options):
        self.spawn(name, [os.path.join(BIN, "causeway-worker"), "--config", self.path(name, "worker.yaml")], **options)
        if wait:
            self.wait_live(name)

    def worker(self, name):
        return next((w for w in self.json("worker", "list")["workers"] if w["worker"] == name), None)

    def wait_live(self, name, seconds=30):
        def live():
            process = self.processes[name]
            assert process.poll() is None, f"{name} ended with {process.returncode}: {self.log(name)}"
            worker = self.worker(name)
            return worker and worker["live"]
        wait_until(f"worker {name}", seconds, live)

    # ---- Jobs

    def submit(self, yaml, *arguments, expect=DONE):
        path = self.path("job.yaml")
        with open(path, "w") as f:
            f.write(yaml)
        return self.cli("job", "submit", path, *arguments, expect=expect)

    def job(self, name="job"):
        return self.json("job", "show", name)

    def state(self, name="job"):
        return self.job(name)["summary"]["state"]

    def wait_for_job(self, name="job", state="FINISHED", seconds=120):
        ends = ("FINISHED", "FAILED", "ABORTED")

        def there():
            job = self.job(name)
            found = job["summary"]["state"]
            if found in ends and found != state:
                raise AssertionError(f"job {name} is {found}: {job['summary'].get('reason')}")
            return job if found == state else None
        return wait_until(f"job {name} to be {state}", seconds, there)

    def wait_for_round(self, number, name="job", seconds=60):
        """Until the round is open (all before it are committed)."""
        return wait_until(f"round {number} of {name}", seconds, lambda: self.job(name)["summary"]["round"] >= number)

    def fetch(self, name="job", *arguments):
        """The bytes of the fetched model."""
        out = self.path("model.safetensors")
        self.cli("model", "fetch", name, "--out", out, *arguments)
        with open(out, "rb") as f:
            return f.read()
