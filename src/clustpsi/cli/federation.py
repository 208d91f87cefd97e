"""``clustpsi federation``: a real federation on Flower, on one machine or on many."""

import json
import os
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from clustpsi.cli.notes import Quiet, notes
from clustpsi.cli.options import (
    Methods,
    chosen_methods,
    complete_datasets,
    config_options,
    method_options,
    with_options,
)
from clustpsi.datasets.files import is_file_name
from clustpsi.errors import ClustPSIError
from clustpsi.printing import console, print_table, printable
from clustpsi.runs.config import Config

app = typer.Typer(no_args_is_help=True, help="Train on real nodes with Flower: on this machine, or on many.")

SETTINGS = {each.name for each in fields(Config)}
PLACE = "{n}"  # stands for a node's number in the name of its file

Nodes = Annotated[int, typer.Option(min=1, max=10_000, help="How many nodes the run needs.")]
Output = Annotated[Path, typer.Option(help="Folder for the runs, on the server's machine; one folder each.")]
Classes = Annotated[
    str | None, typer.Option(help="All classes, comma-separated.", show_default="those that the nodes have")
]
Connect = Annotated[float, typer.Option(help="Seconds to wait for the nodes before the first round.")]
Deadline = Annotated[float, typer.Option(help="Seconds within which nodes must answer; late ones are left out.")]
MinAnswers = Annotated[float, typer.Option(help="Smallest share of the asked nodes that must answer.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue runs that were stopped.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute finished runs again.")]
SaveModels = Annotated[
    bool,
    typer.Option("--save-models", help="Save the final models: model.safetensors or, with --client, models.npz."),
]
SharedDataset = Annotated[
    str,
    typer.Option(
        help="Named data set that nodes without files share. Nodes with files need none: give --label.",
        autocompletion=complete_datasets,
    ),
]
Client = Annotated[
    Path | None,
    typer.Option(help="Python file whose `app` is a ClientApp with a model of its own.", show_default="clustpsi's"),
]
SuperLink = Annotated[str, typer.Option(help="Address of the SuperLink, host:port.")]
Roots = Annotated[
    Path | None, typer.Option(help="Certificate of the authority that signed the SuperLink's certificate.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Without TLS: for a SuperLink on this machine only.")]


@app.command("up")
def up(
    nodes: Annotated[int | None, typer.Option(min=2, max=1000, help="Nodes to start.", show_default="4")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help=f"Files of the nodes; {PLACE} stands for the node's number, from 0 or 1 on (site-{PLACE}.csv). "
            "Without it the nodes share --dataset."
        ),
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="Named data set that nodes without files share.", autocompletion=complete_datasets)
    ] = "digits",
    agg_method: Methods = "clust_psi_pfl",
    output: Output = Path("runs"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the SuperLink on this machine; 0: any free one.")
    ] = 0,
    client: Client = None,
    classes: Classes = None,
    connect: Connect = 120.0,
    deadline: Deadline = 600.0,
    min_answers: MinAnswers = 0.5,
    resume: Resume = False,
    fresh: Fresh = False,
    save_models: SaveModels = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="CLUSTPSI_DATA", help="Folder with the data sets.", show_default="the user's cache"),
    ] = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    **options: Any,
) -> None:
    """Start a SuperLink and nodes on this machine, run, and clean up.

    All processes listen on the loopback address only, and end with this command, however it ends.
    """
    told = notes(quiet)
    options["dataset"] = dataset
    base, files = _chosen_data(options, data, nodes)
    number = nodes or (len(files) if files else 4)
    configs = _configs(base, agg_method, options, None if files else number)
    patience, all_classes = _patience(connect, deadline, min_answers), _classes(classes)
    _check(resume, fresh)
    if client is not None and not files:
        raise ClustPSIError("--client needs files of the nodes: give them with --data")

    from clustpsi.flower import check_installed

    check_installed()
    # Imported here because Flower, pandas and JAX are slow to load.
    from clustpsi.cli.run import ALWAYS, Watcher, constant_rows, remarks, summary_row, summary_table
    from clustpsi.flower.deployment import Federation
    from clustpsi.flower.settings import Settings
    from clustpsi.runs.course import Progress
    from clustpsi.runs.remote import check_method
    from clustpsi.runs.store import RunFolder, Store

    for config in configs:
        check_method(config.agg_method)
    if not files:
        configs = _settled(configs, data_dir, number)
    Store(output)
    names = [f"node-{n}" for n in range(number)]
    folders: dict[str, list[RunFolder]] = {}
    with Watcher(told, configs) as watcher, Federation.up(port) as federation:
        for n, name in enumerate(names):
            # Nodes that are started again must have the same noise and the same test rows.
            secret = None if configs[0].dp_epsilon is None else _secret_file(output, name)
            if client is not None:
                federation.start_plain_node(name, _node_config(files[n], options["label"], secret))
            else:
                federation.start_node(name, _node_arguments(n, number, files, data_dir, secret))

        def heard(event: dict[str, Any]) -> None:
            kind = event.pop("event")
            if kind == "progress":
                watcher.show(Progress(**{**event, "left_out": tuple(event["left_out"])}))
            elif kind == "model":
                watcher.say(f"{event['model']}, {event['parameters']:,} parameters: {event['reason']}")
            elif kind == "note":
                watcher.say(event["text"])

        for config in configs:
            watcher.begin(config)
            settings = Settings(
                config,
                nodes=number,
                patience=patience,
                classes=all_classes,
                output=str(output),
                resume=resume,
                fresh=fresh,
                save_models=save_models,
            )
            folder = RunFolder(federation.run(settings, heard, names, client))
            folders[config.agg_method] = [folder]
            watcher.end()
    rows = [summary_row(method, runs) for method, runs in folders.items()]
    constants = constant_rows(next(iter(folders.values())))
    first = next(iter(folders.values()))[0].config()
    if as_json:
        shared = {key: value for key, value in first.cell.items() if key != "seed"}
        print(json.dumps({"settings": shared, "seeds": [first.seed], "methods": rows, "constant": constants}, indent=2))
    else:
        print_table(summary_table(first, rows, constants, ALWAYS, 1), console())
        told.print(printable(f"results in {output}/"), style="dim")
    for text in remarks(rows, [first.seed]):
        told.print(f"note: {printable(text)}", style="yellow")


