"""State in shards: the same bits whatever the strategy, and through switches, deaths, joins, drains."""

import os
import signal

from harness import DaemonsTest, FleetTest, main, wait_until

STEPS = 200


class StrategiesTest(FleetTest):

    def run_job(self, name, workers=4, **changes):
        up = self.up(name, self.job(f"{name}.json", steps=STEPS, **changes), workers)
        return self.check_complete(up, STEPS)

    def test_stages_and_switches_make_the_same_bits(self):
        # Three micro-batches for each worker; and one, so that gradients have no place of their own.
        for micro_batch in (100, 300):
            training = {"micro_batch": micro_batch}
            expected = self.run_job(f"replicated-{micro_batch}", training=training)
            for stage in (1, 2, 3):
                summary = self.run_job(f"stage-{stage}-{micro_batch}", training=training,
                                       strategy={"stage": stage})
                self.assertEqual(summary["parameters_sha256"], expected["parameters_sha256"], stage)
                self.assertEqual(summary["test_accuracy"], expected["test_accuracy"])
            switched = self.run_job(
                f"switches-{micro_batch}", training=training, strategy={"stage": 3, "replicas": 0},
                switches=[
                    {"after_step": 20, "strategy": {"stage": 1, "replicas": 2}},
                    {"after_step": 40, "strategy": {"stage": 0, "algorithm": "DIRECT"}},
                    {"after_step": 60, "strategy": {"stage": 2, "transport": "TCP"}},
                    {"after_step": 80, "strategy": {"stage": 0}},
                    {"after_step": 100, "strategy": {"stage": 3}},
                ])
            self.assertEqual(switched["parameters_sha256"], expected["parameters_sha256"])
            causes = [change["cause"] for change in switched["view_changes"]]
            self.assertEqual(causes.count("switch"), 5, causes)

    def test_deaths_within_the_replicas_lose_no_step(self):
        for stage in (1, 3):
            up = self.up(f"kill-{stage}", self.job(steps=STEPS * 2, strategy={"stage": stage}), 4,
                         "--respawn")
            up.wait_for_step(40, world_size=4)
            os.kill(up.pids()["worker-2"], signal.SIGKILL)
            up.wait_for_step(60, world_size=3)
            os.kill(up.pids()["worker-0"], signal.SIGKILL)
            summary = self.check_complete(up, STEPS * 2)
            causes = [change["cause"] for change in summary["view_changes"]]
            self.assertEqual(causes.count("death"), 2, causes)
            self.assertNotIn("restart", causes)

    def test_without_replicas_a_death_goes_back_to_the_newest_checkpoint(self):
        checkpoints = {"directory": str(self.directory / "checkpoints"), "every": 20}
        up = self.up("scattered", self.job(steps=STEPS, checkpoints=checkpoints,
                                           strategy={"stage": 2, "replicas": 0}), 3, "--respawn")
        up.wait_for_step(50, world_size=3)
        os.kill(up.pids()["worker-1"], signal.SIGKILL)
        up.wait()
        summary = up.summary()
        self.assertEqual(summary["state"], "succeeded", summary)
        self.assertIn("restart", [change["cause"] for change in summary["view_changes"]])


