"""The paper's four image tasks: targets, evaluation grids, files and licences."""

from dataclasses import dataclass

from ebreg.datasets.images.augmentation import HeadPoseAugmentation

_CCGAN = "https://github.com/UBCDingXin/improved_CcGAN"
_CCGAN_LICENCE = "published with the CcGAN papers (Ding et al.); for the terms see the page"


@dataclass(frozen=True)
class ImageTask:
    """Description of an image data set and its files.

    Attributes:
        name: Its name in ``IMAGE_TASKS``.
        title: What is predicted from what.
        target: Name of the target.
        unit: Unit of the target.
        target_names: Names of its columns, in order.
        n_targets: Allowed numbers of columns in a file.
        low: First value of the grid on which the paper computes the NLL, on every axis.
        high: Last value of that grid.
        n_grid: Number of its values on every axis.
        valid_range: Lowest and highest valid target; a file with others is an error.
        files: Official names, one for all rows or one for training and one for test.
        image_key: Name of the images in the file.
        image_shape: Their shape in the file; other heights and widths are allowed.
        label_key: Name of the targets in the file.
        channels: 1 for grey images, 3 for colours.
        split: The split of the paper, one of ``SPLITS``.
        source: Where to download it.
        licence: Its terms of use.
        kept: Rows with a target outside of this range are left out, as in the paper; None keeps all rows.
        spacing: Distance of neighbouring targets if they are whole numbers, else None.
        png_names: Pattern of the names of PNG files if a folder of them is allowed, else None.
        augmentation: Applied to batches in training, or None.
    """

    name: str
    title: str
    target: str
    unit: str
    target_names: tuple[str, ...]
    n_targets: tuple[int, ...]
    low: float
    high: float
    n_grid: int
    valid_range: tuple[float, float]
    files: tuple[str, ...]
    image_key: str
    image_shape: str
    label_key: str
    channels: int
    split: str
    source: str
    licence: str
    kept: tuple[float, float] | None = None
    spacing: float | None = None
    png_names: str | None = None
    augmentation: HeadPoseAugmentation | None = None

    @property
    def format(self) -> str:
        """Format of its official files: "h5" or "npz"."""
        return self.files[0].rpartition(".")[2]


_STEERING = ImageTask(
    name="steering",
    title="steering angle from a camera inside a car",
    target="steering angle",
    unit="degrees",
    target_names=("angle",),
    n_targets=(1,),
    low=-100.0,
    high=100.0,
    n_grid=20_000,
    valid_range=(-100.0, 100.0),
    files=("SteeringAngle_64x64.h5",),
    image_key="images",
    image_shape="(N, 3, 64, 64)",
    label_key="labels",
    channels=3,
    split="random",
    source=_CCGAN,
    licence=_CCGAN_LICENCE,
)

_CELLS = ImageTask(
    name="cells",
    title="number of cells in a synthetic microscopy image (Cell-200)",
    target="number of cells",
    unit="cells",
    target_names=("count",),
    n_targets=(1,),
    low=1.0,
    high=200.0,
    n_grid=19_900,
    valid_range=(1.0, 200.0),
    files=("Cell200_64x64.h5",),
    image_key="IMGs_grey",
    image_shape="(N, 1, 64, 64)",
    label_key="CellCounts",
    channels=1,
    split="halves",
    source=_CCGAN,
    licence=_CCGAN_LICENCE,
    spacing=1.0,
    png_names="<id>_<count>.0.png",
)

_AGE = ImageTask(
    name="age",
    title="age of a person from a face (UTKFace)",
    target="age",
    unit="years",
    target_names=("age",),
    n_targets=(1,),
    low=1.0,
    high=60.0,
    n_grid=5_900,
    valid_range=(0.0, 150.0),
    files=("UTKFace_64x64.h5",),
    image_key="images",
    image_shape="(N, 3, 64, 64)",
    label_key="labels",
    channels=3,
    split="random",
    source=f"{_CCGAN}; the original: https://susanqq.github.io/UTKFace/",
    licence="non-commercial research only; the copyright of the images stays with their owners",
    kept=(1.0, 60.0),
    spacing=1.0,
)

_HEAD_POSE = ImageTask(
    name="head-pose",
    title="orientation of a head (BIWI)",
    target="yaw, pitch and, where the file has it, roll",
    unit="degrees",
    target_names=("yaw", "pitch", "roll"),
    n_targets=(2, 3),
    low=-80.0,
    high=80.0,
    n_grid=30,
    valid_range=(-180.0, 180.0),
    files=("BIWI_train.npz", "BIWI_test.npz"),
    image_key="image",
    image_shape="(N, 64, 64, 3)",
    label_key="pose",
    channels=3,
    split="given",
    source="https://github.com/shamangary/FSA-Net, protocol 2; the original: ETH Zurich",
    licence="research use only; for the terms see the pages",
    augmentation=HeadPoseAugmentation(),
)

IMAGE_TASKS: dict[str, ImageTask] = {task.name: task for task in (_STEERING, _CELLS, _AGE, _HEAD_POSE)}
