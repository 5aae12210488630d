"""The coordinator is gone for good: workers come to rest, keep the state, and another fleet goes on."""

import json
import os
import signal
import subprocess

from harness import BINARIES, FleetTest, PATIENCE_S, free_port, main, wait_until

STEPS = 100_000  # more than the fleet takes before it stops
ORPHAN_TIMEOUT_MS = 3000


class OrphanTest(FleetTest):
    strategy = {}

    def setUp(self):
        super().setUp()
        self.checkpoints = self.directory / "checkpoints"
        self.workers = {}

    def checkpointed(self, name, steps, resume):
        return self.job(name, steps=steps, strategy=self.strategy, checkpoints={
            "directory": str(self.checkpoints), "every": 0, "keep": 1, "resume": resume})

    def start_coordinator(self, port, orphan_timeout_ms=ORPHAN_TIMEOUT_MS):
        self.coordinator = self.start("muster-coordinator", "--listen", f"127.0.0.1:{port}",
                                      "--orphan-timeout-ms", orphan_timeout_ms)

    def submit(self, port, job, *arguments):
        return subprocess.run(
            [BINARIES / "muster", "submit", "--coordinator", f"127.0.0.1:{port}", *arguments, job],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def start_fleet(self, workers, orphan_timeout_ms=ORPHAN_TIMEOUT_MS):
        """A coordinator and workers by hand, which train. Returns the coordinator's port."""
        port = free_port()
        self.start_coordinator(port, orphan_timeout_ms)
        for rank in range(workers):
            name = f"worker-{rank}"
            log = open(self.directory / f"{name}.log", "w")
            self.addCleanup(log.close)
            self.workers[name] = self.start(
                "muster-worker", "--coordinator", f"127.0.0.1:{port}", "--name", name,
                "--log-format", "json", "--run-directory", self.directory / "run",
                stdout=log)
        job = self.checkpointed("first.json", STEPS, False)
        self.assertTrue(wait_until(lambda: self.submit(port, job).returncode == 0))
        self.assertTrue(wait_until(lambda: self.steps_taken(workers) > 20), self.logs())
        return port

    def steps_taken(self, world_size):
        last = 0
        for file in self.directory.glob("run/**/metrics.jsonl"):
            for line in file.read_text().splitlines():
                if line.endswith("}"):
                    record = json.loads(line)
                    if record["kind"] == "step" and record["world_size"] == world_size:
                        last = max(last, record["step"])
        return last

    def logs(self):
        return "".join(file.read_text() for file in sorted(self.directory.glob("worker-*.log")))

    def drain(self, *names):
        for name in names:
            os.kill(self.workers[name].pid, signal.SIGTERM)
        for name in names:
            self.assertEqual(self.workers[name].wait(PATIENCE_S), 0, self.logs())

    def names_on_disk(self):
        """But for the file that says whose directory it is."""
        return sorted(
            path.name for path in self.checkpoints.iterdir() if path.name != "owner.json")

    def check_goes_on_after(self, step):
        resumed = self.up("resumed", self.checkpointed("resumed.json", step + 30, True), 2)
        self.assertEqual(resumed.wait(), 0, resumed.text())
        self.assertEqual(resumed.steps()[0]["step"], step + 1)

    def test_members_stop_after_the_same_step_and_publish_it(self):
        self.start_fleet(3)
        self.coordinator.kill()
        self.drain("worker-0", "worker-1", "worker-2")
        # All of one step, once, and nothing half written.
        names = self.names_on_disk()
        self.assertEqual(len(names), 1, names)
        self.assertRegex(names[0], r"^step-\d{8}$")
        self.assertTrue((self.checkpoints / names[0] / "manifest.json").exists())
        self.check_goes_on_after(int(names[0].removeprefix("step-")))

    def test_members_that_cannot_agree_set_their_states_aside(self):
        self.start_fleet(3)
        self.coordinator.kill()
        self.coordinator.wait()
        self.workers["worker-1"].kill()
        self.drain("worker-0", "worker-2")
        names = self.names_on_disk()
        self.assertEqual(len(names), 2, names)
        for name in names:
            self.assertRegex(name, r"^unsealed-step-\d{8}-")
        # Nobody resumes from one unasked, and everybody is told of it.
        refused = self.up("refused", self.checkpointed("refused.json", 12, True), 2)
        self.assertEqual(refused.wait(), 0, refused.text())
        self.assertEqual(refused.steps()[0]["step"], 1)
        logs = "".join(file.read_text() for file in refused.run_directory.glob("logs/*"))
        self.assertIn(names[0], logs)
        (self.checkpoints / "step-00000012").rename(self.directory / "put-away")
        step = names[0].split("-")[2]
        (self.checkpoints / names[0]).rename(self.checkpoints / f"step-{step}")
        self.check_goes_on_after(int(step))

    def test_a_coordinator_without_memory_costs_no_step(self):
        port = self.start_fleet(3, orphan_timeout_ms=60_000)
        self.coordinator.kill()
        self.coordinator.wait()
        self.start_coordinator(port)
        self.assertTrue(wait_until(lambda: self.logs().count('"event":"job_ended"') == 3),
                        self.logs())
        names = self.names_on_disk()
        self.assertEqual(len(names), 1, names)
        step = int(names[0].removeprefix("step-"))
        # The same workers go on with it.
        job = self.checkpointed("again.json", step + 30, True)
        done = self.submit(port, job, "--wait")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f'"first_step":{step + 1}', self.logs().replace(" ", ""))

    def test_beside_a_coordinator_without_memory_a_death_keeps_nobody_waiting(self):
        # They can't meet any more, so it would be no use to wait until this timeout is over.
        hour_ms = 3_600_000
        port = self.start_fleet(3, hour_ms)
        self.coordinator.kill()
        self.coordinator.wait()
        self.workers["worker-1"].kill()
        self.start_coordinator(port, hour_ms)
        self.assertTrue(wait_until(lambda: self.logs().count('"event":"job_ended"') == 2),
                        self.logs())


class ShardedOrphanTest(OrphanTest):
    """The same where each worker holds only a part of the state."""
    strategy = {"stage": 2}

    def test_members_that_cannot_agree_set_their_states_aside(self):
        # A part is of no use to anybody: they say so and leave nothing behind.
        self.start_fleet(3)
        self.coordinator.kill()
        self.coordinator.wait()
        self.workers["worker-1"].kill()
        self.drain("worker-0", "worker-2")
        self.assertEqual(self.names_on_disk() if self.checkpoints.exists() else [], [])
        self.assertEqual(self.logs().count("holds only a part of the state"), 2, self.logs())


if __name__ == "__main__":
    main()
