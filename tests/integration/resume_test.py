"""Checkpoints: a run that was cut off goes on from the newest intact one."""

import hashlib
import json
import os
import pathlib
import signal

from harness import FleetTest, alive, main, wait_until

STEPS = 300


class ResumeTest(FleetTest):

    def checkpointed(self, name, directory, resume):
        return self.job(name, steps=STEPS, checkpoints={
            "directory": str(directory), "every": 40, "keep": 5, "resume": resume})

    def cut_off(self, name, workers, at_step):
        """Starts a run, kills the launcher without warning, returns its checkpoint directory."""
        directory = self.directory / f"{name}-checkpoints"
        up = self.up(name, self.checkpointed(f"{name}.json", directory, False), workers)
        up.wait_for_step(at_step)
        up.wait_for("two checkpoints", lambda: len(list(directory.glob("step-*"))) >= 2)
        pids = up.pids()
        up.process.kill()
        up.process.wait()
        for pid in pids.values():  # the kernel ends them with their parent
            self.assertTrue(wait_until(lambda: not alive(pid)), "a process outlived its parent")
        return directory

    def test_same_number_of_workers_gives_the_same_bits(self):
        whole = self.up("whole", self.job("whole.json", steps=STEPS), 3)
        expected = self.check_complete(whole, STEPS)["parameters_sha256"]
        directory = self.cut_off("cut", 3, 130)
        resumed = self.up("resumed", self.checkpointed("resumed.json", directory, True), 3)
        summary = self.check_complete(resumed, STEPS)
        self.assertEqual(summary["parameters_sha256"], expected)
        self.assertGreater(resumed.steps()[0]["step"], 40, "it did not resume")

    def test_any_strategy_and_number_of_workers_goes_on(self):
        directory = self.directory / "checkpoints"
        fleets = [(4, {"stage": 3}), (6, {"stage": 1}), (2, {"stage": 0}), (1, {"stage": 2}),
                  (3, {"stage": 3, "replicas": 0})]
        steps = 0
        for number, (workers, strategy) in enumerate(fleets):
            steps += 60
            job = self.job(f"{number}.json", steps=steps, strategy=strategy, checkpoints={
                "directory": str(directory), "every": 25, "keep": 2, "resume": True})
            up = self.up(f"fleet-{number}", job, workers)
            self.assertEqual(up.wait(), 0, up.text())
            self.assertEqual(up.steps()[0]["step"], steps - 59, "it did not resume")
            final = pathlib.Path(up.summary()["checkpoint"])
            self.assertEqual(final.name, f"step-{steps:08}")
            # Each worker wrote its part, and there is no trace of that but the number of files.
            files = sorted(file.name for file in final.glob("model-*.safetensors"))
            self.assertEqual(len(files), min(workers, len(files)), files)
            self.assertGreaterEqual(len(files), min(workers, 2), files)
            self.assertEqual(list(final.glob("part-*")) + list(directory.glob(".*")), [])

    def test_a_writer_that_dies_while_it_saves_costs_no_checkpoint(self):
        directory = self.directory / "checkpoints"
        steps = 3 * STEPS
        job = self.job(steps=steps, strategy={"stage": 3}, checkpoints={
            "directory": str(directory), "every": 5, "keep": 3})
        up = self.up("killed", job, 4, "--respawn")
        for victim in ("worker-2", "worker-0"):
            up.wait_for("a checkpoint", lambda: list(directory.glob("step-*")))
            # One that is being written.
            up.wait_for("a part", lambda: list(directory.glob(".tmp-*/*.safetensors")))
            os.kill(up.pids()[victim], signal.SIGKILL)
            up.wait_for_step(up.steps()[-1]["step"] + 20)
        self.check_complete(up, steps)
        for path in directory.glob("step-*"):
            manifest = json.loads((path / "manifest.json").read_text())
            for file in manifest["files"]:
                data = (path / file["name"]).read_bytes()
                self.assertEqual(hashlib.sha256(data).hexdigest(), file["sha256"], path)
        self.assertEqual(list(directory.glob(".tmp-*")), [])

    def test_corrupt_checkpoint_is_named_and_the_one_before_is_used(self):
        directory = self.cut_off("cut", 2, 130)
        before, newest = sorted(directory.glob("step-*"))[-2:]
        model = sorted(newest.glob("model-*.safetensors"))[0]
        data = bytearray(model.read_bytes())
        data[-100] ^= 1
        model.write_bytes(data)
        resumed = self.up("resumed", self.checkpointed("resumed.json", directory, True), 4)
        self.check_complete(resumed, STEPS)
        logs = "".join(file.read_text() for file in resumed.run_directory.glob("logs/*"))
        self.assertIn(model.name, logs)
        self.assertEqual(resumed.steps()[0]["step"], int(before.name.split("-")[1]) + 1)

    def test_a_directory_of_which_nothing_is_intact_is_refused(self):
        directory = self.cut_off("cut", 2, 130)
        steps = sorted(directory.glob("step-*"))
        for step in steps:
            (step / "manifest.json").write_bytes((step / "manifest.json").read_bytes()[:-9])
        up = self.up("resumed", self.checkpointed("resumed.json", directory, True), 2)
        self.assertEqual(up.wait(), 1)
        for step in steps:
            self.assertIn(step.name, up.text())
        self.assertIn("can be resumed from", up.text())
        self.assertEqual(sorted(directory.glob("step-*")), steps)

    def test_checkpoint_of_another_job_is_refused(self):
        directory = self.cut_off("cut", 2, 130)
        job = self.checkpointed("other.json", directory, True)
        other = json.loads(job.read_text())
        other["model"] = {"mlp": {"hidden": [64]}}
        job.write_text(json.dumps(other))
        up = self.up("other", job, 2)
        self.assertEqual(up.wait(), 1)
        self.assertIn("another", up.text())

    def test_resuming_where_the_job_has_ended_is_refused(self):
        directory = self.directory / "ended"
        self.check_complete(
            self.up("ended", self.checkpointed("ended.json", directory, False), 2), STEPS)
        again = self.up("again", self.checkpointed("again.json", directory, True), 2)
        self.assertEqual(again.wait(), 1)
        self.assertIn(f"holds step {STEPS} already", again.text())

    def test_final_checkpoint_is_complete_and_opens_as_safetensors(self):
        directory = self.directory / "final"
        up = self.up("final", self.checkpointed("final.json", directory, False), 2)
        summary = self.check_complete(up, STEPS)
        final = pathlib.Path(summary["checkpoint"])
        manifest = json.loads((final / "manifest.json").read_text())
        self.assertEqual(manifest["parameters_sha256"], summary["parameters_sha256"])
        index = json.loads((final / "model.safetensors.index.json").read_text())
        for name, file in index["weight_map"].items():
            raw = (final / file).read_bytes()
            size = int.from_bytes(raw[:8], "little")
            header = json.loads(raw[8:8 + size])
            self.assertEqual(header[name]["dtype"], "F32")
        self.assertEqual(len(list(directory.glob("step-*"))), 5, "checkpoints.keep")
        self.assertEqual(list(directory.glob(".tmp*")), [])


if __name__ == "__main__":
    main()
