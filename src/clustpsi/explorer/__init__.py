"""A page on this machine to look at federations: move a slider, see the skew and the clusters, train, compare.

From settings to numbers and charts there are plain functions (:mod:`.settings`, :mod:`.library`, :mod:`.view`,
:mod:`.results`); :mod:`.training` runs what is trained in processes of its own; :mod:`.layout` and :mod:`.app` are the
page, and :mod:`.server` decides who may see it.
"""
