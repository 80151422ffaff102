"""Images whose targets are known: the same for a seed, as hard as they are said to be, turned as they say."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV
from torch import Tensor

from ebreg.datasets import synthetic
from ebreg.datasets.synthetic import PITCH, ROLL, YAW, Scene, render, rotation
from ebreg.datasets.synthetic.shapes import Box, Ellipsoid, vector

GENERATORS = {"cells": synthetic.cells, "solid": synthetic.solid}
CHANNELS = {"cells": 1, "solid": 3}
TARGETS = {"cells": 1, "solid": 3}


def poses(n: int, seed: int = 0) -> Tensor:
    """Uniform in the range of the data, shape (n, 3)."""
    unit = torch.rand(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * unit - 1) * torch.tensor([YAW, PITCH, ROLL])


def centroid(weight: Tensor) -> Tensor:
    """Mean place of a weight over pixels (size, size), as x to the right and y up, in half widths."""
    size = len(weight)
    across = (2 * torch.arange(size, dtype=torch.float64) + 1) / size - 1
    return torch.stack([(weight * across).sum(), -(weight * across[:, None]).sum()]) / weight.sum()


@pytest.mark.parametrize("name", GENERATORS)
class TestEveryGenerator:
    def test_shapes_and_kinds(self, name):
        images, targets = GENERATORS[name](3, size=32)
        assert images.shape == (3, CHANNELS[name], 32, 32)
        assert targets.shape == (3, TARGETS[name])
        assert (images.dtype, targets.dtype) == (torch.uint8, torch.float64)
        assert GENERATORS[name](1)[0].shape == (1, CHANNELS[name], 64, 64)

    def test_a_seed_means_the_same_bytes(self, name):
        state = torch.get_rng_state()
        first, again, other = (GENERATORS[name](4, seed=seed, size=32) for seed in (7, 7, 8))
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
        assert torch.equal(torch.get_rng_state(), state)  # torch's own numbers are left alone

    def test_a_longer_set_begins_with_the_shorter_one(self, name):
        longer, shorter = GENERATORS[name](9, seed=3, size=32), GENERATORS[name](4, seed=3, size=32)
        assert all(torch.equal(a[:4], b) for a, b in zip(longer, shorter, strict=True))
        assert len(longer[1].unique(dim=0)) == 9

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"n": 0}, ValueError, "n must be at least 1, got 0"),
            ({"n": 2.5}, TypeError, "n must be a whole number, got 2.5"),
            ({"size": 8}, ValueError, "size must be at least 16, got 8"),
            ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
            ({"seed": 2**32}, ValueError, r"seed must be at most 2\*\*32 - 1, got 4294967296"),
        ],
    )
    def test_bad_arguments_are_refused(self, name, arguments, error, message):
        with pytest.raises(error, match=message):
            GENERATORS[name](**{"n": 1} | arguments)


@pytest.fixture(scope="module")
def counted() -> tuple[Tensor, Tensor]:
    images, counts = synthetic.cells(480, seed=1)
    return images[:, 0].double(), counts[:, 0]


class TestCells:
    def test_counts_are_uniform_whole_numbers(self, counted):
        _, counts = counted
        assert torch.equal(counts, counts.round())
        assert 1 <= counts.min() < 8
        assert 193 < counts.max() <= 200
        # Mean and variance of the uniform law, within four standard errors.
        n, variance = len(counts), (200**2 - 1) / 12
        assert counts.mean() == pytest.approx(100.5, abs=4 * (variance / n) ** 0.5)
        assert counts.var() == pytest.approx(variance, abs=4 * variance * (0.8 / n) ** 0.5)

    def test_bounds_are_reached_and_kept(self):
        _, counts = synthetic.cells(60, size=16, low=3, high=5)
        assert counts.unique().tolist() == [3, 4, 5]

    def test_images_grow_brighter_with_the_count(self, counted):
        images, counts = counted
        brightness = images.mean((1, 2))
        means = [brightness[(counts > low) & (counts <= low + 25)].mean() for low in range(0, 200, 25)]
        assert (torch.stack(means).diff() > 0).all()
        assert (images == 255).double().mean() < 0.01

    def test_a_single_cell_is_seen_wherever_it_is(self):
        empty, one = (synthetic.cells(100, low=k, high=k)[0].double() for k in (0, 1))
        # Means over 3 x 3 pixels, beyond the background.
        empty, one = (torch.nn.functional.avg_pool2d(x, 3, 1).flatten(1) for x in (empty, one))
        empty, peak = (x.amax(1) - x.median(1).values for x in (empty, one))
        assert peak.min() > empty.max()
        place = one.argmax(1)
        for coordinate in (place // 62, place % 62):
            assert coordinate.min() < 5
            assert coordinate.max() > 56

    def test_simple_statistics_find_the_count_but_not_exactly(self, counted):
        images, counts = counted
        levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
        statistics = torch.cat(
            [
                images.mean((1, 2))[:, None],
                images.std((1, 2))[:, None],
                images.diff(dim=1).abs().mean((1, 2))[:, None],
                images.flatten(1).quantile(levels, dim=1).T,
            ],
            dim=1,
        ).numpy()
        train, test = slice(0, 320), slice(320, None)
        ridge = RidgeCV(alphas=np.logspace(-3, 3, 13)).fit(statistics[train], counts[train])
        error = np.abs(ridge.predict(statistics[test]) - counts[test].numpy())
        assert 3 < error.mean() < 20
        # Blind guessing is off by 50. Few cells are counted better than many.
        many = counts[test].numpy() > 100
        assert error[~many].mean() < 0.8 * error[many].mean()

    def test_bad_bounds_are_refused(self):
        with pytest.raises(ValueError, match=r"high, with low = 9, must be at least 9, got 5"):
            synthetic.cells(1, low=9, high=5)
        with pytest.raises(ValueError, match=r"low must be at least 0, got -1"):
            synthetic.cells(1, low=-1)


class TestPoses:
    def test_rotations_are_rotations(self):
        R = rotation(poses(20))
        assert torch.allclose(R @ R.mT, torch.eye(3, dtype=R.dtype).expand(20, 3, 3), atol=1e-14)
        assert torch.allclose(torch.linalg.det(R), torch.ones(20, dtype=R.dtype))

    @pytest.mark.parametrize(
        ("pose", "point", "seen"),
        [
            ((90, 0, 0), (0, 0, 1), (1, 0, 0)),  # the front goes to the right
            ((0, 90, 0), (0, 1, 0), (0, 0, 1)),  # the top comes to the viewer
            ((0, 0, 90), (0, 1, 0), (-1, 0, 0)),  # the top goes to the left
            ((90, 90, 0), (0, 0, 1), (1, 0, 0)),  # yaw comes first
            ((0, 90, 90), (0, 0, 1), (1, 0, 0)),  # roll comes last
        ],
    )
    def test_the_sense_and_the_order_of_the_angles(self, pose, point, seen):
        R = rotation(torch.tensor([pose]))[0]
        assert (R @ torch.tensor(point, dtype=R.dtype)).tolist() == pytest.approx(seen, abs=1e-12)

    def test_a_twin_is_a_quarter_turn_away_and_in_range(self):
        pose = poses(50)
        both = synthetic.equivalent_poses(pose)
        assert both.shape == (50, 2, 3)
        assert torch.equal(both[:, 0], pose)
        twin = both[:, 1]
        assert (twin[:, 0].abs() <= YAW).all()
        turn = rotation(pose).mT @ rotation(twin)  # in the frame of the solid
        up = torch.tensor([0, 1, 0], dtype=turn.dtype)
        assert torch.allclose(turn @ up, up.expand(50, 3))
        assert torch.allclose(turn[:, 0, 0], torch.zeros(50, dtype=turn.dtype), atol=1e-12)
        assert torch.allclose(synthetic.equivalent_poses(twin)[:, 1], pose)

    def test_the_mark_is_hidden_from_below(self):
        pose = poses(50)
        assert torch.equal(synthetic.mark_is_hidden(pose), pose[:, 1] < 0)

    def test_bad_poses_and_lights_are_refused(self):
        with pytest.raises(ValueError, match=r"pose must have shape \(n, 3\), got \(3,\)"):
            rotation(torch.zeros(3))
        with pytest.raises(ValueError, match=r"pose must be finite, got nan"):
            render(torch.full((1, 3), torch.nan))
        with pytest.raises(ValueError, match=r"yaw must lie in \[-90, 90\], got 120"):
            synthetic.equivalent_poses(torch.tensor([[120.0, 0, 0]]))
        with pytest.raises(ValueError, match=r"the number of poses must be at least 1, got 0"):
            render(torch.zeros(0, 3))
        with pytest.raises(ValueError, match=r"z of light must be a finite number above 0, got -1"):
            Scene(light=(0.0, 0.0, -1.0))
        with pytest.raises(ValueError, match=r"the length of light must be a finite number above 0, got nan"):
            Scene(light=(np.nan, 0.0, 1.0))


BOX = Box(vector(0.1, -0.2, 0.3), vector(0.5, 0.3, 0.2))
ELLIPSOID = Ellipsoid(vector(-0.1, 0.2, 0.1), vector(0.5, 0.3, 0.4))


def in_box(p: np.ndarray) -> np.ndarray:
    return (np.abs(p - BOX.centre) <= BOX.half).all(axis=0)


def in_ellipsoid(p: np.ndarray) -> np.ndarray:
    return (((p - ELLIPSOID.centre) / ELLIPSOID.radii) ** 2).sum(axis=0) <= 1


@pytest.mark.parametrize(("shape", "inside"), [(BOX, in_box), (ELLIPSOID, in_ellipsoid)])
class TestShapes:
    def test_rays_are_inside_between_entry_and_exit(self, shape, inside):
        rng = np.random.RandomState(0)
        steps = np.linspace(-3, 3, 2001)
        for direction in [rng.standard_normal((3, 1)) for _ in range(5)] + [
            vector(0, 0, 1),
            vector(0, -1, 0),
        ]:
            d = direction / np.linalg.norm(direction)
            o = rng.uniform(-0.6, 0.6, (3, 40))
            enter, leave = shape.crossing(o, d)
            for i in range(40):
                within = steps[inside(o[:, [i]] + steps * d)]
                if len(within):
                    assert (enter[i], leave[i]) == pytest.approx((within[0], within[-1]), abs=0.004)
                else:
                    assert leave[i] - enter[i] < 0.004

    def test_normals_are_unit_and_lead_out(self, shape, inside):
        rng = np.random.RandomState(1)
        d = np.array([[0.6], [0.0], [0.8]])
        o = shape.centre + rng.uniform(-0.1, 0.1, (3, 40))
        p = o + shape.crossing(o, d)[0] * d
        normal = shape.normal(p)
        assert np.linalg.norm(normal, axis=0) == pytest.approx(1)
        assert not inside(p + 1e-6 * normal).any()
        assert inside(p - 1e-6 * normal).all()

    def test_nothing_lies_beyond_its_reach(self, shape, inside):
        rng = np.random.RandomState(2)
        p = rng.uniform(-1, 1, (3, 20_000))
        axes = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        farthest = np.abs(axes @ (p[:, inside(p)] - shape.centre)).max(axis=1)
        reach = shape.reach(axes)
        assert (farthest <= reach).all()
        assert farthest == pytest.approx(reach, rel=0.2)


class TestRendering:
    def test_a_mirror_image_is_that_of_the_mirrored_pose(self):
        pose = poses(4)
        mirrored = render(pose * torch.tensor([-1, 1, -1]), Scene(light=(-0.3, 0.7, 1.0)), size=32)
        assert torch.allclose(render(pose, Scene(light=(0.3, 0.7, 1.0)), size=32).flip(3), mirrored)

    def test_a_quarter_roll_turns_the_outline(self):
        pose = poses(4)
        rolled = pose + torch.tensor([0, 0, 90])
        dark = Scene(lamp=0.0, ambient=0.0)
        outline, turned = (render(p, dark)[:, 0] for p in (pose, rolled))
        assert torch.equal((outline == 0).rot90(dims=(1, 2)), turned == 0)
        assert 0.15 < (outline == 0).double().mean() < 0.5

    def test_the_mark_is_where_the_matrix_says(self):
        pose = poses(12)
        pose[:, 1] = pose[:, 1].abs().clamp(min=25)
        red, green, _ = render(pose).unbind(1)
        for R, weight in zip(rotation(pose), (red - 3 * green).clamp(min=0), strict=True):
            expected = R[:2] @ torch.tensor([0, 0.38, 0.64], dtype=R.dtype) / 1.12
            assert (centroid(weight) - expected).norm() < 0.03

    def test_twins_look_the_same_while_the_mark_is_hidden(self):
        both = synthetic.equivalent_poses(poses(24))
        pose, twin = both.unbind(1)
        hidden = synthetic.mark_is_hidden(pose)
        assert 6 < hidden.sum() < 18
        difference = (render(pose) - render(twin)).abs().amax((1, 2, 3))
        assert difference[hidden].max() < 1e-9
        assert difference[~hidden].min() > 0.05
        assert difference[pose[:, 1] > 10].min() > 0.3

    def test_the_lamp_lights_the_side_that_it_is_on(self):
        left, right = (render(torch.zeros(1, 3), Scene(light=(x, 0.2, 0.6)))[0] for x in (-1.0, 1.0))
        knob = slice(4, 20)
        assert left[0, knob, 24:32].mean() > right[0, knob, 24:32].mean() + 0.02
        assert torch.allclose(left.flip(2), right)


@pytest.fixture(scope="module")
def posed() -> tuple[Tensor, Tensor]:
    return synthetic.solid(60, seed=2)


class TestSolid:
    def test_poses_fill_their_ranges(self, posed):
        _, pose = posed
        limits = torch.tensor([YAW, PITCH, ROLL])
        assert (pose.abs() <= limits).all()
        assert (pose.amax(0) > 0.8 * limits).all()
        assert (pose.amin(0) < -0.8 * limits).all()

    def test_images_are_those_of_their_poses(self, posed):
        # Light, paint and noise vary, and the pose must still be the best fit among wrong ones.
        images, pose = posed[0][:12] / 255, posed[1][:12]
        pictures = render(pose)
        errors = (images[:, None] - pictures[None]).flatten(2)
        errors = errors - errors.mean(2, keepdim=True)  # the brightness of the background is free
        assert torch.equal(errors.square().mean(2).argmin(1), torch.arange(12))

    def test_scenes_vary_a_little(self, posed):
        corner = posed[0][:, :, :8, :8].double().mean((2, 3))
        assert corner.std(0).min() > 5
        assert 60 < corner.min() < corner.max() < 220
        noise = posed[0][:, :, :2, :].double().diff(dim=3).std() / 2**0.5
        assert noise == pytest.approx(3, abs=0.3)
