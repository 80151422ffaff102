import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ebreg import MixtureDensityRegressor, plots
from ebreg.distributions import GaussianMixture
from ebreg.plots import canvas

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

X = torch.linspace(0, 1, 5, dtype=torch.float64)
Y = torch.linspace(-4, 4, 201, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def two_modes():
    """A narrow major and a wide minor mode whose heights differ by a factor 4, shape (201, 5)."""
    major = -0.5 * ((Y + 2) / 0.3).square()
    minor = -0.5 * ((Y - 2) / 0.5).square() + np.log(0.25)
    return torch.logaddexp(major, minor)[:, None].expand(-1, len(X)).clone()


def shades(ax):
    return np.asarray(ax.collections[0].get_array()).reshape(len(Y), len(X))


class TestDensity:
    def test_draws_on_the_axes_given_or_on_new_ones(self):
        _, ax = plt.subplots()
        assert plots.density(X, Y, two_modes(), ax) is ax
        other = plots.density(X[:, None], Y[:, None].numpy(), two_modes().requires_grad_().float())
        assert other is not ax
        np.testing.assert_allclose(shades(ax), shades(other), atol=1e-5)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")
        assert ax.get_xlim() + ax.get_ylim() == (0, 1, -4, 4)
        ax.figure.canvas.draw()

    def test_a_constant_per_column_changes_nothing(self):
        log_p, c = two_modes(), torch.tensor([-5000.0, -1.0, 0.0, 1.0, 5000.0])
        np.testing.assert_allclose(
            shades(plots.density(X, Y, log_p + c)), shades(plots.density(X, Y, log_p)), atol=1e-9
        )

    def test_each_column_reaches_the_darkest_colour_whatever_its_width(self):
        scales = torch.tensor([0.001, 0.1, 0.5, 2.0, 50.0])
        shade = shades(plots.density(X, Y, -0.5 * ((Y[:, None] - 0.01) / scales).square()))
        np.testing.assert_array_equal(shade.max(0), 1)
        assert (np.diff(shade.sum(0)) > 0).all()

    @pytest.mark.parametrize("gamma", [1.0, 0.5])
    def test_minor_mode_keeps_its_relative_height(self, gamma):
        shade = shades(plots.density(X, Y, two_modes(), gamma=gamma))
        assert shade[Y > 0].max() == pytest.approx(0.25**gamma, rel=0.1)

    def test_one_spike_does_not_blank_its_column(self):
        log_p = torch.where((Y > 0) & (Y < 2), 0.0, -torch.inf)[:, None].repeat(1, len(X))
        spike = log_p.clone()
        spike[120] = 2.0  # a cell with a tenth of the mass
        np.testing.assert_array_equal(shades(plots.density(X, Y, spike)), shades(plots.density(X, Y, log_p)))

    def test_level_accounts_for_uneven_cells(self):
        uneven = torch.cat([torch.linspace(-4, 0, 181), torch.linspace(0.2, 4, 20)]).double()
        log_p = torch.where(uneven < -3.6, 1.2, 0.0)[:, None].repeat(1, len(X))
        # The tall cells hold 15% of the mass; by count they would seem to hold 26%.
        assert (shades(plots.density(X, uneven, log_p)) == 1).all()

    def test_zero_density_is_white_also_in_an_empty_column(self):
        log_p = two_modes()
        log_p[:, 3] = -torch.inf
        log_p[:10] = -torch.inf
        ax = plots.density(X, Y, log_p)
        assert (shades(ax)[:, 3] == 0).all()
        assert (shades(ax)[:10] == 0).all()
        assert ax.collections[0].cmap(0.0) == (1, 1, 1, 1)

    def test_input_is_not_changed(self):
        log_p = two_modes()
        before = log_p.clone()
        plots.density(X, Y, log_p)
        assert torch.equal(log_p, before)

    def test_lightness_of_the_colours_falls_evenly(self):
        rgb = canvas.light()(np.linspace(0, 1, 52))[:, :3]
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16
        steps = -np.diff(lightness)
        assert steps.min() > 0.8 * steps.mean()
        assert steps.max() < 1.2 * steps.mean()

    def test_other_colour_maps(self):
        assert plots.density(X, Y, two_modes(), cmap="viridis").collections[0].cmap.name == "viridis"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"log_p": two_modes().T}, r"log_p must have shape \(201, 5\).* got \(5, 201\)"),
            ({"log_p": two_modes() * float("nan")}, "log_p must be finite or -inf"),
            ({"log_p": two_modes() + float("inf")}, "log_p must be finite or -inf"),
            ({"x": X.flip(0)}, "x must hold at least 2 values in rising order"),
            ({"y": Y[:1]}, "y must hold at least 2 values in rising order"),
            ({"x": X[None]}, r"x must have shape \(n,\) or \(n, 1\), got \(1, 5\)"),
            ({"gamma": 0.0}, "gamma must be a finite number above 0"),
        ],
    )
    def test_bad_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            plots.density(**{"x": X, "y": Y, "log_p": two_modes()} | arguments)
        assert not plt.get_fignums()