with_options(up, [*config_options("agg_method", "client", "num_clients", "min_class", "start_from"), *method_options()])


@app.command("superlink")
def superlink(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    certificate: Annotated[Path | None, typer.Option(help="The SuperLink's certificate (PEM).")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's private key (PEM).")] = None,
    ca: Annotated[Path | None, typer.Option(help="Certificate of the authority that signed it (PEM).")] = None,
    insecure: Insecure = False,
) -> None:
    """Start Flower's SuperLink, to which nodes connect: with TLS, and for registered nodes only."""
    from clustpsi.flower import check_installed

    check_installed()
    from clustpsi.flower.deployment import superlink_command
    from clustpsi.flower.processes import check_port, environment

    command = superlink_command(host, port, certificate=certificate, key=key, ca=ca, insecure=insecure)
    check_port(port, host)
    sys.stdout.flush()
    os.execve(command[0], command, environment())


@app.command("node")
def node(
    superlink: SuperLink,
    data: Annotated[Path | None, typer.Option(help="File with this node's rows.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the client.", show_default="the file's name")] = None,
    label: Annotated[str | None, typer.Option(help="Column to predict.", show_default="the run's")] = None,
    text: Annotated[str | None, typer.Option(help="Columns of free text.", show_default="the run's")] = None,
    drop: Annotated[str | None, typer.Option(help="Columns not to use.", show_default="the run's")] = None,
    sep: Annotated[str | None, typer.Option(help="Separator of cells.", show_default="the run's")] = None,
    partition_id: Annotated[
        int | None, typer.Option(min=0, help="Instead of a file: which part of the run's data set this node has.")
    ] = None,
    num_partitions: Annotated[int | None, typer.Option(min=2, help="How many parts there are.")] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="CLUSTPSI_DATA", help="Folder with the data sets.", show_default="the user's cache"),
    ] = None,
    secret: Annotated[
        Path | None,
        typer.Option(
            help="File with the secret of this node's noise, made if it does not exist. With it the node can go on "
            "with a run of --dp-epsilon after it was started again.",
            show_default="a new secret",
        ),
    ] = None,
    root_certificates: Roots = None,
    private_key: Annotated[
        Path | None, typer.Option(help="This node's private key, whose public key is registered at the SuperLink.")
    ] = None,
    insecure: Insecure = False,
    quiet: Quiet = False,
) -> None:
    """Serve as a node of a federation until stopped. Rows stay here; label counts, summaries and models leave.

    A SuperNode of Flower carries the messages; this process keeps the rows and compiled programs.
    """
    told = notes(quiet)
    if (data is None) == (partition_id is None):
        raise ClustPSIError("a node has either a file (--data) or a part of the run's data set (--partition-id)")
    if data is not None and not data.is_file():
        raise ClustPSIError(f"there is no file {data}: give this node's file with --data")
    if partition_id is not None and num_partitions is None:
        raise ClustPSIError("--partition-id needs --num-partitions, the number of parts")
    _check_tls(root_certificates, insecure)

    from clustpsi.flower import check_installed

    check_installed()
    from clustpsi.flower.deployment import Connection, run_node

    given = {
        "data": None if data is None else str(data.resolve()),
        "name": name or (None if data is None else data.name.partition(".")[0]),
        "label": label,
        "text": text,
        "drop": drop,
        "sep": sep,
        "partition-id": partition_id,
        "num-partitions": num_partitions,
        "data-dir": None if data_dir is None else str(data_dir.resolve()),
        "secret": None if secret is None else str(secret.resolve()),
    }
    config = {key: value for key, value in given.items() if value is not None}
    run_node(Connection(superlink, root_certificates), config, private_key, lambda said: told.print(printable(said)))


