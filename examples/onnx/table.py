"""Predict rows of a table with exported models, without clustpsi:  python table.py FOLDER rows.csv CLIENT_COLUMN

FOLDER is what `clustpsi export MODEL --format onnx --output FOLDER` wrote.  Each row goes to the model of its client,
with its client's label prior; clients that were not in the federation get what "others" says.
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

folder, client_column = Path(sys.argv[1]), sys.argv[3]
model = json.loads((folder / "model.json").read_text(encoding="utf-8"))
rows = list(csv.DictReader(Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()))

scaled, marks, kinds = [], [], []
for name, centre, spread, is_marked in model["features"]["numbers"]:
    values = np.array([float(row[name] or "nan") for row in rows])  # an empty cell is a gap
    scaled.append(np.nan_to_num((values - centre) / spread))
    marks += [np.isnan(values)] if is_marked else []
for name, known in model["features"]["categories"]:
    places = [known.index(kind) if (kind := row[name] or None) in known else len(known) for row in rows]
    kinds += list(np.eye(len(known) + 1)[places].T)
features = np.stack([*scaled, *marks, *kinds], axis=1).astype(np.float32)

sessions = {name: onnxruntime.InferenceSession(folder / name) for name in model["models"]}
for row, own in zip(rows, features, strict=True):
    served = model["clients"].get(row[client_column], model["others"])
    (logits,) = sessions[served["model"]].run(["logits"], {"features": own[None]})
    print(model["classes"][np.argmax(served["scale"] * logits[0] + served["log_prior"])])
