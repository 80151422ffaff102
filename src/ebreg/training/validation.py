"""Validation: the negative log-likelihood (NLL) of every validation row."""

import math

import torch
from torch import Tensor

from ebreg.methods import Method
from ebreg.training.batches import Data
from ebreg.training.processes import Processes
from ebreg.training.stages import Stage


@torch.no_grad()
def validation_nll(
    method: Method, data: Data, rows: Tensor, stage: Stage, processes: Processes, n_rows: int
) -> Tensor:
    """NLL of each row in evaluation mode, on the CPU in float64, shape (G, n).

    Members that share their rows are one block; the NLL is then that of their mean density.

    Args:
        method: The method with the weights to evaluate.
        data: Data of the stage that hold the rows.
        rows: Row numbers for each block, shape (G, n).
        stage: The current stage of the training.
        processes: The processes that share the rows; each of them gets all results.
        n_rows: Rows evaluated at once, in all blocks together.
    """
    method.eval()
    nll = torch.zeros(rows.shape, dtype=torch.float64)
    for columns in processes.own(rows.shape[1]).split(max(1, n_rows // len(rows))):
        if len(columns):
            nll[:, columns] = _nll(method, data, rows[:, columns], stage)
    return torch.tensor(processes.total(*nll.flatten().tolist()), dtype=torch.float64).view(rows.shape)


def _nll(method: Method, data: Data, rows: Tensor, stage: Stage) -> Tensor:
    # Of some rows of each block, (G, n).
    model, n = method.model, rows.shape[1]
    x, y = (values.to(model.reference.device) for values in data.__getitems__(rows.flatten()))
    y = y.repeat(model.n_members, 1) if model.shares_backbone else y
    with stage.inputs(method):
        nll = method.validation_nll(x, y).cpu().double()
    if model.shares_backbone:
        nll = math.log(model.n_members) - torch.logsumexp(-nll.view(-1, n), dim=0)
    return nll.view(-1, n)
