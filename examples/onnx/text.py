"""Predict texts with exported models, without clustpsi:  python text.py FOLDER CLIENT < texts.txt

FOLDER is what `clustpsi export MODEL --format onnx --output FOLDER` wrote; each line of the input is a text of CLIENT.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnxruntime

folder, client = Path(sys.argv[1]), sys.argv[2]
model = json.loads((folder / "model.json").read_text(encoding="utf-8"))

length, words = model["features"]["length"], model["features"]["words"]
token_of = {word: token for token, word in enumerate(words, start=2)}  # 1: any other word, 0: after the last word
features = np.zeros((0, length), np.int32)
for text in sys.stdin:
    tokens = [token_of.get(word, 1) for word in re.findall(r"(?:[^\W_]|')+", text.lower())][:length]
    features = np.vstack([features, np.pad(tokens, (0, length - len(tokens)))]).astype(np.int32)

served = model["clients"].get(client, model["others"])
(logits,) = onnxruntime.InferenceSession(folder / served["model"]).run(["logits"], {"features": features})
for own in logits:
    print(model["classes"][np.argmax(served["scale"] * own + served["log_prior"])])
