import subprocess
import sys

import numpy as np
import pytest
import torch

from ebreg import plots

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
        rgb = plots._light()(np.linspace(0, 1, 52))[:, :3]
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


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.density(X, Y, two_modes()),
        lambda: plots.scatter(X, X),
        lambda: plots.side_by_side({"Data": lambda ax: plots.scatter(X, X, ax)}),
    ],
)
def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, draw):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install ebreg\[plots\]"):
        draw()


def test_importing_plots_does_not_import_matplotlib():
    check = "import sys, ebreg.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
