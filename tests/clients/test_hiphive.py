"""Force constants of hiphive from few forces."""

import numpy as np
import pytest

from sparsebayes import SparseBayesRegressor

client = pytest.importorskip("hiphive")
build = pytest.importorskip("ase.build")
emt = pytest.importorskip("ase.calculators.emt")
generation = pytest.importorskip("hiphive.structure_generation")
utilities = pytest.importorskip("hiphive.utilities")
calculators = pytest.importorskip("hiphive.calculators")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of spglib


def test_forces_of_new_structures_are_predicted():
    primitive = build.bulk("Al")
    ideal = primitive.repeat(3)
    container = client.StructureContainer(client.ClusterSpace(primitive, [4.5]))
    rattled = generation.generate_rattled_structures(ideal, 4, 0.02, seed=0)
    for structure in utilities.prepare_structures(rattled, ideal, emt.EMT()):
        container.add_structure(structure)
    A, forces = container.get_fit_data()
    model = SparseBayesRegressor(fit_intercept=False).fit(A, forces)
    np.testing.assert_allclose(model.coef_, np.linalg.lstsq(A, forces, rcond=None)[0], atol=1e-3)

    potential = client.ForceConstantPotential(container.cluster_space, model.coef_)
    new = generation.generate_rattled_structures(ideal, 1, 0.02, seed=1)[0]
    new.calc = emt.EMT()
    true = new.get_forces()
    new.calc = calculators.ForceConstantCalculator(potential.get_force_constants(ideal))
    assert np.sum((new.get_forces() - true) ** 2) < 0.01 * np.sum(true**2)
