"""Models as ONNX graphs, for programs that know neither JAX nor clustpsi.

A graph has one input, ``features`` (any number of rows of what the model takes: numbers, pixels or tokens), and one
output, ``logits``.  A client's log prior is added outside, since all clients of a model share its graph.

Each kind of layer is a method of :class:`Graph`, and a model is the list of its layers, as in its module.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from flax import linen as nn
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from clustpsi.datasets.word_vectors import WordVectors
from clustpsi.errors import ClustPSIError
from clustpsi.features.text import PADDING
from clustpsi.models.dense import MLP, Logistic
from clustpsi.models.images import CIFARCNN, FMNISTCNN
from clustpsi.models.layers import BATCH_NORM_EPSILON
from clustpsi.models.text import LSTM, EmbeddingMLP

INPUT, OUTPUT = "features", "logits"
# Older than the newest, so that older runtimes can read the files too.
OPSET, IR_VERSION = 17, 8

Tree = Mapping[str, Any]
Draw = Callable[["Graph", Any, str], str]


def onnx_model(
    module: nn.Module, parameters: Tree, buffers: Tree, row_shape: tuple[int, ...], row_dtype: np.dtype[Any]
) -> onnx.ModelProto:
    """A model in evaluation mode as an ONNX graph.

    Parameters
    ----------
    module
        One of the models of :data:`clustpsi.models.MODELS`.
    parameters, buffers
        Of the module, as Flax's trees.
    row_shape, row_dtype
        Of one row of features.
    """
    draw = _DRAWN.get(type(module))
    if draw is None:
        raise ClustPSIError(f"there is no ONNX graph of the model {type(module).__name__}")
    graph = Graph(parameters, buffers, row_shape, row_dtype)
    graph.add("Identity", draw(graph, module, INPUT), output=OUTPUT)
    made = helper.make_model(
        graph.finished(module.num_classes),
        producer_name="clustpsi",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(made, full_check=True)
    return made


class Graph:
    """A graph under construction.

    Layers with parameters take those of the module's next layer of that kind: Flax counts them in the order in which
    they are called, ``Dense_0``, ``Dense_1``, ...
    """

    def __init__(self, parameters: Tree, buffers: Tree, row_shape: tuple[int, ...], row_dtype: np.dtype[Any]) -> None:
        self.row_shape, self.row_dtype = row_shape, row_dtype
        self.parameters, self._buffers = parameters, buffers
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._counts: Counter[str] = Counter()
        self._layers: Counter[str] = Counter()

    def finished(self, num_classes: int) -> onnx.GraphProto:
        type_ = helper.np_dtype_to_tensor_dtype(self.row_dtype)
        features = helper.make_tensor_value_info(INPUT, type_, ["rows", *self.row_shape])
        logits = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["rows", num_classes])
        return helper.make_graph(self._nodes, "clustpsi", [features], [logits], self._constants)

    # ------------------------------------------------------------------------------------------------------ nodes

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """A node with one result, whose name it gives."""
        name = output or self._name(operator)
        self._nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = self._name("constant")
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _name(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}_{self._counts[kind] - 1}"

    def _next(self, layer: str) -> tuple[Tree, Tree]:
        """Parameters and buffers of the next layer of a kind."""
        name = f"{layer}_{self._layers[layer]}"
        self._layers[layer] += 1
        return self.parameters[name], self._buffers.get(name, {})

    # ----------------------------------------------------------------------------------------------------- layers

    def numbers(self, x: str) -> str:
        """Rows of numbers in one line each, as floats."""
        return self.flat(self.floats(x))

    def floats(self, x: str) -> str:
        return self.add("Cast", x, to=TensorProto.FLOAT)

    def flat(self, x: str) -> str:
        return self.add("Flatten", x, axis=1)

    def relu(self, x: str) -> str:
        return self.add("Relu", x)

    def dense(self, x: str) -> str:
        layer, _ = self._next("Dense")
        return self.add("Add", self.add("MatMul", x, self.constant(layer["kernel"])), self.constant(layer["bias"]))

    def pixels(self, x: str) -> str:
        """Images as floats, channels before height and width, which is ONNX's order."""
        if self.row_dtype == np.uint8:
            x = self.add("Div", self.floats(x), self.constant(np.float32(255)))
        if len(self.row_shape) == 2:
            return self.add("Unsqueeze", x, self.constant(np.array([1])))
        return self.add("Transpose", x, perm=[0, 3, 1, 2])

    def flat_pixels(self, x: str) -> str:
        """Images in one line each, channels last, as the models have them."""
        return self.flat(self.add("Transpose", x, perm=[0, 2, 3, 1]))

    def convolution(self, x: str) -> str:
        layer, _ = self._next("Conv")
        kernel = np.transpose(layer["kernel"], (3, 2, 0, 1))
        return self.add("Conv", x, self.constant(kernel), self.constant(layer["bias"]), pads=[1, 1, 1, 1])

    def max_pool(self, x: str) -> str:
        return self.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])

    def batch_norm(self, x: str) -> str:
        layer, running = self._next("BatchNorm")
        learned = [self.constant(each) for each in (layer["scale"], layer["bias"], running["mean"], running["var"])]
        return self.add("BatchNormalization", x, *learned, epsilon=BATCH_NORM_EPSILON)

    def embedding(self, tokens: str, vectors: WordVectors | None) -> str:
        table = vectors.table if vectors is not None else self._next("Embed")[0]["embedding"]
        return self.add("Gather", self.constant(table), tokens)

    def last_state(self, x: str, tokens: str, recurrent: NDArray[np.float32]) -> str:
        """The hidden state of an LSTM after the last word.

        ONNX's own LSTM knows padding only at the end of a text; this one passes over it wherever it stands.

        Parameters
        ----------
        x
            What the words contribute to the gates: rows, words, gates.
        tokens
            The words: rows, words.
        recurrent
            What the state contributes to the gates: units, gates.
        """
        x = self.add("Transpose", x, perm=[1, 0, 2])
        is_padding = self.add("Equal", tokens, self.constant(np.array(PADDING, self.row_dtype)))
        is_word = self.add("Transpose", self.add("Not", is_padding), perm=[1, 0])
        is_word = self.add("Unsqueeze", is_word, self.constant(np.array([2])))
        units = len(recurrent)
        shape = self.add("Concat", self.add("Shape", x, start=1, end=2), self.constant(np.array([units])), axis=0)
        zeros = self.add("ConstantOfShape", shape)
        step = onnx.parser.parse_graph(LSTM_STEP.format(units=units, recurrent=self.constant(recurrent)))
        hidden, cell = self._name("hidden"), self._name("cell")
        scan = helper.make_node("Scan", [zeros, zeros, x, is_word], [hidden, cell], num_scan_inputs=2, body=step)
        self._nodes.append(scan)
        return hidden


