"""Values in TensorBoard, Weights & Biases and trackio, read back from what they wrote to disk."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import genmetrics as gm
from genmetrics.core.result import Interval
from tests.report.fakes import report, result, typical

ROOT = Path(__file__).parents[2]

NUMBERS = {
    "eval/fid@clean": 441.18812,
    "eval/fid@clean/low": 430.168,
    "eval/fid@clean/high": 452.208,
    "eval/fid@clean/n": 384,
    "eval/fid@clean/standard_error": 5.62,
    "eval/fid@clean/infinity": 430.123456,
}
"""What :func:`fid` is logged as."""


def fid(**fields: Any) -> gm.Result:
    given: dict[str, Any] = {
        "interval": Interval(430.168, 452.208),
        "parts": {"standard_error": 5.62, "infinity": 430.123456},
        **fields,
    }
    return result("fid@clean", **given)


def another() -> gm.Result:
    return fid(fingerprint="sha256:" + "0" * 64, protocol={"metric": "fid@clean", "mean": [2, 2]})


class Tracker:
    """The least that can be logged to."""

    def __init__(self) -> None:
        self.calls: list[tuple[dict[str, float], int | None]] = []

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        self.calls.append((values, step))


# -- what is logged --------------------------------------------------------------------------------


def test_value_interval_counts_and_parts_have_names_below_the_id() -> None:
    tracker = Tracker()
    assert gm.log_to(tracker, fid(), step=7, prefix="eval/") == NUMBERS
    assert tracker.calls == [(NUMBERS, 7)]


def test_results_of_a_report_and_of_a_mapping_go_under_their_names() -> None:
    tracker = Tracker()
    named = {"kid@clean:degree=2": result("kid@clean", 0.25), "own": result("psnr", 30.0)}
    expected = {"kid@clean:degree=2": 0.25, "own": 30.0}
    expected |= {f"{name}/n": 384 for name in named}
    assert gm.log_to(tracker, named) == expected
    assert gm.log_to(tracker, report(named)) == expected
    assert tracker.calls == [(expected, None)] * 2


def test_numbers_are_plain_floats() -> None:
    import numpy as np

    logged = gm.log_to(Tracker(), fid(value=np.float64(1.5), parts={"spread": np.float32(0.5)}))
    assert {key: type(value) for key, value in logged.items() if key.endswith(("clean", "d"))} == {
        "fid@clean": float,
        "fid@clean/spread": float,
    }


def test_what_has_no_value_is_left_out_and_named_never_zero() -> None:
    """A failed metric that is plotted as 0 looks like the best FID ever."""
    tracker = Tracker()
    with pytest.warns(UserWarning) as told:
        logged = gm.log_to(tracker, report(typical()))
    assert [str(warning.message) for warning in told] == [
        "not logged: psnr (inf); cmmd (failed: cmmd gave NaN\\nin two lines)"
    ]
    assert told[0].filename == __file__
    assert 0 not in logged.values()
    assert not [key for key in logged if key.startswith("cmmd")]
    assert "psnr" not in logged
    assert logged["psnr/n"] == 384
    assert logged["prdc@clean/recall"] == 0.25
    assert tracker.calls == [(logged, None)]


def test_ends_and_parts_that_are_not_numbers_are_left_out_and_named() -> None:
    one = fid(interval=Interval(math.nan, math.inf), parts={"spread": math.nan})
    with pytest.warns(UserWarning, match=r"low \(nan\); .*high \(inf\); .*spread \(nan\)$"):
        assert gm.log_to(Tracker(), one) == {"fid@clean": 441.18812, "fid@clean/n": 384}


def test_a_part_cannot_replace_a_number_of_the_same_name() -> None:
    with pytest.warns(UserWarning, match="not logged: a second fid@clean/n$"):
        logged = gm.log_to(Tracker(), result("fid@clean", parts={"n": 1.0}))
    assert logged["fid@clean/n"] == 384


def test_nothing_is_sent_where_nothing_has_a_value() -> None:
    """An empty call would still move the step of a run."""
    tracker = Tracker()
    with pytest.warns(UserWarning, match="cmmd"):
        assert gm.log_to(tracker, typical()["cmmd"]) == {}
    assert gm.log_to(tracker, {}) == {}
    assert tracker.calls == []


def test_none_logs_nothing_on_the_other_ranks() -> None:
    assert gm.log_to(None, report(typical())) == {}  # and warns once, on the rank that logs


@pytest.mark.parametrize("target", ["tensorboard:runs", Path("runs"), 3, object()])
def test_what_cannot_be_logged_to_is_refused(target: object) -> None:
    named = type(target).__name__
    with pytest.raises(gm.UsageError, match=rf"cannot log to a {named}; pass an open"):
        gm.log_to(target, fid())


@pytest.mark.parametrize("results", [3.5, {"fid": 3.5}])
def test_bare_numbers_are_refused(results: Any) -> None:
    with pytest.raises(gm.UsageError, match=r"got float; pass the Result of compute\(\)"):
        gm.log_to(Tracker(), results)


def test_a_config_that_is_not_a_known_trackers_is_left_alone() -> None:
    tracker = Tracker()
    tracker.config = {"lr": 1}  # type: ignore[attr-defined]
    gm.log_to(tracker, fid())
    assert tracker.config == {"lr": 1}  # type: ignore[attr-defined]


# -- the trackers ----------------------------------------------------------------------------------


def test_tensorboard_holds_values_and_protocol_at_their_steps(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    class Writer(SummaryWriter):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1
            super().flush()

    with Writer(tmp_path) as writer:
        gm.log_to(writer, fid(), step=100, prefix="eval/")
        assert writer.flushed == 1, "an evaluation is too dear to be lost with the process"
        assert tensorboard_scalars(tmp_path) == {100: pytest.approx(NUMBERS, rel=1e-7)}
        gm.log_to(writer, another(), step=200, prefix="eval/")
        writer.add_scalar("loss", 1.0, 200)
    scalars = tensorboard_scalars(tmp_path)
    assert scalars[200] == pytest.approx({**NUMBERS, "loss": 1.0}, rel=1e-7)
    assert tensorboard_protocols(tmp_path, "eval/fid@clean/protocol") == {
        100: (fid().fingerprint, fid().protocol),
        200: (another().fingerprint, another().protocol),
    }


@pytest.fixture
def outside(tmp_path: Path) -> dict[str, str]:
    """The environment of a process whose trackers write below ``tmp_path`` and call nobody."""
    mine = ("WANDB_", "TRACKIO_")  # a Space or server of the developer, for one
    return {
        **{name: text for name, text in os.environ.items() if not name.startswith(mine)},
        "WANDB_SILENT": "true",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_CACHE_DIR": str(tmp_path / "cache"),
        "WANDB_CONFIG_DIR": str(tmp_path / "config"),
        "WANDB_DATA_DIR": str(tmp_path / "data"),
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "1",
        "OUT": str(tmp_path),
    }


def run(code: str, env: dict[str, str]) -> str:
    """Run code in a process of its own: wandb and trackio start threads, accelerate has globals."""
    head = """