class ParameterServersTest(DaemonsTest):

    def run_job(self, name, servers=2, workers=3, **changes):
        up = self.up(name, self.job(f"{name}.json", steps=STEPS, **changes), workers,
                     "--servers", str(servers))
        return self.check_complete(up, STEPS)

    def test_parameter_servers_make_the_same_bits(self):
        expected = self.run_job("replicated")
        served = {"sync": "PARAMETER_SERVER"}
        for name, strategy in {
                "on-workers": served,
                "dedicated": {**served, "servers": 2},
                "mixed": {**served, "servers": 1, "mixed": True},
        }.items():
            summary = self.run_job(name, strategy=strategy)
            self.assertEqual(summary["parameters_sha256"], expected["parameters_sha256"], name)
            self.assertEqual(summary["test_accuracy"], expected["test_accuracy"], name)
        switched = self.run_job(
            "switched", strategy={**served, "servers": 2},
            switches=[
                {"after_step": 20, "strategy": {"stage": 3}},
                {"after_step": 60, "strategy": {**served, "servers": 1, "mixed": True}},
                {"after_step": 100, "strategy": {}},
                {"after_step": 140, "strategy": {**served, "servers": 2, "replicas": 0}},
            ])
        self.assertEqual(switched["parameters_sha256"], expected["parameters_sha256"])

    def test_the_death_of_a_server_within_the_replicas_loses_no_step(self):
        up = self.up("kill", self.job(steps=STEPS * 2, strategy={
            "sync": "PARAMETER_SERVER", "servers": 2}), 2, "--servers", "2", "--respawn")
        up.wait_for_step(40, world_size=4)
        os.kill(up.pids()["server-1"], signal.SIGKILL)
        up.wait_for_step(60, world_size=3)
        os.kill(up.pids()["worker-0"], signal.SIGKILL)
        summary = self.check_complete(up, STEPS * 2)
        causes = [change["cause"] for change in summary["view_changes"]]
        self.assertEqual(causes.count("death"), 2, causes)
        self.assertNotIn("restart", causes)

    def test_after_the_death_of_the_only_server_the_job_starts_from_its_checkpoint(self):
        checkpoints = {"directory": str(self.directory / "checkpoints"), "every": 20}
        up = self.up("only", self.job(steps=STEPS, checkpoints=checkpoints, strategy={
            "sync": "PARAMETER_SERVER", "servers": 1}), 2, "--servers", "1")
        up.wait_for_step(50, world_size=3)
        os.kill(up.pids()["server-0"], signal.SIGKILL)
        up.wait()
        summary = up.summary()
        self.assertEqual(summary["state"], "succeeded", summary)
        self.assertIn("restart", [change["cause"] for change in summary["view_changes"]])

    def test_servers_come_and_go_while_the_job_runs(self):
        self.start_fleet(2)
        job = self.submit(self.job(steps=4000, workers={"min": 1, "start": 2}))
        self.start_worker("s0", "--role", "parameter-server")
        self.assertTrue(wait_until(lambda: len(self.members()) == 3))
        code, out, error = self.muster("switch", job, "--sync", "parameter-server", "--servers", "2")
        self.assertEqual(code, 0, error)
        self.assertIn("trains by up to 2 parameter servers", out)

        def view():
            return [member["name"] for member in self.status(job)["view"]["members"]]
        self.assertTrue(wait_until(lambda: view() == ["w0", "w1", "s0"]), view())
        self.start_worker("s1", "--role", "parameter-server")
        self.assertTrue(wait_until(lambda: view() == ["w0", "w1", "s0", "s1"]), view())
        self.assertIn("2 workers, 2 servers", self.muster("status", job)[1])
        self.workers["s0"].send_signal(signal.SIGTERM)
        self.assertEqual(self.workers["s0"].wait(30), 0)
        self.assertTrue(wait_until(lambda: view() == ["w0", "w1", "s1"]), view())
        code, _, error = self.muster("switch", job, "--sync", "all-reduce")
        self.assertEqual(code, 0, error)
        self.assertTrue(wait_until(lambda: view() == ["w0", "w1"]), view())
        self.assertTrue(wait_until(lambda: "idle" in self.muster("members")[1]))
        code, _, error = self.muster("switch", job, "--servers", "1")
        self.assertEqual(code, 2, error)
        self.assertIn("strategy.servers", error)
        self.assertEqual(self.muster("cancel", job)[0], 0)


