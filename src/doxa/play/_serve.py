"""Serving the playground: on this machine alone, to whoever knows the token."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path

from doxa.errors import ConfigError

HOST = "127.0.0.1"


def serve(
    file: Path | None = None, *, port: int | None = None, open_browser: bool = True, say: Callable[[str], None] = print
) -> None:
    """Serve the page until Ctrl-C, and open it in the browser.

    Args:
        file: knowledge to begin with.
        port: to listen on; by default any that is free.
        open_browser: whether to open it; its address is said in any case.
        say: takes what a person is told.
    """
    try:
        import marimo
        import uvicorn
    except ImportError as error:
        raise ConfigError("the playground needs marimo: pip install 'doxa[play]', then start again") from error
    if file is not None:
        if not file.is_file():
            raise ConfigError(f"there is no file {file}; name one, or none to begin with an example")
        os.environ["DOXA_PLAY_FILE"] = str(file.resolve())
    number = port if port is not None else _free_port()
    token = secrets.token_urlsafe(16)
    page = Path(__file__).with_name("_page.py")
    app = marimo.create_asgi_app(quiet=True, token=token).with_app(path="", root=str(page)).build()
    address = f"http://{HOST}:{number}/?access_token={token}"
    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=number, log_level="error", timeout_graceful_shutdown=1))
    threading.Thread(target=_warm_up, daemon=True).start()
    say(f"the playground is at {address}\nCtrl-C ends it")
    if open_browser:
        threading.Timer(1.0, webbrowser.open, (address,)).start()
    server.run()


def _warm_up() -> None:
    """Load what the first answer needs while the browser opens; what is wrong with a file, the page says."""
    from doxa.play import Scene, ask
    from doxa.play._examples import first_state

    if (scene := ask(lambda: Scene.of(first_state())).value) is not None:
        for word in first_state().semantics:
            ask(partial(scene.reason, word))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])
