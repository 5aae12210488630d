"""Workers die, freeze, join and leave while a job runs; no applied step is lost."""

import json
import os
import signal
import time
import unittest

from harness import FleetTest, alive, main

STEPS = 400


class FaultsTest(FleetTest):

    def reference(self):
        """Losses of an undisturbed run with one worker."""
        up = self.up("reference", self.job("reference.json", steps=STEPS), 1)
        self.check_complete(up, STEPS)
        return self.committed_losses(up, STEPS)

    def check_same_curve(self, up, reference):
        # Float sums differ with the number of workers; the data may not.
        losses = self.committed_losses(up, STEPS)
        for step in range(1, 41):
            self.assertAlmostEqual(losses[step], reference[step], delta=1e-3 * reference[step] + 1e-6)
        self.assertAlmostEqual(losses[STEPS], reference[STEPS], delta=0.05 * reference[STEPS] + 0.01)

    def test_killed_worker_costs_no_step(self):
        up = self.up("kill", self.job(steps=STEPS), 4)
        up.wait_for_step(60, world_size=4)
        os.kill(up.pids()["worker-2"], signal.SIGKILL)
        up.wait_for_step(120, world_size=3)
        os.kill(up.pids()["worker-0"], signal.SIGKILL)
        summary = self.check_complete(up, STEPS)
        deaths = [change for change in summary["view_changes"] if change["cause"] == "death"]
        self.assertEqual([change["worker"] for change in deaths], ["worker-2", "worker-0"], summary)
        for change in deaths:
            self.assertGreater(change["duration_ms"], 0)
        self.check_same_curve(up, self.reference())
        # Each survivor says what it was doing when the mesh failed.
        records = [json.loads(line) for file in up.run_directory.glob("**/operations-*.jsonl")
                   for line in file.read_text().splitlines()]
        self.assertIn("failed", {record["state"] for record in records})
        self.assertIn("done", {record["state"] for record in records})

    def test_frozen_worker_is_given_up_and_comes_back(self):
        up = self.up("freeze", self.job(steps=STEPS * 3), 3, "--lease-ms", 1000)
        up.wait_for_step(60, world_size=3)
        frozen = up.pids()["worker-1"]
        os.kill(frozen, signal.SIGSTOP)
        up.wait_for_step(70, world_size=2)
        os.kill(frozen, signal.SIGCONT)
        up.wait_for_step(80, world_size=3)
        summary = self.check_complete(up, STEPS * 3)
        causes = [(change["cause"], change["worker"]) for change in summary["view_changes"]]
        self.assertIn(("death", "worker-1"), causes)
        self.assertIn(("join", "worker-1"), causes)
        self.committed_losses(up, STEPS * 3)

    def test_joiner_learns_while_others_go_on(self):
        up = self.up("join", self.job(steps=STEPS * 3), 2)
        up.wait_for_step(40, world_size=2)
        self.start("muster-worker", "--coordinator", f"127.0.0.1:{up.port}", "--name", "late")
        up.wait_for_step(50, world_size=3)
        summary = self.check_complete(up, STEPS * 3)
        self.assertIn(("join", "late"),
                      [(change["cause"], change["worker"]) for change in summary["view_changes"]])
        steps = [record["step"] for record in up.steps()]
        self.assertEqual(steps, list(range(1, STEPS * 3 + 1)), "a join must not redo a step")

    def test_drained_worker_leaves_without_redo(self):
        up = self.up("drain", self.job(steps=STEPS), 3)
        up.wait_for_step(60, world_size=3)
        drained = up.pids()["worker-2"]
        os.kill(drained, signal.SIGTERM)
        up.wait_for("the drained worker's end", lambda: not alive(drained))
        summary = self.check_complete(up, STEPS)
        self.assertIn(("drain", "worker-2"),
                      [(change["cause"], change["worker"]) for change in summary["view_changes"]])
        self.assertNotIn("death", [change["cause"] for change in summary["view_changes"]])
        steps = [record["step"] for record in up.steps()]
        self.assertEqual(steps, list(range(1, STEPS + 1)), "a drain must not redo a step")

    def test_second_signal_ends_a_worker_at_once(self):
        up = self.up("twice", self.job(steps=STEPS), 2)
        up.wait_for_step(40, world_size=2)
        worker = up.pids()["worker-1"]
        os.kill(worker, signal.SIGSTOP)  # both signals are pending when it wakes
        os.kill(worker, signal.SIGTERM)
        os.kill(worker, signal.SIGINT)
        os.kill(worker, signal.SIGCONT)
        up.wait_for("the worker's end", lambda: not alive(worker))
        self.check_complete(up, STEPS)

    def test_two_deaths_at_once_again_and_again(self):
        steps = STEPS * 6
        up = self.up("many", self.job(steps=steps), 4, "--respawn")
        for first in range(3):
            up.wait_for_step(40, world_size=4)  # whole again
            pids = up.pids()
            for name in (f"worker-{first}", f"worker-{first + 1}"):
                os.kill(pids[name], signal.SIGKILL)
            reached = up.steps()[-1]["step"]
            up.wait_for_step(reached + 20)
        summary = self.check_complete(up, steps)
        deaths = ",".join(change["worker"] for change in summary["view_changes"]
                          if change["cause"] == "death")
        for name in ("worker-0", "worker-1", "worker-2", "worker-3"):
            self.assertIn(name, deaths)
        self.committed_losses(up, steps)

    def test_all_workers_dead_ends_the_run_with_an_explanation(self):
        up = self.up("all", self.job(steps=STEPS * 100), 2)
        up.wait_for_step(20, world_size=2)
        for name, pid in up.pids().items():
            if name.startswith("worker"):
                os.kill(pid, signal.SIGKILL)
        self.assertEqual(up.wait(), 1)
        self.assertIn("worker", up.text())


if __name__ == "__main__":
    main()
