"""A fetched model in PyTorch: loads with strict=True and has the accuracy that Causeway reported.

    fetched_model_test.py mlp|lenet|resnet18

Needs the full Python set that tools/deps.sh installs; runs itself with it. Without it: exit status 77.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def full_python():
    with open(os.path.join(ROOT, "versions.env")) as f:
        version = next(line.strip().split("=")[1] for line in f if line.startswith("CAUSEWAY_TORCH_VERSION="))
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "causeway", f"torch-{version}-full", "bin", "python")


def test(builtin):
    import safetensors.torch
    import torch
    import torchvision

    sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
    import reference_models
    from fleet import Fleet, job_yaml

    with Fleet(train=400, test=1000) as fleet:
        fleet.start_coordinator()
        for name in ("a1", "a2"):
            fleet.join(name, "lab")
        fleet.submit(job_yaml(model={"builtin": builtin, "classes": 10}, end={"rounds": 1 if builtin == "resnet18" else 3},
                              batch={"per_worker": 16, "max": 16}, optimizer={"name": "sgd", "learning_rate": 0.01, "momentum": 0.9}))
        evaluation = fleet.wait_for_job(seconds=200)["summary"]["evaluation"]
        fleet.fetch()
        state = safetensors.torch.load_file(fleet.path("model.safetensors"))
        with open(fleet.path("data", "test-images"), "rb") as f:
            images = torch.frombuffer(bytearray(f.read()[16:]), dtype=torch.uint8).reshape(-1, 1, 28, 28)
        with open(fleet.path("data", "test-labels"), "rb") as f:
            labels = torch.frombuffer(bytearray(f.read()[8:]), dtype=torch.uint8).long()
    model = reference_models.make(builtin)
    model.load_state_dict(state, strict=True)
    if builtin == "resnet18":
        torchvision.models.resnet18(num_classes=10).load_state_dict(state, strict=True)
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model((batch.float() / 255 - 0.286) / 0.353) for batch in images.split(128)])
    accuracy = (logits.argmax(1) == labels).float().mean().item()
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    print(f"{builtin}: accuracy {accuracy:.4f} here, {evaluation['accuracy']:.4f} in Causeway; loss {loss:.6f}, {evaluation['loss']:.6f}")
    assert evaluation["complete"] and evaluation["total"] == 1000
    assert abs(accuracy - evaluation["accuracy"]) <= 0.001
    assert abs(loss - evaluation["loss"]) <= 1e-3 * max(1, loss)


def main(argv):
    python = full_python()
    if not os.path.exists(python):
        print(f"SKIPPED: no full Python set in {os.path.dirname(os.path.dirname(python))} (tools/deps.sh test installs it)")
        return 77
    if os.path.realpath(sys.prefix) != os.path.realpath(os.path.dirname(os.path.dirname(python))):
        os.execv(python, [python, os.path.abspath(__file__), *argv])
    test(*argv)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
