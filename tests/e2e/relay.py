"""A TCP relay between workers and the coordinator that counts bytes per worker and direction. TLS passes through it untouched."""

import os
import socket
import threading


class Relay:
    """Listens on `port` of loopback and joins each connection with one to `target`. Thread-safe."""

    def __init__(self, target):
        self.target = target
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
                server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            with self.lock:
                self.sockets += [client, server]
            for source, sink, counts in ((client, server, self.up), (server, client, self.down)):
                threading.Thread(target=self.pump, args=(source, sink, counts, pid), daemon=True).start()

    def pump(self, source, sink, counts, pid):
        try:
            while data := source.recv(65536):
                with self.lock:
                    counts[pid] = counts.get(pid, 0) + len(data)
                sink.sendall(data)
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