class SwitchCommandTest(DaemonsTest):

    def test_a_running_job_is_switched_and_drained(self):
        self.start_fleet(3)
        job = self.submit(self.job(steps=4000, workers={"min": 1, "start": 3}))
        self.assertTrue(wait_until(lambda: int(self.status(job)["progress"].get("step", 0)) > 5
                                   if "progress" in self.status(job) else False))
        code, out, error = self.muster("switch", job, "--stage", "3")
        self.assertEqual(code, 0, error)
        self.assertIn("trains by stage 3", out)
        self.assertEqual(self.status(job)["view"]["strategy"]["stage"], 3)
        self.assertIn("stage 3", self.muster("status", job)[1])
        # What is not given stays.
        code, _, error = self.muster("switch", job, "--replicas", "2")
        self.assertEqual(code, 0, error)
        strategy = self.status(job)["view"]["strategy"]
        self.assertEqual((strategy["stage"], strategy["replicas"]), (3, 2))
        for wrong in (["--stage", "4"], ["--algorithm", "quick"], ["--transport", "pigeon"]):
            code, _, error = self.muster("switch", job, *wrong)
            self.assertEqual(code, 2, error)
            self.assertIn(wrong[0], error)
        code, out, error = self.muster("switch", job)
        self.assertEqual((code, out), (2, ""), error)
        self.assertIn("--shard-group", error)
        code, _, error = self.muster("switch", job, "--algorithm", "star")
        self.assertEqual(code, 2, error)
        self.assertIn("strategy.algorithm", error)
        code, _, error = self.muster("switch", "no-such-job", "--stage", "1")
        self.assertEqual(code, 1, error)
        self.assertEqual(self.muster("cancel", job)[0], 0)
        code, _, error = self.muster("switch", job, "--stage", "1")
        self.assertEqual(code, 1, error)
        self.assertIn("already ended", error)

    def test_workers_of_a_host_push_as_one(self):
        steps = 60
        losses = {}
        for algorithm in ("direct", "hierarchical"):
            self.start_fleet(0)
            # Hosts of 3 and 2 workers and a server on its own.
            for number, host in enumerate("aaabb"):
                self.start_worker(f"w{number}", "--host", f"host-{host}")
            self.start_worker("s0", "--role", "parameter-server", "--host", "host-s")
            self.assertTrue(wait_until(lambda: len(self.members()) == 6))
            job = self.submit(self.job(
                name=f"{algorithm}.json", steps=steps, workers={"min": 5, "max": 5},
                strategy={"sync": "PARAMETER_SERVER", "servers": 1, "replicas": 0,
                          "transport": "TCP", "algorithm": algorithm.upper()}))
            code, out, error = self.muster("watch", job)
            self.assertEqual(code, 0, out + error)
            status = self.status(job)
            losses[algorithm] = status["progress"]["test_loss"]
            text = self.muster("status", job)[1]
            inside = "parameter server, inside each host first"
            (self.assertIn if algorithm == "hierarchical" else self.assertNotIn)(inside, text)
            lines = [line for log in self.logs for line in self.lines(log)]
            told = [line for line in lines if line.get("event") == "hosts_push_first_inside"]
            paths = [line["text"] for line in lines if line.get("event") == "communication_path"]
            if algorithm == "hierarchical":
                self.assertEqual({(line["fields"]["hosts"], line["fields"]["most_on_a_host"]) for line in told},
                                 {(2, 3)})
                self.assertTrue(any("push" in path and "hierarchical" in path for path in paths),
                                paths)
                self.assertTrue(any("pull" in path and "hierarchical" in path for path in paths),
                                paths)
            else:
                self.assertEqual(told, [])
            for process in self.workers.values():
                process.terminate()
        # Sums in another order: the same but for rounding.
        self.assertAlmostEqual(losses["direct"], losses["hierarchical"], delta=1e-3)

    def test_where_no_workers_share_a_host_pushing_inside_first_is_told_to_be_of_no_use(self):
        self.start_fleet(0)
        for number in range(2):
            self.start_worker(f"w{number}", "--host", f"host-{number}")
        self.assertTrue(wait_until(lambda: len(self.members()) == 2))
        job = self.submit(self.job(steps=4000, workers={"min": 2}))
        self.assertTrue(wait_until(lambda: "progress" in self.status(job)))
        code, out, error = self.muster("switch", job, "--sync", "parameter-server",
                                       "--algorithm", "hierarchical")
        self.assertEqual(code, 0, error)
        self.assertIn("trains by parameter servers on the workers, 1 replica, hierarchical", out)
        self.assertEqual(self.muster("cancel", job)[0], 0)
        events = [line["event"] for log in self.logs for line in self.lines(log)]
        self.assertIn("hosts_have_one_worker", events)
        self.assertNotIn("hosts_push_first_inside", events)


if __name__ == "__main__":
    main()