@app.command("register")
def register(
    keys: Annotated[list[Path], typer.Argument(help="Public keys of nodes.")],
    superlink: SuperLink,
    root_certificates: Roots = None,
    insecure: Insecure = False,
) -> None:
    """Register nodes at a SuperLink by their public keys; the SuperLink refuses all other nodes."""
    _check_tls(root_certificates, insecure)

    from clustpsi.flower import check_installed

    check_installed()
    from clustpsi.flower.deployment import Connection
    from clustpsi.flower.deployment import register as hand_over

    hand_over(Connection(superlink, root_certificates), keys)
    for key in keys:
        console().print(printable(f"registered {key}"))


@app.command("submit")
def submit(
    superlink: SuperLink,
    nodes: Nodes,
    dataset: SharedDataset = "digits",
    agg_method: Annotated[str, typer.Option(help="The method, as name or name:parameter=value:...")] = "clust_psi_pfl",
    output: Output = Path("runs"),
    classes: Classes = None,
    connect: Connect = 120.0,
    deadline: Deadline = 600.0,
    min_answers: MinAnswers = 0.5,
    resume: Resume = False,
    fresh: Fresh = False,
    save_models: SaveModels = False,
    client: Client = None,
    root_certificates: Roots = None,
    insecure: Insecure = False,
    **options: Any,
) -> None:
    """Submit a run to a SuperLink and show its log until it ends; the results are on the SuperLink's machine."""
    import tempfile

    _check_tls(root_certificates, insecure)
    settings = _settings(
        {**options, "dataset": dataset},
        agg_method,
        nodes,
        output,
        classes,
        _patience(connect, deadline, min_answers),
        resume,
        fresh,
        save_models,
    )

    from clustpsi.flower import check_installed

    check_installed()
    from clustpsi.flower.deployment import Connection
    from clustpsi.flower.deployment import submit as hand_over

    with tempfile.TemporaryDirectory(prefix="clustpsi-") as folder:
        hand_over(Connection(superlink, root_certificates), settings, Path(folder), follow=True, client=client)


with_options(submit, [*config_options("agg_method", "client", "min_class", "start_from"), *method_options()])


@app.command("app")
def write(
    folder: Annotated[Path, typer.Argument(help="New folder for the app.")],
    nodes: Nodes = 2,
    dataset: SharedDataset = "digits",
    agg_method: Annotated[str, typer.Option(help="The method, as name or name:parameter=value:...")] = "clust_psi_pfl",
    output: Output = Path("runs"),
    classes: Classes = None,
    connect: Connect = 120.0,
    deadline: Deadline = 600.0,
    min_answers: MinAnswers = 0.5,
    resume: Resume = False,
    fresh: Fresh = False,
    save_models: SaveModels = False,
    client: Client = None,
    **options: Any,
) -> None:
    """Write the Flower app of a run, for Flower's own command flwr run: the settings are its run configuration."""
    patience = _patience(connect, deadline, min_answers)
    settings = _settings(
        {**options, "dataset": dataset}, agg_method, nodes, output, classes, patience, resume, fresh, save_models
    )

    from clustpsi.flower import check_installed

    check_installed()
    from clustpsi.flower.settings import write_app

    if folder.exists() and any(folder.iterdir()):
        raise ClustPSIError(f"{folder} is not empty: name a new folder")
    write_app(folder, settings, client)
    console().print(printable(f"app in {folder}/"))


with_options(write, [*config_options("agg_method", "client", "min_class", "start_from"), *method_options()])


