"""What happens on the page: what each control, each button and the address does."""

import base64
import binascii
import shlex
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, no_update, set_props

from clustpsi.diagnosis import diagnose
from clustpsi.errors import ClustPSIError
from clustpsi.explorer import layout, results
from clustpsi.explorer.library import Library
from clustpsi.explorer.settings import TRAINING, Settings, is_table
from clustpsi.explorer.training import Training
from clustpsi.explorer.view import Views
from clustpsi.printing import printable
from clustpsi.report.cells import find_cells, find_runs
from clustpsi.report.charts import accuracy_by_round
from clustpsi.report.look import DARK, LIGHT, Theme
from clustpsi.report.page import run_report, skew_report
from clustpsi.report.tables import dataset_title, method_title
from clustpsi.runs.config import run_command
from clustpsi.runs.store import Store

# Controls in the order in which callbacks take and return their values; alpha and S have one control each.
CONTROLS = (
    "dataset",
    "label",
    "client",
    "partitioner",
    "alpha",
    "similar",
    "num_clients",
    "seed",
    "preset",
    "psi_smoothing",
    "psi_features",
    "tau_clusters",
    "agg_method",
    "comm_rounds",
    "local_epochs",
)
PAPER_CONTROLS = ("dataset", "clients", "level", "score", "methods")
LEVELS = {"dirichlet": "alpha", "similarity": "similar"}
COUNTS_FILE = "label_counts.csv"