import os, warnings
import genmetrics as gm
from tests.report.test_log import another, fid
out = os.environ["OUT"]
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", head + code],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_wandb_holds_values_at_their_steps_and_protocols_in_its_config(
    tmp_path: Path, outside: dict[str, str]
) -> None:
    said = run(
        """
import wandb
run = wandb.init(mode="offline", dir=out, project="p", config={"lr": 1})
run.log({"loss": 1.0}, step=3)
print(len(gm.log_to(run, fid(), step=3, prefix="eval/")))
print(len(gm.log_to(wandb, fid(), step=5, prefix="eval/")))
try:
    gm.log_to(run, another(), step=6, prefix="eval/")
except gm.ProtocolMismatchError as error:
    print(error)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    print(gm.log_to(run, fid(), step=4, prefix="eval/"), told[0].message)
run.finish()
""",
        outside,
    )
    assert said.splitlines() == [
        "6",
        "6",
        "this run holds eval/fid@clean of another protocol (mean: [2, 2] against [1.5, 2]);"
        " pass another prefix or start another run",
        "{} not logged: anything at step 4: the wandb run is at step 5 already",
    ]
    config, history = wandb_file(tmp_path)
    marked = {**NUMBERS, "eval/fid@clean/fingerprint": fid().fingerprint}
    assert history == {3: {**marked, "loss": 1.0}, 5: marked}
    assert config["lr"] == 1
    assert config["eval/fid@clean/fingerprint"] == fid().fingerprint
    assert config["eval/fid@clean/protocol"] == fid().protocol


def test_a_disabled_run_of_wandb_takes_everything_and_keeps_nothing(
    tmp_path: Path, outside: dict[str, str]
) -> None:
    said = run(
        """
import wandb
with wandb.init(mode="disabled", dir=out) as run:
    print(len(gm.log_to(run, fid(), step=3)))
    print(len(gm.log_to(run, fid(), step=2)))
""",
        outside,
    )
    assert said.split() == ["6", "6"]
    assert not list(tmp_path.rglob("*.wandb"))


def test_a_module_without_an_active_run_says_so_itself(outside: dict[str, str]) -> None:
    said = run(
        """
import trackio, wandb
for module, error in ((wandb, wandb.Error), (trackio, RuntimeError)):
    try:
        gm.log_to(module, fid())
    except error as caught:
        print(caught)
""",
        outside,
    )
    assert [line.split(" before")[0] for line in said.splitlines()] == [
        "You must call wandb.init()",
        "Call trackio.init()",
    ]


