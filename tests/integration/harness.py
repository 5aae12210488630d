"""Runs Muster's real binaries for integration tests. Standard library only.

Every process started here ends with the test: `muster up` ends its own children, and what a test
starts by hand is killed in tearDown.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BINARIES = pathlib.Path(os.environ["MUSTER_BINARIES"])
PATIENCE_S = 90  # longest wait for anything; a machine under load is slow


def write_idx(directory, name, count, seed):
    """Images of 12 x 12 whose brightest third of rows says the class (of three)."""
    state = seed
    images, labels = bytearray(), bytearray()
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        label = (state >> 33) % 3
        labels.append(label)
        for row in range(12):
            base = 120 if row // 4 == label else 60
            for _ in range(12):
                state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
                images.append(base + (state >> 40) % 100)
    (directory / f"{name}-images").write_bytes(struct.pack(">IIII", 0x803, count, 12, 12) + images)
    (directory / f"{name}-labels").write_bytes(struct.pack(">II", 0x801, count) + labels)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def descendants(pid):
    """Pids of all living processes below `pid`."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if fields[0] != "Z":
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def wait_until(condition, patience_s=PATIENCE_S):
    """What `condition()` gives once that is true; its last value when patience is over."""
    deadline = time.monotonic() + patience_s
    while True:
        value = condition()
        if value or time.monotonic() >= deadline:
            return value
        time.sleep(0.02)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Up:
    """One `muster up`."""

    def __init__(self, directory, job, workers, *arguments):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.summary_file = self.directory / "summary.json"
        self.pid_file = self.directory / "pids.json"
        self.run_directory = self.directory / "run"
        self.output_file = self.directory / "output.txt"
        self.port = free_port()
        self.output = open(self.output_file, "wb")
        self.process = subprocess.Popen(
            [
                BINARIES / "muster", "up", "--job", job, "--workers", str(workers),
                "--summary-json", self.summary_file, "--pid-file", self.pid_file,
                "--run-directory", self.run_directory, "--listen", f"127.0.0.1:{self.port}",
                *map(str, arguments),
            ],
            stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT)

    def text(self):
        return self.output_file.read_text(errors="replace")

    def pids(self):
        try:
            return json.loads(self.pid_file.read_text())
        except (OSError, ValueError):
            return {}

    def steps(self):
        """Records of kind "step" that rank 0 has written, in order."""
        records = []
        for file in self.run_directory.glob("**/metrics.jsonl"):
            for line in file.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    record = json.loads(line)
                    if record["kind"] == "step":
                        records.append(record)
        return records

    def status(self):
        """The one job, as `muster status --json` shows it."""
        result = subprocess.run(
            [BINARIES / "muster", "status", "--json", "--coordinator", f"127.0.0.1:{self.port}"],
            capture_output=True, text=True, timeout=PATIENCE_S)
        return result.stdout

    def wait_for(self, what, condition):
        def there_or_over():
            # Asked in this order: what came with the end of the process counts.
            over = self.process.poll() is not None
            value = condition()
            return (True, value) if value else (False, None) if over else None
        found = wait_until(there_or_over)
        if found is None:
            raise AssertionError(f"no {what} within {PATIENCE_S} s:\n{self.text()}")
        if not found[0]:
            raise AssertionError(f"muster up ended before {what}:\n{self.text()}")
        return found[1]

    def wait_for_step(self, step, world_size=None):
        def reached():
            steps = self.steps()
            return bool(steps) and steps[-1]["step"] >= step and (
                world_size is None or steps[-1]["world_size"] == world_size)
        self.wait_for(f"step {step}", reached)

    def wait(self):
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"muster up did not end:\n{self.text()}") from None

    def summary(self):
        return json.loads(self.summary_file.read_text())

    def close(self):
        if self.process.poll() is None:
            below = descendants(self.process.pid)
            self.process.kill()
            self.process.wait()
            for pid in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.output.close()


