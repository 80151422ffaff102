"""Options of commands on images, for tests."""

import argparse

from ebreg.cli import image_options

# The training of a small network, in a second.
SMALL = ["--backbone", "small-cnn", "--weights", "random", "--epochs", "1", "--n-draws", "4", "--quiet"]


def parsed(*words: str) -> argparse.Namespace:
    """The options of images and of the recipe; --data is synthetic if it is not given."""
    parser = argparse.ArgumentParser()
    image_options.add_images(parser, nargs="+")
    image_options.add_recipe(parser)
    return parser.parse_args(["--data", "synthetic", *words])
