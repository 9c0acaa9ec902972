"""What goes wrong on the way in, each with its exit code and a message that names the thing: ports, folders, data, credentials, tokens, YAML,
names; and that programs end when told to, whatever they are doing."""

import glob
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import unittest

from fleet import BIN, DONE, FAILED, REFUSED, USAGE, Fleet, free_port, job_yaml, main, wait_until, write_idx

MLP = {"builtin": "mlp", "classes": 10}


def small():
    """A fleet over a few hundred samples."""
    return Fleet(train=400, test=100)


def run(program, *arguments, timeout=30, env=None):
    """A program of ours until it ends by itself."""
    return subprocess.run([os.path.join(BIN, program), *arguments], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                          env={**os.environ, **(env or {})})


def edit(path, pattern, replacement):
    with open(path) as f:
        text = f.read()
    changed, count = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert count == 1, (pattern, text)
    with open(path, "w") as f:
        f.write(changed)


def line_of(path, text):
    with open(path) as f:
        return next(i for i, line in enumerate(f, 1) if text in line)


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def expired_certificate(fleet, key, uri, out):
    """A certificate over `key`, of the fleet's own authority, that has expired."""
    csr, extensions = fleet.path("expired.csr"), fleet.path("expired.cnf")
    with open(extensions, "w") as f:
        f.write(f"subjectAltName=URI:{uri}\nextendedKeyUsage=clientAuth\nkeyUsage=digitalSignature\n")
    openssl("req", "-new", "-key", key, "-subj", "/CN=expired", "-out", csr)
    tls = fleet.path("coordinator", "tls")
    openssl("x509", "-req", "-in", csr, "-CA", f"{tls}/ca.pem", "-CAkey", f"{tls}/ca.key", "-set_serial", "77", "-days", "-1",
            "-extfile", extensions, "-out", out)


