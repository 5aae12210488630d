"""Two fleets name one checkpoint directory: it is the one's that began last, and nobody's files are lost."""

import hashlib
import json
import subprocess

from harness import BINARIES, FleetTest, PATIENCE_S, main, wait_until

STEPS = 100_000  # more than the first fleet takes


class SharedDirectoryTest(FleetTest):

    def setUp(self):
        super().setUp()
        self.checkpoints = self.directory / "checkpoints"

    def fleet(self, name, steps, strategy):
        job = self.job(f"{name}.json", steps=steps, strategy=strategy, checkpoints={
            "directory": str(self.checkpoints), "every": 20, "keep": 20, "resume": True})
        return self.up(name, job, 2)

    def owner(self):
        return json.loads((self.checkpoints / "owner.json").read_text())

    def newest_step(self):
        return max((int(path.name.split("-")[1]) for path in self.checkpoints.glob("step-*")),
                   default=0)

    def details(self, up):
        result = subprocess.run(
            [BINARIES / "muster", "status", "--coordinator", f"127.0.0.1:{up.port}",
             json.loads(up.status())["id"]],
            capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        return result.stdout

    def check_intact(self):
        paths = list(self.checkpoints.glob("step-*"))
        self.assertTrue(paths)
        for path in paths:
            for file in json.loads((path / "manifest.json").read_text())["files"]:
                data = (path / file["name"]).read_bytes()
                self.assertEqual(hashlib.sha256(data).hexdigest(), file["sha256"], path)

    def test_it_belongs_to_the_one_that_began_last(self):
        first = self.fleet("first", STEPS, {"stage": 3})
        first.wait_for("a checkpoint", lambda: self.newest_step() >= 20)
        taken_from = self.owner()

        steps = self.newest_step() + 500  # well beyond where the first is by then
        second = self.fleet("second", steps, {"stage": 2})
        second.wait_for("the directory", lambda: self.owner() != taken_from)
        owner = self.owner()
        self.assertNotEqual(owner["job"], taken_from["job"])
        # The first one says so, once it wants to save, and trains on.
        first.wait_for("a failed checkpoint",
                       lambda: json.loads(first.status()).get("failed_checkpoints"))
        seen = first.steps()[-1]["step"]
        failed = json.loads(first.status())["failed_checkpoints"]
        for failure in failed:
            self.assertIn(f"by job {owner['job']} of fleet {owner['fleet']}", failure["error"])
            self.assertIn(str(self.checkpoints), failure["error"])
        self.assertIn("checkpoint failed", self.details(first))
        first.wait_for_step(seen + 50)
        self.assertEqual(second.wait(), 0, second.text())
        self.assertGreater(second.steps()[0]["step"], 20, "it did not resume")
        first.wait_for_step(first.steps()[-1]["step"] + 30)

        # It has neither published nor removed anything, nor left parts of what it wanted to save.
        self.assertEqual(self.newest_step(), steps)
        self.assertEqual(self.owner(), owner)
        self.check_intact()
        self.assertTrue(wait_until(lambda: not list(self.checkpoints.glob(".*"))),
                        list(self.checkpoints.iterdir()))
        log = "".join(path.read_text() for path in first.run_directory.glob("logs/coordinator.log"))
        self.assertIn('"event":"checkpoint_failed"', log.replace(" ", ""))
        first.close()

        # Who comes after both goes on.
        third = self.fleet("third", steps + 20, {})
        self.assertEqual(third.wait(), 0, third.text())
        self.assertEqual(third.steps()[0]["step"], steps + 1)
        self.assertNotEqual(self.owner(), owner)
        self.check_intact()



if __name__ == "__main__":
    main()
