"""A hub on loopback for tests: the Hugging Face API, an OCI registry with Ollama's layers, plain files; faults on demand.

Blobs lie on a second server with another host name (localhost instead of 127.0.0.1), as at the real ones. Standard library
only. Everything that was asked is in `requests`; `faults` says what goes wrong: see Fault.
"""
import hashlib
import http.server
import json
import re
import socket
import struct
import threading
import time
import urllib.parse


class Fault:
    """What happens to GETs of blobs whose path holds `path`, `times` times (None: always).

    kind: cut (after `at` bytes of the body), stall, short (clean close after announcing too much), long (more than announced),
    wrong_range, no_range (200), other_total, etag, flip (one byte at `at`), 416, status (code `at`), redirect (to `to`),
    loop, no_length, slow (bytes per second `at`).
    """

    def __init__(self, kind, path="", times=None, at=0, to=""):
        self.kind, self.path, self.times, self.at, self.to = kind, path, times, at, to


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    def __init__(self):
        self.repos, self.registry, self.files, self.faults, self.requests = {}, {}, {}, [], []
        self.lock = threading.Lock()
        self.token = None  # repositories need it
        self.registry_token = None  # manifests and blobs need it; given to whoever asks
        self.realm = None
        self.servers = [self._server("front"), self._server("blobs")]
        self.port, self.blob_port = (s.server_address[1] for s in self.servers)
        self.endpoint, self.blob_endpoint = f"http://127.0.0.1:{self.port}", f"http://localhost:{self.blob_port}"
        self.hosts = f"127.0.0.1:{self.port},localhost:{self.blob_port}"

    def _server(self, role):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                with hub.lock:
                    hub.requests.append((role, self.command, self.path, dict(self.headers)))
                try:
                    hub._answer(self, role)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_HEAD = do_GET

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def close(self):
        for s in self.servers:
            s.shutdown()
            s.server_close()

    # ---- What it holds ----

    def add_repo(self, name, files, revision="main", licence="apache-2.0", lfs=(".gguf", ".safetensors"), gated=False):
        sha = hashlib.sha1(json.dumps([name, revision, sorted((k, hashlib.sha256(v).hexdigest()) for k, v in files.items())])
                           .encode()).hexdigest()
        self.repos.setdefault(name, {})[revision] = self.repos[name][sha] = dict(
            sha=sha, files=files, licence=licence, lfs=lfs, gated=gated)
        return sha

    def add_registry(self, name, tag, model, extra=()):
        layers = []
        for kind, data in [("model", model), *extra]:
            digest = hashlib.sha256(data).hexdigest()
            self.files[f"/blob/{digest}"] = data
            layers.append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)})
        config = json.dumps({"model_format": "gguf"}).encode()
        cd = hashlib.sha256(config).hexdigest()
        self.files[f"/blob/{cd}"] = config
        self.registry[(name, tag)] = json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": f"sha256:{cd}", "size": len(config)},
            "layers": layers}).encode()

    def fail(self, *args, **kwargs):
        self.faults.append(Fault(*args, **kwargs))

    def asked(self, part, role=None):
        with self.lock:
            return [r for r in self.requests if part in r[2] and (role is None or r[0] == role)]

    # ---- How it answers ----

    def _send(self, h, status, body=b"", **headers):
        h.send_response(status)
        for k, v in headers.items():
            h.send_header(k.replace("_", "-"), v)
        if "Content_Length" not in headers:
            h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def _json(self, h, value, status=200, **headers):
        self._send(h, status, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def _answer(self, h, role):
        path, _, query = h.path.partition("?")
        path = urllib.parse.unquote(path)
        if role == "blobs":
            return self._blob(h, path)
        if path in self.files:  # plain files at the front
            return self._blob(h, path)
        if path == "/token":
            return self._json(h, {"token": self.registry_token or "none"})
        if path.startswith("/v2/"):
            return self._registry(h, path)
        return self._hub(h, path, query)

    def _hub(self, h, path, query):
        if self.token and h.headers.get("Authorization") != f"Bearer {self.token}":
            return self._json(h, {"error": "Repository not found"}, 401, X_Error_Code="RepoNotFound")
        if path == "/api/models":
            words = urllib.parse.parse_qs(query).get("search", [""])[0].lower()
            return self._json(h, [{"id": n, "downloads": 100 - i, "cardData": {"license": "apache-2.0"}}
                                  for i, n in enumerate(self.repos) if words in n.lower()])
        if m := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            repo = self.repos.get(m[1], {}).get(m[2] or "main")
            if repo is None:
                return self._json(h, {"error": "not found"}, 404, X_Error_Code="RevisionNotFound" if m[1] in self.repos else "RepoNotFound")
            return self._json(h, {"id": m[1], "sha": repo["sha"], "gated": repo["gated"], "private": False, "tags": [],
                                  "cardData": {"license": repo["licence"]},
                                  "siblings": [self._sibling(n, d, repo, "blobs" in query) for n, d in repo["files"].items()]})
        if m := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
            repo = self.repos.get(m[1], {}).get(m[2])
            if repo is None:
                return self._json(h, {"error": "not found"}, 404, X_Error_Code="RevisionNotFound")
            return self._json(h, [self._tree(n, d, repo) for n, d in repo["files"].items()])
        if m := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            repo = self.repos.get(m[1], {}).get(m[2])
            data = repo and repo["files"].get(m[3])
            if data is None:
                return self._send(h, 404, b"", X_Error_Code="EntryNotFound")
            head = {"X_Repo_Commit": repo["sha"]}
            if m[3].endswith(repo["lfs"]):
                digest = hashlib.sha256(data).hexdigest()
                self.files[f"/blob/{digest}"] = data
                return self._send(h, 302, b"", Location=f"{self.blob_endpoint}/blob/{digest}?sign=x", X_Linked_Etag=f'"{digest}"',
                                  X_Linked_Size=str(len(data)), **head)
            return self._file(h, m[3], data, f'"{git_sha1(data)}"', head)
        self._json(h, {"error": "not found"}, 404, X_Error_Code="EntryNotFound")

    def _sibling(self, name, data, repo, blobs):
        out = {"rfilename": name}
        if blobs:
            out |= {"size": len(data), "blobId": git_sha1(data)}
            if name.endswith(repo["lfs"]):
                out["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return out

    def _tree(self, name, data, repo):
        out = {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
        if name.endswith(repo["lfs"]):
            out["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return out

    def _registry(self, h, path):
        if self.registry_token and h.headers.get("Authorization") != f"Bearer {self.registry_token}":
            realm = self.realm or f"{self.endpoint}/token"
            return self._send(h, 401, b"{}", WWW_Authenticate=f'Bearer realm="{realm}",service="r",scope="pull"')
        if m := re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", path):
            manifest = self.registry.get((m[1], m[2]))
            return self._send(h, 200, manifest) if manifest else self._json(h, {"errors": []}, 404)
        if m := re.fullmatch(r"/v2/(.+)/blobs/sha256:([0-9a-f]{64})", path):
            data = self.files.get(f"/blob/{m[2]}")
            if data is None:
                return self._json(h, {"errors": []}, 404)
            if h.command == "HEAD":
                return self._send(h, 200, data)
            return self._send(h, 307, b"", Location=f"{self.blob_endpoint}/blob/{m[2]}")
        self._json(h, {"errors": []}, 404)

    def _fault(self, path):
        with self.lock:
            for f in self.faults:
                if f.path in path and f.times != 0:
                    if f.times is not None:
                        f.times -= 1
                    return f
        return Fault("")

    def _blob(self, h, path):
        data = self.files.get(path)
        if data is None:
            return self._send(h, 404)
        self._file(h, path, data, '"' + hashlib.sha256(data).hexdigest()[:32] + '"', {})

    def _file(self, h, path, data, etag, head):
        f = self._fault(path) if h.command == "GET" else Fault("")
        if f.kind == "redirect":
            return self._send(h, 302, b"", Location=f.to)
        if f.kind == "loop":
            return self._send(h, 302, b"", Location=h.path)
        if f.kind == "status":
            return self._send(h, f.at)
        if f.kind == "416":
            return self._send(h, 416, b"", Content_Range=f"bytes */{len(data)}")
        if f.kind == "etag":
            etag = f'"changed-{time.monotonic_ns()}"'
        if f.kind == "flip":
            data = data[:f.at] + bytes([data[f.at] ^ 1]) + data[f.at + 1:]
        wanted = h.headers.get("Range")
        condition = h.headers.get("If-Range")
        m = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "")
        begin, end, status = 0, len(data), 200
        if m and f.kind != "no_range" and (condition is None or condition == etag):
            begin, end = int(m[1]), min(int(m[2]) + 1 if m[2] else len(data), len(data))
            if begin >= len(data):
                return self._send(h, 416, b"", Content_Range=f"bytes */{len(data)}")
            status = 206
        body = memoryview(data)[begin:end]
        h.send_response(status)
        h.send_header("ETag", etag)
        h.send_header("Accept-Ranges", "bytes")
        for k, v in head.items():
            h.send_header(k.replace("_", "-"), v)
        if status == 206:
            total = len(data) + (1 if f.kind == "other_total" else 0)
            shift = 1 if f.kind == "wrong_range" and begin + 1 < end else 0
            h.send_header("Content-Range", f"bytes {begin + shift}-{end - 1}/{total}")
        if f.kind != "no_length":
            h.send_header("Content-Length", str(len(body) + (1000 if f.kind == "short" else 0)))
        else:
            h.send_header("Connection", "close")
        h.end_headers()
        if h.command == "HEAD":
            return
        if f.kind in ("cut", "stall", "short", "no_length", "long"):
            h.close_connection = True
        if f.kind == "cut":
            h.wfile.write(body[:f.at])
            h.wfile.flush()
            h.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            h.connection.close()
            return
        if f.kind == "stall":
            h.wfile.write(body[:f.at])
            h.wfile.flush()
            h.connection.settimeout(60)
            try:
                h.connection.recv(1)  # until the client goes
            except OSError:
                pass
            return
        if f.kind == "slow":
            for at in range(0, len(body), max(f.at // 20, 1)):
                h.wfile.write(body[at:at + max(f.at // 20, 1)])
                time.sleep(0.05)
            return
        h.wfile.write(body)
        if f.kind == "long":
            h.wfile.write(b"x" * 1000)
