"""How long the explorer takes from a moved control to numbers and charts, on the server's side.

    python benchmarks/explorer.py [--data-dir FOLDER] [--num-clients 100]

Each line is a data set: the median and the largest of ten settings that were not seen before, in milliseconds, with the
data loaded; the time to load it the first time stands apart.  The last column is the median of the processor's time,
which hardly depends on what else the machine does.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from clustpsi.explorer import layout
from clustpsi.explorer.library import Library
from clustpsi.explorer.settings import Settings
from clustpsi.explorer.view import Views
from clustpsi.report.look import LIGHT


def milliseconds(views: Views, settings: Settings) -> tuple[float, float]:
    """From settings to what is sent to the browser: time that passes, and time of the processor."""
    before, busy = time.perf_counter(), time.process_time()
    view = views.view(settings)
    json.dumps(view.charts(LIGHT))
    layout.facts(view), layout.told(view)
    return 1000 * (time.perf_counter() - before), 1000 * (time.process_time() - busy)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--num-clients", type=int, default=100)
    given = parser.parse_args()
    library = Library(Path(tempfile.gettempdir()), given.data_dir)
    views = Views(library)
    print(f"{'data set':<16}{'load':>9}{'median':>9}{'largest':>9}{'CPU':>9}   ms, {given.num_clients} clients")
    for name in library.names():
        before = time.perf_counter()
        library.dataset(Settings(dataset=name))
        loading = 1000 * (time.perf_counter() - before)
        alphas = [0.7 + 0.05 * step for step in range(11)]
        times = [
            milliseconds(views, Settings(dataset=name, num_clients=given.num_clients, non_iid_param=alpha))
            for alpha in alphas
        ][1:]  # the first loads modules too
        passed, busy = zip(*times, strict=True)
        median = statistics.median(passed)
        print(f"{name:<16}{loading:>9,.0f}{median:>9.0f}{max(passed):>9.0f}{statistics.median(busy):>9.0f}", flush=True)
