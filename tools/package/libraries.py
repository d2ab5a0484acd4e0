"""The libraries for each target of targets.py, as install trees for other makers and as hakmem-VERSION-TARGET.tar.gz.

plan.work/lib/TARGET holds what `cmake --install` makes of a release build: lib/libhakmem.so*, lib/libhakmem.a,
lib/libhakmem-override.a, lib/hakmem.o, lib/pkgconfig, lib/cmake, include/hakmem. The tree may be moved: nothing in it
names the folders of the machine that made it.

The compiler is Debian's gcc, whose code the tests measure. For glibc it links to a stand-in for glibc 2.17
(old_glibc.py). For musl it takes headers and files from Debian's package musl-dev.
"""

import hashlib
import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import archive
import old_glibc
from plan import Failed, Plan
from targets import TARGETS, Target

LIBRARIES = ("hakmem", "hakmem_secure", "hakmem_secure_static", "hakmem_static", "hakmem_override", "hakmem_je",
             "hakmem_je_static", "hakmem_tc")


def tree(plan: Plan, target: Target) -> Path:
    """Returns the target's install tree."""
    return plan.work / "lib" / target.name


def compiler_file(plan: Plan, target: Target, name: str) -> str:
    """Returns the path of a file that the compiler knows by name."""
    return plan.run(f"{target.tools}gcc", f"-print-file-name={name}").strip()


def words(*arguments: str | Path) -> str:
    """Joins arguments for a CMake setting, quoted as for a shell."""
    return shlex.join(map(str, arguments))


def kernel_headers(target: Target, folder: Path) -> Path:
    """Fills a folder with only the kernel's headers, because musl's compiler may not see glibc's beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    native = Path(f"/usr/include/{target.processor}-linux-gnu/asm")
    cross = Path(f"/usr/{target.processor}-linux-gnu/include")
    places = {"linux": cross / "linux", "asm": cross / "asm", "asm-generic": cross / "asm-generic"}
    if native.is_dir():
        places = {"linux": Path("/usr/include/linux"), "asm": native, "asm-generic": Path("/usr/include/asm-generic")}
    for name, place in places.items():
        if not place.is_dir():
            raise Failed(f"{place} is missing: the kernel's headers for {target.processor}")
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(place)
    return folder


def musl_root(plan: Plan, target: Target) -> Path:
    """Returns where Debian's musl and musl-dev are unpacked. ./hakmem unpacks those for other processors into
    build/PROCESSOR-root."""
    for root in Path("/"), plan.root / f"build/{target.processor}-root":
        if (root / f"usr/include/{target.name}").is_dir() and (root / f"lib/{target.name}/libc.so").exists():
            return root
    raise Failed(f"musl-dev for {target.processor} is not there: ./hakmem package fetches it")


def musl_settings(plan: Plan, target: Target, folder: Path) -> dict[str, str]:
    """Returns CMake's settings for musl."""
    root = musl_root(plan, target)
    headers, files = root / f"usr/include/{target.name}", root / f"usr/lib/{target.name}"
    begin, end, own = (compiler_file(plan, target, name) for name in ("crtbeginS.o", "crtendS.o", "include"))
    kernel = kernel_headers(target, folder / "kernel")
    return {
        "CMAKE_C_FLAGS": words("-nostdinc", "-isystem", headers, "-isystem", own, "-isystem", kernel),
        "CMAKE_SHARED_LINKER_FLAGS": words("-nostdlib", files / "crti.o", begin, f"-L{root}/lib/{target.name}"),
        "CMAKE_C_STANDARD_LIBRARIES": words("-lgcc", "-lc", "-lgcc", end, files / "crtn.o"),
    }


def glibc_settings(plan: Plan, target: Target, folder: Path) -> dict[str, str]:
    """Returns CMake's settings for the stand-in of glibc 2.17."""
    old_glibc.make(plan, target, folder / "glibc")
    return {"CMAKE_C_FLAGS": "", "CMAKE_SHARED_LINKER_FLAGS": words(f"-L{folder / 'glibc'}")}


