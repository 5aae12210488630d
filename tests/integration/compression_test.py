"""Compressed gradients: what is carried from step to step is handed on by a drain, and lost with a death."""

import pathlib
import signal

from harness import DaemonsTest, main, wait_until

STEPS = 400


class CompressionTest(DaemonsTest):

    def events(self, event):
        """Of all workers: the fields, and whose log it is."""
        return [{**line.get("fields", {}), "log": pathlib.Path(log.name).stem} for log in self.logs
                for line in self.lines(log) if line["event"] == event]

    def wait_for_step(self, job, step, members):
        def there():
            status = self.status(job)
            return (status.get("progress", {}).get("step", 0) >= step and
                    len(status["view"]["members"]) == members)
        self.assertTrue(wait_until(there), self.status(job))

    def drain_and_kill(self, strategy):
        self.start_fleet(4)
        job = self.submit(self.job(steps=STEPS, strategy=strategy, workers={"min": 1, "start": 4},
                                   communication={"gradients": "top_k", "top_k_fraction": 0.02}))
        self.wait_for_step(job, 20, 4)
        self.workers["w3"].send_signal(signal.SIGTERM)
        self.assertEqual(self.workers["w3"].wait(60), 0)
        self.wait_for_step(job, 60, 3)
        self.assertEqual([event["worker"] for event in self.events("residuals_taken")], ["w3"])
        self.assertEqual(self.events("residuals_dropped"), [])

        self.workers["w1"].kill()
        self.wait_for_step(job, 120, 2)
        dropped = self.events("residuals_dropped")
        self.assertEqual([(event["log"], event["worker"]) for event in dropped],
                         [("w0", "w1"), ("w2", "w1")])
        code, _, error = self.muster("watch", job)
        self.assertEqual(code, 0, error)
        self.assertEqual(len(self.events("residuals_taken")), 1)
        progress = self.status(job)["progress"]
        self.assertEqual(progress["step"], STEPS)
        self.assertGreater(progress["test_accuracy"], 0.9)

    def test_residuals_survive_a_drain_and_not_a_death(self):
        self.drain_and_kill({"stage": 0})

    def test_residuals_survive_a_drain_of_a_sharded_job(self):
        self.drain_and_kill({"stage": 2})

    def test_resuming_says_that_residuals_begin_at_zero(self):
        self.start_fleet(2)
        for resume in (False, True):
            job = self.submit(self.job(
                steps=20 if not resume else 40, workers={"min": 2},
                checkpoints={"directory": str(self.directory / "checkpoints"), "resume": resume},
                communication={"gradients": "top_k"}))
            code, _, error = self.muster("watch", job)
            self.assertEqual(code, 0, error)
            self.assertEqual(len(self.events("residuals_empty")), 2 if resume else 0)


if __name__ == "__main__":
    main()
