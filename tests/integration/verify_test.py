"""`muster verify` and `muster-checkpoint`: runs that are equal, and runs that are made to differ."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

from harness import BINARIES, FleetTest, main, wait_until, write_idx

STEPS = 8


def run(*command, stdout=subprocess.PIPE, **options):
    result = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=stdout,
                            stderr=subprocess.PIPE, text=True, timeout=300, **options)
    return result.returncode, result.stdout, result.stderr


class VerifyTest(FleetTest):

    def verify(self, *arguments, binaries=BINARIES):
        """Exit code, output and the JSON written."""
        out = self.directory / "out.json"
        code, text, error = run(
            binaries / "muster", "verify", "--steps", STEPS, "--json", out, "--run-directory",
            self.directory / "runs", *arguments, cwd=self.directory)
        return code, text + error, json.loads(out.read_text()) if out.exists() else None

    def small_job(self, name="job.json", mlp={"hidden": [32]}, **training):
        # Several micro-batches for each worker, and the data where a worker is started.
        data = {"idx": {"train_images": "train-images", "train_labels": "train-labels",
                        "classes": 3}}
        return self.job(name, data=data, model={"mlp": mlp},
                        training={"global_batch": 240, "micro_batch": 20, **training})

    def test_all_strategies_switches_and_deaths_end_with_the_same_bits(self):
        code, text, found = self.verify("--job", self.small_job(), "--workers", 3, "--servers", 1,
                                        "--transport", "shm", "--seed", 5)
        self.assertEqual(code, 0, text)
        self.assertTrue(found["equal"])
        runs = {each["name"]: each for each in found["runs"]}
        self.assertEqual(len(runs), 9 + 4)
        self.assertEqual(len({each["parameters_sha256"] for each in runs.values()}), 1)
        self.assertEqual({each["steps"] for each in runs.values()}, {STEPS})
        self.assertEqual([each["verdict"] for each in found["runs"]],
                         ["reference"] + ["equal"] * 12, text)
        for name in ("switches-1", "switches-2", "switches-kill-moving", "switches-kill-training"):
            self.assertEqual(len(runs[name]["switches"]), 3)
        for name in ("switches-kill-moving", "switches-kill-training"):
            each = runs[name]
            self.assertGreaterEqual(each["killed_after_step"], each["switches"][0]["after_step"])
            self.assertIn(f"{each['killed_worker']} killed after step", text)
        self.assertIn("13 of 13 runs have equal bits", text)
        self.assertIn(found["runs"][0]["parameters_sha256"][:12] + "  reference", text)

    def test_norms_of_tensors_and_tied_weights_end_with_the_same_bits(self):
        job = self.small_job(
            mlp={"hidden": [23, 9, 23], "tie_weights": True}, clip_norm=0.5,
            optimizer={"lamb": {"always_adapt": True}, "weight_decay": 0.1,
                       "groups": [{"tensors": ["fc1.bias"], "frozen": True}]})
        code, text, found = self.verify("--job", job, "--workers", 3, "--servers", 2,
                                        "--transport", "shm", "--seed", 9)
        self.assertEqual(code, 0, text)
        self.assertEqual([each["verdict"] for each in found["runs"]],
                         ["reference"] + ["equal"] * 12, text)

    def test_compressed_gradients_end_with_the_same_bits(self):
        hashes = set()
        for gradients, killed in (({"gradients": "int8"}, "equal"),
                                  ({"gradients": "top_k", "top_k_fraction": 0.05}, "skipped")):
            job = self.small_job()
            described = json.loads(job.read_text())
            described["communication"] = gradients
            job.write_text(json.dumps(described))
            code, text, found = self.verify("--job", job, "--workers", 3, "--servers", 1,
                                            "--transport", "shm", "--seed", 6)
            self.assertEqual(code, 0, text)
            runs = {each["name"]: each for each in found["runs"]}
            verdicts = {name: each["verdict"] for name, each in runs.items()}
            self.assertEqual(verdicts, {
                "ring-shm": "reference", "direct-shm": "equal", "window-shm": "skipped",
                "stage-1-shm": "equal", "stage-2-shm": "equal", "stage-3-shm": "equal",
                "servers-on-workers-shm": "equal", "servers-dedicated-shm": "equal",
                "servers-mixed-shm": "equal", "switches-1": "equal", "switches-2": "equal",
                "switches-kill-moving": killed, "switches-kill-training": killed}, text)
            self.assertIn("exchanged directly", runs["window-shm"]["reason"])
            if killed == "skipped":
                self.assertIn("is lost with it", runs["switches-kill-moving"]["reason"])
            hashes.add(found["runs"][0]["parameters_sha256"])
            shutil.rmtree(self.directory / "runs")
        self.assertEqual(len(hashes), 2)

    def binaries_with_worker(self, script):
        """A directory of binaries whose muster-worker is a shell script."""
        binaries = self.directory / "bin"
        binaries.mkdir()
        for name in ("muster", "muster-coordinator", "muster-checkpoint"):
            shutil.copy(BINARIES / name, binaries / name)
        (binaries / "muster-worker").write_text("#!/bin/sh\n" + script)
        (binaries / "muster-worker").chmod(0o755)
        return binaries

    def test_a_run_that_stalls_fails_and_says_where(self):
        # The workers run, and never come.
        code, text, found = self.verify(
            "--job", self.small_job(), "--workers", 2, "--servers", 0, "--transport", "tcp",
            "--stall-seconds", 1, binaries=self.binaries_with_worker("exec sleep 600\n"))
        self.assertEqual(code, 1, text)
        self.assertFalse(found["equal"])
        ran = [each for each in found["runs"] if each["verdict"] != "skipped"]
        self.assertEqual({each["verdict"] for each in ran}, {"failed"}, text)
        for each in ran:
            self.assertIn("no progress for 1s: it is starting.", each["reason"])

    def test_a_run_that_differs_is_located(self):
        # Under stage 2 workers read data of which one pixel is another; under stage 1 only when
        # they run for the first time.
        other = self.directory / "other"
        other.mkdir()
        write_idx(other, "train", 1500, seed=1)
        images = bytearray((other / "train-images").read_bytes())
        images[-70] ^= 0x7f
        (other / "train-images").write_bytes(images)
        binaries = self.binaries_with_worker(
            f'case "$*" in *stage-2-tcp*|*"/stage-1-tcp "*) cd "{other}" ;; esac\n'
            f'exec "{BINARIES / "muster-worker"}" "$@"\n')

        code, text, found = self.verify("--job", self.small_job(), "--workers", 2, "--servers", 0,
                                        "--transport", "tcp", binaries=binaries)
        self.assertEqual(code, 1, text)
        self.assertFalse(found["equal"])
        runs = {each["name"]: each for each in found["runs"]}
        self.assertEqual({name: each["verdict"] for name, each in runs.items()}, {
            "ring-tcp": "reference", "direct-tcp": "equal", "stage-1-tcp": "differs",
            "stage-2-tcp": "differs", "stage-3-tcp": "equal", "servers-on-workers-tcp": "equal",
            "servers-dedicated-tcp": "skipped", "servers-mixed-tcp": "skipped",
            "switches-1": "equal", "switches-2": "equal", "switches-kill-moving": "equal",
            "switches-kill-training": "equal"}, text)
        self.assertIn("--servers is 0", runs["servers-mixed-tcp"]["reason"])
        self.assertIn("a rerun with checkpoints ended with equal bits",
                      runs["stage-1-tcp"]["difference"]["problem"])

        difference = runs["stage-2-tcp"]["difference"]
        self.assertIn("step", difference, text)
        # Of 1500 samples every one is read within seven steps of 240.
        self.assertIn(difference["step"], range(1, 8))
        # The step before, unless its checkpoint was skipped or given up for the next one.
        self.assertLess(difference["last_equal_step"], difference["step"], text)
        self.assertEqual(difference["strategy"], "stage 2, 1 replica, tcp")
        self.assertEqual(difference["what"], "values")
        self.assertNotEqual(*difference["bits"])
        self.assertIn(f"differs after step {difference['step']}", text)
        # The program that users have says the same.
        code, out, error = run(BINARIES / "muster-checkpoint", "diff", "--json",
                               *difference["checkpoints"])
        self.assertEqual(code, 1, error)
        said = json.loads(out)
        self.assertEqual({each["step"] for each in said["checkpoints"]}, {difference["step"]})
        first = said["differences"][0]
        self.assertEqual((first["tensor"], first["first"], first["bits"]),
                         (difference["tensor"], difference["element"], difference["bits"]))
        for path in difference["checkpoints"]:
            self.assertTrue(pathlib.Path(path).is_dir())

    def test_what_cannot_be_verified_is_one_clear_error(self):
        job = self.small_job()
        few = self.small_job("few.json")
        described = json.loads(few.read_text())
        described["workers"] = {"min": 5}
        few.write_text(json.dumps(described))
        described["workers"] = {"min": 1}
        described["communication"] = {"algorithm": "double_tree"}
        tree = self.directory / "tree.json"
        tree.write_text(json.dumps(described))
        for arguments, said in (
                ([], "--job"),
                (["--job", self.directory / "none.json"], "none.json"),
                (["--job", job, "--workers", 1], "--workers: expected at least 2, got 1"),
                (["--job", job, "--steps", 3], "--steps: expected at least 4"),
                (["--job", job, "--transport", "pigeon"], "--transport: expected tcp"),
                (["--job", job, "--json", self.directory / "no" / "where"], "--json"),
                (["--job", few], "workers.min"),
                (["--job", tree], "communication.algorithm")):
            code, text, found = self.verify(*arguments)
            self.assertEqual(code, 2, text)
            self.assertIn(said, text)
            self.assertEqual(text.count("\n"), 1, text)
            self.assertIsNone(found)

    def test_an_interrupt_ends_it_whatever_the_run_does(self):
        runs = self.directory / "runs"
        process = self.start("muster", "verify", "--job", self.small_job(), "--steps", STEPS,
                             "--run-directory", runs, cwd=self.directory)
        self.assertTrue(wait_until((runs / "direct-tcp").exists))
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, text)
        self.assertIn("interrupted", text)
        self.assertFalse((runs / "switches-1").exists())

    def test_checkpoints_are_compared(self):
        def trained(name, **changes):
            up = self.up(name, self.job(f"{name}.json", steps=5, learning_rate={"peak": 1e-3},
                                        **changes), 2)
            self.assertEqual(up.wait(), 0, up.text())
            return pathlib.Path(up.summary()["checkpoint"])

        def diff(*arguments, **options):
            return run(BINARIES / "muster-checkpoint", "diff", *arguments, **options)
        one, same, other = (trained("one"), trained("same", strategy={"stage": 3}),
                            trained("other", seed=8))
        code, out, error = diff(one, same)
        self.assertEqual(code, 0, error)
        self.assertIn("equal bit for bit", out)
        code, out, error = diff(one, other, "--json")
        self.assertEqual(code, 1, error)
        differences = json.loads(out)["differences"]
        self.assertIn("fc1.weight", [each["tensor"] for each in differences])
        self.assertNotEqual(*differences[0]["bits"])
        with open("/dev/full", "w") as full:
            self.assertEqual(diff(one, same, stdout=full)[0], 2)
        self.assertEqual(diff(one)[0], 2)
        self.assertEqual(diff(one, self.directory / "nowhere")[0], 2)
        damaged = sorted(same.glob("model-*.safetensors"))[0]
        with open(damaged, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        code, out, error = diff(one, same)
        self.assertEqual((code, out), (2, ""))
        self.assertIn(damaged.name, error)


if __name__ == "__main__":
    main()
