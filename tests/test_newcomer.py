"""Mistakes of a first hour: each is answered, within seconds, by a message with cause and remedy.

All are made in one fresh interpreter, so that the messages are those that users see (without the
run-time shape checks of the tests) and JAX is imported once.
"""

import json

import pytest

PREAMBLE = """
import json, time, warnings
import jax, jax.numpy as jnp, numpy as np, optax
import gdln_jax as gdln

key = jax.random.key(0)
x, y = np.eye(4), gdln.tasks.hierarchy_features().T
graph = gdln.Graph.chain([4, 8, 7])
data = gdln.GatedData({"x": x}, {"y": y})
net = gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.1), key=key)
relu = gdln.ReLUNetwork.init([4, 8, 7], std=0.1, key=key)
sgd = optax.sgd(0.05)
reduction = gdln.reduce(graph, data)

def start(scale):
    return gdln.GatedNetwork.init(graph, gdln.init.orthogonal(scale), key=key)
"""

# No false alarm: a run that learns, and one that has nothing left to learn.
SOUND = """
with warnings.catch_warnings(record=True) as alarms:
    warnings.simplefilter("always")
    gdln.train(start(0.1), data, optimizer=sgd, steps=400)
    done = gdln.train(start(0.1), data, optimizer=sgd, steps=4000, save_every=4000).final
    gdln.train(done, data, optimizer=sgd, steps=400)
    gdln.gradient_flow(done, data, [0.0, 1.0])
    gdln.tasks.transformed_images(np.full((20, 4, 4), 200, np.uint8), np.arange(20) % 10,
                                  num_domains=2, key=key)
"""

AFTERWARDS = """
answers = {}
for name, code in mistakes.items():
    begin, kind, text = time.perf_counter(), "", ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            exec(code)
        except Exception as error:
            kind, text = type(error).__name__, str(error)
    if not kind and caught:
        kind, text = caught[0].category.__name__, str(caught[0].message)
    answers[name] = [kind, text, time.perf_counter() - begin, len(caught)]
print(json.dumps([sorted({str(one.message) for one in alarms}), answers]))
"""