class TestScatter:
    def test_points(self):
        _, ax = plt.subplots()
        ax.set_xlabel("age")
        assert plots.scatter(X[:, None], X.numpy() ** 2, ax, label="data") is ax
        np.testing.assert_allclose(ax.collections[0].get_offsets(), np.column_stack([X, X**2]))
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "y")
        assert ax.get_legend_handles_labels()[1] == ["data"]

    def test_bad_lengths(self):
        with pytest.raises(ValueError, match="y must have as many values as x, which has 5; got 201"):
            plots.scatter(X, Y)


class TestSideBySide:
    def test_panels_share_axes_and_carry_titles(self):
        panels = {
            "Truth": lambda ax: plots.density(X, Y, two_modes(), ax),
            "Data": lambda ax: plots.scatter(X, 9 * X, ax),
            "Again": lambda ax: plots.density(X, Y, two_modes(), ax),
        }
        figure, axes = plots.side_by_side(panels, width=3, height=2)
        assert [ax.get_title() for ax in axes] == list(panels)
        assert tuple(figure.get_size_inches()) == (9, 2)
        # The map's limits hold for the points too, although these reach beyond.
        assert {ax.get_ylim() for ax in axes} == {(-4, 4)}
        assert [ax.get_ylabel() for ax in axes] == ["y", "", ""]
        figure.canvas.draw()

    def test_one_panel_is_still_an_array(self):
        _, axes = plots.side_by_side({"Data": lambda ax: plots.scatter(X, X, ax)})
        assert axes.shape == (1,)

    def test_no_panels(self):
        with pytest.raises(ValueError, match="panels must hold at least one"):
            plots.side_by_side({})


class Mixture:
    """A prediction as estimators return it, numpy in and numpy out, over a mixture for each row.

    Args:
        weights: Shape (n, K).
        means: Shape (n, K).
        scales: Shape (n, K).
        keeps_axis: Whether the targets were given as (n, 1), and so are all the answers.
        n_targets: Of which the pictures must refuse more than one.
    """

    def __init__(self, weights, means, scales, keeps_axis=False, n_targets=1):
        self.parts = [np.array(part, dtype=np.float64) for part in (weights, means, scales)]
        self.keeps_axis, self.n_targets = keeps_axis, n_targets
        weights, means, scales = map(torch.from_numpy, self.parts)
        self.q = GaussianMixture(weights.log(), means[..., None], scales[..., None])

    def __len__(self):
        return len(self.parts[0])

    def __getitem__(self, rows):
        return Mixture(*(part[rows] for part in self.parts), self.keeps_axis, self.n_targets)

    def _out(self, values):
        return values.numpy() if self.keeps_axis else values[..., 0].numpy()

    def _in(self, y):
        return torch.as_tensor(y if self.keeps_axis else y[..., None])

    @property
    def mean(self):
        return self._out(self.q.mean)

    def icdf(self, q):
        return self._out(self.q.icdf(torch.as_tensor(q, dtype=torch.float64)))

    def log_prob(self, y):
        return self.q.log_prob(self._in(y)).numpy()

    def cdf(self, y):
        return self.q.cdf(self._in(y)).numpy()

    def modes(self):
        return [
            SimpleNamespace(
                locations=self._out(row.locations),
                masses=row.masses.numpy(),
                log_densities=row.log_densities.numpy(),
            )
            for row in self.q.modes()
        ]

    def highest_density_region(self, mass):
        return SimpleNamespace(
            intervals=[row.numpy() for row in self.q.highest_density_region(mass).intervals]
        )

    def sample(self, seed=0):
        """One target for each row, shape (n,)."""
        return self.q.sample((), torch.Generator().manual_seed(seed))[:, 0].numpy()


def two_branches(x, **settings):
    """A major branch sin x and a minor one around -2, for inputs (n,)."""
    x = np.asarray(x)
    return Mixture(
        np.tile([0.7, 0.3], (len(x), 1)),
        np.stack([np.sin(x), np.full_like(x, -2)], axis=1),
        np.stack([0.2 + 0.1 * np.abs(x), np.full_like(x, 0.25)], axis=1),
        **settings,
    )


GRID = np.linspace(-3, 3, 40)


