"""State: everything that changes while a method is trained, and how a checkpoint holds it."""

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebreg._utils import checks
from ebreg.errors import CheckpointError
from ebreg.methods import Method
from ebreg.networks import MemberLinear, keep_members
from ebreg.saving import checkpoints, files
from ebreg.saving.schema import anything, each, fields, mapping, none_or, number, real, whole
from ebreg.training.adamw import AdamW
from ebreg.training.averaging import Average
from ebreg.training.config import TrainingConfig
from ebreg.training.early_stopping import Selection


@dataclass
class Progress:
    """How far a training has come; a checkpoint holds it beside the tensors.

    Attributes:
        epoch: Epochs finished.
        batch: Batches finished in the epoch under way.
        history: One entry per finished epoch: the mean of each loss, and ``validation_nll`` if validated.
        sums: Sums of the losses over the examples of the epoch under way.
        seconds: Time spent so far.
    """

    epoch: int = 0
    batch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    sums: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class State:
    """The method under training, its optimiser, its average, the best weights so far, and the random states.

    Restored from a checkpoint, a training goes on as if it had never stopped.

    Members with backbones of their own are blocks of rows, each with its own best epoch; the members that are
    finished are left out. Otherwise there is one block.

    Args:
        method: What is trained, in place.
        config: Settings.

    Attributes:
        whole: The method with all members.
        method: The method with the members in training.
        blocks: The numbers of the blocks in training, shape (G,).
    """

    def __init__(self, method: Method, config: TrainingConfig):
        self.whole = self.method = method
        self._config = config
        n_blocks = 1 if method.model.shares_backbone else method.model.n_members
        self.blocks = torch.arange(n_blocks)
        if n_blocks > 1:
            _check_members(method, n_blocks)
        self._start()
        self.noise = torch.Generator().manual_seed(config.seed % 2**63)
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        self.selections = [Selection(config.anchor) for _ in range(n_blocks)]

    def _start(self) -> None:
        # A new optimiser and a new average.
        config = self._config
        self.parameters = [p for p in self.method.parameters() if p.requires_grad]
        self.optimizer = AdamW(self.parameters, config.weight_decay)
        self.average = None if config.averaging is None else Average(self.method, config.averaging)

    @property
    def candidate(self) -> Method:
        """The method with the weights that would be kept now."""
        return self.method if self.average is None else self.average.module

    def consider(self, epoch: int, rows: Tensor, weights: Tensor) -> None:
        """Keep the candidate's weights in the blocks where this epoch is now the best.

        Args:
            epoch: Its number.
            rows: NLL of the validation rows of each block, shape (G, n).
            weights: Weights of those rows, shape (G, n).
        """
        better = [
            self.selections[block].consider(epoch, *values)
            for block, *values in zip(self.blocks.tolist(), rows, weights, strict=True)
        ]
        self.keep_candidate(torch.tensor(better))

    def keep_candidate(self, better: Tensor) -> None:
        """Remember the candidate's weights as the best in some blocks, given as a mask (G,)."""
        if not better.any():
            return
        weights = {name: value.detach() for name, value in self.candidate.state_dict().items()}
        if len(self.selections) == 1:
            self.best = {name: value.clone() for name, value in weights.items()}
            return
        if not self.best:
            self.best = {name: value.detach().clone() for name, value in self.whole.state_dict().items()}
        for name in _member_parameters(self.whole):  # nothing else is trained
            self.best[name][self.blocks[better]] = weights[name][better]

    def drop_finished(self, n_epochs: int) -> bool:
        """Leave out the members that need no more training; whether there are any, and others are left."""
        going = torch.tensor([not self.is_finished(block, n_epochs) for block in self.blocks.tolist()])
        if going.all() or not going.any():
            return False
        self._keep_blocks(going.nonzero()[:, 0])
        return True

    def is_finished(self, block: int, n_epochs: int) -> bool:
        """Whether early stopping ends the training of a block after some epochs."""
        config = self._config
        return self.selections[block].should_stop(n_epochs, config.patience, config.patience_growth)

    def _keep_blocks(self, index: Tensor) -> None:
        slots = self.optimizer.slots
        average = self.average
        if self.method is self.whole:
            # The networks of all members get the best weights at the end; what is trained on is a copy.
            self.whole.zero_grad()
            self.method = copy.deepcopy(self.whole)
        keep_members(self.method, index)
        self.blocks = self.blocks[index]
        self._start()
        self.optimizer.slots = [
            {name: value[index].clone() if value.dim() else value for name, value in slot.items()}
            for slot in slots
        ]
        if average is not None and self.average is not None:
            keep_members(average.module, index)
            self.average.module.load_state_dict(average.module.state_dict())
            self.average.n_steps = average.n_steps

    def take_best(self) -> bool:
        """Give the method the best weights; whether there are any yet."""
        if self.best:
            self.whole.load_state_dict(self.best)
        return bool(self.best)

    def take_candidate(self) -> None:
        """Give the method the candidate's weights."""
        if self.average is not None:
            self.method.load_state_dict(self.average.module.state_dict())

    def save(self, path: Path, identity: Mapping[str, Any], sums: dict[str, float]) -> None:
        """Write a checkpoint.

        Args:
            path: The file.
            identity: What must be equal for a resumed run to be the same run.
            sums: Sums of the losses of the epoch under way, over all processes.
        """
        progress = replace(self.progress, sums=sums)
        tensors = _over("method", self.method.state_dict()) | _over("best", self.best)
        for block, selection in enumerate(self.selections):
            if selection.best_rows is not None:
                tensors[f"validation.rows.{block}"] = selection.best_rows
        if self.average is not None:
            tensors |= _over("average", self.average.module.state_dict())
        for i, slot in enumerate(self.optimizer.slots):
            tensors |= _over(f"optimizer.{i}", slot)
        tensors["random.noise"] = self.noise.get_state()
        tensors["random.global"] = torch.get_rng_state()
        if self._device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self._device)
        facts = {
            "settings": dict(identity),
            "progress": asdict(progress),
            "selections": [
                {name: getattr(selection, name) for name in ("best_epoch", "lowest_epoch")}
                for selection in self.selections
            ],
            "blocks": self.blocks.tolist(),
            "learned": [i for i, slot in enumerate(self.optimizer.slots) if slot],
        }
        try:
            checkpoints.write(path, tensors, facts)
        except OSError as error:
            raise OSError(
                f"the checkpoint {path} cannot be written ({error.strerror}), and stays as it was; make "
                "room there and resume, or give another path"
            ) from error

    def restore(self, path: Path, identity: Mapping[str, Any], n_batches: int) -> None:
        """Read what :meth:`save` wrote; all of it is checked before anything is changed.

        Args:
            path: The file.
            identity: Of this run.
            n_batches: Batches in an epoch.

        Raises:
            CheckpointError: If the file is damaged, or of another run.
        """
        tensors, facts = checkpoints.read(path)
        try:
            _FACTS("", facts)
        except ValueError as error:
            raise files.damaged(checkpoints.FORMAT, path, error) from error
        _check_same(identity, facts["settings"], path)
        try:
            self._restore_blocks(facts["blocks"])
        except (ValueError, IndexError) as error:
            raise files.damaged(checkpoints.FORMAT, path, error) from error
        weights, average = _under("method.", tensors), _under("average.", tensors)
        checkpoints.check_fits(self.method, weights, path)
        if self.average is not None:
            checkpoints.check_fits(self.average.module, average, path)
        try:
            progress = _checked(Progress(**facts["progress"]))
            slots = self._slots(_under("optimizer.", tensors), facts["learned"])
            noise, everywhere = tensors["random.noise"], tensors["random.global"]
            for state in (noise, everywhere):  # tried out on a generator that nothing else uses
                torch.Generator().set_state(state)
            selections = [
                self._selection(block, epochs, progress, tensors)
                for block, epochs in enumerate(facts["selections"])
            ]
            if len(selections) != len(self.selections):
                raise ValueError(f"there are {len(selections)} selections for {len(self.selections)} members")
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            raise files.damaged(checkpoints.FORMAT, path, error) from error
        self.method.load_state_dict(weights)
        if self.average is not None:
            self.average.module.load_state_dict(average)
            self.average.n_steps = progress.epoch * n_batches + progress.batch
        self.optimizer.slots = slots
        self.best, self.selections, self.progress = _under("best.", tensors), selections, progress
        self.noise.set_state(noise)
        torch.set_rng_state(everywhere)
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self._device)

    @property
    def _device(self) -> torch.device:
        return self.method.model.reference.device

    def _restore_blocks(self, blocks: list[int]) -> None:
        # The members that were still trained.
        index = torch.tensor(blocks)
        if not blocks or sorted(set(blocks)) != blocks or not set(blocks) <= set(self.blocks.tolist()):
            raise ValueError(f"members {blocks} were still trained, and there are {len(self.blocks)}")
        if len(index) < len(self.blocks):
            self._keep_blocks(index)

    def _selection(
        self, block: int, epochs: dict[str, Any], progress: Progress, tensors: dict[str, Tensor]
    ) -> Selection:
        anchor = self._config.anchor
        best, lowest = epochs["best_epoch"], epochs["lowest_epoch"]
        if best is None:
            return Selection(anchor)
        name = self.nll_name(block)
        nll = {i: e[name] for i, e in enumerate(progress.history) if name in e}
        lowest_nll = float("inf") if lowest is None else nll[lowest]
        return Selection(anchor, best, tensors[f"validation.rows.{block}"], lowest, lowest_nll, max(nll))

    def nll_name(self, block: int) -> str:
        """Name of a block's validation NLL in the history."""
        return "validation_nll" if len(self.selections) == 1 else f"validation_nll_{block}"

    def _slots(self, tensors: dict[str, Tensor], learned: list[int]) -> list[dict[str, Tensor]]:
        slots: list[dict[str, Tensor]] = [{} for _ in self.parameters]
        for name, value in tensors.items():
            index, slot = name.split(".", 1)
            slots[int(index)][slot] = value
        # A parameter that has not learned yet, frozen or not in use, has none.
        known = [i for i, slot in enumerate(slots) if slot]
        if known != learned:
            raise KeyError(f"the optimiser knows {len(known)} parameters, and {len(learned)} had learned")
        for i in known:
            for name in ("exp_avg", "exp_avg_sq"):
                checks.shape(f"optimizer {name}", slots[i][name], tuple(self.parameters[i].shape))
            checks.shape("optimizer step", slots[i]["step"], ())
        return [
            {name: value.to(parameter.device) for name, value in slot.items()}
            for slot, parameter in zip(slots, self.parameters, strict=True)
        ]


