"""``ebreg data``: list the paper's image data sets, check files, and pack PNG files."""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from ebreg.datasets.images import (
    IMAGE_TASKS,
    SPLITS,
    ImageData,
    ImageTask,
    load,
    read_png_folder,
    write_hdf5,
)

_ROWS = 512  # read at once


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add ``data`` to the commands of ebreg."""
    data = commands.add_parser("data", help="the paper's image data sets: list, check, pack")
    data.set_defaults(call=run_list)
    parts = data.add_subparsers(dest="part", metavar="what")
    listed = parts.add_parser("list", help="the data sets, their files and their licences")
    listed.set_defaults(call=run_list)
    check = parts.add_parser("check", help="read a data set and print its contents, or its first error")
    check.set_defaults(call=run_check)
    check.add_argument("task", metavar="TASK", help=", ".join(IMAGE_TASKS))
    check.add_argument("path", type=Path, metavar="PATH", help="a file, or the folder of official files")
    check.add_argument("--split", help=f"{', '.join(SPLITS)} (the paper's)")
    check.add_argument("--seed", type=int, default=0, help="of the split (0)")
    pack = parts.add_parser("pack", help="a folder of PNG files of cells into one HDF5 file")
    pack.set_defaults(call=run_pack)
    pack.add_argument("folder", type=Path, metavar="FOLDER", help=f"of {IMAGE_TASKS['cells'].png_names}")
    pack.add_argument("--out", type=Path, required=True, metavar="FILE.h5", help="must not exist yet")
    pack.add_argument("--quiet", action="store_true", help="no progress bar")


def run_list(options: argparse.Namespace) -> None:
    """Print the files, targets and licences of the data sets."""
    print("\n\n".join(_entry(task) for task in IMAGE_TASKS.values()))


def run_check(options: argparse.Namespace) -> None:
    """Read all of a data set and print its contents."""
    split = load(options.task, options.path, options.split, options.seed)
    for part in (split.train, split.test):
        _read_all(part)
    task = IMAGE_TASKS[options.task]
    y = torch.cat([split.train.y, split.test.y])
    how = split.how
    _, *size = split.train.pixels.shape
    seed = "" if how["seed"] is None else f", seed {how['seed']}"
    lines = {
        "data": f"{options.path}, as {task.title}",
        "rows": f"{len(y)} ({how['left_out']} left out)",
        "images": f"{' x '.join(map(str, size))}, uint8",
        "split": f"{how['split']}{seed}: {how['train']} for training, {how['test']} for test",
    }
    if "test_groups" in how:
        lines["test groups"] = ", ".join(map(str, how["test_groups"]))
    for name, column in zip(task.target_names, y.T, strict=False):  # a file may lack the last
        lines[name] = f"{column.min():g} to {column.max():g} {task.unit}; {_ties(column)}"
    outside = int(((y < task.low) | (y > task.high)).any(dim=1).sum())
    lines["outside the grid"] = f"{outside} of {len(y)} rows, not in [{task.low:g}, {task.high:g}]"
    print(_table(lines))


def _read_all(part: ImageData) -> None:
    # Images of a large data set stay on disk, so errors appear only when each is read.
    from tqdm.auto import tqdm

    with tqdm(total=len(part), desc="images", unit="image", disable=None) as bar:
        for rows in torch.arange(len(part)).split(_ROWS):
            part.__getitems__(rows)
            bar.update(len(rows))


def run_pack(options: argparse.Namespace) -> None:
    """Turn a folder of PNG files into an HDF5 file."""
    if not options.folder.is_dir():
        raise FileNotFoundError(f"{options.folder} must be a folder of PNG files; give the path of one")
    task = IMAGE_TASKS["cells"]
    data = read_png_folder(options.folder, task)
    write_hdf5(options.out, data.pixels, data.y.numpy(), task, progress=not options.quiet)
    print(f"{options.out}: {len(data)} images; check it by: ebreg data check cells {options.out}")


def _entry(task: ImageTask) -> str:
    columns = " or ".join(f"(N, {D})" if D > 1 else "(N,)" for D in task.n_targets)
    files = " and ".join(task.files)
    lines = {
        "target": f"{task.target}, in {task.unit}",
        "files": files if task.png_names is None else f"{files}, or a folder of {task.png_names}",
        "keys": f"{task.image_key} {task.image_shape} uint8, {task.label_key} {columns}",
        "split": task.split,
        "from": task.source,
        "licence": task.licence,
    }
    return f"{task.name}: {task.title}\n{_table(lines, indent='  ')}"


def _table(lines: dict[str, str], indent: str = "") -> str:
    width = max(map(len, lines)) + 2
    return "\n".join(f"{indent}{name:<{width}}{text}" for name, text in lines.items())


def _ties(column: Tensor) -> str:
    values, counts = column.unique(return_counts=True)
    repeated = counts[counts > 1].sum().item() / len(column)
    whole = (column == column.round()).double().mean().item()
    return (
        f"{whole:.0%} whole numbers, {repeated:.0%} shared with other rows, {len(values)} distinct, "
        f"most often {values[counts.argmax()]:g} ({counts.max().item() / len(column):.0%})"
    )
