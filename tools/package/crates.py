"""The Rust crates as `cargo package` makes them: hakmem-VERSION.crate and hakmem-sys-VERSION.crate. tests/delivery/rust
compiles and tests their contents with cargo."""

import os
import shutil
import tempfile
from pathlib import Path

from plan import Failed, Plan


def make(plan: Plan) -> None:
    """Makes the crates."""
    cargo = shutil.which("cargo") or Path.home() / ".cargo/bin/cargo"
    environment = plan.environment() | {"PATH": os.pathsep.join([str(Path(cargo).parent), os.environ["PATH"]])}
    # Built outside the repository: inside it, cargo would record the commit and uncommitted changes in the crates.
    with tempfile.TemporaryDirectory(prefix="hakmem-crates-") as name:
        folder = Path(name)
        for part in ("Cargo.toml", "Cargo.lock"):
            shutil.copy(plan.root / "rust" / part, folder)
        for part in ("hakmem", "hakmem-sys"):
            shutil.copytree(plan.root / "rust" / part, folder / part, ignore=shutil.ignore_patterns("target", "vendor"))
        vendor = folder / "hakmem-sys/vendor"
        vendor.mkdir()
        for part in ("hakmem.c", "hakmem.h"):
            shutil.copy(plan.work / "onefile" / part, vendor)
        words = [cargo, "package", "--workspace", "--no-verify", "--allow-dirty", "--target-dir", folder / "target"]
        try:
            # Offline works if cargo has stored the index before.
            plan.run(*words, "--offline", cwd=folder, env=environment)
        except Failed:
            plan.run(*words, cwd=folder, env=environment)
        for crate in ("hakmem", "hakmem-sys"):
            made = folder / f"target/package/{crate}-{plan.version}.crate"
            if not made.is_file():
                raise Failed(
                    f"{plan.root}/rust/{crate}/Cargo.toml has another version than the library, {plan.version}")
            shutil.copy(made, plan.dist)
