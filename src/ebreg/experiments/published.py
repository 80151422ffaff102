"""The paper's values of the image tables: the NLL of the test images, mean ± std of the best 5 of 20 runs."""

from ebreg.experiments.mean_std import MeanStd

# The noise of NCE that the paper tries on each task, in its order, with the NLL; then that of the proposed
# method.
NOISE: dict[str, dict[tuple[float, float], MeanStd]] = {
    "steering": {
        (0.1, 20): MeanStd(1.59, 0.08),
        (1, 20): MeanStd(1.51, 0.05),
        (2, 20): MeanStd(1.56, 0.04),
        (1, 10): MeanStd(2.03, 0.14),
        (1, 40): MeanStd(1.39, 0.02),
    },
    "cells": {
        (0.1, 40): MeanStd(2.71, 0.07),
        (1, 40): MeanStd(2.64, 0.05),
        (2, 40): MeanStd(2.65, 0.05),
        (1, 20): MeanStd(3.12, 0.37),
        (1, 80): MeanStd(2.70, 0.05),
    },
    "age": {
        (0.01, 20): MeanStd(4.18, 0.30),
        (0.1, 20): MeanStd(3.81, 0.18),
        (1, 20): MeanStd(4.13, 0.48),
        (0.1, 10): MeanStd(3.97, 0.21),
        (0.1, 40): MeanStd(4.47, 0.25),
    },
    "head-pose": {
        (0.1, 20): MeanStd(13.68, 0.10),
        (1, 20): MeanStd(10.99, 0.29),
        (2, 20): MeanStd(10.85, 0.11),
        (1, 10): MeanStd(10.73, 0.19),
        (1, 40): MeanStd(11.20, 0.15),
    },
}
OURS = {
    "steering": MeanStd(1.58, 0.13),
    "cells": MeanStd(2.66, 0.03),
    "age": MeanStd(4.30, 0.30),
    "head-pose": MeanStd(9.51, 0.07),
}
# Mixtures by their log-likelihood alone, and with a teacher, by K.
MDN_NLL: dict[int, dict[str, MeanStd]] = {
    4: {
        "steering": MeanStd(1.45, 0.13),
        "cells": MeanStd(2.80, 0.09),
        "age": MeanStd(4.88, 0.21),
        "head-pose": MeanStd(11.02, 0.16),
    },
    8: {
        "steering": MeanStd(1.25, 0.05),
        "cells": MeanStd(2.90, 0.06),
        "age": MeanStd(4.71, 0.35),
        "head-pose": MeanStd(10.68, 0.39),
    },
    16: {"head-pose": MeanStd(10.71, 0.17)},
}
MDN_TEACHER: dict[int, dict[str, MeanStd]] = {
    4: {
        "steering": MeanStd(1.00, 0.03),
        "cells": MeanStd(2.80, 0.06),
        "age": MeanStd(3.57, 0.28),
        "head-pose": MeanStd(8.69, 0.10),
    },
    8: {
        "steering": MeanStd(1.01, 0.04),
        "cells": MeanStd(2.75, 0.06),
        "age": MeanStd(3.65, 0.18),
        "head-pose": MeanStd(8.79, 0.06),
    },
    16: {"head-pose": MeanStd(8.77, 0.09)},
}