class TestPredictions:
    """What all pictures of predictions have in common."""

    DRAWINGS = (
        lambda dist, y, ax=None: plots.conditional(dist, GRID[: len(y)], GRID[: len(y)], y, ax),
        lambda dist, y, ax=None: plots.fan(dist, GRID[: len(y)], ax=ax, y=y),
        lambda dist, y, ax=None: plots.fan(dist, ax=ax, y=y),
        lambda dist, y, ax=None: plots.row(dist, 3, ax),
        lambda dist, y, ax=None: plots.pit_histogram(dist, y, ax),
        lambda dist, y, ax=None: plots.calibration(dist, y, ax),
    )
    every = pytest.mark.parametrize(
        "draw", DRAWINGS, ids=["conditional", "fan", "fan-rows", "row", "pit", "calibration"]
    )

    @every
    def test_axes_given_are_returned_and_keep_their_names(self, draw):
        dist = two_branches(GRID)
        _, ax = plt.subplots()
        ax.set(xlabel="age", ylabel="price")
        assert draw(dist, dist.sample(), ax) is ax
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "price")
        assert len(plt.get_fignums()) == 1
        ax.figure.canvas.draw()
        draw(dist, dist.sample())
        assert len(plt.get_fignums()) == 2

    @every
    def test_the_axis_of_a_single_target_makes_no_difference(self, draw):
        without, kept = two_branches(GRID), two_branches(GRID, keeps_axis=True)
        y = without.sample()
        pictures = [draw(without, y).figure, draw(kept, y[:, None]).figure]
        for figure in pictures:
            figure.set_dpi(40)
            figure.canvas.draw()
        assert np.array_equal(*(np.asarray(figure.canvas.buffer_rgba()) for figure in pictures))

    @every
    def test_arrays_are_not_changed_and_may_be_read_only_or_run_backwards(self, draw):
        dist = two_branches(GRID)
        y = dist.sample()
        before = y.copy()
        y.flags.writeable = False
        draw(dist, y)
        draw(dist, y[::-1])
        draw(dist, torch.from_numpy(before).requires_grad_())
        np.testing.assert_array_equal(y, before)

    @every
    def test_several_targets_are_refused_with_a_way_out(self, draw):
        dist = two_branches(GRID, n_targets=2)
        with pytest.raises(
            ValueError, match=r"one target, and dist has 2; fit an estimator .*plots\.scatter"
        ):
            draw(dist, GRID)
        assert not plt.get_fignums()

    @every
    def test_no_rows(self, draw):
        with pytest.raises(ValueError, match="dist must have at least 1 row, got none"):
            draw(two_branches(GRID[:0]), GRID[:0])
        assert not plt.get_fignums()

    @every
    def test_what_is_no_prediction(self, draw):
        with pytest.raises(TypeError, match=r"as predict_distribution .*got GaussianMixture.*plots\.density"):
            draw(two_branches(GRID).q, GRID)

    @pytest.mark.parametrize(
        ("draw", "message"),
        [
            (
                lambda p: plots.conditional(p, GRID[:9]),
                "x must have as many values as dist has rows, 40; got 9",
            ),
            (lambda p: plots.conditional(p, GRID[::-1]), "x must hold at least 2 values in rising order"),
            (lambda p: plots.conditional(p, GRID, GRID), "x_data and y_data must be given together"),
            (
                lambda p: plots.conditional(p, GRID, GRID, GRID[:9]),
                "y_data must have as many values as x_data",
            ),
            (
                lambda p: plots.conditional(p, GRID, GRID, GRID * np.nan),
                "y_data must be finite, got nan at index 0",
            ),
            (lambda p: plots.conditional(p, GRID, y_range=(1, 1)), "y_range must be a lower and a higher"),
            (lambda p: plots.conditional(p, GRID, n_y=1), "n_y must be at least 2, got 1"),
            (lambda p: plots.fan(p, GRID[:9]), "x must have as many values as dist has rows, 40; got 9"),
            (lambda p: plots.fan(p, y=GRID[:9]), "y must have as many values as dist has rows, 40; got 9"),
            (lambda p: plots.fan(p[:1], GRID[:1]), r"at least 2 rows .* plots\.row\(dist\)"),
            (
                lambda p: plots.fan(p, levels=(0.5, 1.0)),
                r"levels must lie in \(0, 1\), got \[0\.5, 1\.0\]",
            ),
            (
                lambda p: plots.fan(p, levels=()),
                r"levels must hold at least one number in \(0, 1\)",
            ),
            (lambda p: plots.row(p, 40), "i must be a row of dist, at most 39; got 40"),
            (lambda p: plots.row(p, -41), "i must be at least -40, got -41"),
            (lambda p: plots.row(p, mass=1), r"mass must lie in \(0, 1\)"),
            (
                lambda p: plots.row(p, y=GRID),
                "y must have as many values as rows in the plot, 1; got 40",
            ),
            (
                lambda p: plots.pit_histogram(p, GRID[:9]),
                "y must have as many values as dist has rows, 40; got 9",
            ),
            (lambda p: plots.pit_histogram(p, GRID, bins=1), "bins must be at least 2, got 1"),
            (lambda p: plots.calibration(p, GRID * np.inf), "y must be finite, got -inf at index 0"),
            (lambda p: plots.calibration(p, GRID, levels=[0.0]), r"levels must lie in \(0, 1\)"),
        ],
    )
    def test_bad_arguments(self, draw, message):
        with pytest.raises(ValueError, match=message):
            draw(two_branches(GRID))
        assert not plt.get_fignums()


