"""Saved models: everything that predicting takes, in one file, without the data and without the run."""

NAME = "model.safetensors"  # in the folder of a run
