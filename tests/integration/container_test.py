"""The container image has what its programs need, and nothing else (deploy/container)."""

import pathlib
import re
import subprocess
import unittest

from harness import BINARIES

CONTAINERFILE = pathlib.Path("deploy/container/Containerfile")


def programs():
    """What the image's last stage takes over from the build."""
    names = re.findall(r"/src/build/release/bin/([a-z-]+) ", CONTAINERFILE.read_text())
    assert "muster-worker" in names, names
    return names


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def libraries(program):
    """Files of the libraries that the program itself names."""
    named = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--dynamic", BINARIES / program))
    paths = dict(re.findall(r"^\t(\S+) => (\S+) ", output("ldd", BINARIES / program), re.MULTILINE))
    return {paths[library] for library in named}


def packages(files):
    """The Debian packages of files that lie in /lib or /usr/lib."""
    # dpkg knows a file by the name it was installed under, which may be either.
    short = {file.removeprefix("/usr") for file in files}
    answer = subprocess.run(["dpkg", "--search", *short, *(f"/usr{file}" for file in short)],
                            capture_output=True, text=True, check=False).stdout
    owners = {file.removeprefix("/usr"): package
              for package, file in re.findall(r"^([^:\s]+)\S* (\S+)$", answer, re.MULTILINE)}
    assert owners.keys() == short, f"of no package: {short - owners.keys()}"
    return set(owners.values())


class ContainerTest(unittest.TestCase):

    def test_runtime_packages_are_those_that_programs_link(self):
        text = pathlib.Path("deploy/packages/runtime.txt").read_text()
        listed = re.sub(r"#.*", "", text).split()
        self.assertEqual(listed, sorted(set(listed)))
        linked = set().union(*(libraries(program) for program in programs()))
        self.assertEqual(set(listed), packages(linked))

    def test_the_image_builds_what_it_takes_over(self):
        text = CONTAINERFILE.read_text()
        [built] = re.findall(r"^RUN deploy/build\.sh release \\\n\s*(.*)$", text, re.MULTILINE)
        self.assertEqual(sorted(built.split()), sorted(programs()))
        for path in re.findall(r"deploy/[\w/]+\.(?:sh|txt)", text):
            self.assertTrue(pathlib.Path(path).exists(), path)
        version = re.search(r'kSoftwareVersion\[\] = "(.*)"',
                            pathlib.Path("base/version.h").read_text())[1]
        self.assertIn(f'org.opencontainers.image.version="{version}"', text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