class TestConditional:
    def test_the_map_is_that_of_the_density_on_a_grid(self):
        dist, y = two_branches(GRID), np.linspace(-4, 3, 50)
        log_p = dist.log_prob(np.tile(y[:, None], len(GRID)))
        ours = plots.conditional(dist, GRID, n_y=50, y_range=(-4, 3), gamma=0.7, cmap="magma")
        known = plots.density(GRID, y, log_p, gamma=0.7, cmap="magma")
        mesh, other = ours.collections[0], known.collections[0]
        np.testing.assert_allclose(mesh.get_array(), other.get_array())
        np.testing.assert_array_equal(mesh.get_coordinates(), other.get_coordinates())
        assert mesh.cmap.name == "magma"
        assert len(ours.collections) == 1

    def test_the_range_holds_the_mass_of_each_row_and_the_data(self):
        dist = two_branches(GRID)
        low, high = plots.conditional(dist, GRID).get_ylim()
        extremes = np.array([np.full(len(GRID), low), np.full(len(GRID), high)])
        below, above = dist.cdf(extremes)
        assert below.max() < 0.0025
        assert above.min() > 0.9975
        assert high - low < 10
        assert plots.conditional(dist, GRID, [0.0], [25.0]).get_ylim()[1] > 25

    def test_data_lie_on_top_in_another_colour(self):
        x, y = np.array([[-1.0], [2.0]]), torch.tensor([0.5, -2.0])
        mesh, points = plots.conditional(two_branches(GRID), GRID, x, y).collections
        np.testing.assert_allclose(points.get_offsets(), [[-1, 0.5], [2, -2]])
        assert points.get_zorder() >= mesh.get_zorder()
        assert matplotlib.colors.same_color(points.get_facecolor()[0], canvas.ACCENT)


class TestFan:
    def test_bands_are_intervals_at_sorted_inputs(self):
        x = np.random.default_rng(0).permutation(GRID)
        dist = two_branches(x)
        ax = plots.fan(dist, x, levels=(0.5, 0.9), y=dist.mean)
        order = np.argsort(x)
        (median,) = ax.lines
        np.testing.assert_allclose(median.get_xydata(), np.stack([x, dist.icdf(0.5)], axis=1)[order])
        wide, narrow, points = ax.collections
        for band, level in ((wide, 0.9), (narrow, 0.5)):
            ends = dist.icdf(np.array([(1 - level) / 2, (1 + level) / 2]))[:, order]
            corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
            assert {(a, b) for line in ends for a, b in zip(x[order], line, strict=True)} <= corners
        np.testing.assert_allclose(points.get_offsets(), np.stack([x, dist.mean], axis=1))
        assert [text.get_text() for text in ax.get_legend().get_texts()] == [
            "90 %",
            "50 %",
            "median",
            "observed",
        ]
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")

    def test_rows_without_inputs_are_separate_columns(self):
        dist = two_branches(GRID[:6])
        ax = plots.fan(dist, levels=[0.8])
        (band,) = ax.collections
        assert len(band.get_paths()) == 6
        low, high = dist.icdf(np.array([0.1, 0.9]))
        for i, path in enumerate(band.get_paths()):
            assert path.vertices[:, 0].min() > i - 0.5
            assert path.vertices[:, 0].max() < i + 0.5
            np.testing.assert_allclose(path.vertices[:, 1].min(), low[i])
            np.testing.assert_allclose(path.vertices[:, 1].max(), high[i])
        assert np.isnan(ax.lines[0].get_xdata()).sum() == 6
        assert ax.get_xlabel() == "row"

    def test_one_row(self):
        assert len(plots.fan(two_branches(GRID[:1])).collections) == 3

    def test_wider_bands_are_lighter(self):
        ax = plots.fan(two_branches(GRID), GRID, levels=(0.95, 0.3, 0.6))
        brightness = [band.get_facecolor()[0, :3].sum() for band in ax.collections]
        assert brightness == sorted(brightness, reverse=True)


