"""Every update rule in real processes; a resumed run has the bits of one that never stopped."""

import json

from harness import FleetTest, main

STEPS = 60
# The second layer's bias is frozen, the first layer learns slowly, the rest as the optimizer says.
GROUPS = [{"tensors": ["fc2.bias"], "frozen": True},
          {"tensors": ["fc1.*"], "learning_rate_scale": 0.5, "weight_decay": 0}]
RULES = {
    "sgd": ({"momentum": 0.9, "nesterov": True}, 0.1),
    "adamw": ({}, 3e-3),
    "lamb": ({}, 0.02),
    "lion": ({}, 1e-3),
    "adagrad": ({"initial_accumulator": 0.1}, 0.05),
}


class OptimizersTest(FleetTest):

    def run_job(self, name, rule, steps, checkpoints=None):
        options, rate = RULES[rule]
        changes = {"checkpoints": checkpoints} if checkpoints else {}
        job = self.job(f"{name}.json", training={
            "steps": steps, "global_batch": 240, "micro_batch": 20, "clip_norm": 1,
            "optimizer": {rule: options, "weight_decay": 0.01, "groups": GROUPS},
            "learning_rate": {"peak": rate, "schedule": "constant"}}, **changes)
        return self.up(name, job, 2)

    def check_rule(self, rule):
        whole = self.run_job("whole", rule, STEPS)
        expected = self.check_complete(whole, STEPS)
        directory = self.directory / "checkpoints"
        checkpoints = {"directory": str(directory), "resume": True}
        self.assertEqual(self.run_job("half", rule, STEPS // 2, checkpoints).wait(), 0)
        resumed = self.run_job("resumed", rule, STEPS, checkpoints)
        summary = self.check_complete(resumed, STEPS)
        self.assertEqual(resumed.steps()[0]["step"], STEPS // 2 + 1, "it did not resume")
        self.assertEqual(summary["parameters_sha256"], expected["parameters_sha256"])

        newest = max(directory.glob("step-*"))
        names = {name for file in newest.glob("optimizer-*.safetensors")
                 for name in tensor_names(file)}
        parameters = {name for file in newest.glob("model-*.safetensors")
                      for name in tensor_names(file)}
        self.assertIn("fc2.bias", parameters)
        self.assertFalse([name for name in names if name.startswith("fc2.bias.")])
        self.assertTrue([name for name in names if name.startswith("fc2.weight.")])

    def test_sgd(self):
        self.check_rule("sgd")

    def test_adamw(self):
        self.check_rule("adamw")

    def test_lamb(self):
        self.check_rule("lamb")

    def test_lion(self):
        self.check_rule("lion")

    def test_adagrad(self):
        self.check_rule("adagrad")

    def test_pattern_that_matches_nothing_fails_the_job_by_name(self):
        job = self.job("typo.json", training={
            "optimizer": {"lamb": {}, "groups": [{"tensors": ["conv*"], "frozen": True}]}})
        up = self.up("typo", job, 2)
        self.assertEqual(up.wait(), 1)
        self.assertIn('groups[0].tensors[0]: "conv*" matches no tensor', up.text())
        self.assertIn("fc1.weight", up.text())


def tensor_names(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return [name for name in header if name != "__metadata__"]


if __name__ == "__main__":
    main()
