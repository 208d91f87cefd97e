"""A Flax module as functions of flat vectors: methods and clients exchange models in this form."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from clustpsi.orders import Model

Tree = Any


class Network:
    """The model of a run.

    Parameters
    ----------
    module
        Called as ``module(x, train=..., mask=...)``.
    input_shape, input_dtype
        Shape and type of one row of features.
    """

    def __init__(self, module: nn.Module, input_shape: tuple[int, ...], input_dtype: np.dtype[Any]) -> None:
        self.module = module
        self._row = jnp.zeros((1, *input_shape), input_dtype)
        self.input_shape, self.input_dtype = input_shape, np.dtype(input_dtype)
        self.input_size = int(np.prod(input_shape))
        # Compiled as a whole, so that XLA drops the forward pass, which initialization does not need.  The program runs
        # only a few times, so optimizing it for seconds would never pay off.  The numbers are the same: to the last bit
        # with the JAX of constraints.txt, up to rounding with the lowest one.
        self._init = jax.jit(self._variables, compiler_options={"xla_backend_optimization_level": 1})
        shapes = jax.eval_shape(self._variables, jax.random.key(0))
        parameters, buffers = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        flat_parameters, self.parameters_of = ravel_pytree(parameters)
        flat_buffers, self.buffers_of = _ravel(buffers)
        self.num_parameters, self.num_buffers = flat_parameters.size, flat_buffers.size
        self._leaves = jax.tree_util.tree_leaves_with_path(shapes[0])

    def _variables(self, key: jax.Array) -> tuple[Tree, Tree]:
        variables = self.module.init({"params": key}, self._row, train=False)
        return variables["params"], variables.get("batch_stats", {})

    def initial(self, seed: int, index: int) -> Model:
        """The index-th random initial model of a seed."""
        parameters, buffers = self._init(jax.random.fold_in(jax.random.key(seed), index))
        return Model(np.asarray(ravel_pytree(parameters)[0]), np.asarray(_ravel(buffers)[0]))

    def place_of(self, name: str) -> tuple[slice, tuple[int, ...]] | None:
        """Position in the flat vector and shape of the first parameter with this name; None if there is none."""
        at = 0
        for path, leaf in self._leaves:
            if path[-1].key == name:
                return slice(at, at + leaf.size), leaf.shape
            at += leaf.size
        return None

    @property
    def head(self) -> NDArray[np.bool_]:
        """Which parameters belong to the last layer, which computes the logits."""
        layers = [str(path[0].key) for path, _ in self._leaves]
        dense = {name for name in layers if name.startswith("Dense_")}
        last = max(dense, key=lambda name: int(name.removeprefix("Dense_")), default=None)
        return np.repeat([name == last for name in layers], [leaf.size for _, leaf in self._leaves])

    def evaluate(self, parameters: Tree, buffers: Tree, x: jax.Array) -> jax.Array:
        """Logits in evaluation mode."""
        return jnp.asarray(self.module.apply({"params": parameters, "batch_stats": buffers}, x, train=False))

    def train(
        self, parameters: Tree, buffers: Tree, x: jax.Array, mask: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, Tree]:
        """Logits in training mode, and the new buffers."""
        logits, updated = self.module.apply(
            {"params": parameters, "batch_stats": buffers},
            x,
            train=True,
            mask=mask,
            rngs={"dropout": key},
            mutable=["batch_stats"],
        )
        return logits, updated.get("batch_stats", buffers)


def _ravel(tree: Tree) -> tuple[jax.Array, Callable[[jax.Array], Tree]]:
    """``ravel_pytree``, but float32 also for an empty tree."""
    if not jax.tree.leaves(tree):
        return jnp.zeros(0, jnp.float32), lambda _: tree
    return ravel_pytree(tree)


def as_vector(tree: Tree) -> jax.Array:
    """A tree as one flat vector."""
    return _ravel(tree)[0]


@lru_cache
def network_for(module: nn.Module, input_shape: tuple[int, ...], input_dtype: np.dtype[Any]) -> Network:
    """The network of a module and an input; always the same object, so that compiled programs are reused."""
    return Network(module, input_shape, input_dtype)
