"""Protects PHP with Debian's default extensions, alone and behind nginx: the same output on either allocator.

PHP opens its extensions with RTLD_DEEPBIND. Without HAKMEM's dlopen they would use libc's malloc.
"""

import http.client
import re
from pathlib import Path

import pytest

import servers

HERE = Path(__file__).resolve().parent

# More settings. The last two turn PHP's own allocator off, so malloc gives each block, and compile to machine code.
SETTINGS = {
    "default": [],
    "malloc": ["-d", "memory_limit=-1"],
    "compiled": ["-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=16M", "-d", "opcache.jit=1254"],
}

POOL = """
[global]
error_log = /dev/stderr
daemonize = no
[www]
{user}
listen = {folder}/fpm
listen.mode = 0666
pm = dynamic
pm.max_children = 4
pm.start_servers = 2
pm.min_spare_servers = 1
pm.max_spare_servers = 3
pm.max_requests = 12
"""

CONFIGURATION = (
    """
daemon off;
pid {folder}/pid;
error_log stderr error;
{user}
events {{ worker_connections 256; }}
http {{"""
    + servers.NGINX_FOLDERS
    + """
    access_log off;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            fastcgi_pass unix:{folder}/fpm;
            fastcgi_param SCRIPT_FILENAME {folder}/work.php;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param QUERY_STRING $query_string;
        }}
    }}
}}
"""
)


@pytest.mark.parametrize("name", SETTINGS)
def test_php(name):
    env = {"USE_ZEND_ALLOC": "0"} if name == "malloc" else {}

    def use(place):
        extensions = place.run(["php", "-m"], env=env).stdout
        argv = ["php", "-d", "ffi.enable=1", *SETTINGS[name], HERE / "work.php"]
        said = [place.run([*argv, str(number)], env=env, proof=True).stdout for number in place.rounds]
        return said, extensions

    said, extensions = servers.compare(f"php, {name}", use)
    assert said[0].endswith("\ndone\n")
    assert {"FFI", "sodium", "iconv", "Zend OPcache", "Phar"} <= set(extensions.splitlines())


def fpm():
    found = sorted(Path("/usr/sbin").glob("php-fpm*"))
    assert found, "php-fpm is not installed"
    return found[-1]


def use_fpm(place):
    folder, port = place.folder, servers.free_port()
    folder.chmod(0o755)
    (folder / "work.php").write_text((HERE / "work.php").read_text())
    root = servers.is_root()
    (folder / "pool.conf").write_text(POOL.format(folder=folder, user="user = nobody\ngroup = nogroup" if root else ""))
    (folder / "nginx.conf").write_text(
        CONFIGURATION.format(folder=folder, port=port, user="user nobody nogroup;" if root else "")
    )
    workers = place.start([fpm(), "-F", "-y", folder / "pool.conf", "-d", "ffi.enable=1", "-d", "sys_temp_dir=/tmp"])
    workers.until((folder / "fpm").exists)
    front = place.start([servers.daemon("nginx"), "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr"])
    front.until(lambda: (folder / "pid").exists() and listens(port))
    said = []
    for number in place.rounds:
        for seed in range(4):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", f"/?seed={10 * number + seed}")
            answer = connection.getresponse()
            said.append((answer.status, answer.read().decode(errors="replace")))
            connection.close()
        url = f"http://127.0.0.1:{port}/?seed={number}"
        load = place.run(["ab", "-q", "-c", "6", "-n", "30", url]).stdout
        said.append(re.findall(r"(Complete requests|Failed requests|Non-2xx responses|HTML transferred): +(\d+)", load))
    front.stop()
    workers.stop()
    assert "exited on signal" not in workers.output(), workers.report()
    return said


def listens(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.connect()
        connection.close()
        return True
    except OSError:
        return False


def test_php_fpm():
    said = servers.compare("php-fpm", use_fpm)
    assert all(status == 200 and text.endswith("\ndone\n") for status, text in said[:4])
    assert said[4][:2] == [("Complete requests", "30"), ("Failed requests", "0")]