class FleetTest(unittest.TestCase):
    """A directory with data and a small job, and everything started is ended."""

    maxDiff = None

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        write_idx(self.directory, "train", 1500, seed=1)
        write_idx(self.directory, "test", 300, seed=2)

    def job(self, name="job.json", **changes):
        """Writes a job file; `changes` replace whole sections, or fields of `training`."""
        job = {
            "name": "small",
            "model": {"mlp": {"hidden": [256, 256]}},
            "data": {"idx": {
                "train_images": str(self.directory / "train-images"),
                "train_labels": str(self.directory / "train-labels"),
                "test_images": str(self.directory / "test-images"),
                "test_labels": str(self.directory / "test-labels"),
                "classes": 3,
            }},
            "training": {
                # Steps of several milliseconds: a test has time to interfere.
                "steps": 400, "global_batch": 1200, "micro_batch": 100, "seed": 7,
                "optimizer": {"adamw": {}},
                "learning_rate": {"peak": 1e-3, "schedule": "cosine", "warmup_steps": 10},
            },
            "workers": {"min": 1},
        }
        for key, value in changes.items():
            if key in job and key != "training":
                job[key] = value
            elif key in ("checkpoints", "communication", "strategy", "switches"):
                job[key] = value
            elif key == "training":
                job["training"].update(value)
            else:
                job["training"][key] = value
        file = self.directory / name
        file.write_text(json.dumps(job, indent=1))
        return file

    def up(self, name, job, workers, *arguments):
        up = Up(self.directory / name, job, workers, *arguments)
        self.addCleanup(up.close)
        return up

    def start(self, program, *arguments, **options):
        options = {"stdout": subprocess.PIPE, **options}
        process = subprocess.Popen([BINARIES / program, *map(str, arguments)],
                                   stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, text=True,
                                   **options)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.addCleanup(end)
        return process

    def check_complete(self, up, steps):
        """The run succeeded, took every step exactly once at last, and kept the global batch."""
        self.assertEqual(up.wait(), 0, up.text())
        summary = up.summary()
        self.assertEqual(summary["steps"], steps)
        self.assertGreater(summary["test_accuracy"], 0.95)
        return summary

    def committed_losses(self, up, steps):
        """Loss by step; a step that was redone counts once, with its last record."""
        losses = {record["step"]: record["loss"] for record in up.steps()}
        self.assertEqual(sorted(losses), list(range(1, steps + 1)), "steps lost or invented")
        return losses


class DaemonsTest(FleetTest):
    """Daemons that a test starts one by one, and the commands that speak to them."""

    def start_fleet(self, workers, *coordinator_arguments):
        """A coordinator and workers w0, w1, ... by hand; logs go to files."""
        self.address = f"127.0.0.1:{free_port()}"
        self.coordinator_log = self.log_file("coordinator")
        self.start("muster-coordinator", "--listen", self.address, *coordinator_arguments,
                   stdout=self.coordinator_log)
        self.logs = []
        self.workers = {}
        for number in range(workers):
            self.start_worker(f"w{number}")
        self.assertTrue(wait_until(lambda: len(self.members()) == workers))

    def log_file(self, name):
        log = open(self.directory / f"{name}.log", "w")
        self.addCleanup(log.close)
        return log

    def start_worker(self, name, *arguments, **options):
        log = self.log_file(name)
        self.logs.append(log)
        process = subprocess.Popen(
            [BINARIES / "muster-worker", "--coordinator", self.address, "--name", name,
             "--log-format", "json", *map(str, arguments)],
            stdin=subprocess.DEVNULL, stderr=log, **options)
        self.workers[name] = process
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def lines(self, log):
        """What a daemon has logged so far."""
        text = pathlib.Path(log.name).read_text(errors="replace")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def members(self):
        code, out, _ = self.muster("members", "--json")
        return json.loads(out)["members"] if code == 0 else []

    def muster(self, *arguments, stdout=subprocess.PIPE):
        result = subprocess.run(
            [BINARIES / "muster", *map(str, arguments), "--coordinator", self.address],
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)
        return result.returncode, result.stdout, result.stderr

    def submit(self, job):
        code, out, error = self.muster("submit", "--json", job)
        self.assertEqual(code, 0, error)
        return json.loads(out)["id"]

    def status(self, job):
        return json.loads(self.muster("status", "--json", job)[1])


def main():
    unittest.main(argv=sys.argv[:1] + ["-v"] + sys.argv[1:])
