"""Who may see the explorer: only the browser that came through the printed address."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from clustpsi.errors import ClustPSIError
from clustpsi.explorer.app import Explorer
from clustpsi.explorer.server import PageServer, bound
from helpers import clustpsi


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PageServer, FlaskClient]]:
    app = Explorer(tmp_path_factory.mktemp("explorer")).app()
    with bound(0) as listener:
        yield PageServer(app, listener), app.server.test_client(use_cookies=False)


def test_only_the_own_page_is_answered(server: tuple[PageServer, FlaskClient]) -> None:
    page, client = server
    here = f"127.0.0.1:{page.port}"
    cookie = f"clustpsi-{page.port}={page.key}"

    def status(path: str = "/", method: str = "GET", **headers: str) -> int:
        given = {"Host": here, **{key.replace("_", "-"): value for key, value in headers.items()}}
        return client.open(path, method=method, headers=given).status_code

    assert status(Cookie=cookie) == status(Cookie=cookie, Host=f"localhost:{page.port}") == 200
    assert status() == status(Cookie=f"clustpsi-{page.port}=x") == status("/?token=%C3%A9") == 403
    for host in ("evil.example", f"evil.example:{page.port}", "127.0.0.1", "127.0.0.1:1", ""):
        assert status(Cookie=cookie, Host=host) == 403
    assert status(Cookie=cookie, Origin=f"http://{here}", Sec_Fetch_Site="same-origin") == 200
    for origin in ("http://evil.example", f"https://{here}", "http://127.0.0.1:1", "null"):
        assert status("/_dash-layout", Cookie=cookie, Origin=origin) == 403
    other = {"Cookie": cookie, "Sec_Fetch_Site": "cross-site"}
    assert status("/_dash-layout", **other, Sec_Fetch_Mode="no-cors") == 403
    assert status("/_dash-update-component", "POST", **other, Sec_Fetch_Mode="navigate") == 403
    assert status(**other, Sec_Fetch_Mode="navigate") == 200  # a link to a view that somebody sent


def test_the_printed_address_lets_in_and_keeps_the_settings(server: tuple[PageServer, FlaskClient]) -> None:
    page, client = server
    assert page.address == f"http://127.0.0.1:{page.port}/?token={page.key}"
    answer = client.get(f"/?token={page.key}&seed=3&dataset=digits", headers={"Host": f"127.0.0.1:{page.port}"})
    assert answer.status_code == 302 and answer.headers["Location"] == "/?seed=3&dataset=digits"
    set_cookie = answer.headers["Set-Cookie"]
    assert set_cookie.startswith(f"clustpsi-{page.port}={page.key};")
    assert "HttpOnly" in set_cookie and "SameSite=Lax" in set_cookie


def test_nothing_comes_from_outside_and_nobody_frames_the_page(server: tuple[PageServer, FlaskClient]) -> None:
    page, client = server
    headers = {"Host": f"127.0.0.1:{page.port}", "Cookie": f"clustpsi-{page.port}={page.key}"}
    answer = client.get("/", headers=headers)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy and "http" not in policy
    assert 'src="http' not in answer.text and 'href="http' not in answer.text


def test_a_request_that_is_too_large_is_one_sentence(server: tuple[PageServer, FlaskClient]) -> None:
    page, client = server
    headers = {"Host": f"127.0.0.1:{page.port}", "Cookie": f"clustpsi-{page.port}={page.key}"}
    headers |= {"Content-Type": "application/json"}
    says = {"CONTENT_LENGTH": str(10**9)}
    answer = client.post("/_dash-update-component", headers=headers, data=b"{}", environ_overrides=says)
    assert answer.status_code == 413 and "larger than 50 MB" in answer.text


def test_a_port_in_use_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with bound(0) as taken:
        port = taken.getsockname()[1]
        assert clustpsi("explore", "--port", str(port), "--output", str(tmp_path / "explorer")) == 2
        said = capsys.readouterr().err
        assert f"error: port {port} cannot be used" in said and said.count("\n") == 1
        assert not (tmp_path / "explorer").exists()
        with pytest.raises(ClustPSIError, match="--port 0"):
            bound(port)