def test_trackio_holds_values_at_their_steps_with_fingerprints(
    tmp_path: Path, outside: dict[str, str]
) -> None:
    run(
        """
import trackio
run = trackio.init(project="p", name="first", auto_log_cpu=False, auto_log_gpu=False)
gm.log_to(run, fid(), step=3, prefix="eval/")
gm.log_to(trackio, fid(), step=5, prefix="eval/")
run.finish()
run = trackio.init(project="p", name="second", auto_log_cpu=False, auto_log_gpu=False)
run.log({"loss": 1.0})  # from here on trackio stores no change of the config
gm.log_to(run, fid(), prefix="eval/")
try:
    gm.log_to(run, another(), prefix="eval/")
except gm.ProtocolMismatchError:
    run.finish()
else:
    raise AssertionError("a second protocol was logged")
""",
        outside,
    )
    configs, logs = trackio_file(tmp_path / "trackio/p.db")
    marked = {**NUMBERS, "eval/fid@clean/fingerprint": fid().fingerprint}
    assert logs == {
        "first": {3: marked, 5: marked},
        "second": {0: {"loss": 1.0}, 1: marked},
    }
    assert configs["first"]["eval/fid@clean/protocol"] == fid().protocol


def test_an_accelerator_logs_to_all_of_its_trackers(
    tmp_path: Path, outside: dict[str, str]
) -> None:
    run(
        """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, log_with=["tensorboard", "wandb", "trackio"], project_dir=out)
assert gm.log_to(accelerator, fid()) == {}  # as on a rank that has no trackers
accelerator.init_trackers("p", init_kwargs={
    "wandb": {"mode": "offline", "dir": out},
    "trackio": {"name": "one", "auto_log_cpu": False, "auto_log_gpu": False},
})
assert len(gm.log_to(accelerator, fid(), step=3, prefix="eval/")) == 6
assert len(gm.log_to(accelerator.get_tracker("wandb"), fid(), step=4, prefix="eval/")) == 6
accelerator.end_training()
""",
        outside,
    )
    marked = {**NUMBERS, "eval/fid@clean/fingerprint": fid().fingerprint}
    config, history = wandb_file(tmp_path)
    assert history == {3: marked, 4: marked}
    assert config["eval/fid@clean/protocol"] == fid().protocol
    configs, logs = trackio_file(tmp_path / "trackio/p.db")
    assert logs == {"one": {3: marked}}
    assert configs["one"]["eval/fid@clean/fingerprint"] == fid().fingerprint
    assert tensorboard_scalars(tmp_path / "p") == {3: pytest.approx(NUMBERS, rel=1e-7)}
    protocols = tensorboard_protocols(tmp_path / "p", "eval/fid@clean/protocol")
    assert protocols == {3: (fid().fingerprint, fid().protocol)}


# -- readers ---------------------------------------------------------------------------------------


def tensorboard_events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder)).Reload()


def tensorboard_scalars(folder: Path) -> dict[int, dict[str, float]]:
    """Values by step and tag."""
    events = tensorboard_events(folder)
    found: dict[int, dict[str, float]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            found.setdefault(event.step, {})[tag] = event.value
    return found


def tensorboard_protocols(folder: Path, tag: str) -> dict[int, tuple[str, Any]]:
    """Fingerprint and protocol by step, out of the text of a tag."""
    found = {}
    for event in tensorboard_events(folder).Tensors(f"{tag}/text_summary"):
        text = event.tensor_proto.string_val[0].decode()
        fingerprint, _, block = text.partition("\n\n")
        assert all(line.startswith("    ") for line in block.splitlines())
        found[event.step] = (fingerprint.strip("`"), json.loads(block))
    return found


def wandb_file(folder: Path) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Config, and history by step, of the one offline run below a folder."""
    config: dict[str, Any] = {}
    history: dict[int, dict[str, Any]] = {}
    [path] = folder.glob("wandb/offline-run-*/*.wandb")
    for record in wandb_records(path.read_bytes()):
        for item in (*record.run.config.update, *record.config.update):
            config[item.key] = json.loads(item.value_json)
        if record.HasField("history"):
            row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            step = row["_step"]
            history[step] = {key: value for key, value in row.items() if key[0] != "_"}
    return config, history


def wandb_records(data: bytes) -> Iterator[Any]:
    """Records of a ``.wandb`` file: a LevelDB log behind seven bytes, of wandb's own messages."""
    from wandb.proto import wandb_internal_pb2

    block, header = 32768, struct.Struct("<IHB")  # checksum, length, kind
    whole, last = 1, 4
    at, body = 7, b""
    while at + header.size <= len(data):
        left = block - at % block
        if left < header.size:
            at += left
            continue
        _, size, kind = header.unpack_from(data, at)
        at += header.size
        body += data[at : at + size]
        at += size
        if kind in (whole, last):
            yield wandb_internal_pb2.Record.FromString(body)
            body = b""


def trackio_file(path: Path) -> tuple[dict[str, Any], dict[str, dict[int, Any]]]:
    """Configs by run, and logs by run and step."""
    logs: dict[str, dict[int, Any]] = {}
    with closing(sqlite3.connect(path)) as base:
        configs = dict(base.execute("SELECT run_name, config FROM configs"))
        for name, step, values in base.execute("SELECT run_name, step, metrics FROM metrics"):
            logs.setdefault(name, {})[step] = json.loads(values)
    return {name: json.loads(text) for name, text in configs.items()}, logs
