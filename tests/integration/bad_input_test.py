"""Wrong input gives one clear line, the right exit code, and never a crash or a hang."""

import gzip
import json
import pathlib
import signal
import socket
import subprocess

from harness import BINARIES, FleetTest, alive, free_port, main, wait_until


class BadInputTest(FleetTest):

    def run_program(self, *arguments):
        result = subprocess.run([BINARIES / arguments[0], *map(str, arguments[1:])],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=60)
        return result.returncode, result.stdout + result.stderr

    def expect(self, code, words, *arguments):
        got, text = self.run_program(*arguments)
        self.assertEqual(got, code, text)
        for word in words:
            self.assertIn(word, text)
        self.assertNotIn("terminate called", text)
        self.assertNotIn("check failed", text)

    def up_arguments(self, job):
        return ("muster", "up", "--job", job, "--workers", "2", "--run-directory",
                self.directory / "run")

    def edited(self, edit):
        file = self.job("edited.json")
        job = json.loads(file.read_text())
        edit(job)
        file.write_text(json.dumps(job))
        return file

    def test_wrong_flags(self):
        for program in (["muster", "up"], ["muster-coordinator"], ["muster-worker"]):
            self.expect(2, ["--no-such-flag"], *program, "--no-such-flag")
        self.expect(2, ["subcommand"], "muster")
        self.expect(2, ["trian", "expected one of up, submit"], "muster", "trian")
        self.expect(2, ["--job", "must not be empty"], "muster", "up", "--job", "")
        self.expect(2, ["--steps", "--job"], "muster", "up", "--steps", "5")
        self.expect(2, ["--lease-ms", "twice"], "muster", "up", "--lease-ms", "499")
        self.expect(2, ["nonsense"], "muster", "members", "--coordinator", "nonsense")
        self.expect(2, ["--name", "a b"], "muster-worker", "--name", "a b")
        self.expect(2, ["--metrics-listen", "localhost:0"], "muster-coordinator",
                    "--metrics-listen", "localhost:0")
        self.expect(2, ["listen"], "muster-coordinator", "--listen", "nonsense")
        self.expect(2, ["threads"], "muster-worker", "--threads", "0")
        self.expect(2, ["--device", "quantum", "cpu"], "muster-worker", "--device", "quantum")
        for flag in ("--mesh-timeout-ms", "--final-checkpoint-timeout-ms", "--connect-timeout-ms"):
            for value in ("0", "-1", "3600001", "soon", "1.5"):
                self.expect(2, [flag], "muster-worker", f"{flag}={value}")

    def test_each_wrong_value_is_told_with_its_flag(self):
        number = ["", "-1", "99999999999999999999", "soon", "1.5"]
        address = ["", "-1", "nowhere", "here:port", "127.0.0.1:65536"]
        word = ["", "-1", "nonsense"]
        up = ("up", "--run-directory", self.directory / "run")
        for program, wrong in (
                (("muster", *up), {
                    "--workers": number, "--threads": number, "--steps": number,
                    "--heartbeat-ms": number, "--lease-ms": number, "--listen": address,
                    "--log-level": word, "--job": ["", "-1", "no-ending", "nowhere.json"],
                    "--summary-json": [""], "--pid-file": ["", "/no/such/directory/file"]}),
                (("muster", "verify", "--job", self.job("verified.json")), {
                    "--seed": ["", "-1", "soon", "1.5"]}),
                (("muster", "watch", "job"), {"--reconnect-s": number}),
                (("muster", "members"), {"--coordinator": [*address, "127.0.0.1:0"]}),
                (("muster-coordinator",), {
                    "--heartbeat-ms": number, "--lease-ms": number, "--max-workers": number,
                    "--orphan-timeout-ms": number, "--listen": address, "--log-level": word,
                    "--metrics-listen": [*address, "localhost:0"], "--log-format": word,
                    "--fleet-id": [""], "--ready-file": [""]}),
                (("muster-worker",), {
                    "--threads": number, "--connect-timeout-ms": number, "--listen-data": address,
                    "--mesh-timeout-ms": number, "--final-checkpoint-timeout-ms": number,
                    "--listen-rpc": address, "--metrics-listen": [*address, "localhost:0"],
                    "--coordinator": [*address, "127.0.0.1:0"], "--name": ["", "-", "a b"],
                    "--advertise": ["", "x" * 70], "--device": word, "--log-format": word,
                    "--log-level": word, "--run-directory": [""], "--ready-file": [""]})):
            for flag, values in wrong.items():
                for value in values:
                    with self.subTest(program=program[0], flag=flag, value=value):
                        self.expect(2, [flag, value], *program, flag, value)
        self.expect(2, ["--fleet-id", "at most 128 bytes, got 129"], "muster-coordinator",
                    "--fleet-id", "x" * 129)
        self.expect(2, ["--fleet-id", "without control characters"], "muster-coordinator",
                    "--fleet-id", "a\tb")
        for command in ("submit", "watch", "status", "cancel"):
            self.expect(2, ["must not be empty", f"see muster {command} --help"], "muster", command,
                        "")
        self.expect(1, ["--run-directory", "/dev/null/run"], "muster", "up", "--run-directory",
                    "/dev/null/run")

    def test_wrong_names_to_advertise(self):
        nobody = "x" * 70  # too long for a name: known without asking anybody
        self.expect(2, [nobody, "neither an IP address nor an interface"],
                    "muster-worker", "--advertise", nobody)
        self.expect(2, ["'localhost'", "only for a loopback address"], "muster-worker",
                    "--listen-data", "0.0.0.0:0", "--advertise", "localhost")

    def test_wrong_job_files(self):
        self.expect(2, ["nowhere.yaml"], *self.up_arguments("nowhere.yaml"))
        yaml = self.directory / "bad.yaml"
        yaml.write_text("name: x\ntraining:\n  batch: 3\n")
        self.expect(2, ["bad.yaml:3", "training.batch"], *self.up_arguments(yaml))
        yaml.write_text("name: [unclosed\n")
        self.expect(2, ["bad.yaml"], *self.up_arguments(yaml))

        good = pathlib.Path("examples/fashion-mnist-mlp.yaml").read_text()
        for value in (".nan", ".inf", "-1", "0", "fast"):
            yaml.write_text(good.replace("peak: 3e-3", f"peak: {value}"))
            self.expect(2, ["bad.yaml", "training.learning_rate.peak"], *self.up_arguments(yaml))

        def batch(job):
            job["training"]["micro_batch"] = 7
        self.expect(2, ["training.global_batch"], *self.up_arguments(self.edited(batch)))

        def crowd(job):
            job["workers"] = {"min": 5000}
        self.expect(2, ["workers.min"], *self.up_arguments(self.edited(crowd)))

    def test_missing_truncated_and_corrupt_data(self):
        def missing(job):
            job["data"]["idx"]["train_images"] = "/nowhere/images"
        self.expect(1, ["/nowhere/images"], *self.up_arguments(self.edited(missing)))

        images = (self.directory / "train-images").read_bytes()
        cut = self.directory / "cut-images"
        cut.write_bytes(images[:5000])

        def truncated(job):
            job["data"]["idx"]["train_images"] = str(cut)
        self.expect(1, ["cut-images"], *self.up_arguments(self.edited(truncated)))

        packed = bytearray(gzip.compress(images))
        packed[len(packed) // 2] ^= 0xff
        cut.write_bytes(packed)
        self.expect(1, ["cut-images"], *self.up_arguments(self.edited(truncated)))

    def test_loss_that_stays_nan_ends_the_job(self):
        job = self.job("nan.json", training={
            "optimizer": {"sgd": {}}, "max_nonfinite_steps": 3,
            "learning_rate": {"peak": 1e30}})
        summary = self.directory / "summary.json"
        self.expect(1, ["3 steps in a row", "learning_rate"], *self.up_arguments(job),
                    "--summary-json", summary)
        metrics, = (self.directory / "run").glob("*/metrics.jsonl")
        steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()
                 if json.loads(line)["kind"] == "step"]
        # The step that ended it, which another worker may have applied before rank 0 could.
        written = json.loads(summary.read_text())
        self.assertIn(f"the last being step {written['steps']} ", written["reason"])
        self.assertIn(max(steps), (written["steps"] - 1, written["steps"]))

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.expect(1, ["--listen", address], "muster-coordinator", "--listen", address)
            self.expect(1, ["--metrics-listen", address], "muster-coordinator",
                        "--listen", "127.0.0.1:0", "--metrics-listen", address)
            for flag in ("--listen-rpc", "--listen-data", "--metrics-listen"):
                self.expect(1, [flag, address.split(":")[1]], "muster-worker", flag, address)

    def test_coordinator_not_reachable(self):
        address = f"127.0.0.1:{free_port()}"
        self.expect(1, [address], "muster-worker", "--coordinator", address,
                    "--connect-timeout-ms", "700")
        for command in (["status"], ["members"], ["watch", "x"], ["cancel", "x"],
                        ["submit", self.job()]):
            self.expect(1, [address, f"Start one with: muster-coordinator --listen {address}"],
                        "muster", *command, "--coordinator", address)
        # Who is elsewhere, or nowhere, is not to be started here.
        for command in (["status"], ["watch", "x"]):
            code, text = self.run_program("muster", *command, "--coordinator",
                                          "nohost.invalid:7070")
            self.assertEqual(code, 1, text)
            self.assertIn("nohost.invalid", text)
            self.assertNotIn("Start one", text)


class TearDownTest(FleetTest):

    def test_interrupt_leaves_no_process(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            directory = self.directory / f"checkpoints-{number}"
            up = self.up(f"signal-{number}", self.job(steps=100000, checkpoints={
                "directory": str(directory), "every": 20}), 3)
            up.wait_for("a checkpoint", lambda: list(directory.glob("step-*")))
            up.wait_for_step(60)
            pids = up.pids()
            self.assertEqual(len(pids), 4)
            up.process.send_signal(number)
            self.assertNotEqual(up.wait(), 0)
            if number != signal.SIGKILL:
                self.assertRegex(up.text(), r"job +small \(.*\) cancelled")
                self.assertIn(str(directory / "step-"), up.summary()["checkpoint"])
            for name, pid in pids.items():
                self.assertTrue(wait_until(lambda: not alive(pid)), f"{name} outlived muster up")


if __name__ == "__main__":
    main()
