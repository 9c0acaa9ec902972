"""A TCP relay between its clients and the coordinator that counts bytes per process and direction. TLS passes through it untouched."""

import os
import socket
import threading
import time


class Relay:
    """Listens on `port` of loopback and joins each connection with one to `target`. Thread-safe.

    down_bytes_per_s: how fast each connection's bytes from the target may flow; next to nothing is kept in between."""

    def __init__(self, target, down_bytes_per_s=None):
        self.target = target
        self.down_bytes_per_s = down_bytes_per_s
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.up, self.down = {}, {}  # Bytes by process id.
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, peer = self.listener.accept()
            except OSError:
                return
            pid = owner(peer[1], self.port)
            try:
                server = socket.socket()
                if self.down_bytes_per_s:
                    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                server.connect(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            with self.lock:
                self.sockets += [client, server]
            for source, sink, counts, rate in ((client, server, self.up, None), (server, client, self.down, self.down_bytes_per_s)):
                threading.Thread(target=self.pump, args=(source, sink, counts, pid, rate), daemon=True).start()

    def pump(self, source, sink, counts, pid, bytes_per_s):
        try:
            while data := source.recv(65536):
                with self.lock:
                    counts[pid] = counts.get(pid, 0) + len(data)
                sink.sendall(data)
                if bytes_per_s:
                    time.sleep(len(data) / bytes_per_s)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def sent_by(self, pid):
        with self.lock:
            return self.up.get(pid, 0)

    def close(self):
        self.listener.close()
        with self.lock:
            for s in self.sockets:
                s.close()


def owner(port, peer_port):
    """The id of the process that holds the loopback connection from `port` to `peer_port`."""
    rows = []
    for name in ("tcp", "tcp6"):  # gRPC dials IPv4 addresses from IPv6 sockets, too.
        with open(f"/proc/net/{name}") as f:
            rows += [line.split() for line in f.readlines()[1:]]
    inode = next((row[9] for row in rows if int(row[1].split(":")[1], 16) == port and int(row[2].split(":")[1], 16) == peer_port), None)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]":
                    return int(pid)
        except OSError:
            continue
    return None
