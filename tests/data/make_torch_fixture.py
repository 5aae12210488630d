#!/usr/bin/env python3
"""Writes torch_training.json: what PyTorch computes for three tiny models.

For each model: initial parameters, ten batches, and the gradient of the mean loss of the first
batch. For each run (a model with an optimizer, a learning-rate schedule and perhaps clipping by
global norm): the loss before each of ten updates, the gradient norm before clipping, and the
parameters after the last. tests/worker/model/torch_parity_test.cc repeats it all in Muster.

SGD, AdamW and Adagrad are torch.optim's. PyTorch has no LAMB and no Lion: these two are written
below in its operations, from the papers.

Debian packages: python3-torch. Run: /usr/bin/python3 tests/data/make_torch_fixture.py
"""

import argparse
import fnmatch
import json
import pathlib

import torch
from torch import nn

STEPS = 10
BATCH = 8
CLASSES = 5

MLP = {"type": "mlp", "input": 12, "hidden": [16, 8], "classes": CLASSES}
CNN = {"type": "cnn", "height": 9, "width": 8, "channels": 2, "conv_channels": [4, 6],
       "hidden": 10, "classes": CLASSES}

# fc4 has the transpose of fc3's weight, fc5 that of fc2's.
TIED = {"type": "mlp", "input": 12, "hidden": [9, 8, 7, 8, 9], "classes": CLASSES,
        "tie_weights": True}

RUNS = [
    {"optimizer": {"type": "sgd", "momentum": 0.9, "nesterov": False, "weight_decay": 0.01},
     "schedule": "constant", "learning_rate": 0.1, "max_norm": 0},
    {"optimizer": {"type": "sgd", "momentum": 0.8, "nesterov": True, "weight_decay": 0},
     "schedule": "cosine", "learning_rate": 0.2, "max_norm": 0.25},
    {"optimizer": {"type": "sgd", "momentum": 0, "nesterov": False, "weight_decay": 0.05},
     "schedule": "constant", "learning_rate": 0.3, "max_norm": 0},
    {"optimizer": {"type": "adamw", "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6,
                   "weight_decay": 0.1},
     "schedule": "constant", "learning_rate": 0.01, "max_norm": 0},
    {"optimizer": {"type": "adamw", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6,
                   "weight_decay": 0},
     "schedule": "cosine", "learning_rate": 0.02, "max_norm": 0.25},
    {"optimizer": {"type": "adagrad", "learning_rate_decay": 0.05, "initial_accumulator": 0.1,
                   "epsilon": 1e-10, "weight_decay": 0.01},
     "schedule": "constant", "learning_rate": 0.1, "max_norm": 0},
    {"optimizer": {"type": "lamb", "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6,
                   "always_adapt": False, "weight_decay": 0.1},
     "schedule": "constant", "learning_rate": 0.05, "max_norm": 0},
    {"optimizer": {"type": "lamb", "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6,
                   "always_adapt": True, "weight_decay": 0},
     "schedule": "cosine", "learning_rate": 0.05, "max_norm": 0.25},
    {"optimizer": {"type": "lion", "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1},
     "schedule": "cosine", "learning_rate": 0.005, "max_norm": 0.25},
    {"optimizer": {"type": "adamw", "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6,
                   "weight_decay": 0.1,
                   "groups": [{"tensors": ["fc1.*"], "frozen": True},
                              {"tensors": ["fc2.bias"], "weight_decay": 0.2,
                               "learning_rate_scale": 0.5},
                              {"tensors": ["*.weight"], "learning_rate_scale": 2}]},
     "schedule": "cosine", "learning_rate": 0.01, "max_norm": 0.25},
]


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2; phi is the identity. A group may turn the ratio off."""

    def __init__(self, groups, lr, betas, eps):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["step"] += 1
                state["m"].lerp_(p.grad, 1 - beta1)
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                m = state["m"] / (1 - beta1 ** state["step"])
                v = state["v"] / (1 - beta2 ** state["step"])
                update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                norms = p.norm().item(), update.norm().item()
                ratio = norms[0] / norms[1] if group["adapts"] and min(norms) > 0 else 1
                p.sub_(update, alpha=group["lr"] * ratio)


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, groups, lr, betas):
        super().__init__(groups, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                direction = beta1 * state["m"] + (1 - beta1) * p.grad
                # A sign that hangs on the last bits of a gradient would make no reference.
                sure = direction[direction != 0].abs()
                assert sure.numel() == 0 or sure.min() > 2e-5 * sure.mean(), "choose another seed"
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(direction.sign(), alpha=group["lr"])
                state["m"].lerp_(p.grad, 1 - beta2)


class Transposed(nn.Module):
    """A linear layer with the transpose of another one's weight and a bias of its own."""

    def __init__(self, twin, size):
        super().__init__()
        self.twin = [twin]  # hidden from nn.Module, whose parameter the weight is not
        self.bias = nn.Parameter(torch.rand(size) - 0.5)

    def forward(self, x):
        return nn.functional.linear(x, self.twin[0].weight.t(), self.bias)


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        sizes = [config["input"], *config["hidden"], config["classes"]]
        self.depth = len(sizes) - 1
        for i in range(self.depth):
            setattr(self, f"fc{i + 1}", nn.Linear(sizes[i], sizes[i + 1]))
        for layer in range(2, self.depth) if config.get("tie_weights") else ():
            if self.depth + 1 - layer < layer:
                twin = getattr(self, f"fc{self.depth + 1 - layer}")
                setattr(self, f"fc{layer}", Transposed(twin, sizes[layer]))

    def forward(self, x):
        for i in range(1, self.depth):
            x = torch.relu(getattr(self, f"fc{i}")(x))
        return getattr(self, f"fc{self.depth}")(x)


class Cnn(nn.Module):
    def __init__(self, config):
        super().__init__()
        channels = [config["channels"], *config["conv_channels"]]
        self.depth = len(channels) - 1
        for i in range(self.depth):
            setattr(self, f"conv{i + 1}", nn.Conv2d(channels[i], channels[i + 1], 3, padding=1))
        pixels = (config["height"] >> self.depth) * (config["width"] >> self.depth)
        self.fc1 = nn.Linear(channels[-1] * pixels, config["hidden"])
        self.fc2 = nn.Linear(config["hidden"], config["classes"])
        self.image = (config["channels"], config["height"], config["width"])

    def forward(self, x):
        x = x.reshape(-1, *self.image)
        for i in range(self.depth):
            x = torch.max_pool2d(torch.relu(getattr(self, f"conv{i + 1}")(x)), 2)
        return self.fc2(torch.relu(self.fc1(torch.flatten(x, 1))))


def make_model(config):
    return Mlp(config) if config["type"] == "mlp" else Cnn(config)


def feature_count(config):
    if config["type"] == "mlp":
        return config["input"]
    return config["channels"] * config["height"] * config["width"]


def values(tensor):
    # Nine significant digits give the same float back.
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


def named(pairs):
    return {name: {"shape": list(t.shape), "values": values(t)} for name, t in pairs}


def inputs_of(batch):
    # Integers in the file; 1/256 is exact in single precision.
    return torch.tensor(batch["inputs"], dtype=torch.float32) / 256


def loss_of(model, batch):
    return nn.functional.cross_entropy(model(inputs_of(batch)), torch.tensor(batch["labels"]))


def describe_model(config, seed):
    torch.manual_seed(seed)
    model = make_model(config)
    batches = [{"inputs": torch.randint(0, 256, (BATCH, feature_count(config))).tolist(),
                "labels": torch.randint(0, CLASSES, (BATCH,)).tolist()} for _ in range(STEPS)]
    initial = {name: t.detach().clone() for name, t in model.named_parameters()}
    loss_of(model, batches[0]).backward()
    description = {"config": config, "parameters": named(initial.items()), "batches": batches,
                   "gradients": named((n, t.grad) for n, t in model.named_parameters())}
    return description, initial


def settings_of(name, options):
    """Weight decay and learning-rate scale of a tensor; None if it is frozen."""
    for group in options.get("groups", []):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in group["tensors"]):
            break
    else:
        group = {}
    if group.get("frozen"):
        return None
    default = options["weight_decay"] if name.endswith("weight") else 0
    return group.get("weight_decay", default), group.get("learning_rate_scale", 1)


