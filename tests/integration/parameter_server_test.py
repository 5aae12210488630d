"""Parameter servers and programs that train on them, as processes, with real signals."""

import json
import pathlib
import signal
import subprocess
import tempfile
import unittest

from harness import BINARIES, PATIENCE_S, main, wait_until

STEPS = 40
CONTRIBUTORS = 3


class ParameterServerTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()
        self.folder.cleanup()

    def start(self, arguments, name):
        log = open(pathlib.Path(self.folder.name) / f"{name}.log", "w+")
        process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
        process.stdout = log
        process.log = pathlib.Path(log.name)
        self.processes.append(process)
        return process

    def start_server(self, name):
        ready = pathlib.Path(self.folder.name) / f"{name}.json"
        process = self.start([BINARIES / "muster-parameter-server", "--listen", "127.0.0.1:0",
                              "--ready-file", ready], name)
        wait_until(ready.exists)
        process.address = json.loads(ready.read_text())["rpc_address"]
        return process

    def start_client(self, servers, index, name, *arguments):
        return self.start([BINARIES / "example-linear-regression",
                           "--servers", ",".join(server.address for server in servers),
                           "--contributors", str(CONTRIBUTORS), "--index", str(index),
                           "--steps", str(STEPS), *arguments], name)

    def wait(self, process):
        code = process.wait(PATIENCE_S)
        self.assertEqual(code, 0, process.log.read_text())
        return process.log.read_text()

    @staticmethod
    def errors(text):
        return [float(line.split()[3]) for line in text.splitlines() if line.startswith("step ")]

    @staticmethod
    def parameters(text):
        return [line for line in text.splitlines() if line.startswith("parameters ")]

    def train(self, prefix, kill):
        """Three programs in step; returns the last line of each."""
        servers = [self.start_server(f"{prefix}-server-{i}") for i in range(2)]
        clients = [self.start_client(servers, i, f"{prefix}-client-{i}", "--delay-ms", "20")
                   for i in range(CONTRIBUTORS)]
        if kill:
            wait_until(lambda: len(self.errors(clients[1].log.read_text())) >= 5)
            clients[1].send_signal(signal.SIGKILL)
            clients[1].wait()
            clients[1] = self.start_client(servers, 1, f"{prefix}-client-1-again",
                                           "--delay-ms", "20")
        texts = [self.wait(client) for client in clients]
        if kill:
            begins = int(texts[1].splitlines()[0].split()[-1])
            self.assertGreaterEqual(begins, 5, "the replacement did not go on where it stopped")
        for server in servers:
            server.send_signal(signal.SIGTERM)
            self.wait(server)
        return texts

    def test_a_client_that_is_killed_and_replaced_changes_no_bit(self):
        plain = self.train("plain", kill=False)
        killed = self.train("killed", kill=True)
        for text in plain + killed:
            self.assertEqual(self.parameters(text), self.parameters(plain[0]))
        self.assertEqual(len(self.parameters(plain[0])), 1)
        errors = self.errors(plain[0])
        self.assertEqual(len(errors), STEPS)
        self.assertLess(errors[-1], errors[0] / 2)

    def test_with_bounded_staleness_a_slow_client_holds_up_others_by_so_many_steps(self):
        servers = [self.start_server("server")]
        staleness = 3
        slow = self.start_client(servers, 0, "slow", "--staleness", str(staleness),
                                 "--delay-ms", "60")
        # Others wait for those only that take part.
        wait_until(lambda: "begins" in slow.log.read_text())
        fast = [self.start_client(servers, i, f"fast-{i}", "--staleness", str(staleness))
                for i in range(1, CONTRIBUTORS)]

        def ahead():
            # In this order: the slow one may have moved on, not back.
            done = max(len(self.errors(client.log.read_text())) for client in fast)
            return done - len(self.errors(slow.log.read_text()))
        largest = 0
        while slow.poll() is None:
            largest = max(largest, ahead())
        # A step is printed when it is done, which is after others may go on.
        self.assertLessEqual(largest, staleness + 2)
        for client in [slow, *fast]:
            text = self.wait(client)
            errors = self.errors(text)
            # Whoever comes later begins where the slowest is.
            self.assertEqual(len(errors), STEPS + 1 - int(text.splitlines()[0].split()[-1]))
            self.assertLess(errors[-1], errors[0])

    def test_a_server_that_is_killed_is_an_error_that_names_it(self):
        servers = [self.start_server(f"server-{i}") for i in range(2)]
        client = self.start([BINARIES / "example-linear-regression", "--servers",
                             ",".join(server.address for server in servers),
                             "--contributors", "1", "--steps", "100000", "--timeout-ms", "1500"],
                            "client")
        wait_until(lambda: len(self.errors(client.log.read_text())) >= 3)
        servers[1].kill()
        self.assertEqual(client.wait(PATIENCE_S), 1)
        self.assertIn(servers[1].address, client.log.read_text())

    def test_sigterm_ends_a_server_that_has_clients(self):
        server = self.start_server("server")
        # Waits for two that never come.
        client = self.start_client([server], 0, "client", "--timeout-ms", "2000")
        wait_until(lambda: "begins" in client.log.read_text())
        server.send_signal(signal.SIGTERM)
        self.wait(server)
        self.assertEqual(client.wait(PATIENCE_S), 1)


if __name__ == "__main__":
    main()
