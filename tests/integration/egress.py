"""Nothing leaves the machine: the daemon and its engines in a network of their own whose every packet is recorded.

A canary prompt goes through every door while models are loaded, crash and end. Passes with zero packets and with the
canary in no packet, log, metric or file. Two deliberate leaks must be seen, or the run proves nothing: a trace collector
on another machine (packets, without the canary), and a program that sends the canary itself. 77: no namespaces here.
"""
import http.client
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import BIN, MODELS, SKIP, Daemon, wait_until  # noqa: E402

INSIDE = "198.18.0.1"
OUTSIDE = "198.18.0.2"
COLLECTOR = "198.51.100.9:4318"


def sh(*words):
    return subprocess.run(words, capture_output=True, text=True)


class Sink:
    """The other end of the only way out: a namespace that keeps every packet that comes."""

    def __init__(self, folder):
        self.file = folder / "packets"
        self.file.touch()
        self.process = subprocess.Popen(["unshare", "-n", sys.executable, __file__, "--sink", str(self.file)],
                                        stdout=subprocess.PIPE, text=True)
        pid = int(self.process.stdout.readline())
        steps = [["ip", "link", "set", "lo", "up"],
                 ["ip", "link", "add", "out", "type", "veth", "peer", "name", "in", "netns", str(pid)]]
        # Interfaces with IPv6 talk by themselves.
        switch = pathlib.Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        if switch.exists():
            switch.write_text("1")
        for step in steps:
            self.must(step)
        self.process.stdout.readline()  # it has seen its interface and listens
        mac = self.process.stdout.readline().strip()
        for step in (["ip", "addr", "add", INSIDE + "/24", "dev", "out"], ["ip", "link", "set", "out", "up"],
                     ["ip", "neigh", "replace", OUTSIDE, "lladdr", mac, "dev", "out", "nud", "permanent"],
                     ["ip", "route", "add", "default", "via", OUTSIDE]):
            self.must(step)
        time.sleep(0.3)  # what the interfaces themselves say when they come up
        self.offset = self.file.stat().st_size

    @staticmethod
    def must(step):
        r = sh(*step)
        if r.returncode:
            raise RuntimeError(f"{' '.join(step)}: {r.stderr.strip()}")

    def packets(self):
        """Since the last call: the bytes of all packets, one after the other."""
        time.sleep(0.2)
        data = self.file.read_bytes()[self.offset:]
        self.offset += len(data)
        return data

    def close(self):
        self.process.kill()
        self.process.wait()


def run_sink(path):
    print(os.getpid(), flush=True)
    while not os.path.exists("/sys/class/net/in") and sh("ip", "link", "show", "in").returncode:
        time.sleep(0.01)
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "addr", "add", OUTSIDE + "/24", "dev", "in")
    sh("ip", "link", "set", "in", "up")
    sh("ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo")
    listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    listener.bind(("in", 0))
    print("ready", flush=True)
    mac = sh("ip", "-o", "link", "show", "in").stdout.split("link/ether ")[1].split()[0]
    print(mac, flush=True)
    with open(path, "ab", buffering=0) as out:
        while True:
            packet, address = listener.recvfrom(65536)
            if address[2] != socket.PACKET_OUTGOING:
                out.write(packet)


