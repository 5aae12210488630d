"""What the commands say and how they exit, against a real coordinator and real workers."""

import json
import os
import pathlib
import resource
import subprocess

from harness import BINARIES, DaemonsTest, free_port, main, wait_until


class CommandsTest(DaemonsTest):

    def test_compute_threads_sleep_unless_told_otherwise(self):
        ready = self.directory / "ready.json"
        for given, policy in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
                              ({"GOMP_SPINCOUNT": "1000"}, None)):
            ready.unlink(missing_ok=True)
            clean = {name: value for name, value in os.environ.items()
                     if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
            worker = self.start("muster-worker", "--threads", 2, "--ready-file", ready,
                                "--coordinator", f"127.0.0.1:{free_port()}", env={**clean, **given})
            self.assertTrue(wait_until(ready.exists))
            environment = pathlib.Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
            found = [entry.partition(b"=")[2].decode() for entry in environment
                     if entry.startswith(b"OMP_WAIT_POLICY=")]
            self.assertEqual(found, [policy] if policy else [])
            worker.kill()

    def test_doctor_tells_about_host_and_coordinator(self):
        self.start_fleet(1)
        code, out, error = self.muster("doctor", "--json")
        self.assertEqual(code, 0, error)
        findings = {finding["subject"]: finding for finding in map(json.loads, out.splitlines())}
        self.assertIn("1 workers", findings["coordinator"]["found"])
        self.assertIn("cores", findings["machine"]["found"])
        self.address = f"127.0.0.1:{free_port()}"
        code, out, _ = self.muster("doctor")
        self.assertEqual(code, 1)
        self.assertIn("cannot be reached", out)

    def test_tune_shows_the_choice_for_each_size(self):
        def tune(*arguments):
            result = subprocess.run([BINARIES / "muster", "tune", *arguments],
                                    capture_output=True, text=True, timeout=60)
            return result.returncode, result.stdout, result.stderr

        arguments = ["--transport", "inproc,tcp", "--ranks", "2,3", "--bytes", "1KiB,64KiB"]
        code, out, error = tune(*arguments, "--json")
        self.assertEqual(code, 0, error)
        rows = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([(row["transport"], row["ranks"], row["bytes"]) for row in rows],
                         [(transport, ranks, size) for transport in ("inproc", "tcp")
                          for ranks in (2, 3) for size in (1 << 10, 64 << 10)])
        for row in rows:
            self.assertIn(row["algorithm"], [each["algorithm"] for each in row["candidates"]])
        code, out, error = tune(*arguments, "--explain")
        self.assertEqual(code, 0, error)
        self.assertIn("all-reduce of 64 KiB (f32) by 3 ranks over tcp", out)
        # The mesh has its own name, whichever word asks for it.
        code, out, error = tune("--transport", "shm,Shared-Memory,shared_memory", "--ranks", "2",
                                "--bytes", "1KiB", "--json")
        self.assertEqual(code, 0, error)
        self.assertEqual([json.loads(line)["transport"] for line in out.splitlines()], ["shm"] * 3)
        for wrong in (["--bytes", "7"], ["--collective", "all"], ["--transport", "pigeon"],
                      ["--transport", "grpc"], ["--ranks", "0"]):
            code, _, error = tune(*wrong)
            self.assertEqual(code, 2, error)
            self.assertIn(wrong[0], error)

    def test_a_file_beyond_its_limit_is_told_and_does_not_kill_the_command(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

        result = subprocess.run(
            [BINARIES / "muster", "tune", "--transport", "inproc", "--ranks", "2", "--bytes", "1KiB",
             "--cache", self.directory / "cache"],
            capture_output=True, text=True, timeout=60, preexec_fn=limit)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("File too large", result.stdout)

    def test_any_number_of_steps_is_a_job(self):
        for steps, said in ((1, "from 10 steps to 0"), (11, "")):
            up = self.up(f"steps-{steps}", self.job(), 1, "--steps", steps)
            self.assertEqual(up.wait(), 0, up.text())
            self.assertEqual(up.summary()["steps"], steps)
            self.assertEqual(up.text().count("the warm-up is shortened"), 1 if said else 0)
            self.assertIn(said, up.text())
            # The last line about the job carries its last step, not that of the view's start.
            ended = [line for line in up.text().splitlines() if "is succeeded" in line]
            self.assertEqual(len(ended), 1, up.text())
            self.assertIn(f", step {steps})", ended[0])

    def test_a_coordinator_that_stays_away_is_given_up(self):
        self.address = f"127.0.0.1:{free_port()}"
        coordinator = self.start("muster-coordinator", "--listen", self.address,
                                 stdout=self.log_file("coordinator"))
        self.assertTrue(wait_until(lambda: self.muster("status")[0] == 0))
        job = self.submit(self.job())
        followers = [self.start("muster", *command, "--coordinator", self.address,
                                "--reconnect-s", 1)
                     for command in (["watch", job], ["submit", "--wait", self.job()])]
        # Each has been told how its job is.
        self.assertIn("small starting: waiting for workers", followers[0].stdout.readline())
        self.assertIn("submitted small as", followers[1].stdout.readline())
        self.assertIn(f"small queued: waits for the end of {job}", followers[1].stdout.readline())
        coordinator.kill()
        for follower in followers:
            text, _ = follower.communicate(timeout=60)
            self.assertEqual(follower.returncode, 1, text)
            self.assertEqual(text.count("connection lost"), 1, text)
            self.assertEqual(text.count("muster: gave up following"), 1, text)
            self.assertIn("after 1s without its coordinator", text)

    def test_a_submission_that_is_repeated_finds_its_job(self):
        self.start_fleet(0)
        job, other = self.job(), self.job("other.json", steps=20)
        first, second, third = (self.muster("submit", *request, job) for request in (
            ["--request-id", "mine"], ["--request-id", "mine"], []))
        self.assertEqual((first[0], second[0], third[0]), (0, 0, 0))
        self.assertEqual(first[1], second[1])
        self.assertNotEqual(first[1], third[1])
        for request, refusal in (("mine", 'request_id "mine" has made job'), ("x" * 129, "128")):
            code, _, error = self.muster("submit", "--request-id", request, other)
            self.assertNotEqual(code, 0)
            self.assertIn(refusal, error)

    def test_a_job_starts_with_fewer_when_its_start_timeout_is_over(self):
        self.start_fleet(1)
        # By default the second worker would be waited for beyond this test's patience.
        job = self.submit(self.job(steps=20, workers={
            "min": 1, "start": 2, "start_timeout_ms": 300}))
        self.assertTrue(wait_until(lambda: self.status(job)["state"] == "succeeded", 20))

    def test_an_answer_that_is_lost_is_a_failure(self):
        self.start_fleet(1)
        job = self.submit(self.job(steps=20))
        self.assertEqual(self.muster("watch", job)[0], 0)
        with open("/dev/full", "w") as full:
            for command in (["status"], ["status", "--json"], ["status", job],
                            ["status", job, "--json"], ["members"], ["members", "--json"],
                            ["watch", job], ["watch", job, "--json"]):
                code, _, error = self.muster(*command, stdout=full)
                self.assertEqual(code, 1, command)
                self.assertEqual(error, "muster: cannot write the output: "
                                        "No space left on device\n", command)
            code, _, error = self.muster("submit", self.job(steps=20), stdout=full)
            self.assertEqual(code, 1)
            queued = json.loads(self.muster("status", "--json")[1].splitlines()[0])["id"]
            self.assertIn(f"the job is queued as {queued}: cannot write the output", error)
            for program in ("muster", "muster-coordinator", "muster-worker"):
                for flag in ("--help", "--version"):
                    result = subprocess.run([BINARIES / program, flag], stdout=full,
                                            stderr=subprocess.PIPE, text=True, timeout=60)
                    self.assertEqual(result.returncode, 1, (program, flag))
                    self.assertRegex(result.stderr, f"^{program}: cannot write the output.*\n$")

    def test_cancel_says_what_it_did(self):
        self.start_fleet(1)
        ended = self.submit(self.job(steps=20))
        self.assertEqual(self.muster("watch", ended)[0], 0)
        code, out, error = self.muster("cancel", ended)
        self.assertEqual((code, out), (1, ""))
        self.assertIn(f"{ended} has already ended (succeeded", error)
        code, out, error = self.muster("cancel", ended, "--json")
        self.assertEqual((code, json.loads(out)["state"]), (1, "succeeded"))

        running = self.submit(self.job(steps=100000))
        self.assertTrue(wait_until(lambda: self.status(running)["state"] == "running"))
        self.assertEqual(self.muster("cancel", running)[:2], (0, f"{running} is cancelled\n"))
        self.assertEqual(self.muster("cancel", running)[0], 1)

        code, _, error = self.muster("cancel", "nobody")
        self.assertEqual(code, 1)
        self.assertIn("muster status", error)
        self.assertNotIn("ListJobs", error)

    def test_cancelling_looks_like_no_fault(self):
        self.start_fleet(3)
        for turn in range(5):
            job = self.submit(self.job(steps=100000, communication={
                "transport": "tcp" if turn % 2 == 0 else "shared_memory"}))
            self.assertTrue(wait_until(
                lambda: self.status(job).get("progress", {}).get("step", 0) > 5))
            self.assertEqual(self.muster("cancel", job)[0], 0)
            self.assertTrue(wait_until(
                lambda: all(member["phase"] == "idle" for member in self.members())))
        for log in self.logs:
            lines = self.lines(log)
            self.assertEqual(len([line for line in lines if line["event"] == "job_ended"]), 5)
            # It may have started before the coordinator listened, and the machine may be slow.
            self.assertEqual([line for line in lines if line["level"] in ("warning", "error")
                              and line["event"] not in ("detached", "collective_late")], [])

    def test_what_was_not_evaluated_has_no_accuracy(self):
        self.start_fleet(1)
        file = self.job(steps=20)
        described = json.loads(file.read_text())
        for field in ("test_images", "test_labels"):
            del described["data"]["idx"][field]
        file.write_text(json.dumps(described))
        job = self.submit(file)
        self.assertEqual(self.muster("watch", job)[0], 0)
        status = self.status(job)
        self.assertEqual(status["progress"]["step"], 20)
        for progress in (status["progress"], status["final_report"]["progress"]):
            self.assertNotIn("test_accuracy", progress)
            self.assertNotIn("test_loss", progress)


if __name__ == "__main__":
    main()
