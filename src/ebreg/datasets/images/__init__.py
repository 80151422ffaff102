"""The paper's four image data sets: file readers, splits, and the augmentation of head poses.

h5py and Pillow are imported when a file is read, so importing ebreg does not need them.
"""

from ebreg.datasets.images.augmentation import HeadPoseAugmentation
from ebreg.datasets.images.data import ImageData
from ebreg.datasets.images.hdf5 import HDF5Pixels
from ebreg.datasets.images.loading import ImageSplit, load
from ebreg.datasets.images.pixels import InMemory, Pixels
from ebreg.datasets.images.png import PNGPixels
from ebreg.datasets.images.reading import read_hdf5, read_npz, read_png_folder
from ebreg.datasets.images.splits import SPLITS
from ebreg.datasets.images.tasks import IMAGE_TASKS, ImageTask
from ebreg.datasets.images.writing import write_hdf5

__all__ = [
    "IMAGE_TASKS",
    "SPLITS",
    "HDF5Pixels",
    "HeadPoseAugmentation",
    "ImageData",
    "ImageSplit",
    "ImageTask",
    "InMemory",
    "PNGPixels",
    "Pixels",
    "load",
    "read_hdf5",
    "read_npz",
    "read_png_folder",
    "write_hdf5",
]