def settings_of(plan: Plan, target: Target, folder: Path) -> dict[str, str]:
    """Returns CMake's settings for the target."""
    settings = (musl_settings if target.libc == "musl" else glibc_settings)(plan, target, folder)
    # Otherwise messages with a file's name would contain the machine's folders.
    settings["CMAKE_C_FLAGS"] += " " + words(f"-ffile-prefix-map={folder}=build", f"-ffile-prefix-map={plan.root}=.")
    # Files of the C library that are linked in may have debugging data of their own.
    settings["CMAKE_SHARED_LINKER_FLAGS"] += " -Wl,--strip-debug"
    return settings | {
        "CMAKE_BUILD_TYPE": "Release", "CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": target.processor,
        "CMAKE_C_COMPILER": f"{target.tools}gcc", "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
        "CMAKE_INSTALL_LIBDIR": "lib", "HAKMEM_TESTS": "OFF", "HAKMEM_BENCH": "OFF", "HAKMEM_TOOLS": "OFF",
        "HAKMEM_WERROR": "ON",
    }


def inputs(plan: Plan) -> Iterator[Path]:
    """Yields the files on which a build depends."""
    yield plan.root / "CMakeLists.txt"
    for folder, pattern in (("cmake", "*"), ("include", "**/*"), ("src", "**/*"), ("tools/package", "*.py")):
        yield from sorted(path for path in (plan.root / folder).glob(pattern) if path.is_file())


def stamp_of(plan: Plan, target: Target, settings: dict[str, str]) -> str:
    """Returns a digest of everything that decides the tree: sources, settings, compiler and C library."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update(plan.run(settings["CMAKE_C_COMPILER"], "--version").encode())
    digest.update(plan.run(f"{target.tools}ld", "--version").encode())
    library = musl_root(plan, target) / f"lib/{target.name}/libc.so" if target.libc == "musl" else \
        Path(compiler_file(plan, target, "libc.so.6"))
    for path in (library, *inputs(plan)):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def compile_in(plan: Plan, folder: Path, settings: dict[str, str], names: tuple[str, ...]) -> Path:
    """Compiles those of LIBRARIES, with settings of the same folder. Returns the build's folder, with the files in
    lib/."""
    plan.run("cmake", "-S", plan.root, "-B", folder / "build", "-G", "Ninja",
             *(f"-D{name}={value}" for name, value in settings.items()))
    plan.run("cmake", "--build", folder / "build", "--target", *names)
    return folder / "build"


def build(plan: Plan, target: Target) -> None:
    """Builds the target's tree. Keeps a tree with the same stamp, because tests and single makers run this often.
    Never resumes an unfinished build."""
    folder = plan.work / "lib-build" / target.name
    shutil.rmtree(folder, ignore_errors=True)
    settings = settings_of(plan, target, folder)
    stamp, made = stamp_of(plan, target, settings), plan.work / "lib" / f"{target.name}.stamp"
    if made.exists() and made.read_text() == stamp:
        return
    made.unlink(missing_ok=True)
    shutil.rmtree(tree(plan, target), ignore_errors=True)
    plan.run("cmake", "--install", compile_in(plan, folder, settings, LIBRARIES), "--prefix", tree(plan, target))
    made.write_text(stamp)


def pack(plan: Plan, target: Target) -> None:
    """Packs the tree and its documents as hakmem-VERSION-TARGET.tar.gz."""
    name = f"hakmem-{plan.version}-{target.name}"
    folder = plan.work / "lib-archive" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(tree(plan, target), folder, symlinks=True)
    documents = folder / "share/doc/hakmem"
    documents.mkdir(parents=True)
    shutil.copy(plan.root / "LICENSE", documents)
    text = (plan.root / "packaging/libraries/README").read_text()
    (documents / "README").write_text(text.replace("@VERSION@", plan.version).replace("@SYSTEM@", target.told))
    archive.write_tar_gz(plan.dist / f"{name}.tar.gz", folder, name, plan.epoch)


def make(plan: Plan) -> None:
    """Builds and packs every target."""
    for target in TARGETS:
        build(plan, target)
        pack(plan, target)
