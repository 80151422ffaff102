"""ResNet18 (He et al., 2016) without its classifier, with the parameter names of torchvision."""

from pathlib import Path

import torch
from torch import Tensor, nn

from ebreg.networks.backbones.files import fill


class ResNet18(nn.Module):
    """Images (B, 3, H, W) of any size to features (B, 512); see :func:`resnet18`."""

    n_features = 512

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, stride=1)
        self.layer2 = _stage(64, 128, stride=2)
        self.layer3 = _stage(128, 256, stride=2)
        self.layer4 = _stage(256, 512, stride=2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 512)."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean(dim=(2, 3))


class _Block(nn.Module):
    """Two convolutions with a skip connection: (B, n_in, H, W) -> (B, n_out, H / stride, W / stride)."""

    def __init__(self, n_in: int, n_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample = nn.Identity() if stride == 1 else _projection(n_in, n_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(h)) + self.downsample(x))


def _projection(n_in: int, n_out: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(n_out)
    )


def _stage(n_in: int, n_out: int, stride: int) -> nn.Module:
    return nn.Sequential(_Block(n_in, n_out, stride), _Block(n_out, n_out, stride=1))


def resnet18(weights: str | Path | None = None) -> ResNet18:
    """ResNet18 for images (B, 3, H, W), 512 features after the mean over rows and columns.

    Args:
        weights: A checkpoint, ``.safetensors``, ``.pth`` or ``.pt``, with torchvision's parameter names; its
            classifier is left out. None: random weights, by Kaiming's rule for convolutions.

    Returns:
        The network, in training mode. With weights of ImageNet, it takes the units of
        :meth:`ebreg.networks.backbones.PixelUnits.imagenet`.
    """
    network = ResNet18()
    if weights is not None:
        fill(network, weights, ignored=("fc.",))
    return network
