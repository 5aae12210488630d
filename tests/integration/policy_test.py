"""Policy auto: the coordinator chooses the strategy, and the bits are those of any other."""

import pathlib

from harness import DaemonsTest, main, wait_until

STEPS = 300
HIDDEN = [128] * 12  # blocks small beside the whole, so that stage 3 has something to free
PARAMETERS = 144 * 128 + 128 + 11 * (128 * 128 + 128) + 128 * 3 + 3


def stable_hash(text):
    """StableHash of base/random.h, by which a kept measurement says that it is whole."""
    value = 0xcbf29ce484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    for factor in (0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53):
        value = (value ^ value >> 33) * factor % 2**64
    return value ^ value >> 33


class PolicyTest(DaemonsTest):

    def job_with(self, name, strategy, workers, steps=STEPS, **changes):
        # One micro-batch for each worker: nothing is added up in a place of its own.
        return self.job(name, model={"mlp": {"hidden": HIDDEN}}, strategy=strategy,
                        workers={"min": workers, "start": workers},
                        training={"steps": steps, "micro_batch": 1200 // workers}, **changes)

    def reference(self, workers):
        up = self.up(f"reference-{workers}",
                     self.job_with(f"reference-{workers}.json", {}, workers), workers)
        self.assertEqual(up.wait(), 0, up.text())
        return up.summary()["parameters_sha256"]

    def end_of(self, job):
        code, _, error = self.muster("watch", job)
        status = self.status(job)
        self.assertEqual(code, 0, error)
        return status["final_report"]["parameters_sha256"]

    def start_limited(self, workers, bytes_per_parameter):
        self.start_fleet(0)
        memory = int(PARAMETERS * bytes_per_parameter)
        for number in range(workers):
            self.start_worker(f"w{number}", "--memory", memory)
        self.assertTrue(wait_until(lambda: len(self.members()) == workers))

    def strategy(self, job):
        def in_force():
            return self.status(job).get("view", {}).get("strategy")
        return wait_until(in_force)

    def test_little_memory_makes_it_choose_a_higher_stage(self):
        # Of three workers without replicas stage 2 takes about 10.5 bytes a parameter, stage 3 7.5.
        expected = self.reference(3)
        for bytes_per_parameter, stage in ((11.2, 2), (9, 3)):
            self.start_limited(3, bytes_per_parameter)
            job = self.submit(self.job_with("auto.json", {"policy": "AUTO", "replicas": 0}, 3))
            self.assertEqual(self.strategy(job)["stage"], stage)
            code, out, error = self.muster("explain", job)
            self.assertEqual(code, 0, error)
            self.assertIn("policy auto; 3 workers", out)
            self.assertIn("would take", out)
            self.assertIn("policy", self.muster("status", job)[1])
            code, _, error = self.muster("switch", job, "--stage", "0")
            self.assertEqual(code, 1, error)
            self.assertIn("replicated does not fit: worker w", error)
            self.assertIn("MiB", error)
            self.assertEqual(self.end_of(job), expected)

    def test_a_job_that_no_strategy_fits_fails_with_the_bytes_unless_there_are_servers(self):
        self.start_limited(2, 6)  # stage 3 takes about 10, beside servers a worker takes 5.1
        strategy = {"policy": "AUTO", "replicas": 0}
        job = self.submit(self.job_with("auto.json", strategy, 2))
        code, _, error = self.muster("watch", job)
        self.assertEqual(code, 1)
        self.assertIn("no strategy fits into memory", error)
        self.assertIn("would take", error)
        self.assertIn("parameter servers", error)
        self.start_worker("s0", "--role", "parameter-server")
        self.assertTrue(wait_until(lambda: len(self.members()) == 3))
        job = self.submit(self.job_with("auto.json", strategy, 2))
        self.assertEqual(self.strategy(job)["sync"], "parameter_server")
        self.assertEqual(self.end_of(job), self.reference(2))

    def test_servers_are_used_as_soon_as_links_are_known_to_make_that_faster(self):
        # Three hosts with links that are slow and shared by both directions: a kept measurement
        # of their mesh says so. All of it is replaced, since a busy machine measures anything.
        cache = self.directory / "models"
        steps = 3 * STEPS  # while the servers get ready

        def start_hosts():
            self.start_fleet(0)
            for number in range(3):
                self.start_worker(f"w{number}", "--host", f"host-{number}", "--model-cache", cache)
            self.assertTrue(wait_until(lambda: len(self.members()) == 3))
        start_hosts()
        strategy = {"policy": "AUTO", "replicas": 0, "transport": "TCP"}
        expected = self.end_of(self.submit(self.job_with("measured.json", strategy, 3, steps)))
        models = list(pathlib.Path(cache).iterdir())
        self.assertEqual(len(models), 1, models)
        mesh, _, *lines = models[0].read_text().splitlines()
        slow = []
        for line in lines:
            words = line.split()
            if words[0] in ("latency", "message"):
                words[1] = "1e-6"
            elif words[0] in ("wire", "one-way", "reduce"):
                words[2] = {"wire": "1e-7", "one-way": "5e-8", "reduce": "1e-10"}[words[0]]
            if words[0] != "factor":
                slow.append(" ".join(words) + "\n")
        self.assertTrue(any(line.startswith("one-way") for line in slow), slow)
        text = "".join(slow)
        models[0].write_text(f"{mesh}\nchecksum {stable_hash(text):016x}\n{text}")

        start_hosts()
        for number in range(2):
            self.start_worker(f"s{number}", "--role", "parameter-server",
                              "--host", f"server-host-{number}", "--model-cache", cache)
        self.assertTrue(wait_until(lambda: len(self.members()) == 5))
        job = self.submit(self.job_with("auto.json", strategy, 3, steps))
        self.assertEqual(self.end_of(job), expected)
        changes = self.status(job)["view_changes"]
        self.assertEqual(changes[0].get("servers", 0), 0, "nothing is known before the first view")
        self.assertIn(2, [change.get("servers", 0) for change in changes],
                      (changes, self.muster("explain", job)[1], text))
        self.assertNotIn("death", [change["cause"] for change in changes])


if __name__ == "__main__":
    main()
