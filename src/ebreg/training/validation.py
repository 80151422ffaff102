"""Validation: the negative log-likelihood (NLL) of every validation row."""

import torch
from torch import Tensor

from ebreg.methods import Method
from ebreg.training.batches import Data
from ebreg.training.processes import Processes
from ebreg.training.stages import Stage


@torch.no_grad()
def validation_nll(method: Method, data: Data, stage: Stage, processes: Processes, n_rows: int) -> Tensor:
    """NLL of each row in evaluation mode, on the CPU in float64, shape (n,).

    Args:
        method: The method with the weights to evaluate.
        data: The validation data of the stage.
        stage: The current stage of the training.
        processes: The processes that share the rows; each of them gets all results.
        n_rows: Rows evaluated at once.
    """
    method.eval()
    device = method.model.reference.device
    nll = torch.zeros(len(data), dtype=torch.float64)
    for index in processes.own(len(data)).split(n_rows):
        if len(index):
            x, y = (values.to(device) for values in data.__getitems__(index.tolist()))
            with stage.inputs(method):
                nll[index] = method.validation_nll(x, y).cpu().double()
    return torch.tensor(processes.total(*nll.tolist()), dtype=torch.float64)
