"""Nodes with files of their own: the same as a simulation of one table; contradictions are sentences."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from clustpsi.errors import ClustPSIError
from clustpsi.nodes.agreement import agree
from clustpsi.nodes.data import from_file
from clustpsi.nodes.node import Node
from clustpsi.runs.config import Config
from clustpsi.runs.run import run
from clustpsi.runs.store import Store
from federations import federate_here

WORDS = {"a": "ship sea wave salt", "b": "wood leaf bird moss", "c": "sand dune sun heat"}


def table(rows: int = 240, seed: int = 0) -> pd.DataFrame:
    """Four sites with numbers, gaps and categories; one site has a single kind, and no gaps."""
    rng = np.random.default_rng(seed)
    label = rng.choice(list("abc"), rows)
    site = rng.choice(["oslo", "rome", "bonn", "cork"], rows, p=[0.4, 0.3, 0.2, 0.1])
    size = rng.normal(size=rows) + (label == "b") * 2
    size[(rng.random(rows) < 0.1) & (site != "cork")] = np.nan
    kind = np.where(site == "cork", "wild", rng.choice(["wild", "tame", "lost"], rows))
    return pd.DataFrame({"size": size, "age": rng.integers(1, 90, rows), "kind": kind, "site": site, "label": label})


def split(frame: pd.DataFrame, folder: Path) -> list[Path]:
    folder.mkdir()
    files = []
    for site, own in frame.groupby("site"):
        files.append(folder / f"{site}.csv")
        own.drop(columns="site").to_csv(files[-1], index=False)
    frame.to_csv(folder / "all.csv", index=False)
    return files


def nodes_of(files: list[Path], **reading: Any) -> list[Node]:
    return [Node(from_file(path, label="label", **reading), workers=1) for path in files]


@pytest.mark.parametrize("method", ["clust_psi_pfl", "prior_pfl"])
def test_files_of_nodes_give_what_one_table_with_a_column_of_clients_gives(method: str, tmp_path: Path) -> None:
    files = split(table(), tmp_path / "data")
    config = Config(
        dataset=str(tmp_path / "data" / "all.csv"),
        label="label",
        client="site",
        agg_method=method,
        comm_rounds=2,
        local_epochs=1,
        lr=0.01,
    )
    simulated = run(config, Store(tmp_path / "simulated"), save_models=True)
    named = replace(config, client=None, partitioner="natural")
    federated = federate_here(named, tmp_path / "nodes", [*nodes_of(files)], save_models=True)
    assert federated.accuracy().equals(simulated.accuracy())
    assert federated.clients().equals(simulated.clients())
    from clustpsi.saved.file import load_model

    ours, theirs = load_model(federated.path), load_model(simulated.path)
    assert ours.features == theirs.features
    rows = table(50, seed=1)
    counts = [[9, 1, 0]]
    assert ours.predict(rows, "rome").tolist() == theirs.predict(rows, "rome").tolist()
    assert ours.assign(counts).tolist() == theirs.assign(counts).tolist()


def test_texts_agree_with_the_simulator(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = rng.choice(list("abc"), 90)
    texts = [" ".join(rng.choice(WORDS[each].split(), 6)) for each in label]
    frame = pd.DataFrame({"text": texts, "site": rng.choice(["p", "q"], 90), "label": label})
    files = split(frame, tmp_path / "texts")
    config = Config(
        dataset=str(tmp_path / "texts" / "all.csv"),
        label="label",
        client="site",
        text="text",
        comm_rounds=1,
        local_epochs=1,
        agg_method="fedavg",
    )
    named = replace(config, client=None, partitioner="natural")
    nodes = [*nodes_of(files, text="text")]
    check = federate_here(named, tmp_path / "nodes", nodes)
    simulated = run(config, Store(tmp_path / "simulated"))
    assert check.summary()["model"] == simulated.summary()["model"] == "embedding_mlp"
    assert np.abs(check.accuracy()["accuracy"] - simulated.accuracy()["accuracy"]).max() < 1e-5
    assert np.abs(check.accuracy()["loss"] - simulated.accuracy()["loss"]).max() < 1e-4


def written(folder: Path, **tables: pd.DataFrame) -> list[Node]:
    folder.mkdir(exist_ok=True)
    for name, frame in tables.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return nodes_of([folder / f"{name}.csv" for name in tables])


def described(nodes: list[Node]) -> list[Any]:
    return [node.describe(private=False) for node in nodes]


BASE = pd.DataFrame({"x": [1.0, 2.5, 3.0, 4.0], "y": list("uvuv"), "label": list("abab")})


@pytest.mark.parametrize(
    "other, said",
    [
        (BASE.assign(label=list("cdcd")), r"'one' has the classes a, b, none of which another node has \(c, d\)"),
        (BASE.drop(columns="y"), "node 'two' has no column 'y', which node 'one' has"),
        (BASE.assign(z=1.5), "node 'one' has no column 'z', which node 'two' has"),
        (BASE.assign(x=list("pqpq")), "column 'x' holds numbers at node 'one' and categories at node 'two'"),
    ],
)
def test_contradictions_between_nodes_are_sentences(other: pd.DataFrame, said: str, tmp_path: Path) -> None:
    with pytest.raises(ClustPSIError, match=said):
        agree(described(written(tmp_path, one=BASE, two=other)))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_the_sentence_about_another_column_advises_helps(ending: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.{ending}" for name in ("one", "two")]
    for file, frame in zip(files, (BASE, BASE.assign(z=1.5)), strict=True):
        frame.to_csv(file, index=False) if ending == "csv" else frame.to_parquet(file)
    with pytest.raises(ClustPSIError, match=r"no column 'z', which node 'two' has.*--drop"):
        agree(described(nodes_of(files)))
    nodes = nodes_of(files, drop=("z",))
    assert agree(described(nodes)).features["numbers"] == ("x",)
    plain = nodes_of(files[:1])[0]
    assert described([nodes[0]]) == described([plain]), "as if nothing had been dropped"
    for wrong, said in ((("label",), "must be different columns"), (("",), "--drop is empty")):
        with pytest.raises(ClustPSIError, match=said):
            nodes_of(files, drop=wrong)


def test_a_node_may_lack_classes_kinds_and_numbers(tmp_path: Path) -> None:
    poor = pd.DataFrame({"x": [np.nan] * 3, "y": ["u"] * 3, "label": ["b"] * 3})
    agreement = agree(described(written(tmp_path, one=BASE, two=poor)))
    assert agreement.classes == ("a", "b")
    assert agreement.features["numbers"] == ("x",)
    assert agreement.features["categories"] == ("y",)


def test_classes_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    one, two = BASE.assign(label=[10, 9, 10, 9]), BASE.assign(label=[9, 100, 9, 100])
    assert agree(described(written(tmp_path, one=one, two=two))).classes == ("9", "10", "100")


def test_classes_that_are_named_beforehand_bind(tmp_path: Path) -> None:
    nodes = described(written(tmp_path, one=BASE, two=BASE))
    assert agree(nodes, ("c", "b", "a")).classes == ("c", "b", "a")
    with pytest.raises(ClustPSIError, match="node 'one' has the class 'b', which is not among those"):
        agree(nodes, ("a", "c"))


def test_two_nodes_of_one_name_are_a_sentence(tmp_path: Path) -> None:
    nodes = described(written(tmp_path, one=BASE))
    with pytest.raises(ClustPSIError, match="two nodes call themselves 'one'"):
        agree([*nodes, *nodes])


def test_all_of_one_class_is_a_sentence(tmp_path: Path) -> None:
    only = BASE.assign(label="a")
    with pytest.raises(ClustPSIError, match="all nodes have the same single class, 'a'"):
        agree(described(written(tmp_path, one=only, two=only)))


def test_merging_rare_classes_needs_all_rows() -> None:
    with pytest.raises(ClustPSIError, match="--min-class needs all rows in one place"):
        from_file("x.csv", label="label", min_class=3)


def test_a_node_of_another_kind_is_a_sentence(tmp_path: Path) -> None:
    tables = described(written(tmp_path, one=BASE))
    BASE.to_csv(tmp_path / "two.csv", index=False)
    texts = described(nodes_of([tmp_path / "two.csv"], text="y"))
    with pytest.raises(ClustPSIError, match="node 'two' has data of the kind 'text', and node 'one' of the kind"):
        agree([*tables, *texts])
