"""Runs the pods of Kubernetes manifests as processes of this machine, without Kubernetes.

A pod has a loopback address of its own, so that daemons keep the ports of their manifests. What a
kubelet would put into a container's command line is put in here: $(NAME) of the downward API. The
paths of volumes lead into directories, and the names of services to the addresses of their pods.
"""

import dataclasses
import os
import pathlib
import re
import socket
import struct
import subprocess
import urllib.request

import yaml

from harness import BINARIES

KUBERNETES = pathlib.Path("deploy/kubernetes")
HEALTH_CHECK = b"/grpc.health.v1.Health/Check"
UNITS = {"": 1, "m": 1e-3, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
         "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def read(path):
    """The objects of a manifest."""
    with open(path, encoding="utf-8") as stream:
        return [document for document in yaml.safe_load_all(stream) if document]


def manifests():
    """(file, object) of all manifests; patches and kustomizations left out."""
    for path in sorted(KUBERNETES.glob("[!o]*/**/*.yaml")):
        for each in read(path):
            if "metadata" in each:
                yield path, each


def find(kind, name):
    """The one object of that kind and name."""
    found = [each for _, each in manifests()
             if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} objects are {kind} {name}"
    return found[0]


def quantity(text):
    """A resource quantity, as a number: "500m" is 0.5."""
    number, unit = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(text)).groups()
    return float(number) * UNITS[unit]


def field(pod, path):
    """A field of the downward API, such as metadata.labels['x']."""
    label = re.fullmatch(r"metadata\.labels\['(.*)'\]", path)
    if label:
        return pod.labels[label[1]]
    return {"metadata.name": pod.name, "status.podIP": pod.address, "spec.nodeName": pod.node}[path]


def environment(pod, container):
    """The container's variables, as the downward API would fill them in."""
    values = {}
    for each in container.get("env", []):
        source = each.get("valueFrom", {})
        if "value" in each:
            value = each["value"]
        elif "fieldRef" in source:
            value = field(pod, source["fieldRef"]["fieldPath"])
        else:
            section, resource = source["resourceFieldRef"]["resource"].split(".", 1)
            # Rounded up to whole units (the divisor is 1).
            value = str(-int(-quantity(container["resources"][section][resource]) // 1))
        values[each["name"]] = value
    return values


@dataclasses.dataclass
class Pod:
    """A pod to be, of a Deployment, StatefulSet or Job, with one container."""

    owner: dict
    name: str
    address: str
    node: str = "node-1"
    volumes: dict = dataclasses.field(default_factory=dict)   # name of a volume -> directory
    services: dict = dataclasses.field(default_factory=dict)  # name of a service -> address
    labels: dict = dataclasses.field(default_factory=dict)    # beside the template's

    @property
    def container(self):
        [container] = self.owner["spec"]["template"]["spec"]["containers"]
        return container

    def local(self, text):
        """Paths under the container's mounts, as they are here; names of services as addresses."""
        for mount in self.container.get("volumeMounts", []):
            text = re.sub(rf"(^|[=\s]){re.escape(mount['mountPath'])}(/|$)",
                          rf"\g<1>{self.volumes[mount['name']]}\2", text, flags=re.MULTILINE)
        for name, address in self.services.items():
            text = re.sub(rf"(^|=){re.escape(name)}:", rf"\g<1>{address}:", text)
        return text.replace("=0.0.0.0:", f"={self.address}:")

    def command(self):
        """The command line a kubelet would run, with what is local put in."""
        values = environment(self, self.container)

        def expand(text):
            return re.sub(r"\$\((\w+)\)", lambda name: values[name[1]], text)
        program, *arguments = [*self.container["command"], *self.container.get("args", [])]
        return [str(BINARIES / program), *(self.local(expand(each)) for each in arguments)]

    def start(self, log):
        """As a process, with nothing in its environment but what the manifest says."""
        values = {"PATH": os.environ["PATH"], **environment(self, self.container)}
        return subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, env=values)

    def probe(self, which):
        """Whether the container passes its "readinessProbe" or "livenessProbe"."""
        return is_serving(self.address, self.container[which]["grpc"]["port"])

    def metrics(self):
        """The text at the address that the annotations tell Prometheus."""
        annotations = self.owner["spec"]["template"]["metadata"]["annotations"]
        assert annotations["prometheus.io/scrape"] == "true"
        port, path = annotations["prometheus.io/port"], annotations["prometheus.io/path"]
        # Not through a proxy that the environment names.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self.address}:{port}{path}", timeout=10) as response:
            return response.read().decode()


def frame(kind, flags, stream, payload=b""):
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    head = struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream)
    return head + payload


def literal(name, value):
    """A header field that nobody indexes, without Huffman's code (RFC 7541, section 6.2.2)."""
    assert len(name) < 127 and len(value) < 127
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def is_serving(host, port):
    """What a kubelet's gRPC probe asks: grpc.health.v1.Health/Check of the whole server."""
    data, headers, settings, ping, end_stream, end_headers = 0, 1, 4, 6, 1, 4
    request = b"".join(literal(*each) for each in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", HEALTH_CHECK),
        (b":authority", host.encode()), (b"te", b"trailers"),
        (b"content-type", b"application/grpc")))
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.sendall(
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, 0, 0) +
                frame(headers, end_headers, 1, request) +
                frame(data, end_stream, 1, b"\0" + struct.pack(">I", 0)))  # an empty message
            stream = connection.makefile("rb")
            answer = b""
            while True:
                head = stream.read(9)
                if len(head) < 9:
                    return False
                length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                payload = stream.read(length)
                if kind == settings and not flags & 1:
                    connection.sendall(frame(settings, 1, 0))
                elif kind == ping and not flags & 1:
                    connection.sendall(frame(ping, 1, 0, payload))
                elif kind == data:
                    answer += payload
                if kind in (data, headers) and flags & end_stream:
                    # HealthCheckResponse{status: SERVING}, with its length in front.
                    return answer == b"\0\0\0\0\2\x08\1"
    except OSError:
        return False
