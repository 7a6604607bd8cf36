"""Every result becomes an xarray data set, with names, units and versions, and survives netCDF."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import gdln_jax as gdln
from gdln_jax import GatedData, Graph, exact, measures, race, relu

# No public result has two mappings whose keys are in different orders.

GRAPH = Graph({"x": 3, "a/b": 4, "y": 2}, [("x", "a/b"), ("a/b", "y")])
ITEMS, FEATURES = ("one", "two", "three"), ("up", "down")
TARGETS = pd.DataFrame([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]], index=ITEMS, columns=FEATURES)


@pytest.fixture(scope="module")
def reduction():
    return gdln.reduce(GRAPH, GatedData({"x": np.eye(3)}, {"y": TARGETS}))


def returned(one, tmp_path):
    """The data set, and what is read from its file."""
    data = one.to_xarray()
    data.to_netcdf(tmp_path / "one.nc")
    with xr.open_dataset(tmp_path / "one.nc") as again:
        return data, again.load()


PORTRAIT = race.PhaseField(jnp.arange(3.0), jnp.zeros((3, 3, 2)))
EXAMPLES = {
    "sharing": (exact.SharingMode(jnp.ones(2), jnp.ones(2)), {"b1": ("batch_0",)}),
    "richness": (
        measures.Richness(jnp.array(0.1), jnp.array(0.99), jnp.array(0.2)),
        {"kernel_change": ()},
    ),
    "phases": (
        race.Phases(jnp.array(1.0), jnp.array(2.0), 0.1, 0.01),
        {"exponential_end": (), "slowed": ()},
    ),
    "race": (race.Pathways(np.array([2.0, 1.0]), np.eye(2)), {"S": ("pathway",), "D": None}),
    "field": (PORTRAIT, {"axis": ("grid",), "velocity": None}),
    "gap": (
        relu.ImitationGap(
            ts=np.arange(2.0),
            loss=np.ones((3, 2)),
            output=np.ones((3, 2)),
            late=np.ones(3),
            loss_spread=np.ones(2),
            output_spread=np.ones(2),
            late_spread=0.1,
        ),
        {"ts": ("time",), "loss": ("seed", "time"), "late_spread": ()},
    ),
    "times": (
        gdln.Crossing(jnp.array([1.0, jnp.inf]), jnp.array([True, False])),
        {"time": ("batch_0",), "reached": ("batch_0",)},
    ),
    "patterns": (GatedData({"x": np.eye(3)}).patterns(), {"index": ("n",), "count": ()}),
}


class TestEveryResult:
    @pytest.mark.parametrize("name", EXAMPLES)
    def test_dimensions_and_round_trip(self, name, tmp_path):
        one, dims = EXAMPLES[name]
        data, again = returned(one, tmp_path)
        assert again.identical(data)
        assert data.attrs["kind"] == type(one).__name__
        assert {"gdln_jax", "jax"} <= set(data.attrs)
        for variable, wanted in dims.items():
            assert variable in data
            assert wanted is None or data[variable].dims == wanted
            np.testing.assert_array_equal(data[variable], getattr(one, variable))

    def test_units(self):
        assert EXAMPLES["gap"][0].to_xarray().ts.attrs == {"units": "time, in the units of tau"}
        phases = EXAMPLES["phases"][0].to_xarray()
        assert phases.exponential_end.attrs["units"] == "time of the equation, 1/rates"

    def test_a_dimension_that_comes_twice_is_numbered(self):
        assert EXAMPLES["race"][0].to_xarray()["D"].dims == ("pathway", "pathway_1")
        field = EXAMPLES["field"][0].to_xarray()
        assert field.velocity.dims == ("grid", "grid_1", "velocity axis 2")

    def test_public_results_have_it(self):
        # All public classes that hold arrays, except what goes into a computation.
        made = [
            *(gdln.PathTable, gdln.PathStatistics, gdln.EffectiveInitial, gdln.Crossing),
            *(gdln.Reduction, gdln.Quotient, gdln.RuleResidual, gdln.Trajectory),
            *(gdln.ReducedTrajectory, gdln.WidthReduction, gdln.WidthRun, gdln.Patterns),
            *(race.Solution, race.Phases, race.PhaseField, race.WinnerMap, race.Pathways),
            *(gdln.gates.Learned, gdln.noise.LearningCurves, gdln.images.Run, exact.SharingMode),
            *(relu.Snapshots, relu.GateModules, relu.GateChoice, relu.ScaleFit, relu.Drops),
            *(relu.GateCertificate, relu.PatternPower, relu.ImitationGap, relu.HeadStart),
            *(relu.DormantFlow, relu.DormantGates, relu.GatePrediction, relu.Clock, relu.History),
            *(measures.Richness, measures.ZeroShotError, measures.KernelMovement),
            *(measures.SharedStrengths, measures.VectorAlignment, relu.GateNull),
            *(gdln.control.Extremal, gdln.control.Optimised, measures.Forgetting),
            *(gdln.ReducedSchedule, gdln.QuotientSchedule, measures.Coherence),
        ]
        assert not [kind for kind in made if not callable(getattr(kind, "to_xarray", None))]


class TestOfAReduction:
    def test_its_units_and_groups_are_labelled(self, reduction, tmp_path):
        data, again = returned(reduction, tmp_path)
        assert again.identical(data)
        assert data.strengths.dims == ("group", "mode")
        np.testing.assert_allclose(data.strengths.sel(group="x y"), [1.0, 2 / 3])
        assert data["mode"].values.tolist() == [1, 2]  # as printed, and as pathways call them
        u = data["U[a|b->y]"]  # netCDF has no name with a slash
        assert u.dims == ("unit of y", "mode")
        assert abs(float(u.sel({"unit of y": "up"})[0])) == pytest.approx(1)
        assert "unit of x" not in data.coords  # the inputs' features have no names

    def test_it_prints_the_modes_by_name(self, reduction):
        first, second, *none = repr(reduction).splitlines()[1:]
        assert first.strip() == "mode 1: one -> up"
        assert second.strip() == "mode 2: two -> down"
        assert not none

    def test_without_names_it_prints_one_line(self):
        plain = gdln.reduce(GRAPH, GatedData({"x": np.eye(3)}, {"y": TARGETS.to_numpy()}))
        assert "\n" not in repr(plain)

    def test_its_path_table(self, reduction, tmp_path):
        data, again = returned(reduction.path_table(), tmp_path)
        assert again.identical(data)
        assert data.strengths.dims == ("path", "mode")
        assert list(data.path.values) == ["x->a/b a/b->y"]

    def test_its_quotient(self, reduction, tmp_path):
        data, again = returned(reduction.quotient(0.1), tmp_path)
        assert again.identical(data)
        assert list(data.cls.values) == ["x->a/b; a/b->y"]
        np.testing.assert_array_equal(data.rates, [0.5])


def test_under_jit_it_is_refused():
    with pytest.raises(ValueError, match="to_xarray"):
        jax.jit(lambda x: (exact.SharingMode(x, x).to_xarray(), 0)[1])(jnp.ones(2))


def test_mappings_with_keys_in_another_order_have_their_own_dimension():
    graph = gdln.Graph.chain([1, 1, 1])
    strengths = gdln.ModeStrengths.make(graph, 1, {"x->h1": 1.0, "h1->y": 2.0})
    misalignment, one = {"h1->y": 3.0, "x->h1": 4.0}, np.ones(1)
    data = gdln.EffectiveInitial(strengths, one, one, misalignment, None, None, None).to_xarray()
    assert float(data.strengths.sel(edge="h1->y")[0]) == 2.0
    assert float(data.misalignment.sel({"misalignment of": "h1->y"})) == 3.0
