"""The manifests of deploy/kubernetes: what they say fits together, and their pods, run as processes
of this machine, train, survive and leave as docs/kubernetes.md promises."""

import gzip
import json
import os
import pathlib
import re
import signal
import unittest

import pods
from harness import FleetTest, PATIENCE_S, main, wait_until
from pods import KUBERNETES, Pod

MANY_STEPS = 100_000  # more than any test waits for
CONTROLLERS = ("Deployment", "StatefulSet", "Job")


class ManifestsTest(unittest.TestCase):

    def controllers(self):
        found = [each for _, each in pods.manifests() if each["kind"] in CONTROLLERS]
        self.assertGreaterEqual(len(found), 5)
        return found

    def test_kustomizations_name_all_files_and_only_those(self):
        found = 0
        for path in KUBERNETES.glob("**/kustomization.yaml"):
            [kustomization] = pods.read(path)
            named = {*kustomization.get("resources", []),
                     *(each["path"] for each in kustomization.get("patches", [])),
                     *(entry.partition("=")[2]
                       for each in kustomization.get("configMapGenerator", [])
                       for entry in each["files"])}
            for name in named:
                self.assertTrue((path.parent / name).exists(), f"{path}: {name}")
            here = {each.name for each in path.parent.glob("*.yaml")} - {path.name}
            self.assertEqual({name for name in named if not name.startswith("..")}, here, path)
            found += 1
        self.assertGreaterEqual(found, 5)

    def test_objects_fit_together(self):
        labels = [each["spec"]["template"]["metadata"]["labels"] for each in self.controllers()]
        services = {each["metadata"]["name"] for _, each in pods.manifests()
                    if each["kind"] == "Service"}
        for _, each in pods.manifests():
            self.assertEqual(each["metadata"].get("labels", {}).get("app.kubernetes.io/part-of"),
                             "muster", each)
            if each["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
                selector = each["spec"].get("selector") or each["spec"]["podSelector"]
                selector = selector.get("matchLabels", selector)
                self.assertTrue(any(selector.items() <= pod.items() for pod in labels), each)
        for each in self.controllers():
            pod = each["spec"]["template"]
            # Or the network policy would keep it out.
            self.assertEqual(pod["metadata"]["labels"]["app.kubernetes.io/part-of"], "muster")
            selector = each["spec"].get("selector", {}).get("matchLabels", {})
            self.assertLessEqual(selector.items(), pod["metadata"]["labels"].items())
            for container in pod["spec"]["containers"]:
                for argument in container["args"]:
                    service = re.fullmatch(r"--coordinator=(.*):7070", argument)
                    if service:
                        self.assertIn(service[1], services)

    def test_images_are_of_this_version(self):
        version = re.search(r'kSoftwareVersion\[\] = "(.*)"',
                            pathlib.Path("base/version.h").read_text())[1]
        for each in self.controllers():
            for container in each["spec"]["template"]["spec"]["containers"]:
                self.assertEqual(container["image"], f"muster:{version}")

    def test_pods_keep_to_the_restricted_standard(self):
        containerfile = pathlib.Path("deploy/container/Containerfile").read_text()
        user = int(re.search(r"^USER (\d+)", containerfile, flags=re.MULTILINE)[1])
        for each in self.controllers():
            spec = each["spec"]["template"]["spec"]
            security = spec["securityContext"]
            self.assertTrue(security["runAsNonRoot"])
            self.assertEqual(security["runAsUser"], user)
            self.assertEqual(security["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertFalse(spec["automountServiceAccountToken"])
            for container in spec["containers"]:
                security = container["securityContext"]
                self.assertFalse(security["allowPrivilegeEscalation"])
                self.assertTrue(security["readOnlyRootFilesystem"])
                self.assertEqual(security["capabilities"], {"drop": ["ALL"]})
                volumes = {volume["name"] for volume in spec.get("volumes", [])}
                mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
                self.assertEqual(volumes, mounts)

    def test_ports_are_those_the_daemons_listen_on(self):
        for each in self.controllers():
            [container] = each["spec"]["template"]["spec"]["containers"]
            listen = re.compile(r"--(?:metrics-)?listen(?:-\w+)?=.*:(\d+)")
            found = (listen.fullmatch(argument) for argument in container["args"])
            listening = {int(match[1]) for match in found if match}
            named = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            self.assertEqual(listening, set(named.values()), container)
            for probe in ("readinessProbe", "livenessProbe"):
                if probe in container:
                    self.assertEqual(container[probe]["grpc"]["port"], named["grpc"])
            if "metrics" in named:
                annotations = each["spec"]["template"]["metadata"]["annotations"]
                self.assertEqual(int(annotations["prometheus.io/port"]), named["metrics"])


class PodsTest(FleetTest):

    def setUp(self):
        super().setUp()
        # Of 127.0.0.0/8, which is this machine: one network for each process of a test.
        self.network = f"127.{1 + os.getpid() // 250 % 250}.{os.getpid() % 250}"
        self.shared = self.directory / "shared"
        (self.shared / "data").mkdir(parents=True)
        for name, here in (("train", "train"), ("t10k", "test")):
            for kind in ("images-idx3", "labels-idx1"):
                raw = self.directory / f"{here}-{kind.partition('-')[0]}"
                packed = self.shared / "data" / f"{name}-{kind}-ubyte.gz"
                packed.write_bytes(gzip.compress(raw.read_bytes(), 1))
        self.addresses = 0

    def pod(self, kind, owner, name, **options):
        self.addresses += 1
        volumes = {"shared": self.shared, "cache": self.directory / name / "cache",
                   "job": self.directory}
        volumes["cache"].mkdir(parents=True)
        return Pod(pods.find(kind, owner), name, f"{self.network}.{self.addresses}",
                   volumes=volumes, **options)

    def start_pod(self, pod):
        with open(self.directory / f"{pod.name}.log", "a", encoding="utf-8") as log:
            process = pod.start(log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def check_probes(self, pod, process):
        """The container comes to pass its probes; it has not ended before."""
        for probe in ("readinessProbe", "livenessProbe"):
            wait_until(lambda: process.poll() is not None or pod.probe(probe))
            self.assertIsNone(process.poll(), self.logs())
            self.assertTrue(pod.probe(probe), self.logs())

    def start_coordinator(self):
        self.coordinator = self.pod("Deployment", "muster-coordinator", "coordinator")
        self.services = {"muster-coordinator": self.coordinator.address}
        process = self.start_pod(self.coordinator)
        self.check_probes(self.coordinator, process)
        return process

    def worker(self, name, owner="muster-worker"):
        return self.pod("Deployment", owner, name, services=self.services, node=f"node-of-{name}")

    def write_job(self, steps):
        """The job file of the ConfigMap, with `steps` steps."""
        text = (KUBERNETES / "job" / "fashion-mnist.yaml").read_text()
        text, changed = re.subn(r"^  epochs: .*$", f"  steps: {steps}", text, flags=re.MULTILINE)
        self.assertEqual(changed, 1)
        text, mounted = re.subn(r"(: )/muster/", rf"\g<1>{self.shared}/", text)
        self.assertEqual(mounted, 5)
        (self.directory / "job.yaml").write_text(text)

    def submitter(self):
        """A pod of the Job."""
        return self.pod("Job", "muster-job", "submit", services=self.services,
                        labels={"batch.kubernetes.io/controller-uid": "of-the-job"})

    def log(self, pod):
        return (self.directory / f"{pod.name}.log").read_text()

    def logs(self):
        return "".join(f"== {file.name}\n{file.read_text()}"
                       for file in sorted(self.directory.glob("*.log")))

    def muster(self, *arguments):
        process = self.start("muster", *arguments, "--json", "--coordinator",
                             f"{self.coordinator.address}:7070")
        out, _ = process.communicate(timeout=PATIENCE_S)
        return [json.loads(line) for line in out.splitlines()] if process.returncode == 0 else []

    def members(self):
        [answer] = self.muster("members") or [{}]
        return {each["member"]["name"]: each for each in answer.get("members", [])}

    def incarnation(self, name):
        return self.members().get(name, {}).get("member", {}).get("incarnation")

    def jobs(self):
        return {job["id"]: job for job in self.muster("status")}

    def view(self):
        """The members of the running job by name, and the newest step of all of them."""
        for job in self.jobs().values():
            if job["state"] == "running":
                return ({each["name"] for each in job["view"]["members"]},
                        int(job.get("progress", {}).get("step", 0)))
        return set(), 0

    def wait_for_view(self, names, after=0):
        """The step at which the view has these members, later than step `after`."""
        def there():
            members, step = self.view()
            return step if members == set(names) and step > after else 0
        step = wait_until(there)
        self.assertTrue(step, self.logs())
        return step

    def test_pods_train_through_a_kill_and_an_eviction(self):
        self.start_coordinator()
        workers = {name: self.worker(name) for name in ("worker-a", "worker-b", "worker-c")}
        processes = {name: self.start_pod(pod) for name, pod in workers.items()}
        for name, pod in workers.items():
            self.check_probes(pod, processes[name])
        self.assertTrue(wait_until(lambda: len(self.members()) == 3), self.logs())
        for name, each in self.members().items():
            self.assertEqual(each["member"]["host"], f"node-of-{name}")
            self.assertEqual(each["member"]["rpc_address"], f"{workers[name].address}:7071")
        self.assertIn("muster_coordinator_", self.coordinator.metrics())
        self.assertIn("muster_worker_", workers["worker-a"].metrics())

        self.write_job(MANY_STEPS)
        submit = self.start_pod(self.submitter())
        step = self.wait_for_view(workers)
        # The container dies; the kubelet starts it again in the same pod, so under the same name.
        old = self.incarnation("worker-a")
        processes["worker-a"].kill()
        processes["worker-a"].wait()
        processes["worker-a"] = self.start_pod(workers["worker-a"])
        self.assertTrue(wait_until(lambda: self.incarnation("worker-a") not in (old, None)),
                        self.logs())
        step = self.wait_for_view(workers, step)
        # An eviction: SIGTERM, and the pod does not come back.
        processes["worker-b"].send_signal(signal.SIGTERM)
        self.assertEqual(processes["worker-b"].wait(PATIENCE_S), 0, self.logs())
        self.assertFalse(workers["worker-b"].probe("livenessProbe"))
        self.wait_for_view({"worker-a", "worker-c"}, step)
        [job] = self.jobs().values()
        self.assertEqual([change["cause"] for change in job["view_changes"]
                          if change["cause"] in ("death", "drain", "restart")],
                         ["death", "drain"], self.logs())
        self.assertTrue(self.muster("cancel", job["id"]))
        self.assertEqual(submit.wait(PATIENCE_S), 1, self.logs())

    def test_the_job_goes_on_when_the_coordinator_is_replaced(self):
        first = self.start_coordinator()
        # Of a component: in the fleet, and not needed by this job.
        server = self.start_pod(self.worker("server-a", owner="muster-parameter-server"))
        names = {"worker-a", "worker-b"}
        for name in names:
            self.start_pod(self.worker(name))
        self.assertTrue(wait_until(lambda: len(self.members()) == 3), self.logs())
        self.assertEqual(self.members()["server-a"]["member"]["role"], "parameter_server")
        self.write_job(MANY_STEPS)
        pod = self.submitter()
        submit = self.start_pod(pod)
        step = self.wait_for_view(names)
        # The pod of the Job is lost, and another one takes its place: the job is not queued again.
        submit.kill()
        submit = self.start_pod(pod)
        self.assertTrue(wait_until(lambda: self.log(pod).count("submitted fashion-mnist") == 2),
                        self.logs())
        self.assertEqual(len(self.jobs()), 1)
        # The pod of the coordinator is replaced, behind the same name of its service.
        first.send_signal(signal.SIGTERM)
        grace = self.coordinator.owner["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        self.assertEqual(first.wait(grace), 0, self.logs())
        self.start_pod(self.coordinator)
        self.assertEqual(submit.wait(PATIENCE_S), 1, self.logs())  # nobody knows the job
        self.assertTrue(wait_until(lambda: len(self.members()) == 3 and all(
            each["phase"] == "idle" for each in self.members().values())), self.logs())
        # The next pod of the Job, now with fewer steps, so that an end can be seen.
        stopped = int(self.checkpoints()[-1].removeprefix("step-"))
        self.assertGreaterEqual(stopped, step)
        self.write_job(stopped + 100)
        self.assertEqual(self.start_pod(pod).wait(PATIENCE_S), 0, self.logs())
        [job] = self.jobs().values()
        self.assertEqual(job["state"], "succeeded")
        self.assertEqual(job["view_changes"][0]["resume_step"], stopped)
        self.assertEqual(self.checkpoints()[-1], f"step-{stopped + 100:08}")
        self.assertIsNone(server.poll(), self.logs())

    def checkpoints(self):
        """Their names, oldest first."""
        return sorted(path.name for path in (self.shared / "checkpoints").glob("*/step-*"))

    def test_tables_pass_their_probes(self):
        tables = self.pod("StatefulSet", "muster-tables", "muster-tables-0")
        process = self.start_pod(tables)
        self.check_probes(tables, process)
        self.assertIn("muster_parameter_server_", tables.metrics())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE_S), 0, self.logs())


if __name__ == "__main__":
    main()