class Explorer:
    """Everything behind the page.

    Parameters
    ----------
    folder
        The only folder that is written to: it holds dropped tables and a store of runs.
    data_dir
        The folder with the named data sets.
    """

    def __init__(self, folder: Path, data_dir: Path | None = None) -> None:
        self.library = Library(folder / "tables", data_dir)
        self.views = Views(self.library)
        self.training = Training(self.library, Store(folder / "runs"))

    def close(self) -> None:
        self.training.close()

    # --------------------------------------------------------------------------------------------------- what is shown

    def options(self, table: str | None = None) -> list[dict[str, str]]:
        """Data sets to choose from, and the table that was dropped on this tab."""
        known = [{"label": dataset_title(name), "value": name} for name in self.library.names()]
        if table is not None:
            known.append({"label": printable(self.library.path(table).name), "value": table})
        return known

    def commands(self, settings: Settings) -> tuple[str, str]:
        """The command lines that measure and train what the page shows; empty if nothing can be trained."""
        table = self.library.path(settings.dataset).name if is_table(settings.dataset) else None
        words = ["clustpsi", "diagnose"]
        if table is not None and settings.partitioner == "natural":
            words.append(table)
            for flag in ("label", "client"):
                value = getattr(settings, flag)
                words += [] if value is None else [f"--{flag}", value]
        else:
            words += [COUNTS_FILE, "--client", "client"]
        for name in ("preset", "psi_features", "psi_smoothing", "tau_clusters"):
            value = getattr(settings, name)
            words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
        words += ["--seed", str(settings.seed)]
        train = ""
        if not settings.is_counts and settings.methods:
            config = settings.config(settings.methods[0], self.library.file(settings)).checked()
            config = config if table is None else replace(config, dataset=table)
            train = run_command(config, settings.methods, [settings.seed])
        return shlex.join(words), train

    def report(self, settings: Settings, job_name: str | None) -> tuple[str, str]:
        """A report on this tab's finished runs if the page shows them, else on the skew; and its file name."""
        job = self.training.job(job_name)
        if job is not None and job.folders and job.settings.plain(*TRAINING) == settings.plain(*TRAINING):
            runs, notes = find_runs(job.folders)
            return run_report(find_cells(runs), notes), "report.html"
        view = self.views.view(settings)
        other = diagnose(
            view.diagnosis.counts,
            view.diagnosis.client_names,
            view.diagnosis.class_names,
            preset=settings.preset,
            **settings.clustering | {"features": view.diagnosis.other_features},
            random_state=settings.seed,
        )
        name = self.title(settings)
        return skew_report(view.diagnosis, other, name, self.commands(settings)[0]), "report.html"

    def title(self, settings: Settings) -> str:
        if is_table(settings.dataset):
            return self.library.path(settings.dataset).name
        return dataset_title(settings.dataset)

    # ------------------------------------------------------------------------------------------------------- callbacks

    def app(self) -> Dash:
        """The page."""
        app = Dash(
            "clustpsi.explorer",
            title="clustpsi explorer",
            update_title=None,
            assets_folder=str(Path(__file__).parent / "assets"),
            index_string=layout.index("clustpsi explorer"),
            serve_locally=True,
            on_error=_report_defect,
            add_log_handler=False,
        )
        app.layout = lambda: layout.page(Settings(), self.options())
        self._address(app)
        self._controls(app)
        self._show(app)
        self._train(app)
        self._take_away(app)
        self._paper(app)
        return app

    def _address(self, app: Dash) -> None:
        """The address sets the controls when the page opens; after that the controls set the address."""

        @_callback(
            app,
            output=[
                Output("dataset", "options"),
                [Output(name, "value") for name in CONTROLS],
                Output("label", "options"),
                Output("client", "options"),
                Output("page", "value"),
                [Output(f"paper-{name}", "value") for name in PAPER_CONTROLS],
                Output("address-message", "children"),
            ],
            inputs=[
                Input("address", "search"),
            ],
        )
        def open_page(search: str | None) -> list[Any]:
            message = None
            values: dict[str, str] = {}
            try:
                settings = Settings.from_address(search or "")
                columns = self.library.columns(settings.dataset) if is_table(settings.dataset) else []
                values = dict(parse_qsl((search or "").removeprefix("?")))
            except (ClustPSIError, ValueError) as error:
                settings, columns, message = Settings(), [], f"This address cannot be shown: {error}."
            paper: list[Any] = [values.get(f"paper_{name}") for name in PAPER_CONTROLS]
            paper[-1] = None if paper[-1] is None else paper[-1].split(",")
            try:
                results.check(*paper)
            except ClustPSIError as error:
                paper, message = [None] * len(paper), f"This address cannot be shown: {error}."
            return [
                self.options(settings.dataset if is_table(settings.dataset) else None),
                _control_values(settings),
                columns,
                columns,
                "paper" if values.get("page") == "paper" else "explore",
                [paper[0] or "acs_income", *paper[1:3], paper[3] or "global_accuracy", paper[4]],
                message,
            ]

        app.clientside_callback(
            ClientsideFunction("explorer", "writeAddress"),
            Output("written", "data"),
            Input("settings", "data"),
            Input("page", "value"),
            [Input(f"paper-{name}", "value") for name in PAPER_CONTROLS],
        )

    def _controls(self, app: Dash) -> None:
        for name, scale in (("alpha", "logarithm"), ("similar", "plain"), ("num_clients", "wholeLogarithm")):
            app.clientside_callback(
                ClientsideFunction("explorer", scale),
                Output(f"{name}-slide", "value"),
                Output(name, "value", allow_duplicate=True),
                Input(f"{name}-slide", "value"),
                Input(name, "value"),
                prevent_initial_call="initial_duplicate",
            )
        app.clientside_callback(
            ClientsideFunction("explorer", "visible"),
            [Output(f"{name}-box", "hidden") for name in ("alpha", "similar", "num_clients", "partition")],
            Output("columns", "hidden"),
            Input("partitioner", "value"),
            Input("dataset", "value"),
            Input("label", "value"),
            Input("client", "value"),
        )
        app.clientside_callback(
            ClientsideFunction("explorer", "theme"),
            Output("theme", "data"),
            Output("theme-button", "children"),
            Input("theme-button", "n_clicks"),
        )
        app.clientside_callback(
            ClientsideFunction("explorer", "page"),
            Output("explore", "hidden"),
            Output("paper", "hidden"),
            Input("page", "value"),
        )

        @_callback(
            app,
            output=[
                Output("dataset", "options", allow_duplicate=True),
                Output("dataset", "value", allow_duplicate=True),
                [Output(name, "options", allow_duplicate=True) for name in ("label", "client")],
                [Output(name, "value", allow_duplicate=True) for name in ("label", "client")],
                Output("table-message", "children"),
            ],
            inputs=[
                Input("upload", "contents"),
            ],
            state=[
                State("upload", "filename"),
            ],
            prevent_initial_call=True,
        )
        def take_table(contents: str | None, name: str | None) -> list[Any]:
            nothing = [no_update, no_update, [no_update] * 2, [no_update] * 2]
            if contents is None:
                return [*nothing, None]
            try:
                table = self.library.keep(name or "", _decoded(contents))
                columns = self.library.columns(table)
            except ClustPSIError as error:
                return [*nothing, self.library.told(error)]
            return [self.options(table), table, [columns] * 2, [None] * 2, None]

    def _show(self, app: Dash) -> None:
        @_callback(
            app,
            output=[
                Output("settings", "data"),
                Output("shown", "data"),
                Output("control-message", "children"),
                Output("results", "className"),
            ],
            inputs=[
                [Input(name, "value") for name in CONTROLS],
            ],
            state=[
                State("shown", "data"),
                State("message", "children"),
            ],
        )
        def settle(values: list[Any], shown: str | None, problem: str | None) -> list[Any]:
            try:
                settings = _settings(values)
            except ClustPSIError as error:
                return [no_update, no_update, f"{error}.", "stale"]
            address = settings.plain(*TRAINING).as_address()
            if address != shown:
                return [settings.as_address(), address, None, no_update]
            # The charts stay; they are old ones if what they should show cannot be shown.
            return [settings.as_address(), no_update, None, "stale" if problem else ""]

        @_callback(
            app,
            output=[
                Output("facts", "children"),
                Output("advice", "children"),
                [Output(f"chart-{name}", "figure") for name in layout.CHARTS],
                [Output(f"chart-{name}", "style") for name in layout.CHARTS],
                Output("message", "children"),
                Output("results", "className", allow_duplicate=True),
            ],
            inputs=[
                Input("shown", "data"),
                Input("theme", "data"),
            ],
            prevent_initial_call=True,
        )
        def show(shown: str | None, theme: str | None) -> list[Any]:
            same = [no_update, no_update, *[[no_update] * len(layout.CHARTS)] * 2]
            if shown is None or theme is None:
                return [*same, no_update, no_update]
            try:
                view = self.views.view(Settings.from_address(shown))
            except ClustPSIError as error:
                return [*same, self._sentence(error, shown), "stale"]
            charts = [view.charts(_theme(theme))[name] for name in layout.CHARTS]
            return [layout.facts(view), layout.told(view), charts, list(map(layout.room, charts)), None, ""]

        @_callback(
            app,
            output=[
                Output("measure", "children"),
                Output("command", "children"),
                Output("command-box", "hidden"),
                Output("command-title", "hidden"),
            ],
            inputs=[
                Input("settings", "data"),
            ],
            prevent_initial_call=True,
        )
        def write_commands(address: str | None) -> list[Any]:
            measure, train = self.commands(Settings.from_address(address or ""))
            return [printable(measure), printable(train), not train, not train]

    def _sentence(self, error: ClustPSIError, shown: str) -> str:
        """Why there is nothing to show."""
        hint = ""
        if Settings.from_address(shown).is_counts:
            hint = " If each row is a sample, choose the columns of the label and of the client at the left."
        return f"{self.library.told(error)}.{hint}"

    def _train(self, app: Dash) -> None:
        @_callback(
            app,
            output=[
                Output("job", "data"),
                Output("train-message", "children"),
            ],
            inputs=[
                Input("start", "n_clicks"),
            ],
            state=[
                State("settings", "data"),
            ],
            prevent_initial_call=True,
        )
        def start(clicks: int | None, address: str | None) -> list[Any]:
            try:
                return [self.training.start(Settings.from_address(address or "")), None]
            except ClustPSIError as error:
                return [no_update, f"{self.library.told(error)}."]

        @_callback(app, inputs=[Input("stop", "n_clicks")], state=[State("job", "data")], prevent_initial_call=True)
        def stop(clicks: int | None, name: str | None) -> None:
            job = self.training.job(name)
            if job is not None:
                job.stop()

        @_callback(
            app,
            output=[
                Output("chart-training", "figure"),
                Output("progress", "children"),
                Output("training-box", "hidden"),
                Output("tick", "disabled"),
                Output("start", "disabled"),
                Output("stop", "disabled"),
            ],
            inputs=[
                Input("tick", "n_intervals"),
                Input("job", "data"),
                Input("theme", "data"),
            ],
        )
        def watch(ticks: int | None, name: str | None, theme: str | None) -> list[Any]:
            job = self.training.job(name)
            if job is None:
                return [no_update, None, True, True, False, True]
            under_way = job.under_way  # asked before the curves, so that the last update has all of them
            view = self.views.view(job.settings)
            chart = accuracy_by_round(job.curves(), view.constants, _theme(theme))
            told = layout.progress(job.methods, job.notes)
            return [chart, told, not job.curves(), not under_way, under_way, not under_way]

    def _take_away(self, app: Dash) -> None:
        @_callback(
            app,
            output=Output("download", "data"),
            inputs=[
                Input("get-counts", "n_clicks"),
                Input("get-clusters", "n_clicks"),
                Input("get-report", "n_clicks"),
            ],
            state=[
                State("settings", "data"),
                State("job", "data"),
            ],
            prevent_initial_call=True,
        )
        def take(counts: Any, clusters: Any, report: Any, address: str | None, job: str | None) -> Any:
            settings = Settings.from_address(address or "")
            view = self.views.view(settings)
            if ctx.triggered_id == "get-counts":
                return dcc.send_string(view.label_counts_csv(), COUNTS_FILE)
            if ctx.triggered_id == "get-clusters":
                return dcc.send_string(view.clusters_csv(), "clusters.csv")
            text, name = self.report(settings, job)
            return dcc.send_string(text, name)

    def _paper(self, app: Dash) -> None:
        @_callback(
            app,
            output=[
                Output("paper-clients", "options"),
                Output("paper-clients", "value", allow_duplicate=True),
                Output("paper-level", "options"),
                Output("paper-level", "value", allow_duplicate=True),
                Output("paper-methods", "options"),
            ],
            inputs=[
                Input("paper-dataset", "value"),
                Input("paper-clients", "value"),
            ],
            state=[
                State("paper-level", "value"),
            ],
            prevent_initial_call=True,
        )
        def offer(dataset: str, clients: Any, level: str | None) -> list[Any]:
            numbers = [str(number) for number in results.client_numbers(dataset)]
            chosen = str(clients) if str(clients) in numbers else numbers[0]
            known = list(results.levels(dataset, int(chosen)))
            near = level if level in known else ("α=0.3" if "α=0.3" in known else known[0])
            options = [{"label": method_title(name), "value": name} for name in results.methods(dataset, int(chosen))]
            return [numbers, chosen, known, near, options]

        @_callback(
            app,
            output=[
                Output("paper-table", "children"),
                Output("chart-paper", "figure"),
                Output("chart-paper", "style"),
                Output("paper-message", "children"),
            ],
            inputs=[
                [Input(f"paper-{name}", "value") for name in PAPER_CONTROLS],
                Input("theme", "data"),
            ],
            prevent_initial_call=True,
        )
        def compare(chosen: list[Any], theme: str | None) -> list[Any]:
            dataset, clients, level, score, methods = chosen
            if clients is None or level is None or theme is None:
                return [no_update] * 4
            try:
                found = results.lines(dataset, int(clients), level, score, methods or None)
                notes = results.notes(dataset, int(clients), score)
            except (ClustPSIError, ValueError) as error:
                return [no_update, no_update, no_update, f"{error}."]
            chart = results.chart(found, score, _theme(theme))
            return [layout.paper_table(found, dataset, level, score, notes), chart, layout.room(chart), None]