class CoordinatorStartTest(unittest.TestCase):
    def start(self, config):
        return run("causeway-coordinator", "--config", config)

    def test_port_in_use(self):
        with Fleet(train=0) as fleet:
            fleet.init()
            config = fleet.path("coordinator", "coordinator.yaml")
            for port in (fleet.port, fleet.http):
                with socket.socket() as taken:
                    taken.bind(("127.0.0.1", port))
                    taken.listen()
                    result = self.start(config)
                self.assertEqual(result.returncode, FAILED, result.stderr)
                self.assertIn(f"127.0.0.1:{port}", result.stderr)
                self.assertIn("listen", result.stderr)
                self.assertIn("in use", result.stderr)

    def test_second_coordinator_on_one_data_directory(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            second = fleet.path("coordinator", "second.yaml")
            shutil.copy(fleet.path("coordinator", "coordinator.yaml"), second)
            edit(second, "^listen:.*", "listen: 127.0.0.1:0")
            edit(second, "listen: .127.0.0.1:\\d+.", "listen: 127.0.0.1:0")
            result = self.start(second)
            self.assertEqual(result.returncode, REFUSED, result.stderr)
            self.assertIn(fleet.path("coordinator"), result.stderr)
            fleet.cli("site", "list")  # The first one is none the worse.

    def test_expired_certificate_is_made_anew(self):
        with Fleet(train=0) as fleet:
            fleet.init()
            tls = fleet.path("coordinator", "tls")
            expired_certificate(fleet, f"{tls}/coordinator.key", "causeway://coordinator", f"{tls}/coordinator.pem")
            fleet.start_coordinator()
            self.assertIn("certificate_renewed holder=coordinator", fleet.log("coordinator"))
            fleet.cli("site", "list")

    def test_bad_coordinator_yaml(self):
        with Fleet(train=0) as fleet:
            fleet.init()
            config = fleet.path("coordinator", "coordinator.yaml")
            with open(config) as f:
                good = f.read()
            for pattern, bad, text, says in (("^heartbeat:", "hartbeat:", "hartbeat", "hartbeat: unknown key"),
                                             ("^lease:.*", "lease: [1, 2]", "lease:", "lease: "),
                                             ("^lease:.*", "lease: -3s", "lease:", "lease: "),
                                             ("^spool_limit:.*", "spool_limit: lots", "spool_limit:", 'spool_limit: found "lots"; allowed'),
                                             ("^listen:.*", "listen: 127.0.0.1:99999", "listen: 127.0.0.1:99999", "listen: ")):
                with open(config, "w") as f:
                    f.write(good)
                edit(config, pattern, bad)
                result = self.start(config)
                self.assertEqual(result.returncode, USAGE, result.stderr)
                self.assertIn(f"coordinator.yaml:{line_of(config, text)}: {says}", result.stderr)
            result = self.start(fleet.path("nothing.yaml"))
            self.assertEqual(result.returncode, USAGE, result.stderr)
            self.assertIn("nothing.yaml", result.stderr)


class WorkerStartTest(unittest.TestCase):
    def test_second_worker_in_one_folder(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            fleet.join("w1", "lab")
            result = run("causeway-worker", "--config", fleet.path("w1", "worker.yaml"))
            self.assertEqual(result.returncode, REFUSED, result.stderr)
            self.assertIn(f"{fleet.path('w1', 'lock')} is locked by process {fleet.processes['w1'].pid}", result.stderr)
            self.assertTrue(fleet.worker("w1")["live"])  # The first one is none the worse.

    def test_http_port_in_use(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            token, pin = fleet.add_site("lab")
            command = fleet.join_command("w1", token, pin, "--no-start")
            self.assertEqual(run(os.path.basename(command[0]), *command[1:]).returncode, DONE)
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                taken.listen()
                port = taken.getsockname()[1]
                edit(fleet.path("w1", "worker.yaml"), "listen: .127.0.0.1:\\d+.", f"listen: 127.0.0.1:{port}")
                result = run("causeway-worker", "--config", fleet.path("w1", "worker.yaml"))
            self.assertEqual(result.returncode, FAILED, result.stderr)
            self.assertIn(f"127.0.0.1:{port}", result.stderr)
            self.assertIn("in use", result.stderr)


class DataTest(unittest.TestCase):
    def test_bad_data_is_refused_at_submit(self):
        with small() as fleet:
            fleet.start_coordinator()
            images, labels = fleet.path("data", "train-images"), fleet.path("data", "train-labels")
            with open(images, "rb") as f:
                pixels = f.read()[16:]
            with open(labels, "rb") as f:
                classes = f.read()[8:]

            def truncated():
                with open(images, "r+b") as f:
                    f.truncate(1000)

            def corrupt():
                # A gzip stream with a damaged byte in the middle.
                write_idx(images + ".gz", (400, 28, 28), pixels)
                with open(images + ".gz", "rb") as f:
                    data = bytearray(f.read())
                data[len(data) // 2] ^= 0xff
                with open(images, "wb") as f:
                    f.write(data)

            def truncated_gzip():
                write_idx(images + ".gz", (400, 28, 28), pixels)
                with open(images + ".gz", "rb") as f:
                    data = f.read()
                with open(images, "wb") as f:
                    f.write(data[:len(data) // 2])

            def unreadable():
                # Root may read whatever has no mode, so this is a folder.
                os.remove(images)
                os.mkdir(images)

            def no_idx():
                with open(images, "wb") as f:
                    f.write(b"P5 28 28 255\n" + pixels[:784])

            def fewer_labels():
                write_idx(labels, (399,), classes[:399])

            def label_beyond_the_classes():
                write_idx(labels, (400,), classes[:399] + b"\x0a")

            for damage, name, says in ((truncated, "train-images", "truncated: its header says [400, 28, 28], but it holds at most"),
                                       (corrupt, "train-images", "corrupt gzip: "),
                                       (truncated_gzip, "train-images", "truncated gzip: it ends within the compressed data, after "),
                                       (unreadable, "train-images", "not a regular file"),
                                       (lambda: os.remove(images), "train-images", "No such file"),
                                       (no_idx, "train-images", "it starts with 50352032, expected 00000803"),
                                       (fewer_labels, "train-labels", "399 labels, expected 400"),
                                       (label_beyond_the_classes, "data", "label 10 found, but model.classes is 10")):
                shutil.rmtree(images) if os.path.isdir(images) else None
                write_idx(images, (400, 28, 28), pixels)
                write_idx(labels, (400,), classes)
                damage()
                result = fleet.submit(job_yaml(model=MLP), expect=None)
                self.assertIn(result.returncode, (FAILED, USAGE), result.stderr)
                self.assertIn(name, result.stderr)
                self.assertIn(says, result.stderr)
                self.assertEqual(fleet.json("job", "list")["jobs"], [])
            # And what is right is taken after all that.
            write_idx(labels, (400,), classes)
            fleet.submit(job_yaml(model=MLP))

    def test_fewer_samples_than_workers(self):
        with Fleet(train=1, test=1) as fleet:
            fleet.start_coordinator()
            fleet.join("a1", "lab")
            fleet.join("a2", "lab")
            result = fleet.submit(job_yaml(model=MLP), expect=USAGE)
            self.assertIn("1 samples for 2 workers", result.stderr)


class CredentialTest(unittest.TestCase):
    def test_operator_of_another_coordinator(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            other = fleet.path("other-operator")
            fleet.cli("init", "--address", f"127.0.0.1:{fleet.port}", "--dir", fleet.path("other"), context=other)
            # It does not trust this coordinator ...
            result = fleet.cli("worker", "list", expect=None, context=other)
            self.assertIn(result.returncode, (FAILED, REFUSED), result.stderr)
            self.assertIn(f"are the credentials in {other}/ its own?", result.stderr)
            # ... and if it did, this coordinator would not trust it.
            shutil.copy(fleet.path("coordinator", "tls", "ca.pem"), os.path.join(other, "ca.pem"))
            result = fleet.cli("worker", "list", expect=None, context=other)
            self.assertIn(result.returncode, (FAILED, REFUSED), result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertIn(f"are the credentials in {other}/ its own?", result.stderr)
            fleet.cli("worker", "list")

    def test_expired_operator(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            late = fleet.path("late")
            shutil.copytree(fleet.path("operator"), late)
            expired_certificate(fleet, f"{late}/operator.key", "causeway://operator/admin", f"{late}/operator.pem")
            result = fleet.cli("worker", "list", expect=REFUSED, context=late)
            self.assertIn("has expired at", result.stderr)
            self.assertIn("operator.pem", result.stderr)

    def test_expired_worker(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            token, pin = fleet.add_site("lab")
            self.assertEqual(run(*self.program(fleet.join_command("w1", token, pin, "--no-start"))).returncode, DONE)
            tls = fleet.path("w1", "tls")
            expired_certificate(fleet, f"{tls}/worker.key", "causeway://worker/lab/w1", f"{tls}/worker.pem")
            result = run("causeway-worker", "--config", fleet.path("w1", "worker.yaml"))
            self.assertIn(result.returncode, (FAILED, REFUSED), result.stderr)
            self.assertRegex(result.stderr, r"worker\.pem.*expired|certificate.*expired")

    def test_tokens_that_do_not_admit(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()

            def join(name, token):
                result = run(*self.program(fleet.join_command(name, token, pin, "--no-start")))
                self.assertFalse(token in result.stdout + result.stderr + fleet.log("coordinator"), "a token was shown")
                return result

            used, pin = fleet.add_site("lab", "--uses", "1")
            self.assertEqual(join("w1", used).returncode, DONE)
            short, _ = fleet.add_site("lab", "--lifetime", "100ms")
            revoked, _ = fleet.add_site("lab")
            fleet.cli("token", "revoke", revoked.split(".")[1])
            time.sleep(0.2)
            for token, says in ((used, "used up"), (short, "expired at"), (revoked, "was revoked"), (revoked[:-8] + "AAAAAAAA", "token is unknown")):
                result = join("w9", token)
                self.assertEqual(result.returncode, REFUSED, result.stderr)
                self.assertIn(says, result.stderr)
                self.assertFalse(os.path.exists(fleet.path("w9", "worker.yaml")))
            result = join("w9", "garbage")
            self.assertEqual(result.returncode, USAGE, result.stderr)
            self.assertIn("not a join token", result.stderr)
            states = {line.split()[0]: line for line in fleet.cli("token", "list").stdout.splitlines()}
            for token, state in ((used, "used up"), (short, "expired"), (revoked, "revoked")):
                self.assertTrue(states[token.split(".")[1]].endswith(state))
            self.assertEqual([w["worker"] for w in fleet.json("worker", "list")["workers"]], ["w1"])
            # Stored hashed: the secret is nowhere in the data directory.
            for path in glob.glob(fleet.path("coordinator", "**"), recursive=True):
                if os.path.isfile(path):
                    with open(path, "rb") as f:
                        self.assertNotIn(revoked.split(".")[2].encode(), f.read(), path)

    def test_wrong_pin_sends_no_token(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            token, pin = fleet.add_site("lab")
            # An impostor of its own authority, named as a coordinator is; it reads all that a client says after the handshake.
            fleet.cli("init", "--address", "127.0.0.1:7443", "--dir", fleet.path("evil"), context=fleet.path("evil-operator"))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(fleet.path("evil", "tls", "coordinator.pem"), fleet.path("evil", "tls", "coordinator.key"))
            context.set_alpn_protocols(["h2"])
            heard, connections = [], []
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                listener.listen()

                def listen():
                    while True:
                        try:
                            raw, _ = listener.accept()
                        except OSError:
                            return
                        connections.append(raw)
                        try:
                            with context.wrap_socket(raw, server_side=True) as connection:
                                connection.settimeout(5)
                                while data := connection.recv(65536):
                                    heard.append(data)
                        except OSError:
                            pass
                thread = threading.Thread(target=listen)
                thread.start()
                evil = listener.getsockname()[1]
                result = run("causeway-worker", "join", f"127.0.0.1:{evil}", "--token", token, "--ca-pin", pin, "--dir", fleet.path("w1"))
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            self.assertEqual(result.returncode, REFUSED, result.stderr)
            self.assertIn("pin", result.stderr)
            self.assertIn("the token was not sent", result.stderr)
            self.assertGreater(len(connections), 0)
            self.assertEqual(b"".join(heard), b"")
            self.assertFalse(os.path.exists(fleet.path("w1", "tls")))
            # The same against the real one, with a digit of the pin changed; and a pin that is none.
            wrong = pin[:-1] + ("0" if pin[-1] != "0" else "1")
            result = run(*self.program(fleet.join_command("w1", token, wrong, "--no-start")))
            self.assertEqual(result.returncode, REFUSED, result.stderr)
            result = run(*self.program(fleet.join_command("w1", token, "sha256:xyz", "--no-start")))
            self.assertEqual(result.returncode, USAGE, result.stderr)
            self.assertEqual(fleet.json("token", "list")["tokens"][0]["uses_left"], 16)

    def test_duplicate_worker_name(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            token, pin = fleet.add_site("lab")
            self.assertEqual(run(*self.program(fleet.join_command("w1", token, pin, "--no-start"))).returncode, DONE)
            command = fleet.join_command("w1", token, pin, "--no-start")
            command[command.index("--dir") + 1] = fleet.path("elsewhere")
            result = run(*self.program(command))
            self.assertEqual(result.returncode, REFUSED, result.stderr)
            self.assertIn("there is a worker w1 already", result.stderr)
            # Nor does a folder take a second worker.
            result = run(*self.program(fleet.join_command("w1", token, pin, "--no-start")))
            self.assertEqual(result.returncode, REFUSED, result.stderr)
            self.assertIn("worker.yaml is there", result.stderr)

    def test_removed_worker(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            fleet.join("w1", "lab")
            fleet.cli("worker", "remove", "w1")
            self.assertEqual(fleet.processes["w1"].wait(timeout=10), REFUSED)
            self.assertIn("worker w1 was removed", fleet.log("w1"))
            result = run("causeway-worker", "--config", fleet.path("w1", "worker.yaml"))
            self.assertEqual(result.returncode, REFUSED, result.stderr)
            self.assertIn("worker w1 was removed", result.stderr)

    @staticmethod
    def program(command):
        return os.path.basename(command[0]), *command[1:]


class NameTest(unittest.TestCase):
    def test_unknown_names(self):
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            for kind, command in (("job", "job show"), ("job", "job watch"), ("job", "job abort"), ("job", "model list"), ("job", "model fetch"),
                                  ("worker", "worker show"), ("worker", "worker remove"), ("site", "site remove"), ("token", "token revoke")):
                more = ["--out", fleet.path("out")] if command == "model fetch" else []
                result = fleet.cli(*command.split(), "nobody", *more, expect=FAILED)
                self.assertIn(f"no {kind} nobody", result.stderr)
                self.assertEqual(result.stdout, "")
            self.assertFalse(os.path.exists(fleet.path("out")))

    def test_submitted_twice(self):
        with small() as fleet:
            fleet.start_coordinator()
            fleet.submit(job_yaml(model=MLP), "--request-id", "r1")
            self.assertTrue(json.loads(fleet.submit(job_yaml(model=MLP), "--request-id", "r1", "--output", "json").stdout)["existed"])
            self.assertEqual(len(fleet.json("job", "list")["jobs"]), 1)
            for more in ([], ["--request-id", "r2"]):
                result = fleet.submit(job_yaml(model=MLP), *more, expect=REFUSED)
                self.assertIn("there is a job job already", result.stderr)
            self.assertEqual(len(fleet.json("job", "list")["jobs"]), 1)

    def test_sites(self):
        with small() as fleet:
            fleet.start_coordinator()
            result = fleet.submit(job_yaml(model=MLP, sites=["nowhere"]), expect=USAGE)
            self.assertIn("there is no site nowhere", result.stderr)
            token, pin = fleet.add_site("lab")
            self.assertEqual(run(*CredentialTest.program(fleet.join_command("w1", token, pin, "--no-start"))).returncode, DONE)
            result = fleet.cli("site", "remove", "lab", expect=REFUSED)
            self.assertIn("still has worker w1", result.stderr)
            fleet.cli("worker", "remove", "w1")
            fleet.cli("site", "remove", "lab")
            self.assertEqual(fleet.json("site", "list")["sites"], [])


class YamlTest(unittest.TestCase):
    def test_bad_job_yaml_offline(self):
        good = """name: fashion
model: {builtin: lenet}
data:
  train: {format: idx, images: a, labels: b}
  test: {format: idx, images: c, labels: d}
optimizer:
  learning_rate: 0.05
end: {epochs: 10}
"""
        with Fleet(train=0) as fleet:
            path = fleet.path("job.yaml")
            # No coordinator, no credentials.
            with open(path, "w") as f:
                f.write(good)
            fleet.cli("job", "validate", path)
            for old, new, says in (("learning_rate: 0.05", "learning_rat: 0.05", "job.yaml:7: optimizer.learning_rat: unknown key"),
                                   ("learning_rate: 0.05", "learning_rate: fast", "job.yaml:7: optimizer.learning_rate: found "),
                                   ("learning_rate: 0.05", "learning_rate: -1", 'job.yaml:7: optimizer.learning_rate: found "-1"; allowed'),
                                   ("builtin: lenet", "builtin: alexnet", "job.yaml:2: model.builtin: found "),
                                   ("format: idx, images: a", "format: idx, images: ../a", "job.yaml:4: data.train.images: "),
                                   ("end: {epochs: 10}", "end: {epochs: [10]}", "job.yaml:8: end.epochs: "),
                                   ("name: fashion\n", "", "name")):
                with open(path, "w") as f:
                    f.write(good.replace(old, new))
                for command in ("validate", "submit"):
                    result = fleet.cli("job", command, path, expect=USAGE)
                    self.assertIn(says, result.stderr)

    def test_bad_worker_yaml(self):
        with Fleet(train=0) as fleet:
            config = fleet.path("worker.yaml")
            for text, says in (("coordinator: a:1\ncahce: {limit: 1GiB}\n", "worker.yaml:2: cahce: unknown key"),
                               ("coordinator: a:1\nthreads: many\n", "worker.yaml:2: threads: found "),
                               ("coordinator: a:1\nemulate:\n  slowdown: 0.5\n", 'worker.yaml:3: emulate.slowdown: found "0.5"; allowed'),
                               ("coordinator: a:0\n", "worker.yaml:1: coordinator: "), ("threads: 1\n", "coordinator")):
                with open(config, "w") as f:
                    f.write(text)
                result = run("causeway-worker", "--config", config)
                self.assertEqual(result.returncode, USAGE, result.stderr)
                self.assertIn(says, result.stderr)


class ProxyTest(unittest.TestCase):
    def test_http_proxy_is_ignored(self):
        dead = f"http://127.0.0.1:{free_port()}"
        env = {name: dead for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy")}
        saved = {name: os.environ.get(name) for name in (*env, "no_proxy", "no_grpc_proxy")}
        with small() as fleet:
            os.environ.update(env)
            os.environ.pop("no_proxy", None)
            os.environ.pop("no_grpc_proxy", None)
            try:
                # The test's own look at /readyz would ask the proxy too.
                process = fleet.start_coordinator(wait=False)
                wait_until("the coordinator", 30, lambda: process.poll() is None and fleet.cli("site", "list", expect=None).returncode == DONE)
                fleet.join("w1", "lab")
                fleet.submit(job_yaml(model=MLP, end={"rounds": 1}))
                fleet.wait_for_job()
                fleet.fetch()
            finally:
                for name, value in saved.items():
                    os.environ.pop(name, None)
                    if value is not None:
                        os.environ[name] = value


def phase_of(fleet, name):
    return ((fleet.worker(name) or {}).get("progress") or {}).get("phase")


class EndTest(unittest.TestCase):
    def end(self, fleet, *names, seconds=5):
        for name in names:
            begin = time.monotonic()
            self.assertEqual(fleet.terminate(name, 60), DONE, fleet.log(name))
            self.assertLess(time.monotonic() - begin, seconds, name)

    def test_sigterm_while_idle(self):
        with small() as fleet:
            fleet.start_coordinator()
            fleet.join("w1", "lab")
            self.end(fleet, "w1", "coordinator")

    def test_sigterm_while_profiling(self):
        with Fleet(train=400, test=100, coordinator_config={"profile_seconds": "30s"}) as fleet:
            fleet.start_coordinator()
            fleet.join("w1", "lab")
            fleet.join("w2", "lab", "--emulate-slowdown", "20")
            fleet.submit(job_yaml())
            wait_until("profiling", 20, lambda: phase_of(fleet, "w1") == "PROFILING" and phase_of(fleet, "w2") == "PROFILING")
            self.end(fleet, "w2", "coordinator", "w1")

    def test_sigterm_while_distributing(self):
        # 1000 samples of 785 bytes for each take 8 s.
        with Fleet(train=2000, test=100) as fleet:
            fleet.start_coordinator()
            for name in ("w1", "w2"):
                fleet.join(name, "lab", "--emulate-down", "100kB")
            fleet.submit(job_yaml(model=MLP))
            wait_until("fetching", 30, lambda: phase_of(fleet, "w1") == "FETCHING" and phase_of(fleet, "w2") == "FETCHING")
            self.assertEqual(fleet.state(), "DISTRIBUTING")
            self.end(fleet, "w1", "coordinator", "w2")

    def test_sigterm_while_training(self):
        with Fleet(train=2000, test=100) as fleet:
            fleet.start_coordinator()
            for name in ("w1", "w2"):
                fleet.join(name, "lab", "--emulate-slowdown", "100")
            fleet.submit(job_yaml(model=MLP))
            wait_until("training", 60, lambda: phase_of(fleet, "w1") == "TRAINING" and phase_of(fleet, "w2") == "TRAINING")
            # Each has something to deliver, the last one in vain until drain_timeout.
            self.end(fleet, "w1", "coordinator", "w2", seconds=25)

    def test_sigterm_while_pushing(self):
        with small() as fleet:
            fleet.start_coordinator()
            for name in ("w1", "w2"):
                fleet.join(name, "lab", "--emulate-up", "150kB")
            self.submit_pinned(fleet, job_yaml(model=MLP), w1=200, w2=200)
            wait_until("pushing", 60, lambda: fleet.state() == "TRAINING" and phase_of(fleet, "w1") == "PUSHING")
            # Each has something to deliver, the last one in vain until drain_timeout.
            self.end(fleet, "w1", "coordinator", "w2", seconds=25)

    @staticmethod
    def submit_pinned(fleet, job, **samples):
        with open(fleet.path("plan.json"), "w") as f:
            json.dump({"schema": "causeway.plan/1", "allocation": {"workers": [
                {"name": name, "samples": n, "batch_size": 32} for name, n in samples.items()]}}, f)
        fleet.submit(job, "--plan", fleet.path("plan.json"))

    def test_killed_in_a_half_sent_contribution(self):
        with small() as fleet:
            fleet.start_coordinator()
            fleet.join("a1", "lab")
            fleet.join("z1", "far", "--emulate-up", "100kB")  # 940 kB of model: 9 s.
            self.submit_pinned(fleet, job_yaml(model=MLP, end={"rounds": 2}), a1=300, z1=100)
            wait_until("a half-sent contribution", 60, lambda: fleet.state() == "TRAINING" and any(
                0 < os.path.getsize(path) for path in glob.glob(fleet.path("coordinator", "spool", "**", "*z1*"), recursive=True)
                if os.path.isfile(path)))
            fleet.kill("z1")
            job = fleet.wait_for_job()
            self.assertEqual((job["rounds"][0]["contributions"], job["rounds"][0]["planned_contributions"]), (1, 2))
            self.assertEqual([record["samples"] for record in job["rounds"]], [300, 300])
            self.assertEqual(job["rejected"], {})
            # Nothing of it stays behind.
            self.assertEqual([p for p in glob.glob(fleet.path("coordinator", "spool", "**"), recursive=True) if os.path.isfile(p)], [])


if __name__ == "__main__":
    main()
