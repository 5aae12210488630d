"""What benches are asked to measure and cannot, and outputs that cannot be written, are errors."""

import os
import pathlib
import subprocess
import unittest

BINARIES = pathlib.Path(os.environ["MUSTER_BINARIES"])
BENCHES = ("abort", "allreduce", "chaos", "collectives", "parameter-server", "scaling", "simulate",
           "strategies")


def run(bench, *arguments, stdout=subprocess.DEVNULL):
    result = subprocess.run([BINARIES / f"bench-{bench}", *arguments], stdout=stdout,
                            stderr=subprocess.PIPE, text=True, timeout=60)
    return result.returncode, result.stderr


class CommandLinesTest(unittest.TestCase):

    def test_what_there_is_not_is_not_measured(self):
        for words, *arguments in (
                (["--paths", "zzz", "ring", "servers+2"], "scaling", "--paths", "zzz"),
                (["servers+4", "pairs-as-one+2"], "scaling", "--hosts", "2", "--paths",
                 "ring,servers+4"),
                (["--algorithms", "bruck", "ring"], "allreduce", "--algorithms", "ring,bruck"),
                (["--algorithms", "zzz", "ring"], "collectives", "--algorithms", "zzz")):
            code, error = run(*arguments)
            self.assertEqual(code, 2, error)
            for word in words:
                self.assertIn(word, error)

    def test_an_output_that_is_lost_is_a_failure(self):
        with open("/dev/full", "w") as full:
            for bench in BENCHES:
                code, error = run(bench, "--help", stdout=full)
                self.assertEqual(code, 1, bench)
                self.assertIn("cannot write the output", error, bench)


if __name__ == "__main__":
    unittest.main()