class TestRow:
    def test_curve_is_the_density_of_the_row(self):
        dist = two_branches(GRID)
        y, p = plots.row(dist, 7).lines[0].get_data()
        np.testing.assert_allclose(np.log(p), dist[7:8].log_prob(y[:, None])[:, 0])
        assert np.trapezoid(p, y) == pytest.approx(1, abs=0.01)
        np.testing.assert_array_equal(plots.row(dist, -33).lines[0].get_data(), [y, p])

    def test_a_narrow_mode_is_resolved(self):
        y, p = plots.row(Mixture([[0.5, 0.5]], [[0, 3]], [[1, 1e-4]])).lines[0].get_data()
        assert np.trapezoid(p, y) == pytest.approx(1, abs=0.01)
        assert p.max() == pytest.approx(0.5 / (1e-4 * np.sqrt(2 * np.pi)), rel=0.01)

    def test_region_modes_mean_and_observation(self):
        dist = Mixture([[0.6, 0.395, 0.005]], [[0, 3, 6]], [[0.4, 0.3, 0.2]])
        ax = plots.row(dist, mass=0.8, y=2.5)
        intervals = dist.highest_density_region(0.8).intervals[0]
        shades = [path.vertices[:, 0] for shade in ax.collections for path in shade.get_paths()]
        np.testing.assert_allclose([[v.min(), v.max()] for v in shades], intervals)
        _, mean, observed, marks = ax.lines
        assert mean.get_xdata()[0] == dist.mean[0]
        assert observed.get_xdata()[0] == 2.5
        modes = dist.modes()[0]
        np.testing.assert_allclose(marks.get_data(), [modes.locations, np.exp(modes.log_densities)])
        # The third is marked and not named: its share would be a rounded nothing.
        assert [text.get_text() for text in ax.texts] == ["60 %", "40 %"]
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["80 % region", "mean", "observed"]
        assert ax.get_ylim()[0] == 0
        assert ax.get_ylim()[1] > marks.get_ydata().max()

    def test_the_range_reaches_an_observation_far_away(self):
        low, high = plots.row(two_branches(GRID), y=np.array([30.0])).get_xlim()
        assert low < -2 < 30 < high


