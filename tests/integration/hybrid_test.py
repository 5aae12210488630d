"""Hybrid sharding: workers that pose as two hosts, each of which holds the whole state in shards."""

import pathlib

from harness import DaemonsTest, main, wait_until

STEPS = 120


class HybridTest(DaemonsTest):

    def start_hosts(self, *hosts):
        """One worker for each name, in this order."""
        self.start_fleet(0)
        for number, host in enumerate(hosts):
            self.start_worker(f"w{number}", "--host", host)
            self.assertTrue(wait_until(lambda: len(self.members()) == number + 1))

    def job_with(self, name, strategy, steps=STEPS, workers=4, **changes):
        return self.job(name, strategy=strategy, workers={"min": 1, "start": workers}, steps=steps,
                        **changes)

    def end_of(self, job):
        code, _, error = self.muster("watch", job)
        self.assertEqual(code, 0, error)
        return self.status(job)["final_report"]

    def names(self, job):
        return [member["name"] for member in self.status(job).get("view", {}).get("members", [])]

    def step(self, job):
        return int(self.status(job).get("progress", {}).get("step", 0))

    def wait_for_steps(self, job, steps=20):
        least = self.step(job) + steps
        self.assertTrue(wait_until(lambda: self.step(job) >= least), self.muster("status", job)[1])

    def causes(self, job):
        return [change["cause"] for change in self.status(job)["view_changes"]]

    def log_text(self):
        return pathlib.Path(self.coordinator_log.name).read_text(errors="replace")

    def test_it_trains_as_every_strategy_does_and_the_same_each_time(self):
        self.start_hosts("left", "right", "left", "right")
        expected = self.end_of(self.submit(self.job_with("replicated.json", {})))
        hashes = {}
        for strategy in ({"stage": 1, "shard_group": "HOST"}, {"stage": 2, "shard_group": "HOST"},
                         {"stage": 3, "shard_group": "HOST"}, {"stage": 3, "shard_group_size": 2}):
            job = self.submit(self.job_with("hybrid.json", strategy))
            report = self.end_of(job)
            self.assertAlmostEqual(report["progress"]["loss"], expected["progress"]["loss"],
                                   delta=1e-3)
            hashes[str(strategy)] = report["parameters_sha256"]
            self.assertEqual(self.causes(job), ["start"])
        # Two of a host each way, whatever is in shards; another order of sums than of one group.
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        self.assertNotIn(expected["parameters_sha256"], hashes.values())

    def test_other_hosts_hold_the_shards_of_workers_that_die(self):
        self.start_hosts("left", "left", "right", "right")
        # Without replicas in a group: all there are are in the others.
        job = self.submit(self.job_with("long.json", {"replicas": 0}, steps=20000))
        self.wait_for_steps(job)
        code, out, error = self.muster("switch", job, "--stage", "3", "--shard-group", "host")
        self.assertEqual(code, 0, error)
        self.assertIn("trains by stage 3 within each host from step", out)
        self.assertNotIn("shards are of all", out)
        self.assertIn("shard groups  w0, w1; w2, w3\n", self.muster("status", job)[1])
        self.wait_for_steps(job)

        self.workers["w3"].kill()
        self.assertTrue(wait_until(lambda: self.names(job) == ["w0", "w1", "w2"]), self.names(job))
        reason = "host left has 2 workers and host right 1, so shards are of all 3 workers"
        self.assertIn(reason, self.muster("status", job)[1])
        self.assertIn(reason, self.log_text())
        self.wait_for_steps(job)

        self.start_worker("w4", "--host", "right")
        self.assertTrue(wait_until(lambda: self.names(job) == ["w0", "w1", "w2", "w4"]),
                        self.names(job))
        self.assertIn("shard groups  w0, w1; w2, w4\n", self.muster("status", job)[1])
        self.wait_for_steps(job)

        # The whole host.
        self.workers["w2"].kill()
        self.workers["w4"].kill()
        self.assertTrue(wait_until(lambda: self.names(job) == ["w0", "w1"]), self.names(job))
        self.wait_for_steps(job)
        causes = self.causes(job)
        self.assertNotIn("restart", causes)
        self.assertIn("death", causes)

        code, out, error = self.muster("switch", job, "--stage", "1", "--shard-group", "1")
        self.assertEqual(code, 0, error)
        self.assertIn("trains by stage 1 within groups of 1", out)
        self.wait_for_steps(job)
        self.workers["w0"].terminate()
        self.assertEqual(self.workers["w0"].wait(60), 0)
        self.wait_for_steps(job)
        code, out, error = self.muster("switch", job, "--shard-group", "all")
        self.assertEqual(code, 0, error)
        self.assertIn("trains by stage 1, 0 replicas", out)
        self.wait_for_steps(job)
        self.assertEqual(self.muster("cancel", job)[0], 0)

    def test_switches_and_checkpoints_lead_in_and_out(self):
        self.start_hosts("left", "right", "left", "right")
        self.start_worker("s0", "--role", "parameter-server", "--host", "right")
        self.assertTrue(wait_until(lambda: len(self.members()) == 5))
        checkpoints = {"directory": str(self.directory / "checkpoints"), "every": 40}
        grouped = {"stage": 3, "shard_group": "HOST"}
        job = self.submit(self.job_with(
            "switches.json", grouped, checkpoints=checkpoints, switches=[
                {"after_step": 20, "strategy": {"sync": "PARAMETER_SERVER", "servers": 1}},
                {"after_step": 50, "strategy": {"stage": 1, "shard_group_size": 2}},
                {"after_step": 70, "strategy": {}},
                {"after_step": 90, "strategy": {"stage": 2}},
                {"after_step": 100, "strategy": grouped},
            ]))
        self.assertGreater(self.end_of(job)["progress"]["test_accuracy"], 0.95)
        self.assertNotIn("restart", self.causes(job))
        self.workers["w3"].terminate()
        self.assertEqual(self.workers["w3"].wait(30), 0)
        job = self.submit(self.job_with("resumed.json", {"stage": 2}, steps=STEPS + 20, workers=3,
                                        checkpoints={**checkpoints, "resume": True}))
        self.end_of(job)
        self.assertEqual(self.step(job), STEPS + 20)
        self.assertIn(f"checkpoint of step {STEPS}", self.log_text())

    def test_what_can_never_be_is_refused(self):
        self.start_hosts("left", "right")
        job = self.submit(self.job_with("running.json", {"stage": 2}, steps=20000, workers=2))
        self.wait_for_steps(job)
        code, _, error = self.muster("switch", job, "--shard-group", "some")
        self.assertEqual(code, 2, error)
        self.assertIn("expected all, host or a number of workers", error)
        code, _, error = self.muster("switch", job, "--sync", "parameter-server", "--shard-group",
                                     "host")
        self.assertEqual(code, 2, error)
        self.assertIn("strategy.shard_group: must be absent unless stage is 1 to 3", error)
        bad = self.job("bad.json", strategy={"stage": 1, "shard_group_size": 2},
                       workers={"min": 1, "start": 1, "max": 1})
        code, _, error = self.muster("submit", bad)
        self.assertEqual(code, 2, error)
        self.assertIn("strategy.shard_group_size: must be a divisor of", error)
        self.assertEqual(self.muster("cancel", job)[0], 0)


if __name__ == "__main__":
    main()
