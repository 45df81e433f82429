#!/usr/bin/env python3
"""Takes the screenshots of the documents: the agent's page, light, dark and on a phone, and `pod-index top`.

    cargo build -p pod-index-agent
    docs/images/photograph.py target/debug/pod-index [DIRECTORY]

Needs Debian's chromium, chromium-driver and python3-pil. Writes beside this program, or into the directory. Look at the result.

The agent reads the shipped manifests, one bad manifest, and an API server that is played here: it has the mirror pods of the
manifests, and a few pods of users.
"""

import base64
import contextlib
import fcntl
import html
import http.server
import io
import json
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request

from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
MANIFESTS = HERE.parent.parent / "examples" / "manifests"
NODE = "node-1"
# Columns and rows of the terminal.
COLUMNS, ROWS = 84, 21


def time_ago(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))


def pod_of_user(number, namespace, name, owner, **given):
    """A pod of the API server that is three days old."""
    container = {"name": "main", "image": f"registry.example.com/{namespace}/main:1.4.2"}
    status = {
        **container, "imageID": "x", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": time_ago(3 * 86400)}},
        "containerID": f"containerd://{number:064x}", **given.get("container", {}),
    }
    kind, of = owner
    phase = given.get("phase", "Running")
    address = {"podIP": f"10.244.1.{10 + number}", "podIPs": [{"ip": f"10.244.1.{10 + number}"}]}
    return {
        "metadata": {
            "namespace": namespace, "name": name, "uid": f"0f1e2d3c-4b5a-6978-8796-{number:012x}", "labels": given.get("labels", {}),
            "creationTimestamp": time_ago(3 * 86400),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": of, "uid": f"owner-{number}", "controller": True}],
        },
        "spec": {"nodeName": NODE, "containers": [container]},
        "status": {
            "phase": phase, "startTime": time_ago(3 * 86400), "containerStatuses": [status], **(address if phase == "Running" else {}),
            "conditions": [{"type": "Ready", "status": str(status["ready"]), "lastTransitionTime": time_ago(3 * 86400)}],
        },
    }


def pods_of_users():
    def of_deployment(name, template):
        return {"owner": ("ReplicaSet", f"{name}-{template}"), "labels": {"app": name, "pod-template-hash": template}}
    crashed = {"ready": False, "restartCount": 12, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    done = {"ready": False, "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": time_ago(86400)}}}
    return [
        pod_of_user(1, "kube-system", "coredns-6d4b75cb6d-8xk2p", **of_deployment("coredns", "6d4b75cb6d")),
        pod_of_user(2, "kube-system", "kube-proxy-7vq4r", ("DaemonSet", "kube-proxy"), container={"restartCount": 1}),
        pod_of_user(3, "monitoring", "node-exporter-x5hzt", ("DaemonSet", "node-exporter")),
        pod_of_user(4, "shop", "cart-5f7d8c9b64-lq8vd", **of_deployment("cart", "5f7d8c9b64")),
        pod_of_user(5, "shop", "checkout-7c5ddbdf54-q4x2n", **of_deployment("checkout", "7c5ddbdf54"), container=crashed),
        pod_of_user(6, "shop", "checkout-migrate-28817-9wzfb", ("Job", "checkout-migrate-28817"), phase="Succeeded", container=done),
    ]


def mirror_of(number, static_pod):
    """The mirror pod of a static pod, as a kubelet makes it."""
    metadata = static_pod["metadata"]
    mark = {"kubernetes.io/config.mirror": metadata["uid"], "kubernetes.io/config.hash": metadata["uid"], "kubernetes.io/config.source": "file"}
    status = [
        {"name": container["name"], "image": container["image"], "imageID": "x", "ready": True, "restartCount": 0,
         "containerID": f"containerd://{number * 16 + 0xa000:064x}", "state": {"running": {"startedAt": time_ago(3 * 86400)}}}
        for container in static_pod["spec"]["containers"]
    ]
    return {
        "metadata": {
            "namespace": metadata["namespace"], "name": metadata["name"], "uid": f"5b3e77c0-4b5a-6978-8796-{number:012x}", "annotations": mark,
            "labels": metadata.get("labels", {}), "creationTimestamp": time_ago(3 * 86400),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "n1", "controller": True}],
        },
        "spec": {**static_pod["spec"], "nodeName": NODE},
        "status": {"phase": "Running", "startTime": time_ago(3 * 86400), "containerStatuses": status,
                   "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time_ago(3 * 86400)}]},
    }


