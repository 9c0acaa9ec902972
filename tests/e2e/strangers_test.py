"""Strangers, who have no certificate, and one whose certificate does not count any more: neither costs the fleet much."""

import os
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import time
import unittest

from fleet import BIN, Fleet, job_yaml, main, wait_until

CUT_OFF_S = 10


def header_block(path):
    """HPACK without a table: the headers of a gRPC call."""
    def text(value):
        return bytes([len(value)]) + value.encode()
    return b"\x83\x87\x04" + text(path) + b"\x01" + text("coordinator.causeway") + b"\x0f\x10" + text("application/grpc") + b"\x00" + text("te") + text("trailers")


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def connect(port):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", port), timeout=5)
    try:
        connection = context.wrap_socket(plain)
    except OSError:
        plain.close()
        raise
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
    return connection


class StrangersTest(unittest.TestCase):
    def train(self, fleet):
        for name in ("w1", "w2"):
            fleet.join(name, "lab")
        fleet.submit(job_yaml(end={"rounds": 100000}, model={"builtin": "mlp", "classes": 10}, sites=["lab"], allocation={"method": "proportional"},
                              checkpoint={"every_rounds": 1000, "keep": 1}))
        fleet.wait_for_round(3)

    def rounds_in(self, fleet, seconds):
        before = fleet.job()["summary"]["round"]
        time.sleep(seconds)
        return fleet.job()["summary"]["round"] - before

    def test_rapid_reset(self):
        """Calls that are taken back as soon as they are made, tens of thousands a second, on one connection after the other."""
        with Fleet(train=2000, test=100, coordinator_config={"lease": "10s"}) as fleet:
            fleet.start_coordinator()
            self.train(fleet)
            quiet = self.rounds_in(fleet, 4)
            end = time.monotonic() + 6
            block = header_block("/causeway.v1.Membership/ReportData")
            before, connections = fleet.job()["summary"]["round"], 0
            while time.monotonic() < end:
                try:
                    with connect(fleet.port) as connection:
                        connections += 1
                        for first in range(1, 1 << 30, 400):
                            connection.sendall(b"".join(frame(1, 5, s, block) + frame(3, 0, s, struct.pack(">I", 8)) for s in range(first, first + 400, 2)))
                            if time.monotonic() > end:
                                break
                except OSError:  # Broken, or refused.
                    time.sleep(0.05)
            during = (fleet.job()["summary"]["round"] - before) * 4 / 6
            print(f"{quiet} rounds in 4 s, {during:.0f} while {connections} connections flooded")
            self.assertGreaterEqual(during, quiet / 3)
            self.assertGreaterEqual(fleet.metric("causeway_peers_cut_off_total"), 1)
            self.assertIn("peer_cut_off peer=none", fleet.log("coordinator"))
            self.assertNotIn("worker_lost", fleet.log("coordinator"))
            # Who comes to join can, a while later.
            time.sleep(CUT_OFF_S)
            fleet.join("w3", "lab")
            fleet.cli("job", "abort", "job")

    def test_silent_connections(self):
        """More than the coordinator may have descriptors: it stays reachable."""
        limit = 500
        with Fleet(train=0) as fleet:
            fleet.start_coordinator(prefix=("prlimit", f"--nofile={limit}:{limit}"))
            fleet.join("w1", "lab")
            silent = []
            for _ in range(8):
                for _ in range(100):
                    silent.append(socket.create_connection(("127.0.0.1", fleet.port), timeout=5))
                time.sleep(0.5)
            self.assertGreater(fleet.metric("causeway_refused_connections_total", reason="stranger"), 400)
            self.assertLess(len(os.listdir(f"/proc/{fleet.processes['coordinator'].pid}/fd")), limit * 0.9)
            fleet.join("w2", "lab")
            self.assertTrue(fleet.worker("w1")["live"])
            for s in silent:
                s.close()

    def test_endless_headers(self):
        """A header block without an end: what it may take is bounded."""
        with Fleet(train=0) as fleet:
            fleet.start_coordinator()
            fleet.join("w1", "lab")

            def memory():
                with open(f"/proc/{fleet.processes['coordinator'].pid}/statm") as f:
                    return int(f.read().split()[1]) * resource.getpagesize()

            before, most, sent, end = memory(), 0, 0, time.monotonic() + 4
            value = b"\x00" + bytes([3]) + b"abc" + b"\x7f\xbd\x1d" + b"v" * 3900
            while time.monotonic() < end:
                try:
                    with connect(fleet.port) as connection:
                        connection.sendall(frame(1, 0, 1, header_block("/causeway.v1.Membership/Join")))
                        while time.monotonic() < end:
                            connection.sendall(frame(9, 0, 1, value * 4))
                            sent += 4 * len(value)
                            most = max(most, memory())
                except OSError:
                    time.sleep(0.05)
            print(f"{sent >> 20} MiB sent, {(most - before) >> 20} MiB more memory at most")
            self.assertLess(most - before, 400 << 20)
            self.assertTrue(fleet.worker("w1")["live"])
            self.assertGreaterEqual(fleet.metric("causeway_refused_connections_total", reason="stranger"), 1)

    def test_a_removed_workers_certificate_costs_its_successor_nothing(self):
        with Fleet(train=2000, test=100, coordinator_config={"lease": "10s"}) as fleet:
            fleet.start_coordinator()
            token, pin = fleet.add_site("old")
            subprocess.run(fleet.join_command("w1", token, pin, "--no-start"), check=True, capture_output=True, timeout=30)
            shutil.move(fleet.path("w1"), fleet.path("evil"))
            fleet.cli("worker", "remove", "w1")
            fleet.cli("site", "remove", "old")
            self.train(fleet)
            subprocess.run([os.path.join(BIN, "hostile_peer"), f"127.0.0.1:{fleet.port}", fleet.path("evil"), "flood", "4", "job"], check=True,
                           capture_output=True, timeout=60)
            self.assertRegex(fleet.log("coordinator"), r'peer_cut_off peer="w1 \(old certificate\)"')
            self.assertNotIn("worker_lost", fleet.log("coordinator"))
            wait_until("rounds of both", 30, lambda: fleet.job()["rounds"][-1]["contributions"] == 2)
            # And it may connect anew.
            fleet.terminate("w1", 30)
            fleet.start_worker("w1")
            fleet.cli("job", "abort", "job")


if __name__ == "__main__":
    main()