def make_optimizer(model, run):
    options = run["optimizer"]
    rate = run["learning_rate"]
    groups = []
    for name, tensor in model.named_parameters():
        settings = settings_of(name, options)
        tensor.requires_grad_(settings is not None)
        if settings is not None:
            groups.append({"params": [tensor], "weight_decay": settings[0],
                           "lr": rate * settings[1],
                           "adapts": options.get("always_adapt") or name.endswith("weight")})
    betas = (options.get("beta1"), options.get("beta2"))
    if options["type"] == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=options["momentum"],
                               nesterov=options["nesterov"])
    if options["type"] == "adagrad":
        return torch.optim.Adagrad(groups, lr=rate, lr_decay=options["learning_rate_decay"],
                                   initial_accumulator_value=options["initial_accumulator"],
                                   eps=options["epsilon"])
    if options["type"] == "lamb":
        return Lamb(groups, lr=rate, betas=betas, eps=options["epsilon"])
    if options["type"] == "lion":
        return Lion(groups, lr=rate, betas=betas)
    return torch.optim.AdamW(groups, lr=rate, eps=options["epsilon"], betas=betas)


def train(description, initial, run):
    model = make_model(description["config"])
    model.load_state_dict(initial)
    optimizer = make_optimizer(model, run)
    scheduler = None
    if run["schedule"] == "cosine":
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    losses, norms = [], []
    for batch in description["batches"]:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        limit = run["max_norm"] or float("inf")
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), limit)))
        losses.append(loss.item())
        optimizer.step()
        if scheduler:
            scheduler.step()
    return {**run, "losses": losses, "norms": norms,
            "final_parameters": named(model.named_parameters())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path,
                        default=pathlib.Path(__file__).with_name("torch_training.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    models = []
    for seed, config in enumerate([MLP, CNN, TIED]):
        description, initial = describe_model(config, seed)
        description["runs"] = [train(description, initial, run) for run in RUNS]
        models.append(description)
    with arguments.output.open("w", encoding="utf-8") as output:
        json.dump({"torch": torch.__version__, "models": models}, output, separators=(",", ":"))
        output.write("\n")


if __name__ == "__main__":
    main()