# name: (what the newcomer types, the class of the answer, words of its cause and of its remedy)
MISTAKES = {
    # ---------------------------------------------------------------- graphs
    "cyclic graph": (
        (
            "gdln.Graph({'x': 2, 'a': 2, 'b': 2, 'y': 2},"
            " [('x', 'a'), ('a', 'b'), ('b', 'a'), ('b', 'y')])"
        ),
        "ValueError",
        ("cycle: a -> b -> a", "remove one of these edges"),
    ),
    "edges as text": ("gdln.Graph({'x': 2, 'y': 2}, ['x->y'])", "ValueError", ("e.g. ('x', 'h')",)),
    "edge to nowhere": (
        "gdln.Graph({'x': 2, 'y': 2}, [('x', 'z')])",
        "ValueError",
        ("node 'z', which is not in nodes", "nodes: 'x', 'y'"),
    ),
    # ---------------------------------------------------------------- data
    "arrays without names": (
        "gdln.GatedData(x, y)",
        "ValueError",
        ("inputs must be", "mapping from node name to an array (examples, features)"),
    ),
    "features by examples": (
        "gdln.GatedData({'x': x}, {'y': y.T})",
        "ValueError",
        ("targets['y'] has 7 examples but inputs['x'] has 4", "array.T"),
    ),
    "wrong width": (
        "gdln.train(net, gdln.GatedData({'x': x[:, :3]}, {'y': y}), optimizer=sgd, steps=2)",
        "ValueError",
        ("inputs['x'] has shape (4, 3)", "expected (n, 4)"),
    ),
    "gates as strings": (
        "gdln.GatedData({'x': x}, {'y': y}, {'h1': ['on', 'off', 'on', 'off']})",
        "ValueError",
        ("node_gates['h1'] has dtype <U3", "say 0 or 1"),
    ),
    "one gate for all examples": (
        "gdln.GatedData({'x': x}, {'y': y}, {'h1': 1.0})",
        "ValueError",
        ("node_gates['h1'] has shape ()", "np.full(n, gate)"),
    ),
    "a gate per unit": (
        "gdln.GatedData({'x': x}, {'y': y}, {'h1': np.ones((4, 8))})",
        "ValueError",
        ("node_gates['h1'] has shape (4, 8)", "one number per example"),
    ),
    "gate on an input node": (
        "gdln.GatedData({'x': x}, {'y': y}, {'x': np.ones(4)}).validate(graph)",
        "ValueError",
        ("input nodes have no node gate", "edge_gates={'x->h1': ...}"),
    ),
    "edge among the node gates": (
        "gdln.GatedData({'x': x}, {'y': y}, {'x->h1': np.ones(4)}).validate(graph)",
        "ValueError",
        ("names the edge 'x->h1'", "pass it in edge_gates"),
    ),
    "node among the edge gates": (
        "gdln.GatedData({'x': x}, {'y': y}, {}, {'h1': np.ones(4)}).validate(graph)",
        "ValueError",
        ("names the node 'h1'", "pass it in node_gates"),
    ),
    "misspelt node in gates": (
        "gdln.reduce(graph, gdln.GatedData({'x': x}, {'y': y}, {'h_1': np.ones(4)}))",
        "ValueError",
        ("'h_1', which is not a node of the graph", "did you mean 'h1'?"),
    ),
    "target for an input node": (
        "gdln.GatedData({'x': x}, {'y': y, 'x': x}).validate(graph)",
        "ValueError",
        ("targets names 'x', which is not an output node", "known: 'y'"),
    ),
    "float16": (
        "gdln.GatedData({'x': x.astype(np.float16)}, {'y': y})",
        "ValueError",
        ("inputs['x'] has dtype float16", "use float32 or float64"),
    ),
    "bfloat16": (
        "gdln.GatedData({'x': jnp.asarray(x, jnp.bfloat16)}, {'y': y})",
        "ValueError",
        ("inputs['x'] has dtype bfloat16", "use float32 or float64"),
    ),
    "NaN in the data": (
        "gdln.GatedData({'x': np.where(x > 0, np.nan, x)}, {'y': y})",
        "ValueError",
        ("inputs['x'] is not finite at index (0, 0)",),
    ),
    "negative weights": (
        "gdln.GatedData({'x': x}, {'y': y}, weights=[1, -2, 3, 4])",
        "ValueError",
        ("weights[1] is -2.0", "must be >= 0"),
    ),
    "weights of half the examples": (
        "gdln.GatedData({'x': x}, {'y': y}, weights=[1, 3])",
        "ValueError",
        ("weights has 2 entries", "4 examples"),
    ),
    "images without scaling": (
        (
            "gdln.tasks.transformed_images(255.0 * np.random.default_rng(0).random((50, 4, 4)),"
            " np.arange(50) % 10, num_domains=2, key=key)"
        ),
        "UserWarning",
        ("images reach 25", "Pass uint8"),
    ),
    # ---------------------------------------------------------------- what goes where
    "arrays for data": (
        "gdln.train(net, (x, y), optimizer=sgd, steps=2)",
        "ValueError",
        ("data is a tuple", "gdln.GatedData({'x': inputs}, {'y': targets})"),
    ),
    "task for data": (
        "gdln.train(net, gdln.tasks.hierarchy(), optimizer=sgd, steps=2)",
        "ValueError",
        ("data is a Task", "pass its .data"),
    ),
    "data before the model": (
        "gdln.gradient_flow(data, net, [0.0, 1.0])",
        "ValueError",
        ("model is a GatedData", "the model comes first"),
    ),
    "network for a graph": (
        "gdln.reduce(net, data)",
        "ValueError",
        ("graph is a GatedNetwork", "pass its .graph"),
    ),
    "data before the graph": (
        "gdln.reduce(data, graph)",
        "ValueError",
        ("graph is a GatedData", "the graph comes first"),
    ),
    "array through the network": ("net(x)", "ValueError", ("data is a ndarray", "gdln.GatedData(")),
    "schedule in steps for a reduction": (
        "gdln.reduce(graph, gdln.Schedule([data, data], steps=[1]))",
        "ValueError",
        ("switches at steps", "schedule.with_times("),
    ),
    "ReLU network to reduce": (
        "gdln.reduce(relu, data)",
        "ValueError",
        ("makes its own gates", "gdln.discover_gates"),
    ),
    "ReLU network on gated data": (
        "relu(gdln.GatedData({'x': x}, {'y': y}, {'h1': np.ones(4)}))",
        "ValueError",
        ("makes its own gates", "GatedData(data.inputs, data.targets)"),
    ),
    "weights transposed": (
        "gdln.GatedNetwork(graph, {'x->h1': np.ones((4, 8)), 'h1->y': np.ones((7, 8))})",
        "ValueError",
        ("weights['x->h1'] has shape (4, 8)", "(|target|, |source|) = (8, 4)"),
    ),
    "misspelt edge": ("net.weights['x->h2']", "KeyError", ("'x->h2'", "did you mean 'x->h1'?")),
    "misspelt public name": (
        "gdln.gradientflow",
        "AttributeError",
        ("no attribute 'gradientflow'", "did you mean 'gradient_flow'?"),
    ),
    # ---------------------------------------------------------------- random keys
    "seed for a key": (
        "gdln.GatedNetwork.init(graph, gdln.init.orthogonal(0.1), key=3)",
        "ValueError",
        ("key is 3", "jax.random.key(3)"),
    ),
    "numpy generator for a key": (
        "gdln.tasks.routing(5, 3, pattern='random_biregular', key=np.random.default_rng(0))",
        "ValueError",
        ("key is a Generator", "jax.random.key(seed)"),
    ),
    "many keys for one": (
        "gdln.GatedNetwork.init(graph, gdln.init.normal(), key=jax.random.split(key, 3))",
        "ValueError",
        ("batch of keys of shape (3,)", "jax.vmap"),
    ),
    "key used twice": (
        "gdln.sweep(lambda key, seed: {'a': seed}, {'seed': [0, 0, 1]}, key=key, progress=False)",
        "ValueError",
        ("'seed' has a value twice", "same key", "add an axis of seeds"),
    ),
    # ---------------------------------------------------------------- learning
    "learning rate for an optimiser": (
        "gdln.train(net, data, optimizer=0.1, steps=2)",
        "ValueError",
        ("optimizer is 0.1", "optax.sgd(0.1)"),
    ),
    "huge learning rate": (
        "gdln.train(net, data, optimizer=optax.sgd(50.0), steps=50)",
        "SolveError",
        ("no longer finite at step", "make it smaller"),
    ),
    "tiny start, short training": (
        "gdln.train(start(1e-6), data, optimizer=sgd, steps=50)",
        "PlateauWarning",
        ("nothing was learned", "Run longer, or start larger"),
    ),
    "tiny start, short flow": (
        "gdln.gradient_flow(start(1e-6), data, [0.0, 1.0])",
        "PlateauWarning",
        ("nothing was learned", "Run longer, or start larger"),
    ),
    "zero start": (
        "gdln.train(jax.tree.map(jnp.zeros_like, net), data, optimizer=sgd, steps=50)",
        "PlateauWarning",
        ("All initial weights are 0", "draw them"),
    ),
    "optimiser that moves nothing": (
        "gdln.train(net, data, optimizer=optax.set_to_zero(), steps=50)",
        "PlateauWarning",
        ("No weight moved", "freezes every edge"),
    ),
    "optimiser with an s": (
        "gdln.train(net, data, optimiser=sgd, steps=3)",
        "TypeError",
        ("unexpected keyword argument 'optimiser'", "did you mean 'optimizer'"),
    ),
    "optimiser by position": (
        "gdln.train(net, data, sgd, 3)",
        "TypeError",
        ("takes 2 positional arguments but 4 were given", "by name, optimizer=, steps="),
    ),
    "times before strengths": (
        "reduction.solve(np.linspace(0.0, 1.0, 5), 0.05)",
        "ValueError",
        ("ts is one number, 0.05", "b0 comes first"),
    ),
    "one example without its axis": (
        "net({'x': np.ones(4)})",
        "ValueError",
        ("array[None] for one example", "array[:, None] for examples of one feature"),
    ),
    "times backwards": (
        "gdln.gradient_flow(net, data, [1.0, 0.5, 0.0])",
        "ValueError",
        ("ts[1] = 0.5 follows ts[0] = 1", "jnp.linspace"),
    ),
    "reduced times backwards": (
        "reduction.solve(0.1, [1.0, 0.5, 0.0])",
        "ValueError",
        ("ts[1] = 0.5 follows ts[0] = 1", "jnp.linspace"),
    ),
    "one time": ("gdln.gradient_flow(net, data, 10.0)", "ValueError", ("at least two", "linspace")),
    # ---------------------------------------------------------------- theory
    "more outputs than domains": (
        "gdln.tasks.routing(4, 7)",
        "ValueError",
        ("trained_per_domain is 7, but there are only 4", "between 1 and M"),
    ),
    "unwhitened data to reduce": (
        (
            "gdln.reduce(graph, gdln.GatedData({'x': x @ [[1, .5, 0, 0], [0, 1, .5, 0],"
            " [0, 0, 1, .5], [0, 0, 0, 2]]}, {'y': y}))"
        ),
        "InexactReductionError",
        ("off-diagonal", "Whiten the inputs"),
    ),
    "all gates closed": (
        "gdln.reduce(graph, gdln.GatedData({'x': x}, {'y': y}, {'h1': np.zeros(4)}))",
        "ValueError",
        ("no input is correlated with any target along an open path", "check gates"),
    ),
    "strengths of wrong names": (
        "reduction.solve({'x->h': 0.1, 'h1->y': 0.1}, [0.0, 1.0])",
        "ValueError",
        ("'x->h', which is not an edge", "did you mean 'x->h1'?"),
    ),
    "ReLU network to project": (
        "reduction.project(relu)",
        "ValueError",
        ("net is a ReLUNetwork", "not a GatedNetwork"),
    ),
    "sharing blocks that do not fit": (
        "gdln.exact.sharing_mode(1.0, 1.0, 1.0, 0.1, 10, 9)",
        "ValueError",
        ("num_blocks_paths is 9", "square root must be an integer that divides"),
    ),
    # ---------------------------------------------------------------- recipes
    "misspelt recipe": ("gdln.recipes.load('routin')", "OptionError", ("did you mean 'routing'?",)),
    "misspelt option": (
        "gdln.recipes.reproduce('routing', sees=3)",
        "OptionError",
        ("no option 'sees'", "did you mean 'seeds'?"),
    ),
    "Eq. 13 without a biregular pattern": (
        "gdln.recipes.reproduce('routing', pattern='rows_only')",
        "OptionError",
        ("trains each output with 2 to 6 inputs", "pattern=cyclic or pattern=random_biregular"),
    ),
    # ---------------------------------------------------------------- float32, from here on
    "forgotten x64, reduce": (
        (
            "jax.config.update('jax_enable_x64', False);"
            " gdln.reduce(graph, gdln.GatedData({'x': x}, {'y': y}))"
        ),
        "InexactReductionError",
        ("in float32", "jax.config.update('jax_enable_x64', True)"),
    ),
    "forgotten x64, flow": (
        "gdln.gradient_flow(start(0.1), gdln.GatedData({'x': x}, {'y': y}), [0.0, 1.0], rtol=1e-9)",
        "ValueError",
        ("float32 resolves no more", "jax.config.update('jax_enable_x64', True)"),
    ),
}

# Nothing compiles for longer; generous, since CI's cores are shared.
_SECONDS = 20


@pytest.fixture(scope="module")
def said(plain_python):
    """What was said where nothing is wrong, and the answer to each mistake."""
    codes = {name: code for name, (code, _, _) in MISTAKES.items()}
    done = plain_python(f"{PREAMBLE}{SOUND}\nmistakes = {codes!r}\n{AFTERWARDS}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_by_cause_and_remedy(name, said):
    _, wanted, words = MISTAKES[name]
    kind, text, seconds, warned = said[1][name]
    assert kind == wanted, text
    for word in words:
        assert word in text
    assert warned <= 1, "said twice"
    assert seconds < _SECONDS


def test_no_warning_where_nothing_is_wrong(said):
    assert said[0] == []
