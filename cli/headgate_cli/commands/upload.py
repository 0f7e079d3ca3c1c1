"""`upload`: send code to an installation, and print the digest that definitions refer to."""

from pathlib import Path
from typing import Annotated

import typer

from headgate_cli.asked import Output, server
from headgate_cli.output import OutputForm, note, print_result, show_document
from headgate_cli.packing import about, packed, sent, sent_file


def upload(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(exists=True, help="A folder, or one .py, .zip or .whl file.")
    ],
    output: Output = OutputForm.TABLE,
) -> None:
    """Send code, and print its digest, for an application's `code: {upload: sha256:…}`.

    Unreferenced code is removed after a few days.
    """
    api = server(context)
    response = sent(api, packed(path)) if path.is_dir() else sent_file(api, path)
    if output.is_document:
        show_document(response, output)
    else:
        note(f"{path}: {about(response)}")
        print_result(str(response["digest"]))
