#!/usr/bin/env python3
"""Packs what run.py needs on a machine with more cores: the drivers, HAKMEM, the peers that are built, the predictions.

    ./hakmem build && ./hakmem peers build
    ./hakmem bench coherence --cores 2,4,8,16 --csv build/predicted.csv
    bench/scale/pack.py build/scale.tar.xz
    # there: tar xf scale.tar.xz && python3 scale/run.py
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from run import DRIVERS

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
BYTES_MOST = 60 << 20


def copy_stripped(file, place):
    shutil.copyfile(file, place)
    place.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", place], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--build", type=Path, default=CHECKOUT / "build/release")
    parser.add_argument("--peers", type=Path, default=CHECKOUT / "build/peers")
    parser.add_argument("--predicted", type=Path, default=CHECKOUT / "build/predicted.csv")
    options = parser.parse_args()
    manifest = options.peers / "peers.json"
    peers = json.loads(manifest.read_text())["peers"] if manifest.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "scale"
        (root / "bin").mkdir(parents=True)
        (root / "lib").mkdir()
        for program in {str(command(1, 1)[0]) for command in DRIVERS.values()}:
            copy_stripped(options.build / "bin" / program, root / "bin" / program)
        copy_stripped(options.build / "lib/libhakmem.so", root / "lib/libhakmem.so")
        for name, peer in peers.items():
            copy_stripped(Path(peer["library"]), root / f"lib/lib{name}.so")
        shutil.copyfile(HERE / "run.py", root / "run.py")
        if options.predicted.exists():
            shutil.copyfile(options.predicted, root / "predicted.csv")
        with tarfile.open(options.bundle, "w:xz") as bundle:
            bundle.add(root, "scale")
    size = options.bundle.stat().st_size
    print(f"{options.bundle}: {size / (1 << 20):.1f} MiB, {', '.join(['hakmem', *peers])}")
    return int(size > BYTES_MOST)


if __name__ == "__main__":
    sys.exit(main())