class ApiServer(http.server.BaseHTTPRequestHandler):
    """Lists its pods in JSON, and keeps a watch open without an event."""

    protocol_version = "HTTP/1.1"
    pods = []

    def do_GET(self):
        if "watch=true" in self.path or "watch=1" in self.path:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while True:
                time.sleep(1)
                bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}}
                line = json.dumps(bookmark).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        items = [{**pod, "metadata": {**pod["metadata"], "resourceVersion": "1"}} for pod in self.pods]
        is_pods = self.path.split("?")[0].endswith("/pods")
        body = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}).encode()
        self.send_response(200 if is_pods else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def agent(program):
    """Runs the agent. Gives its port."""
    with tempfile.TemporaryDirectory() as directory:
        manifests = pathlib.Path(directory) / "manifests"
        shutil.copytree(MANIFESTS, manifests)
        once = [program, "--pod-manifest-path", manifests, "--hostname-override", NODE, "--once", "-o", "json"]
        static_pods = json.loads(subprocess.run(once, check=True, capture_output=True).stdout)["items"]
        ApiServer.pods = pods_of_users() + [mirror_of(number, pod) for number, pod in enumerate(static_pods)]
        (manifests / "bad.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: []}\n")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ApiServer)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig = pathlib.Path(directory) / "kubeconfig"
        kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }))
        # The path of a manifest is shown, so it should not be that of a temporary directory.
        command = [program, "--pod-manifest-path", "manifests", "--kubeconfig", kubeconfig, "--hostname-override", NODE, "--port", "0"]
        process = subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            log = iter(process.stderr)
            port = next(found.group(1) for line in log if (found := re.search(r"serving on http://127\.0\.0\.1:(\d+)", line)))
            threading.Thread(target=lambda: [None for _ in log], daemon=True).start()
            for _ in range(600):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz")
                    break
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()
            process.wait()
            server.shutdown()