# Gates are in the order of the model's: into, forget, candidate, out.
LSTM_STEP = """
step (float[rows, {units}] hidden, float[rows, {units}] cell, float[rows, gates] contribution, bool[rows, 1] is_word)
    => (float[rows, {units}] next_hidden, float[rows, {units}] next_cell) {{
    recalled = MatMul(hidden, {recurrent})
    gates = Add(contribution, recalled)
    into, forget, candidate, out = Split <axis = 1> (gates)
    share_in = Sigmoid(into)
    share_kept = Sigmoid(forget)
    share_out = Sigmoid(out)
    new = Tanh(candidate)
    kept = Mul(share_kept, cell)
    taken = Mul(share_in, new)
    new_cell = Add(kept, taken)
    activated = Tanh(new_cell)
    new_hidden = Mul(share_out, activated)
    next_hidden = Where(is_word, new_hidden, hidden)
    next_cell = Where(is_word, new_cell, cell)
}}
"""


# ------------------------------------------------------------------------------------------------------------- models


def _logistic(graph: Graph, module: Logistic, x: str) -> str:
    return graph.dense(graph.numbers(x))


def _mlp(graph: Graph, module: MLP, x: str) -> str:
    x = graph.numbers(x)
    for _ in range(module.depth):
        x = graph.relu(graph.dense(x))
    return graph.dense(x)


def _fmnist_cnn(graph: Graph, module: FMNISTCNN, x: str) -> str:
    x = graph.pixels(x)
    for _ in module.maps:
        x = graph.relu(graph.max_pool(graph.convolution(x)))
    x = graph.relu(graph.dense(graph.flat_pixels(x)))
    return graph.dense(x)


def _cifar_cnn(graph: Graph, module: CIFARCNN, x: str) -> str:
    x = graph.pixels(x)
    for _ in module.blocks:
        for _ in range(2):
            x = graph.batch_norm(graph.relu(graph.convolution(x)))
        x = graph.max_pool(x)
    x = graph.batch_norm(graph.relu(graph.dense(graph.flat_pixels(x))))
    return graph.dense(x)


def _embedding_mlp(graph: Graph, module: EmbeddingMLP, tokens: str) -> str:
    x = graph.flat(graph.embedding(tokens, module.vectors))
    return graph.dense(graph.relu(graph.dense(x)))


def _lstm(graph: Graph, module: LSTM, tokens: str) -> str:
    x = graph.dense(graph.embedding(tokens, module.vectors))
    return graph.dense(graph.last_state(x, tokens, graph.parameters["recurrent"]))


_DRAWN: dict[type[nn.Module], Draw] = {
    Logistic: _logistic,
    MLP: _mlp,
    FMNISTCNN: _fmnist_cnn,
    CIFARCNN: _cifar_cnn,
    LSTM: _lstm,
    EmbeddingMLP: _embedding_mlp,
}