def _callback(app: Dash, **arguments: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``app.callback``, which has no types."""
    decorator: Callable[[Callable[..., Any]], Callable[..., Any]] = app.callback(**arguments)
    return decorator


def _theme(name: str | None) -> Theme:
    return DARK if name == DARK.name else LIGHT


def _settings(values: list[Any]) -> Settings:
    """Settings from the values of the controls."""
    given = dict(zip(CONTROLS, values, strict=True))
    given["agg_method"] = ",".join(given["agg_method"] or [])
    given["non_iid_param"] = given.get(LEVELS.get(given["partitioner"], ""))
    for name in ("seed", "comm_rounds", "local_epochs", "num_clients"):
        if given[name] is None and not (name == "num_clients" and given["partitioner"] == "natural"):
            raise ClustPSIError(f"{name.replace('_', ' ')} must be a number in its range")
    if given["partitioner"] in LEVELS and given["non_iid_param"] is None:
        raise ClustPSIError("give the partition's parameter a number in its range")
    if not is_table(given["dataset"] or ""):
        given |= {"label": None, "client": None}
    given |= {name: None for name in ("psi_features", "psi_smoothing") if given[name] == layout.AS_PRESET}
    return Settings.of(given)


def _control_values(settings: Settings) -> list[Any]:
    """The values of the controls, in their order."""
    plain = Settings()
    values: dict[str, Any] = {name: getattr(settings, name, None) for name in CONTROLS}
    values |= {"alpha": plain.non_iid_param, "similar": 0.03}
    if settings.partitioner in LEVELS:
        values[LEVELS[settings.partitioner]] = settings.non_iid_param
    values["num_clients"] = settings.num_clients or plain.num_clients
    values |= {name: values[name] or layout.AS_PRESET for name in ("psi_features", "psi_smoothing")}
    values["agg_method"] = [each for each in settings.agg_method.split(",") if each]
    return [values[name] for name in CONTROLS]


def _decoded(contents: str) -> bytes:
    """The bytes of a file as the browser sends them."""
    try:
        return base64.b64decode(contents.partition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        raise ClustPSIError("the file did not arrive completely: drop it again") from None


def _report_defect(error: Exception) -> None:
    """Report an unexpected error: one sentence on the page, everything else in the terminal."""
    sentence = str(error) if isinstance(error, ClustPSIError) else "Something went wrong; the terminal says more"
    if not isinstance(error, ClustPSIError):
        print("".join(traceback.format_exception(error)), file=sys.stderr)
    set_props("message", {"children": f"{sentence}."})
