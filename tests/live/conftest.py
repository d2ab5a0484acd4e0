"""Programs that wait to be looked at."""

import subprocess
import sys
from pathlib import Path

import blackbox
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

sys.path.insert(0, str(blackbox.REPOSITORY / "python"))

HERE = Path(__file__).parent
CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,1000")


class Waiting:
    """A program that has said it is ready; ask() sends a line and returns the words of the answer."""

    def __init__(self, argv, preload=None, env=None):
        self.process = subprocess.Popen(
            [str(argument) for argument in argv], env=blackbox.environment(env, preload), start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def ready(self):
        assert self.process.stdout.readline() == "ready\n"
        return self

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def held(self):
        """The program's own count: blocks by usable size."""
        return {int(size): int(count) for size, _, count in (word.partition(":") for word in self.ask("count"))}

    def end(self):
        blackbox.stop_session(self.process)
        self.process.communicate()


@pytest.fixture
def start():
    """start(argv, preload, env) runs a program until the test ends; it has said "ready" unless ready=False."""
    running = []

    def run(argv, preload=None, env=None, ready=True):
        running.append(Waiting(argv, preload, env))
        return running[-1].ready() if ready else running[-1]

    yield run
    for program in running:
        program.end()


@pytest.fixture
def known(start, compiled, library):
    """known() starts the program that does as it is told, on HAKMEM."""
    return lambda **arguments: start([compiled(HERE / "known.c")], library, **arguments)


@pytest.fixture
def churn(start, compiled, library):
    return start([compiled(HERE / "churn.c")], library)


@pytest.fixture
def stir(start, compiled, library):
    """stir(env) starts the program that changes its memory as hard as it can."""
    return lambda env=None: start([compiled(HERE / "stir.c"), 4], library, env)


def command(*arguments, **options):
    """Runs `hakmem ARGUMENTS`."""
    return blackbox.run([sys.executable, "-m", "hakmem", *arguments],
                        env={"PYTHONPATH": str(blackbox.REPOSITORY / "python"), "PYTHONDONTWRITEBYTECODE": "1",
                             **options.pop("env", {})}, **options)


@pytest.fixture(name="hakmem")
def hakmem_command():
    """hakmem(...) runs the command and returns its output; it must succeed."""
    def run(*arguments):
        result = command(*arguments)
        assert result.status == 0, result.report()
        return result.stdout
    return run


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (*CHROMIUM, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    yield driver
    driver.quit()

