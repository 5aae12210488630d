"""A running job explains its communication: the path it takes, who holds it up, what each rank does."""

import json
import resource
import signal
import urllib.request

from harness import DaemonsTest, free_port, main, wait_until

ALGORITHMS = ("ring", "direct", "recursive_doubling", "halving_doubling", "double_tree",
              "hierarchical", "star", "one_shot")


class ExplainTest(DaemonsTest):

    def start_job(self, steps=100000, **changes):
        """Submits a job for all workers there are, and waits until it takes steps."""
        workers = {"min": 1, "start": len(self.workers)}
        job = self.submit(self.job(steps=steps, workers=workers, **changes))
        self.assertTrue(wait_until(
            lambda: self.status(job).get("progress", {}).get("step", 0) > 15), self.status(job))
        return job

    def ranks(self, job):
        """Workers' names in rank order."""
        return [member["name"] for member in self.status(job)["view"]["members"]]

    def metrics(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            return response.read().decode()

    def await_path(self, job, ranks, transport):
        """The one path of so many ranks, algorithms included."""
        def path():
            paths = self.status(job)["paths"]
            if len(paths) == 1 and paths[0]["ranks"] == list(range(ranks)):
                path = paths[0]["path"]
                return path["transport"] == transport and path["algorithms"] and paths[0]
            return None
        found = wait_until(path)
        self.assertTrue(found, self.status(job)["paths"])
        return found

    def events(self, log, event):
        return [line["fields"] for line in self.lines(log) if line["event"] == event]

    # ---- the path ----

    def test_the_path_is_shown_and_changes_with_the_view(self):
        metrics = free_port()
        self.start_fleet(1)
        self.start_worker("metered", "--metrics-listen", f"127.0.0.1:{metrics}",
                          "--run-directory", self.directory / "run")
        self.assertTrue(wait_until(lambda: len(self.members()) == 2))
        job = self.start_job()
        path = self.await_path(job, 2, "shm")
        self.assertIn("all 2 ranks share a host", path["path"]["why"])
        [use] = path["path"]["algorithms"]
        self.assertEqual((use["collective"], use["algorithm"], use["automatic"]),
                         ("all-reduce", "window", True))
        self.assertIn(path["text"], self.muster("status", job)[1])
        self.assertIn('transport="shm"', self.metrics(metrics))

        # One whose memory others cannot map, as if it were on another host.
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        self.start_worker("apart", preexec_fn=limit, restore_signals=False)
        # Each says in its own words why not all share memory: paths may stand apart.
        def partly_over_tcp():
            paths = self.status(job)["paths"]
            ranks = sorted(rank for path in paths for rank in path["ranks"])
            return ranks == [0, 1, 2] and paths if all(
                path["path"]["transport"] == "shm+tcp" and path["path"]["algorithms"]
                for path in paths) else None
        paths = wait_until(partly_over_tcp)
        self.assertTrue(paths, self.status(job)["paths"])
        whys = " ".join(path["path"]["why"] for path in paths)
        self.assertIn("ranks 0, 1 share a host; TCP leads to the other 1", whys)
        self.assertIn("File too large", whys)
        for use in (use for path in paths for use in path["path"]["algorithms"]):
            # What the mesh was measured to be best at.
            self.assertIn(use["algorithm"], ("direct", "ring", "star", "recursive-doubling",
                                             "halving-doubling", "double-tree", "one-shot"))
            self.assertTrue(use["automatic"])
            self.assertIn("predicted", use["why"])
        self.assertIn('transport="shm+tcp"', self.metrics(metrics))
        self.assertNotIn('transport="shm"', self.metrics(metrics))
        for log in self.logs[:2]:
            transports = [line["transport"] for line in self.events(log, "mesh_connected")]
            self.assertEqual((transports[0], transports[-1]), ("shm", "shm+tcp"))
            self.assertEqual(transports[-1],
                             self.events(log, "communication_path")[-1]["transport"])
        self.assertEqual(self.muster("cancel", job)[0], 0)

    def test_every_algorithm_asked_for_is_the_one_taken(self):
        self.start_fleet(3)
        for algorithm in ALGORITHMS:
            job = self.submit(self.job(
                steps=20, workers={"min": 3},
                communication={"algorithm": algorithm, "transport": "tcp"}))
            code, _, error = self.muster("watch", job)
            self.assertEqual(code, 0, error)
            status = self.status(job)
            asked = {use["algorithm"] for path in status["paths"]
                     for use in path["path"]["algorithms"] if not use["automatic"]}
            self.assertEqual(asked, {algorithm.replace("_", "-")}, status["paths"])
            self.assertGreater(status["progress"]["test_accuracy"], 0.3)

    def test_libfabric_is_had_by_its_provider(self):
        self.start_fleet(2)
        def providers(**communication):
            job = self.submit(self.job(steps=30, workers={"min": 2}, communication={
                "transport": "libfabric", **communication}))
            code, _, error = self.muster("watch", job)
            self.assertEqual(code, 0, error)
            paths = [path["path"] for path in self.status(job)["paths"]]
            self.assertEqual({path["transport"] for path in paths}, {"ofi"})
            return {path["provider"] for path in paths}
        # What there is depends on libfabric's version and on the machine.
        [there] = providers()
        self.assertEqual(providers(provider=there), {there})

    def test_what_cannot_be_had_fails_the_job_and_says_why(self):
        self.start_fleet(2)
        job = self.submit(self.job(workers={"min": 2}, communication={
            "transport": "libfabric", "provider": "no-such-provider"}))
        code, _, error = self.muster("watch", job)
        self.assertEqual(code, 1)
        self.assertIn("communication.provider: ", error)
        self.assertIn("available: ", error)
        for communication, why in (
                ({"algorithm": "window", "transport": "tcp"}, "WINDOW needs"),
                ({"provider": "efa"}, "needs communication.transport LIBFABRIC"),
                ({"transport": "carrier_pigeon"}, "communication.transport"),
                ({"straggler_ms": 1}, "communication.straggler_ms: must be")):
            code, _, error = self.muster("submit", self.job(communication=communication))
            self.assertEqual(code, 2, error)
            self.assertIn(why, error)

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        self.start_worker("apart", preexec_fn=limit, restore_signals=False)
        self.assertTrue(wait_until(lambda: len(self.members()) == 3))
        for communication in ({"transport": "shared_memory"}, {"algorithm": "window"}):
            job = self.submit(self.job(workers={"min": 3}, communication=communication))
            code, _, error = self.muster("watch", job)
            self.assertEqual(code, 1)
            self.assertRegex(error, "communication.(transport|algorithm): .*share memory")

    # ---- stragglers ----

    def check_frozen_worker_is_named(self, **communication):
        metrics = free_port()
        # The lease is long: the frozen worker stays a member.
        self.start_fleet(4, "--lease-ms", 60000, "--heartbeat-ms", 100,
                         "--metrics-listen", f"127.0.0.1:{metrics}", "--log-format", "json")
        job = self.start_job(communication=communication)
        frozen = self.ranks(job)[2]
        self.workers[frozen].send_signal(signal.SIGSTOP)
        try:
            def named():
                stragglers = self.status(job)["stragglers"]
                return stragglers and len(stragglers[0]["waiting"]) == 3 and stragglers
            stragglers = wait_until(named)
            self.assertTrue(stragglers, self.status(job)["stragglers"])
            [straggler] = stragglers
            self.assertEqual((straggler["worker"], straggler["rank"]), (frozen, 2))
            self.assertEqual(straggler["cause"], "silent")
            self.assertEqual(straggler["waiting"], [0, 1, 3])
            self.assertGreater(straggler["step"], 15)
            self.assertTrue(straggler["label"] == "commit" or
                            straggler["label"].startswith("bucket "), straggler)
            self.assertIn("all-reduce", straggler["operation"])
            self.assertGreater(straggler["held_up_seconds"], 0.9)
            shown = self.muster("status", job)[1]
            self.assertIn(f"{frozen} (rank 2) holds up 3 ranks", shown)
            self.assertIn(f'worker="{frozen}"', self.metrics(metrics))
            # Who is asked and does not answer is named, and hides nobody else.
            code, out, error = self.muster("operations", job, "--json", "--last", 3)
            self.assertEqual(code, 1)
            self.assertRegex(error, f"rank 2: .*worker {frozen} at .* did not answer")
            self.assertEqual({json.loads(line)["rank"] for line in out.splitlines()}, {0, 1, 3})
            self.assertIn("running", {json.loads(line)["state"] for line in out.splitlines()})
        finally:
            self.workers[frozen].send_signal(signal.SIGCONT)
        self.assertTrue(wait_until(lambda: not self.status(job)["stragglers"]))
        step = self.status(job)["progress"]["step"]
        self.assertTrue(wait_until(lambda: self.status(job)["progress"]["step"] > step))
        self.assertEqual([change["cause"] for change in self.status(job)["view_changes"]],
                         ["start"])
        # One line when it began and one when it was over, both about the right one.
        # (Where the machine is slow, others may have been late at other times.)
        def of_frozen(event):
            return [line for line in self.events(self.coordinator_log, event)
                    if line["worker"] == frozen]
        over = wait_until(lambda: of_frozen("straggler_over"))
        self.assertEqual((len(of_frozen("straggler")), len(over)), (1, 1))
        self.assertGreater(over[0]["seconds"], 0.9)
        self.assertRegex(self.metrics(metrics),
                         'muster_job_straggler_seconds_total{.*worker="%s"} [0-9]' % frozen)
        # Each of the others says whom it waited for itself.
        late = [line for log in self.logs for line in self.events(log, "collective_late")]
        self.assertGreaterEqual(len(late), 3)
        self.assertEqual(self.muster("cancel", job)[0], 0)

    def test_a_frozen_worker_in_a_ring_is_named_while_others_wait(self):
        self.check_frozen_worker_is_named(transport="tcp", algorithm="ring")

    def test_a_frozen_worker_is_named_where_ranks_share_memory(self):
        self.check_frozen_worker_is_named()

    def test_a_rank_that_computes_longer_is_busy(self):
        self.start_fleet(3, "--heartbeat-ms", 50, "--log-format", "json")
        # One micro-batch a step: the last rank computes it, the others have nothing to do.
        job = self.submit(self.job(
            steps=100000, global_batch=1200, micro_batch=1200, model={"mlp": {"hidden": [3000, 3000]}},
            workers={"min": 3},
            communication={"straggler_ms": 100, "transport": "tcp", "algorithm": "ring"}))
        seen = []

        def look():
            seen.extend(straggler for straggler in self.status(job)["stragglers"]
                        if len(straggler["waiting"]) == 2)
            return len(seen) >= 5
        self.assertTrue(wait_until(look))
        # Most often it is that one; a machine under load stops others for moments.
        mine = [straggler for straggler in seen if straggler["rank"] == 2]
        self.assertGreater(len(mine), len(seen) / 2, seen)
        self.assertEqual({straggler["cause"] for straggler in mine}, {"busy"})
        self.assertEqual({straggler["worker"] for straggler in mine}, {self.ranks(job)[2]})
        self.assertEqual(mine[0]["waiting"], [0, 1])
        self.assertEqual(self.muster("cancel", job)[0], 0)
        # Steps are many, lines are few.
        begun = self.events(self.coordinator_log, "straggler")
        self.assertIn(mine[0]["worker"], {line["worker"] for line in begun})
        self.assertLess(len([line for line in begun if line["worker"] == mine[0]["worker"]]), 10)

    # ---- operations ----

    def test_operations_of_a_running_job(self):
        self.start_fleet(2)
        job = self.start_job()
        self.assertTrue(wait_until(lambda: self.status(job)["progress"]["step"] > 300))
        code, out, error = self.muster("operations", job, "--json")
        self.assertEqual(code, 0, error)
        records = [json.loads(line) for line in out.splitlines()]
        names = self.ranks(job)
        for rank in (0, 1):
            mine = [record for record in records if record["rank"] == rank]
            self.assertEqual(len(mine), 1024)
            self.assertEqual([record["number"] for record in mine],
                             list(range(mine[0]["number"], mine[0]["number"] + 1024)))
            self.assertEqual({record["worker"] for record in mine}, {names[rank]})
            self.assertIn("done", {record["state"] for record in mine})
            self.assertLessEqual({record["label"] for record in mine} - {"commit"},
                                 {f"bucket {i}" for i in range(10)})
            self.assertIn("all-reduce", mine[0]["what"])
        code, out, error = self.muster("operations", job, "--rank", 1, "--last", 5)
        self.assertEqual(code, 0, error)
        lines = out.splitlines()
        self.assertRegex(lines[0], rf"^rank 1 \({names[1]}\), epoch \d+$")
        self.assertRegex(lines[1], "^NUMBER +ISSUED +STEP +LABEL +STATE +QUEUED +RUNNING +WHAT$")
        self.assertEqual(len(lines), 7)

        code, _, error = self.muster("operations", job, "--rank", 7)
        self.assertEqual(code, 1)
        self.assertIn("has no rank 7; it has 0 to 1", error)
        self.assertEqual(self.muster("operations", "nobody")[0], 1)
        self.assertEqual(self.muster("cancel", job)[0], 0)
        code, _, error = self.muster("operations", job)
        self.assertEqual(code, 1)
        self.assertIn("is cancelled", error)


if __name__ == "__main__":
    main()
