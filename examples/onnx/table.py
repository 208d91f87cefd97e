"""Predict rows of a table with exported models, without clustpsi:  python table.py FOLDER rows.csv CLIENT_COLUMN

FOLDER is what `clustpsi export MODEL --format onnx --output FOLDER` wrote.  Each row goes to the model of its client,
with its client's label prior; clients that were not in the federation get what "others" says.
"""

import csv
import json
import re
import sys
from datetime import date
from pathlib import Path

import numpy as np
import onnxruntime

DECIMAL_POINT, PLAIN_COMMA = re.compile(r"[-+]?\d+\.\d+"), re.compile(r"[-+]?\d+,\d+")
POINTED_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")
TIME = r"[T ] ?(\d{1,2}):(\d\d)(?::(\d\d(?:[.,]\d+)?))?(?: ?([AaPp])[Mm])?(?: ?(?:Z|UTC|GMT|([-+]\d\d)(?::?(\d\d))?))?"
DATE = re.compile(rf"(\d{{1,4}})[-/.](\d{{1,2}})[-/.](\d{{1,4}})(?:{TIME})?")


def days(text, day_first):
    """Days since 1970 in UTC: 0.5 is noon of the first of January.  The year comes first or last."""
    one, two, three, hour, minute, second, half, zone, zone_minutes = DATE.fullmatch(text.strip()).groups()
    year, month, day = (one, two, three) if len(one) == 4 else (three, two, one) if day_first else (three, one, two)
    hours = int(hour or 0) if half is None else int(hour) % 12 + 12 * (half in "Pp")
    minutes = 60 * hours + int(minute or 0) + float((second or "0").replace(",", ".")) / 60
    ahead = 60 * abs(int(zone or 0)) + int(zone_minutes or 0)
    minutes -= -ahead if zone and zone[0] == "-" else ahead
    return date(int(year), int(month), int(day)).toordinal() - date(1970, 1, 1).toordinal() + minutes / 1440


def number(text, decimal_comma):
    """A number, perhaps with a currency and with thousands apart: $1,234.50 or, with a decimal comma, 1.234,50 €."""
    text = re.sub(r"[\s$€£¥%]", "", text)
    if decimal_comma and ("," in text or POINTED_THOUSANDS.fullmatch(text)):
        text = text.replace(".", "").replace(",", ".")
    return float(text.replace(",", ""))


def known(text, names):
    """How a text is written among names: without blanks around it, 1 for 1.0, True for true."""
    spellings = [text, text.strip(), text.strip().capitalize()]
    if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text.strip()):
        value = float(text)
        spellings += [str(value), str(int(value))] if value.is_integer() else [str(value)]
    return next((each for each in spellings if each in names), text)


folder, client_column = Path(sys.argv[1]), sys.argv[3]
model = json.loads((folder / "model.json").read_text(encoding="utf-8"))
described = model["features"]
with Path(sys.argv[2]).open(newline="", encoding="utf-8-sig") as file:
    separator = max(",;\t|", key=file.readline().count)
    file.seek(0)
    table = csv.DictReader(file, delimiter=separator, skipinitialspace=True)
    rows = [{name.strip(): cell for name, cell in row.items()} for row in table]
# If something else separates the cells, the commas of plain numbers may be decimal ones throughout.
commas = separator != "," and not any(DECIMAL_POINT.fullmatch(cell.strip()) for row in rows for cell in row.values())

scaled, marks, kinds = [], [], []
for column in described["numbers"]:
    values = np.full(len(rows), np.nan)
    for place, row in enumerate(rows):
        cell = row[column["name"]]
        if cell.strip().lower() in described["gap_marks"] or cell in column["gap_marks"]:
            continue
        if column["kind"] == "date":
            values[place] = days(cell, column["day_first"])
        else:
            values[place] = number(cell, column["decimal_comma"] or (commas and PLAIN_COMMA.fullmatch(cell.strip())))
    scaled.append(np.nan_to_num((values - column["centre"]) / column["spread"]))
    marks += [np.isnan(values)] if column["marks_gaps"] else []
for column in described["categories"]:
    cells = [row[column["name"]] for row in rows]
    names = [None if cell in described["missing"] else known(cell, column["kinds"]) for cell in cells]
    places = [column["kinds"].index(name) if name in column["kinds"] else len(column["kinds"]) for name in names]
    kinds += list(np.eye(len(column["kinds"]) + 1)[places].T)
features = np.stack([*scaled, *marks, *kinds], axis=1).astype(np.float32)

sessions = {name: onnxruntime.InferenceSession(folder / name) for name in model["models"]}
for row, own in zip(rows, features, strict=True):
    served = model["clients"].get(known(row[client_column], model["clients"]), model["others"])
    (logits,) = sessions[served["model"]].run(["logits"], {"features": own[None]})
    print(model["classes"][np.argmax(served["scale"] * logits[0] + served["log_prior"])])