class Browser:
    """Chromium, driven over WebDriver."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines = iter(self.driver.stdout)
        port = next(found.group(1) for line in lines if (found := re.search(r"started successfully on port (\d+)", line)))
        self.address = f"http://127.0.0.1:{port}"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": {"args": flags}}}}
        self.session = "/session/" + self.call("/session", wanted)["sessionId"]

    def call(self, path, body):
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))["value"]

    def ask(self, path, body):
        return self.call(self.session + path, body)

    def devtools(self, command, **params):
        return self.ask("/goog/cdp/execute", {"cmd": command, "params": params})

    def open(self, url, width, height, scheme="light"):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("/url", {"url": url})

    def run(self, script):
        return self.ask("/execute/sync", {"script": script, "args": []})

    def until(self, condition):
        for _ in range(600):
            if self.run(f"return Boolean({condition})"):
                return
            time.sleep(0.1)
        sys.exit(f"not so: {condition}")

    def photograph(self, path):
        data = base64.b64decode(self.devtools("Page.captureScreenshot")["data"])
        # A third of the bytes.
        Image.open(io.BytesIO(data)).convert("RGB").quantize(128).save(path, optimize=True)
        print(path)

    def close(self):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(urllib.request.Request(self.address + self.session, method="DELETE"))
        self.driver.terminate()
        self.driver.wait()


def photograph_page(browser, port, path, width, height, scheme):
    browser.open(f"http://127.0.0.1:{port}/", width, height, scheme)
    browser.until("document.querySelector('#state').dataset.state === 'ready'")
    browser.until("document.querySelector('#figure-pods').innerText === '11'")
    browser.run("document.querySelector('#question').value = '10.244.1.14'; document.querySelector('#ask').requestSubmit()")
    browser.until("document.querySelector('#answer').innerText.includes('shop/cart')")
    # The figures of a whole second.
    time.sleep(3)
    wider = browser.run("return document.documentElement.scrollWidth - innerWidth")
    if wider > 0:
        sys.exit(f"{path}: the page is {wider} px wider than its window")
    browser.photograph(path)


class Screen:
    """A terminal that understands what `top` sends: positions, colours, and the text between them."""

    COLOURS = {1: "#f47067", 2: "#8ddb8c", 3: "#daaa3f", 6: "#76e3ea", 8: "#768390"}

    def __init__(self):
        self.cells = [[(" ", "")] * COLUMNS for _ in range(ROWS)]
        self.row = self.column = 0
        self.bold = self.dim = self.reverse = False
        self.colour = None

    def style(self):
        parts = []
        ink, paper = self.colour or "#cdd0d5", "#1c1c21"
        if self.reverse:
            ink, paper = paper, ink
        parts.append(f"color:{ink};background:{paper}")
        if self.bold:
            parts.append("font-weight:700")
        if self.dim:
            parts.append("opacity:.6")
        return ";".join(parts)

    def feed(self, text):
        for control, letter, plain in re.findall(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b.|([^\x1b])", text):
            if letter == "H":
                row, column = ([int(number or 1) for number in control.split(";")] + [1])[:2] if control else (1, 1)
                self.row, self.column = row - 1, column - 1
            elif letter == "m":
                self.colours([int(number or 0) for number in control.split(";")])
            elif letter == "J":
                self.cells = [[(" ", self.style())] * COLUMNS for _ in range(ROWS)]
            elif letter == "K" and self.row < ROWS:
                self.cells[self.row][self.column:] = [(" ", self.style())] * (COLUMNS - self.column)
            elif plain == "\r":
                self.column = 0
            elif plain == "\n":
                self.row += 1
            elif plain and self.row < ROWS and self.column < COLUMNS:
                self.cells[self.row][self.column] = (plain, self.style())
                self.column += 1

    def colours(self, codes):
        codes = iter(codes)
        for code in codes:
            if code == 0:
                self.bold = self.dim = self.reverse = False
                self.colour = None
            elif code == 1:
                self.bold = True
            elif code == 2:
                self.dim = True
            elif code == 22:
                self.bold = self.dim = False
            elif code in (7, 27):
                self.reverse = code == 7
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.colour = self.COLOURS.get(code % 10 + (8 if code >= 90 else 0))
            elif code == 38 and next(codes, None) == 5:
                self.colour = self.COLOURS.get(next(codes, 0))
            elif code == 39:
                self.colour = None

    def page(self):
        lines = ["".join(f'<span style="{style}">{html.escape(text)}</span>' for text, style in row) for row in self.cells]
        return ('<meta charset="utf-8"><body style="margin:0;padding:20px;background:#1c1c21">'
                '<pre style="margin:0;font:15px/21px \'DejaVu Sans Mono\',monospace;color:#cdd0d5">' + "\n".join(lines) + "</pre>")


def photograph_top(browser, program, port, path):
    child, terminal = pty.fork()
    if child == 0:
        os.execve(program, [program, "top", "--port", port], {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen, end, text = Screen(), time.time() + 6, b""
    while time.time() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            text += os.read(terminal, 65536)
    os.write(terminal, b"q")
    os.waitpid(child, 0)
    screen.feed(text.decode(errors="replace"))
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as page:
        page.write(screen.page())
        page.flush()
        browser.open(f"file://{page.name}", 798, 40 + 21 * ROWS)
        browser.photograph(path)


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    to = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE
    browser = Browser()
    try:
        with agent(program) as port:
            photograph_page(browser, port, to / "page.png", 1280, 860, "light")
            photograph_page(browser, port, to / "page-dark.png", 1280, 860, "dark")
            photograph_page(browser, port, to / "page-phone.png", 390, 800, "light")
            photograph_top(browser, program, port, to / "top.png")
    finally:
        browser.close()


if __name__ == "__main__":
    main()
