"""A local web page to look at federations: move a slider, see the skew and the clusters, train, compare.

Plain functions turn settings into numbers and charts (:mod:`.settings`, :mod:`.library`, :mod:`.view`,
:mod:`.results`).  :mod:`.training` trains in separate processes.  :mod:`.layout` and :mod:`.app` are the page, and
:mod:`.server` decides who may see it.
"""
