"""Saved models: one file with everything that predictions need; neither the data nor the run is needed."""

NAME = "model.safetensors"  # the file's name in a run's folder
