"""The form of convolution that suits this machine: measured at the first start, then kept.

A form decides how a convolution is computed, and so its rounding.  Every process of a machine must take the same form,
today and tomorrow.  So it is measured once, under a lock, and kept in the cache folder.  Another form than the usual
one must be clearly faster, so that machines of a kind agree as well.
"""

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from clustpsi.engine import runtime
from clustpsi.engine.network import Network, network_for
from clustpsi.engine.training import CPU_OPTIONS
from clustpsi.errors import ClustPSIError
from clustpsi.files import make_folder, write_atomically
from clustpsi.limits import cpu_count
from clustpsi.models import layers

# Set to "usual", it stands for the forms that are usual: nothing is measured.
VARIABLE = "CLUSTPSI_CONVOLUTIONS"
# A form other than the usual one is taken if its time is below this share of the usual one's.
CLEARLY_FASTER = 0.9
STEPS, REPETITIONS = 2, 3
# With fewer channels, in or out, Winograd's transforms are not worth trying on any machine.
LEAST_CHANNELS = 16
# Images of a measurement: those of a batch, up to so many.
MOST_IMAGES = 64


class Convolution(NamedTuple):
    """One of a model: shape of its input, and maps that it makes.

    ``first`` is the model's first one, whose input has no gradient.
    """

    shape: tuple[int, ...]
    features: int
    first: bool

    @property
    def name(self) -> str:
        """Its key in the file."""
        shape = "x".join(map(str, self.shape))
        return f"{shape} to {self.features}{', first' if self.first else ''}"

    @property
    def work(self) -> int:
        """Multiplications of a forward pass."""
        return 9 * prod(self.shape) * self.features

    @property
    def usual(self) -> str:
        return layers.usual_form(self.shape[-1], self.features)

    @property
    def forms(self) -> tuple[str, ...]:
        """Those that may be the fastest, the usual one first."""
        if min(self.shape[-1], self.features) < LEAST_CHANNELS:
            return (self.usual,)
        return self.usual, *(form for form in layers.FORMS if form != self.usual)


def with_forms(network: Network, forms: tuple[str, ...]) -> Network:
    """The network with these forms of its convolutions; none: with the usual ones."""
    if not forms:
        return network
    return network_for(network.module.clone(forms=forms), network.input_shape, network.input_dtype)


def suited_forms(network: Network, batch_size: int) -> tuple[str, ...]:
    """The forms that suit this machine, in the order of the network's convolutions; none if all are the usual ones.

    The convolution with the most work decides for all: measuring each would take longer than compiling the model.
    """
    wanted = os.environ.get(VARIABLE)
    if wanted not in (None, "usual"):
        raise ClustPSIError(f"{VARIABLE} is {wanted!r}: it can only be 'usual', or not set")
    if wanted == "usual" or jax.default_backend() != "cpu" or not hasattr(network.module, "forms"):
        return ()
    own = convolutions(network, min(batch_size, MOST_IMAGES))
    most = max((each for each in own if len(each.forms) > 1), key=lambda each: each.work, default=None)
    form = None if most is None else kept_form(most, runtime.cache_folder() / "forms.json", measure)
    if most is None or form is None or form == most.usual:
        return ()
    return tuple(form if len(each.forms) > 1 else each.usual for each in own)


def convolutions(network: Network, images: int) -> list[Convolution]:
    """The convolutions of a network that have forms, for so many images."""
    found: list[Convolution] = []

    def note(call: Callable[..., Any], inputs: Any, options: Any, context: nn.module.InterceptorContext) -> Any:
        module = context.module
        if isinstance(module, layers.Conv) and not module.pooled and context.method_name == "__call__":
            found.append(Convolution(inputs[0].shape, module.features, not found))
        return call(*inputs, **options)

    rows = jnp.zeros((images, *network.input_shape), network.input_dtype)
    with nn.intercept_methods(note):
        jax.eval_shape(partial(network.module.init, train=False), jax.random.key(0), rows)
    return found


def kept_form(convolution: Convolution, path: Path, measure: Callable[[Convolution], str]) -> str:
    """The form that is kept in a file for this machine; if none is, it is measured and kept.

    Without a file that can be written, processes would not agree, and the usual form is taken.
    """
    try:
        make_folder(path.parent)
        with filelock.FileLock(path.with_suffix(".lock")):
            kept = _read(path)
            known = kept.setdefault(machine(), {})
            if known.get(convolution.name) not in convolution.forms:
                known[convolution.name] = measure(convolution)
                text = json.dumps(kept, indent=2, sort_keys=True) + "\n"
                write_atomically(path, lambda file: file.write(text.encode()))
            return known[convolution.name]
    except (ClustPSIError, OSError):
        return convolution.usual


def measure(convolution: Convolution) -> str:
    """The form that is clearly the fastest here, or else the usual one."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        programs = pool.map(lambda form: _compiled(convolution, form), convolution.forms)
        return fastest(dict(zip(convolution.forms, programs, strict=True)), time.process_time)


def fastest(programs: dict[str, Callable[[], Any]], clock: Callable[[], float]) -> str:
    """Of programs, the first, or another one if it is clearly faster; they take turns."""

    def seconds(program: Callable[[], Any]) -> float:
        before = clock()
        program()
        return clock() - before

    usual = next(iter(programs))
    turns = [{form: seconds(program) for form, program in programs.items()} for _ in range(1 + REPETITIONS)]
    best = {form: min(turn[form] for turn in turns[1:]) for form in programs}  # the first turn touches the memory
    winner = min(best, key=lambda form: best[form])
    return winner if best[winner] < CLEARLY_FASTER * best[usual] else usual


def machine() -> str:
    """What the speed of a form depends on: the processor, JAX, and how the forms are written."""
    written = Path(layers.__file__)
    sources = b"".join(written.with_name(name).read_bytes() for name in (written.name, "winograd.py"))
    return f"{_processor()}, JAX {jax.__version__}, layers {hashlib.sha256(sources).hexdigest()[:16]}"


def _processor() -> str:
    """Its model and what it can do, where the system says so."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    facts = dict(line.replace("\t", "").split(":", 1) for line in lines if ":" in line)
    abilities = hashlib.sha256(facts.get("flags", facts.get("Features", "")).encode()).hexdigest()[:8]
    names = [facts[key].strip() for key in ("model name", "cpu family", "model", "stepping") if key in facts]
    return " ".join([platform.machine(), *names, abilities])


def _read(path: Path) -> dict[str, dict[str, str]]:
    """What is kept; nothing if the file cannot be read."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    is_sound = isinstance(kept, dict) and all(isinstance(known, dict) for known in kept.values())
    return kept if is_sound else {}


def _compiled(convolution: Convolution, form: str) -> Callable[[], Any]:
    """A few steps of the convolution and its gradients in a form; a loop, as in training, uses memory again."""
    shape, features, first = convolution
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal(shape), jnp.float32)
    kernel = jnp.asarray(rng.standard_normal((3, 3, shape[-1], features)), jnp.float32)

    def step(_: int, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, kernel = map(layers.computed_once, inputs)
        result, back = jax.vjp(partial(layers.convolution, form=form), x, kernel)
        to_x, to_kernel = back(result)
        return x if first else to_x / jnp.abs(to_x).max(), to_kernel / jnp.abs(to_kernel).max()

    program = jax.jit(partial(jax.lax.fori_loop, 0, STEPS, step), compiler_options=CPU_OPTIONS)
    compiled = program.lower((x, kernel)).compile()
    return lambda: jax.tree.map(np.asarray, compiled((x, kernel)))
