"""Outer optimizers of `DiLoCo`: those of a program, and what becomes of one that fails."""

import numpy as np
import polyrank
import pytest
from polyrank.local_sgd import DiLoCo, OuterOptimizer, OuterSGD


def test_an_outer_optimizer_of_ones_own(made):
    class Sign:
        """A step of 1 against the sign."""

        def __init__(self):
            self.steps = 0

        def step(self, parameters, gradients):
            self.steps += 1
            for name, gradient in gradients.items():
                # Another array, where it could be changed in place.
                parameters[name] = parameters[name] - np.sign(gradient)

        def state_dict(self):
            return {"steps": self.steps}

        def load_state_dict(self, state_dict):
            self.steps = state_dict["steps"]

    model = [np.zeros(3, np.float32), np.zeros((), np.float32)]
    optimizer = Sign()
    assert isinstance(optimizer, OuterOptimizer)
    with DiLoCo(made(), [model], outer_optimizer=optimizer) as layer:
        model[0] += [-5, 0, 0.5]
        assert layer.step()
    assert model[0].tolist() == [-1, 0, 1] and layer.state_dict()["outer"] == [{"steps": 1}]


def test_an_outer_step_that_failed_here_alone_is_not_gone_on_from(made):
    class Failing(OuterSGD):
        def step(self, parameters, gradients):
            super().step(parameters, gradients)
            raise KeyError("of the outer optimizer")

    manager, model = made(), [np.zeros(2)]
    layer = DiLoCo(manager, [model], outer_optimizer=Failing())
    before = layer.state_dict()
    with layer:
        step = manager.current_step()
        with pytest.raises(KeyError):
            layer.step()
        assert manager.current_step() == step + 1
        with pytest.raises(polyrank.InvalidArgumentError, match="has other parameters than they"):
            layer.step()
        assert manager.current_step() == step + 1
    with pytest.raises(polyrank.InvalidArgumentError, match="has other parameters than they"):
        layer.__enter__()