def ask(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode(errors="replace")
    connection.close()
    return response.status, text


def exercise(daemon, model, canary):
    """Every door, errors, a crash, commands that look around."""
    engine = [] if model == "real" else ["--engine", "fake"]
    daemon.cli("load", model, "--sessions", "2", *engine)
    chat = {"model": model, "messages": [{"role": "user", "content": canary}], "max_tokens": 4, "stream": True}
    want = {200} if model == "real" else {200, 400}
    got = [ask(daemon.port, "/v1/chat/completions", chat), ask(daemon.port, "/v1/messages", chat),
           ask(daemon.port, "/api/chat", chat), ask(daemon.port, "/v1/completions", {"model": model, "prompt": canary, "max_tokens": 4}),
           ask(daemon.port, "/v1/responses", {"model": model, "input": canary, "max_output_tokens": 4})]
    for status, text in got:
        if status not in want:
            raise RuntimeError(f"{status} {text[:300]}")
    ask(daemon.port, "/v1/chat/completions", chat | {"temperature": -1, "user": canary})
    ask(daemon.port, "/v1/chat/completions", chat | {"model": "absent-model"})
    daemon.cli("run", model, canary, "--raw", "--max-tokens", "3")
    os.kill(daemon.worker_pid(model), signal.SIGKILL)
    wait_until(lambda: ask(daemon.port, "/v1/completions", {"model": model, "prompt": canary, "max_tokens": 2})[0] == 200, 60, 0.2)
    for command in (["doctor"], ["models"], ["status"], ["devices", "--refresh"], ["explain", model]):
        daemon.cli(*command, check=False)


def places_with(canary, daemon, metrics):
    found = []
    needle = canary.encode()
    if needle in metrics.encode():
        found.append("the metrics")
    for file in daemon.dir.rglob("*"):
        if file.is_file() and not file.is_socket() and needle in file.read_bytes():
            found.append(str(file.relative_to(daemon.dir)))
    return found


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def scenario(sink, folder, name, canary, extra=(), idle=3.0, real=True):
    """Returns (packets, places where the canary stands)."""
    with Daemon(folder / name, extra=["--log-level", "debug", *extra]) as daemon:
        model = "fake-model"
        if real and (MODELS / "smollm2.gguf").exists():
            daemon.cli("import", MODELS / "smollm2.gguf", "--name", "real")
            model = "real"
        exercise(daemon, model, canary)
        time.sleep(idle)
        metrics = get(daemon.port, "/metrics")
        daemon.cli("unload", model)
        daemon.process.terminate()
        daemon.process.wait(30)
        return sink.packets(), places_with(canary, daemon, metrics)


def inside():
    canary = "canary-" + secrets.token_hex(12)
    idle = float(os.environ.get("RUMBO_EGRESS_IDLE_S", "3"))
    with tempfile.TemporaryDirectory(prefix="rumbo-egress-") as name:
        folder = pathlib.Path(name)
        for part in ("quiet", "traced"):
            (folder / part).mkdir(mode=0o700)
        sink = Sink(folder)
        try:
            packets, places = scenario(sink, folder, "quiet", canary, idle=idle)
            traced, traced_places = scenario(sink, folder, "traced", canary, ["--traces", "http://" + COLLECTOR], 1.5, real=False)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as leak:
                leak.sendto(canary.encode(), ("192.0.2.80", 53))
            leaked = sink.packets()
        finally:
            sink.close()
    failures = []
    if packets:
        failures.append(f"{len(packets)} bytes of packets left the machine")
    if canary.encode() in packets + traced:
        failures.append("the prompt left the machine")
    for place in places + traced_places:
        failures.append(f"the prompt stands in {place}")
    if not traced:
        failures.append("the control saw nothing: spans for another machine were not recorded")
    if canary.encode() not in leaked:
        failures.append("the control saw nothing: a deliberate leak was not recorded")
    for failure in failures:
        print("FAILED: " + failure)
    print(f"bytes of packets: {len(packets)} from the daemon, {len(traced)} with a collector elsewhere, "
          f"{len(leaked)} from a deliberate leak; idle {idle} s")
    return 1 if failures else 0


def main():
    if sys.argv[1:2] == ["--sink"]:
        return run_sink(sys.argv[2])
    if sys.argv[1:] == ["--inside"]:
        return inside()
    if not (BIN / "rumbod").exists():
        print("no daemon: ./dev build")
        return SKIP
    unshare = ["unshare", "-n", "-m"] if os.geteuid() == 0 else ["unshare", "-U", "-r", "-n", "-m"]
    if sh(*unshare, "ip", "link", "add", "out", "type", "veth", "peer", "name", "in").returncode:
        print("no network namespaces or no veth here")
        return SKIP
    return subprocess.run([*unshare, sys.executable, __file__, "--inside"]).returncode


if __name__ == "__main__":
    sys.exit(main())
