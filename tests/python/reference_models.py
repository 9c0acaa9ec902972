"""The built-in models of worker/torch_models.cc as torch.nn modules: the same names, shapes and arithmetic, so that a model which Causeway
trained loads here with load_state_dict(strict=True). resnet18 is torchvision's own."""

import torchvision
from torch import nn
from torch.nn import functional


class Mlp(nn.Module):
    def __init__(self, sample_shape, classes):
        super().__init__()
        channels, height, width = sample_shape
        self.fc1 = nn.Linear(channels * height * width, 256)
        self.fc2 = nn.Linear(256, 128)
        self.fc3 = nn.Linear(128, classes)

    def forward(self, x):
        x = functional.relu(self.fc1(x.flatten(1)))
        x = functional.relu(self.fc2(x))
        return self.fc3(x)


class LeNet(nn.Module):
    def __init__(self, sample_shape, classes):
        super().__init__()
        channels, height, width = sample_shape
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * (height // 4) * (width // 4), 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


class GreyResNet18(torchvision.models.ResNet):
    """torchvision.models.resnet18 with a grey image taken as three equal channels."""

    def __init__(self, classes):
        super().__init__(torchvision.models.resnet.BasicBlock, [2, 2, 2, 2], num_classes=classes)

    def forward(self, x):
        return super().forward(x.expand(-1, 3, -1, -1))


def make(builtin, sample_shape=(1, 28, 28), classes=10):
    if builtin == "mlp":
        return Mlp(sample_shape, classes)
    if builtin == "lenet":
        return LeNet(sample_shape, classes)
    if builtin == "resnet18":
        return GreyResNet18(classes)
    raise ValueError(f"unknown model {builtin!r}")