class TestExamples:
    images = np.arange(3 * 3 * 4 * 5, dtype=np.uint8).reshape(3, 3, 4, 5)

    def test_an_image_and_the_density_of_its_target(self):
        dist = two_branches(GRID[:3])
        figure, axes = plots.examples(dist, self.images, y=[0.0, 1.0, 2.0], names=["height"])
        assert axes.shape == (2, 3)
        np.testing.assert_array_equal(axes[0, 2].images[0].get_array(), self.images[2].transpose(1, 2, 0))
        for i, ax in enumerate(axes[1]):
            alone = plots.row(dist, i, y=float(i))
            np.testing.assert_array_equal(ax.lines[0].get_data(), alone.lines[0].get_data())
            assert ax.lines[2].get_xdata()[0] == i
        assert axes[1, 0].get_ylabel() == "height"
        figure.canvas.draw()

    def test_grey_images_as_tensors(self):
        grey = torch.from_numpy(self.images[:, :1])
        _, axes = plots.examples(two_branches(GRID[:3]), grey)
        np.testing.assert_array_equal(axes[0, 1].images[0].get_array(), grey[1, 0])

    @pytest.mark.parametrize(
        ("images", "options", "message"),
        [
            (images[:2], {}, "as many rows as there are images, 2; got 3"),
            (images.transpose(0, 2, 3, 1), {}, r"shape \(n, C, H, W\) with C = 1 or 3"),
            (images[0], {}, r"shape \(n, C, H, W\)"),
            (images, {"y": [1.0, 2.0]}, r"y must be finite and have shape \(3, 1\)"),
            (images, {"y": [1.0, 2.0, np.nan]}, "y must be finite"),
            (images, {"names": ["a", "b"]}, "names must have one name for each of the 1 targets"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, images, options, message):
        with pytest.raises(ValueError, match=message):
            plots.examples(two_branches(GRID[:3]), images, **options)
        assert not plt.get_fignums()


class TestCalibration:
    rows = two_branches(np.linspace(-3, 3, 500))

    def test_bars_count_the_transformed_targets(self):
        y = self.rows.sample()
        ax = plots.pit_histogram(self.rows, y, bins=10)
        bars = ax.containers[0]
        counts = np.histogram(self.rows.cdf(y), 10, (0, 1))[0]
        np.testing.assert_allclose([bar.get_height() for bar in bars], counts / 50)
        assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1)
        assert ax.lines[0].get_ydata()[0] == 1

    def test_targets_beyond_all_mass_count_in_the_outer_bars(self):
        ax = plots.pit_histogram(self.rows, np.where(np.arange(500) < 200, -1e6, 1e6), bins=4)
        heights = [bar.get_height() for bar in ax.containers[0]]
        np.testing.assert_allclose(heights, [1.6, 0, 0, 2.4])

    def test_band_is_the_binomial_interval(self):
        bdtr = pytest.importorskip("scipy.special").bdtr  # the cdf

        def quantile(q, p):
            return np.argmax(bdtr(np.arange(501), 500, p) >= q) / 500

        ax = plots.pit_histogram(self.rows, self.rows.sample(), bins=20)
        band = ax.patches[-1]
        ends = [20 * quantile(q, 1 / 20) for q in (0.025, 0.975)]
        assert [band.get_y(), band.get_y() + band.get_height()] == pytest.approx(ends)

        ax = plots.calibration(self.rows, self.rows.sample())
        corners = {tuple(np.round(corner, 9)) for corner in ax.collections[0].get_paths()[0].vertices}
        for p in np.linspace(0, 1, 101)[1:-1]:
            assert {(round(p, 9), round(quantile(q, p), 9)) for q in (0.025, 0.975)} <= corners

    @pytest.mark.parametrize("n", [1, 2, 7])
    def test_bands_of_few_rows(self, n):
        for draw in (plots.pit_histogram, plots.calibration):
            ax = draw(self.rows[:n], self.rows.sample()[:n])
            assert np.isfinite([ax.get_xlim(), ax.get_ylim()]).all()

    def test_curve_and_error(self):
        y = self.rows.sample() + 0.3
        levels = [0.9, 0.1, 0.5]
        ax = plots.calibration(self.rows, y, levels=levels)
        nominal, observed = ax.lines[-1].get_data()
        np.testing.assert_array_equal(nominal, np.sort(levels))
        np.testing.assert_allclose(observed, [(y <= self.rows.icdf(q)).mean() for q in nominal])
        error = np.abs(observed - nominal).mean()
        assert [text.get_text() for text in ax.get_legend().get_texts()][
            -1
        ] == f"calibration error {error:.3f}"
        assert plots.calibration(self.rows, y).lines[-1].get_xdata() == pytest.approx(
            np.linspace(0.05, 0.95, 19)
        )

    def test_models_on_one_picture_share_the_diagonal(self):
        ax = plots.calibration(self.rows, self.rows.sample(), label="energy")
        assert plots.calibration(self.rows, self.rows.sample(1), ax, label="proposal", color="black") is ax
        diagonal, first, second = ax.lines
        np.testing.assert_array_equal(diagonal.get_data(), [[0, 1], [0, 1]])
        assert len(ax.collections) == 1
        assert (first.get_color(), second.get_color()) == (canvas.INK, "black")
        assert [line.get_label().split(":")[0] for line in (first, second)] == ["energy", "proposal"]


def history(n=30, **settings):
    """A training whose validation is best in epoch 12 and whose losses live on other scales."""
    names = settings.get("names", ("nce", "log_z", "validation_nll"))
    curves = {
        "nce": 5 * np.exp(-np.arange(n) / 5) + 40,
        "log_z": 0.01 * np.cos(np.arange(n)),
        "validation_nll": 0.001 * (np.arange(n) - 12) ** 2 - 1.5,
    }
    return [{name: float(curves[name][epoch]) for name in names} for epoch in range(n)]


def panels_of(ax):
    return [other for other in ax.figure.axes if other.get_ylabel()]


class TestTrainingCurves:
    def test_each_loss_has_its_panel_and_validation_comes_first(self):
        entries = history()
        ax = plots.training_curves(entries)
        panels = panels_of(ax)
        assert panels[0] is ax
        assert [panel.get_ylabel() for panel in panels] == ["validation NLL", "nce", "log_z"]
        for panel, name in zip(panels, ("validation_nll", "nce", "log_z"), strict=True):
            curve, best, mark = panel.lines
            np.testing.assert_array_equal(curve.get_xdata(), np.arange(30))
            np.testing.assert_array_equal(curve.get_ydata(), [entry[name] for entry in entries])
            assert best.get_xdata()[0] == 12
            assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (12, entries[12][name])
        assert [panel.get_xlabel() for panel in panels] == ["", "", "epoch"]
        assert ax.texts[0].get_text() == "best: -1.500 in epoch 12"
        ax.figure.canvas.draw()
        tops = [panel.get_position().y1 for panel in panels]
        assert tops == sorted(tops, reverse=True)

    @pytest.mark.parametrize("layout", ["constrained", None])
    def test_panels_stay_in_the_room_of_the_axes_given(self, layout):
        figure, (ax, other) = plt.subplots(1, 2, layout=layout)
        room = ax.get_position()
        assert plots.training_curves(history(), ax) is ax
        figure.canvas.draw()
        for panel in panels_of(ax):
            assert panel.get_position().x1 < other.get_position().x0
        if layout is None:
            assert panels_of(ax)[-1].get_position().y0 == pytest.approx(room.y0)
            assert ax.get_position().y1 == pytest.approx(room.y1)

    def test_axes_placed_by_hand_are_shared_out_too(self):
        ax = plt.figure().add_axes((0.2, 0.1, 0.7, 0.8))
        plots.training_curves(history(), ax)
        places = [panel.get_position() for panel in panels_of(ax)]
        assert (places[0].y1, places[-1].y0) == pytest.approx((0.9, 0.1))
        assert all(above.y0 > below.y1 for above, below in pairwise(places))
        assert {(place.x0, place.x1) for place in places} == {(places[0].x0, places[0].x1)}

    @pytest.mark.parametrize("ending", ["", "_"])
    def test_what_holds_a_history(self, ending):
        holder = SimpleNamespace(**{f"history{ending}": history(), f"best_epoch{ending}": 20})
        assert plots.training_curves(holder).lines[1].get_xdata()[0] == 20
        assert plots.training_curves(holder, best_epoch=3).lines[1].get_xdata()[0] == 3

    def test_without_validation_no_epoch_is_best(self):
        ax = plots.training_curves(history(names=("nce",)))
        assert panels_of(ax) == [ax]
        assert len(ax.lines) == 1
        assert not ax.texts
        assert ax.get_xlabel() == "epoch"
        assert (
            plots.training_curves(history(names=("nce",)), best_epoch=5).texts[0].get_text()
            == "best: epoch 5"
        )

    def test_several_trainings_on_one_panel(self):
        ax = plots.training_curves(history(), names="validation_nll", label="joint-nce")
        plots.training_curves(history(60), ax, names=["validation_nll"], label="mdn-nll", color="black")
        assert len(ax.figure.axes) == 1
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["joint-nce, best: -1.500 in epoch 12", "mdn-nll, best: -1.500 in epoch 12"]
        assert not ax.texts
        low, high = ax.get_ylim()
        assert low < -1.5
        assert high > history(60)[-1]["validation_nll"]

    def test_a_first_value_far_away_does_not_flatten_the_rest(self):
        entries = history(names=("validation_nll",))
        entries[0]["validation_nll"] = 1e6
        ax = plots.training_curves(entries)
        assert ax.get_ylim()[1] < 1
        assert ax.lines[0].get_ydata()[0] == 1e6

    @pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
    def test_values_that_are_not_finite_leave_gaps(self, value):
        entries = history()
        entries[4]["nce"] = value
        for ax in (plots.training_curves(entries), plots.training_curves([{"nce": value}] * 3)):
            assert np.isfinite([panel.get_ylim() for panel in panels_of(ax)]).all()

    def test_a_loss_that_comes_late_and_a_single_epoch(self):
        entries = history(names=("nce",))
        entries[3]["mdn"] = 1.0
        curve = panels_of(plots.training_curves(entries))[1].lines[0]
        np.testing.assert_array_equal(curve.get_xydata(), [[3, 1]])
        assert curve.get_marker() == "."  # a line through one point would not be seen
        plots.training_curves(history(1)).figure.canvas.draw()

    def test_epochs_without_validation_are_joined(self):
        entries = [
            entry if epoch % 5 == 2 else {"nce": entry["nce"]}
            for epoch, entry in enumerate(history(names=("nce", "validation_nll")))
        ]
        nll, nce = (panel.lines[0] for panel in panels_of(plots.training_curves(entries)))
        np.testing.assert_array_equal(nll.get_xdata(), [2, 7, 12, 17, 22, 27])
        assert np.isfinite(nll.get_ydata()).all()
        assert len(nce.get_xdata()) == 30
        assert plots.training_curves(entries).texts[0].get_text() == "best: -1.500 in epoch 12"

    def test_the_history_is_not_changed(self):
        entries = history()
        plots.training_curves(entries)
        assert entries == history()

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"history": []}, ValueError, "history must hold at least 1 epoch with losses, got none"),
            ({"history": [{}]}, ValueError, "history must hold at least 1 epoch with losses, got none"),
            (
                {"history": {"nce": [1.0]}},
                TypeError,
                "one mapping of losses per epoch, or a fitted.*got dict",
            ),
            ({"history": 3}, TypeError, "got int"),
            ({"history": [1.0, 2.0]}, TypeError, "one mapping from names to losses per epoch"),
            ({"best_epoch": 30}, ValueError, r"best_epoch must lie in 0 \.\.\. 29, got 30"),
            ({"names": ["mle"]}, ValueError, r"names must be some of 'nce', 'log_z', .*got \['mle'\]"),
        ],
    )
    def test_bad_arguments(self, arguments, error, message):
        with pytest.raises(error, match=message):
            plots.training_curves(**{"history": history()} | arguments)
        assert not plt.get_fignums()


