"""Taking a model elsewhere: export."""

from __future__ import annotations

from robustda.commands.parsing import COLUMNS, add_columns, make_parser, read

__all__ = ["export"]


def export(arguments: list[str]) -> int:
    """Write the model of a run as ONNX, torch.export or safetensors, with a card, and check it."""
    from robustda.export import export_run
    from robustda.exported import Format

    parser = make_parser("export", export.__doc__)
    parser.add_argument("run", type=str, help="the --out folder of a fit")
    parser.add_argument("--format", type=Format, required=True, help="onnx, torch-export or safetensors")
    parser.add_argument("--out", type=str, required=True, help="folder for the model, export.json and MODEL_CARD.md")
    which = "examples to check the exported model on, beside random ones: folder, .csv, .parquet or .npz"
    parser.add_argument("--data", type=str | None, default=None, help=which)
    add_columns(parser)
    chosen = parser.parse_args(arguments)
    columns = {name: chosen[name] for name in COLUMNS}
    data = None if chosen.data is None else read(chosen.data, labels="ignore", **columns)
    done = export_run(chosen.run, chosen.format, chosen.out, data=data)
    if done.difference is None:
        print("not checked: pip install 'robustda[onnx]' brings the onnxruntime that can run it")
    else:
        print(f"checked with {done.checked_with}: probabilities differ by at most {done.difference:.1g}")
    print(f"the model, its description and MODEL_CARD.md are in {done.path}")
    return 0
