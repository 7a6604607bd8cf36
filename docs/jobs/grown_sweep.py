"""A sweep that is stopped half way by Ctrl-C, resumes where it was, and grows by more seeds."""

from contextlib import suppress
from signal import SIGINT, raise_signal

import jax
import optax

import gdln_jax as gdln

task, axes = gdln.tasks.hierarchy(), {"scale": [0.01, 0.1], "seed": range(4)}


def run(key, scale, seed):
    net = gdln.GatedNetwork.init(task.graph, gdln.init.normal(scale), key=key)
    return gdln.train(net, task.data, optimizer=optax.sgd(0.05), steps=200).losses[-1]


options = {"key": jax.random.key(0), "store": "runs", "batch": 4}
with suppress(KeyboardInterrupt):
    gdln.sweep(run, axes, progress=lambda done, _: done and raise_signal(SIGINT), **options)
same = gdln.sweep(run, axes, progress=print, **options)
more = gdln.sweep(run, axes | {"seed": range(8)}, progress=print, **options)