def _settings(
    options: dict[str, Any],
    agg_method: str,
    nodes: int,
    output: Path,
    classes: str | None,
    patience: Any,
    resume: bool,
    fresh: bool,
    save_models: bool,
) -> Any:
    from clustpsi.runs.remote import check_method

    _check(resume, fresh)
    (config,) = _configs(options, agg_method, options, options.get("num_clients"))
    check_method(config.agg_method)

    from clustpsi.flower import check_installed

    check_installed()
    from clustpsi.flower.settings import Settings

    return Settings(config, nodes, patience, _classes(classes), str(output), resume, fresh, save_models)


def _configs(base: dict[str, Any], agg_method: str, options: dict[str, Any], clients: int | None) -> list[Config]:
    settings = {key: value for key, value in base.items() if key in SETTINGS and key != "num_clients"}
    if settings.get("label") is not None and not is_file_name(str(settings["dataset"])):
        settings["dataset"] = "nodes.csv"  # stands for the nodes' files in the run's name
    if is_file_name(str(settings["dataset"])):
        settings |= {"partitioner": "natural", "non_iid_param": None}
    natural = settings.get("partitioner") == "natural"
    methods = chosen_methods(agg_method, {key: value for key, value in options.items() if key not in SETTINGS})
    own = None if natural else clients
    return [Config(**settings, num_clients=own, agg_method=method).checked() for method in methods]


def _chosen_data(options: dict[str, Any], data: str | None, nodes: int | None) -> tuple[dict[str, Any], list[Path]]:
    """The run's settings of data, and the files of the nodes, if they have any."""
    if data is None:
        if is_file_name(str(options.get("dataset"))):
            raise ClustPSIError("the nodes share --dataset, which must be a named one: give files of nodes with --data")
        return options, []
    if PLACE not in data:
        raise ClustPSIError(f"--data {data} needs {PLACE} where the node's number stands, as in site-{PLACE}.csv")
    first = 0 if Path(data.replace(PLACE, "0")).exists() else 1
    files: list[Path] = []
    while nodes is None or len(files) < nodes:
        path = Path(data.replace(PLACE, str(first + len(files))))
        if not path.is_file():
            if nodes is None and files:
                break
            raise ClustPSIError(f"there is no file {path} for node {first + len(files)} (--data {data})")
        files.append(path)
    if options.get("label") is None:
        raise ClustPSIError("--data needs the name of the label column: give --label")
    return {**options, "dataset": data}, files


def _settled(configs: list[Config], data_dir: Path | None, number: int) -> list[Config]:
    """The runs with a partition that exists and that has as many clients as there are nodes."""
    from clustpsi.runs.sources import Sources, settled

    data = Sources(data_dir).load(configs[0])
    if configs[0].partitioner == "natural":
        there = 0 if data.client_ids is None else len(data.client_ids.names)
        if there and there != number:
            raise ClustPSIError(f"{configs[0].dataset} has {there} natural clients: start as many --nodes")
        return configs
    seeds = [configs[0].seed]
    return [settled(replace(config, num_clients=number), data, seeds) for config in configs]


def _secret_file(output: Path, node: str) -> Path:
    """Where the secret of a node of this machine is kept, for all its runs in a folder."""
    return (output / ".federations" / f"{node}.secret").resolve()


def _node_arguments(
    n: int, number: int, files: list[Path], data_dir: Path | None, secret: Path | None = None
) -> list[str]:
    kept = [] if secret is None else ["--secret", str(secret)]
    if files:
        return ["--data", str(files[n].resolve()), *kept]
    part = ["--partition-id", str(n), "--num-partitions", str(number), *kept]
    return part if data_dir is None else [*part, "--data-dir", str(data_dir)]


def _node_config(path: Path, label: str, secret: Path | None = None) -> dict[str, str]:
    config = {"name": path.name.partition(".")[0], "data": str(path.resolve()), "label": label}
    return config if secret is None else {**config, "secret": str(secret)}


def _patience(connect: float, deadline: float, min_answers: float) -> Any:
    from clustpsi.nodes.server import Patience

    return Patience(connect, deadline, min_answers)


def _classes(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if len(set(names)) < len(names) or len(names) < 2 or "" in names:
        raise ClustPSIError("--classes must name at least two classes, each once, with commas between them")
    return names


def _check(resume: bool, fresh: bool) -> None:
    if resume and fresh:
        raise ClustPSIError("--resume goes on with a run and --fresh starts it again: give one of them")


def _check_tls(root_certificates: Path | None, insecure: bool) -> None:
    if (root_certificates is None) != insecure:
        raise ClustPSIError(
            "give --root-certificates, the certificate of whoever signed the SuperLink's; or --insecure for one on "
            "this machine"
        )