# What a checkpoint holds beside its tensors. A loss may be infinite.
_FACTS = fields(
    settings=mapping(anything),
    progress=fields(
        epoch=whole(),
        batch=whole(),
        history=each(mapping(real)),
        sums=mapping(real),
        seconds=number(0),
    ),
    selections=each(fields(best_epoch=none_or(whole()), lowest_epoch=none_or(whole()))),
    blocks=each(whole()),
    learned=each(whole()),
)


def _member_parameters(method: Method) -> set[str]:
    # Names in the state dict; a layer that two models share has two.
    return {
        f"{path}.{name}"
        for path, layer in method.named_modules(remove_duplicate=False)
        if isinstance(layer, MemberLinear)
        for name in ("weight", "bias")
    }


def _check_members(method: Method, n_members: int) -> None:
    members = _member_parameters(method)
    others = [name for name, p in method.named_parameters() if p.requires_grad and name not in members]
    if others:
        raise ValueError(
            f"with {n_members} members every trained parameter must be one of a MemberLinear layer; "
            f"{others[0]} is not"
        )


def _check_same(here: Mapping[str, Any], there: Mapping[str, Any], path: Path) -> None:
    for name, value in here.items():
        if there.get(name) != value:
            raise CheckpointError(
                f"{path} was made with {name} = {there.get(name)!r}, and this training has {value!r}; "
                "use the same settings to resume, or another path to start anew"
            )


def _checked(progress: Progress) -> Progress:
    if len(progress.history) != progress.epoch:
        raise ValueError(f"{progress.epoch} epochs were finished, and {len(progress.history)} have losses")
    return progress


def _over(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