BEST = [4, 16, 10]


def members(n=30, last=18):
    """Three members, best in different epochs; the last ends early, and every second epoch is validated."""
    entries = history(n, names=("nce",))
    for epoch in range(0, n, 2):
        nlls = [0.001 * (epoch - best) ** 2 - 1 - 0.1 * i for i, best in enumerate(BEST)]
        kept = nlls if epoch <= last else [*nlls[:2], -1.2]
        entries[epoch]["validation_nll"] = float(np.mean(kept))
        trained = nlls if epoch <= last else nlls[:2]
        entries[epoch] |= {f"validation_nll_{i}": value for i, value in enumerate(trained)}
    return entries


class TestTrainingCurvesOfMembers:
    def test_a_thick_mean_a_thin_line_for_each_and_a_mark_at_each_kept_epoch(self):
        entries = members()
        ax = plots.training_curves(SimpleNamespace(history_=entries, best_epoch_=BEST))
        assert [panel.get_ylabel() for panel in panels_of(ax)] == ["validation NLL", "nce"]
        mean, *curves, marks = ax.lines
        np.testing.assert_array_equal(mean.get_xdata(), np.arange(0, 30, 2))
        np.testing.assert_array_equal(mean.get_ydata(), [entry["validation_nll"] for entry in entries[::2]])
        assert [len(curve.get_xdata()) for curve in curves] == [15, 15, 10]
        for i, curve in enumerate(curves):
            known = [entry[f"validation_nll_{i}"] for entry in entries if f"validation_nll_{i}" in entry]
            np.testing.assert_array_equal(curve.get_ydata(), known)
            assert curve.get_linewidth() < mean.get_linewidth()
        np.testing.assert_array_equal(marks.get_xdata(), BEST)
        np.testing.assert_allclose(marks.get_ydata(), [-1, -1.1, -1.2])
        assert ax.texts[0].get_text() == "best: -1.100 in epochs 4 to 16"
        # The losses are means over the members: no epoch of theirs is best.
        assert len(panels_of(ax)[1].lines) == 1
        ax.figure.canvas.draw()

    def test_a_list_finds_the_lowest_of_each_member(self):
        np.testing.assert_array_equal(plots.training_curves(members()).lines[-1].get_xdata(), BEST)

    def test_one_epoch_can_be_marked(self):
        ax = plots.training_curves(members(), best_epoch=8)
        line, mark = ax.lines[-2:]
        assert line.get_xdata()[0] == mark.get_xdata()[0] == 8
        assert mark.get_ydata()[0] == members()[8]["validation_nll"]

    def test_all_marks_are_seen(self):
        entries = members()
        entries[16]["validation_nll_1"] = -30.0
        low, high = plots.training_curves(entries, best_epoch=BEST).get_ylim()
        assert low < -30 < -1 < high

    def test_beside_another_training(self):
        ax = plots.training_curves(members(), names="validation_nll", label="members")
        plots.training_curves(history(), ax, names="validation_nll", label="one", color="black")
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["members, best: -1.100 in epochs 4 to 16", "one, best: -1.500 in epoch 12"]

    def test_more_than_ten_members_keep_their_order(self):
        entries = [{f"validation_nll_{i}": abs(epoch - i) for i in range(12)} for epoch in range(12)]
        entries = [entry | {"validation_nll": 1.0} for entry in entries]
        np.testing.assert_array_equal(plots.training_curves(entries).lines[-1].get_xdata(), np.arange(12))

    def test_bad_epochs(self):
        with pytest.raises(ValueError, match="an epoch, or one for each of 3 members; got 2 epochs"):
            plots.training_curves(members(), best_epoch=[1, 2])
        with pytest.raises(ValueError, match=r"best_epoch must lie in 0 \.\.\. 29, got 30"):
            plots.training_curves(members(), best_epoch=[1, 2, 30])

    def test_a_real_training(self):
        x = np.linspace(-1, 1, 60)[:, None]
        y = x[:, 0] + 0.1 * np.sin(40 * x[:, 0])
        model = MixtureDensityRegressor(n_members=3, max_iter=6, width=8, random_state=0).fit(x, y)
        ax = plots.training_curves(model)
        assert len(ax.lines) == 5
        np.testing.assert_array_equal(ax.lines[-1].get_xdata(), model.best_epoch_)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.density(X, Y, two_modes()),
        lambda: plots.scatter(X, X),
        lambda: plots.side_by_side({"Data": lambda ax: plots.scatter(X, X, ax)}),
        lambda: plots.fan(two_branches(GRID)),
        lambda: plots.calibration(two_branches(GRID), GRID),
        lambda: plots.training_curves(history()),
        plots.require_matplotlib,
    ],
)
def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, draw):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install ebreg\[plots\]"):
        draw()


def test_training_curves_do_not_join_trainings():
    # A mixture, its correction, and the fine-tuning of both.
    history = [{"nll": 2.0 - k, "validation_nll": 1.0} for k in range(3)]
    history += [{"nce": 1.0, "validation_nll": 0.5} for _ in range(2)] + [{"nll": 0.1}, {"nce": 0.9}]
    first = plots.training_curves(history)
    nll, nce = (panel.lines[0] for panel in first.figure.axes[1:])
    assert np.isnan(nll.get_ydata()).tolist() == [False, False, False, True, False]
    assert np.isnan(nce.get_ydata()).tolist() == [False, False, True, False]
    assert len(first.patches) == 2  # shaded, in turn
