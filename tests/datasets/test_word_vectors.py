"""Word vectors from a file, instead of embeddings that the model trains."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from clustpsi.datasets.word_vectors import WordVectors, read_word_vectors
from clustpsi.errors import ClustPSIError
from clustpsi.models import build_model
from clustpsi.runs.cell import open_cell
from clustpsi.runs.config import Config
from clustpsi.runs.sources import Sources, identified
from helpers import clustpsi

GLOVE = """the 1 2 3
good 0.5 -1 2e-1
. . 7 7 7
bad -4 5 6
good 9 9 9
"""


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    path = tmp_path / "glove.txt"
    path.write_text(GLOVE)
    return path


def test_words_of_the_vocabulary_get_their_vectors_and_all_others_zeros(glove: Path) -> None:
    vectors = read_word_vectors(glove, ["bad", "unheard", "good"])
    assert vectors.table.dtype == np.float32 and vectors.found == 2
    expected = [[0, 0, 0], [0, 0, 0], [-4, 5, 6], [0, 0, 0], [0.5, -1, 0.2]]  # padding, unknown, then the words
    np.testing.assert_allclose(vectors.table, expected)


def test_gzip_and_fasttexts_first_line(tmp_path: Path, glove: Path) -> None:
    path = tmp_path / "vectors.vec.gz"
    path.write_bytes(gzip.compress(b"5 3\n" + GLOVE.encode()))
    assert read_word_vectors(path, ["the", "bad"]) == read_word_vectors(glove, ["the", "bad"])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            "good 1 2 3\nbad 1 2\n",
            "line 2: 3 numbers after a word are needed, as in GloVe's text format, and there are 2",
        ),
        ("good\nbad\n", "line 1: 1 numbers after a word are needed, as in GloVe's text format, and there are 0"),
        ("good 1 2\nbad one 2\n", "line 2: not all of 2 values are numbers"),
        ("good 1 nan\nbad 1 2\n", "line 1: a number is not finite"),
        ("ugly 1 2\n", "has a vector for none of the 2 words of the training data"),
        ("", "has a vector for none of the 2 words of the training data"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(ClustPSIError, match=r"vectors\.txt") as error:
        read_word_vectors(path, ["good", "bad"])
    assert sentence in str(error.value)


def test_vectors_are_part_of_the_model_by_their_content(glove: Path) -> None:
    first, again, other = (read_word_vectors(glove, words) for words in (["bad"], ["bad"], ["good"]))
    assert build_model("lstm", 2, first) == build_model("lstm", 2, again) != build_model("lstm", 2, other)
    assert len({first, again, other}) == 2


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    words = {"sad": ["bad", "the"], "glad": ["good", "the"]}
    lines = [f"{label},{' '.join(rng.choice(words[label], 5))}" for label in rng.choice(["sad", "glad"], 120)]
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(["mood,words", *lines]))
    return path


def settings(reviews: Path, vectors: Path, **more: object) -> Config:
    values = {"dataset": str(reviews), "label": "mood", "text": "words", "num_clients": 3, "word_vectors": str(vectors)}
    return Config(**values | {"partitioner": "iid"} | more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "parameters"), [("embedding_mlp", 3 * 100 * 8 + 8 + 8 * 2 + 2), ("lstm", 582)])
def test_the_vectors_are_not_parameters_and_the_model_uses_them(
    reviews: Path, glove: Path, model: str, parameters: int
) -> None:
    cell = open_cell(settings(reviews, glove, model=model).checked())
    assert cell.num_parameters == parameters
    assert "3 of 3 words have a vector (3 numbers)" in cell.model_reason
    network, model_start = cell.server.network, cell.server.initial(0)
    parameters_, buffers = network.parameters_of(model_start.parameters), network.buffers_of(model_start.buffers)
    tokens = np.array([[2, 3, 4] + [0] * 97, [3, 2, 4] + [0] * 97], np.int32)
    logits = np.asarray(network.evaluate(parameters_, buffers, tokens))
    assert not np.allclose(logits[0], logits[1])  # words differ
    zeros = build_model(model, 2, WordVectors(np.zeros((5, 3), np.float32), 0))
    assert np.ptp(np.asarray(zeros.apply({"params": parameters_}, tokens, train=False)), axis=0).max() == 0


def test_from_the_command_line(tmp_path: Path, reviews: Path, glove: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["run", "--dataset", str(reviews), "--label", "mood", "--text", "words", "--partitioner", "iid"]
    common += [
        "--num-clients",
        "3",
        "--comm-rounds",
        "8",
        "--lr",
        "0.05",
        "--seeds-list",
        "1",
        "--agg-method",
        "fedavg",
    ]
    common += ["--output", str(tmp_path / "runs"), "--json", "--word-vectors"]
    assert clustpsi(*common, str(glove)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["settings"]["word_vectors"] == str(glove)
    assert result["methods"][0]["global_accuracy"]["mean"] > 0.9
    assert clustpsi(*common, str(tmp_path / "none.txt")) == 2
    assert "none.txt does not exist" in capsys.readouterr().err
    assert clustpsi("run", "--word-vectors", str(glove)) == 2
    assert "--word-vectors are for texts, and digits has none" in " ".join(capsys.readouterr().err.split())
    assert clustpsi(*common, str(glove), "--model", "mlp") == 2
    assert "--word-vectors are for models of text (embedding_mlp, lstm), not for mlp" in " ".join(
        capsys.readouterr().err.split()
    )


def test_other_vectors_are_another_run_and_none_the_run_it_was(reviews: Path, glove: Path) -> None:
    config = settings(reviews, glove).checked()
    dataset = Sources().load(config)
    first = identified(config, dataset)
    glove.write_text(GLOVE.replace("-4", "4"))
    assert identified(config, dataset).folder_name != first.folder_name
    with pytest.raises(ClustPSIError, match="is not what it was when this run was set up"):
        identified(first, dataset)
    # The name that this run had before there were word vectors.
    plain = Config(dataset="acs_income", partitioner="dirichlet", non_iid_param=0.3, num_clients=100).checked()
    assert plain.folder_name == "acs_income-dirichlet0.3-k100-fedavg-seed42-d77c82fd"
