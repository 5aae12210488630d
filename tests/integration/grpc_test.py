"""Jobs whose members reach each other only through their gRPC servers."""

import os
import signal

from harness import DaemonsTest, main, wait_until

STEPS = 200


class GrpcTransportTest(DaemonsTest):

    def run_job(self, name, **changes):
        up = self.up(name, self.job(f"{name}.json", steps=STEPS, **changes), 3, "--servers", "1")
        return self.check_complete(up, STEPS)

    def test_all_strategies_make_the_same_bits_as_over_tcp(self):
        expected = self.run_job("tcp", communication={"transport": "TCP"})
        over_grpc = {"transport": "GRPC"}
        for name, changes in {
                "all-reduce": {"communication": over_grpc},
                "stage-3": {"strategy": {"stage": 3, **over_grpc}},
                "servers": {"communication": over_grpc,
                            "strategy": {"sync": "PARAMETER_SERVER", "servers": 1, "mixed": True}},
                "switches": {"communication": over_grpc, "switches": [
                    {"after_step": 40, "strategy": {"transport": "TCP"}},
                    {"after_step": 80, "strategy": {"stage": 2, "transport": "SHARED_MEMORY"}},
                    {"after_step": 120, "strategy": {"stage": 2, **over_grpc}},
                ]},
        }.items():
            summary = self.run_job(f"grpc-{name}", **changes)
            self.assertEqual(summary["parameters_sha256"], expected["parameters_sha256"], name)
            self.assertEqual(summary["test_accuracy"], expected["test_accuracy"])

    def test_deaths_lose_no_step(self):
        for name, strategy in {"all-reduce": {}, "stage-3": {"stage": 3},
                               "servers": {"sync": "PARAMETER_SERVER"}}.items():
            up = self.up(f"kill-{name}", self.job(
                steps=STEPS * 2, strategy=strategy, communication={"transport": "GRPC"}), 3, "--respawn")
            up.wait_for_step(40, world_size=3)
            os.kill(up.pids()["worker-1"], signal.SIGKILL)
            up.wait_for_step(60)  # The new process may be in before the old one is missed here.
            summary = self.check_complete(up, STEPS * 2)
            causes = [change["cause"] for change in summary["view_changes"]]
            self.assertEqual(causes.count("death"), 1, causes)
            self.assertIn("death of worker-1; 2 workers", up.text())
            self.assertNotIn("restart", causes)

    def test_a_running_job_is_switched_to_it(self):
        self.start_fleet(2)
        job = self.submit(self.job(steps=4000, workers={"min": 1, "start": 2}))

        def transports():
            return {path["path"]["transport"] for path in self.status(job).get("paths", [])}
        self.assertTrue(wait_until(lambda: transports() == {"shm"}), transports())
        code, _, error = self.muster("switch", job, "--transport", "grpc")
        self.assertEqual(code, 0, error)
        self.assertTrue(wait_until(lambda: transports() == {"grpc"}), transports())
        self.assertIn("over grpc", self.muster("status", job)[1])
        self.assertEqual(self.muster("cancel", job)[0], 0)


if __name__ == "__main__":
    main()
