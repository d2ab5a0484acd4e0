"""hakmem-VERSION.cdx.json: the bill of materials of the artifacts, with authors and licenses, in CycloneDX.

Every artifact is a file with its SHA-256. A component that others wrote and that HAKMEM ships has the property
hakmem:bundled-in. A component that an artifact asks a package manager for has hakmem:needed-by."""

import datetime
import hashlib
import re
import tomllib
import uuid
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.license import License
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement

from plan import Failed, Plan

# A row of a vendor/README.md: | `FILE` | `PLACE` of [NAME VERSION](ADDRESS), LICENSE | `SHA-256` |
VENDORED = re.compile(r"^\| `(.+?)` \| .* \[(\S+) (\S+)\]\((\S+)\), (\S+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)
LICENSES = LicenseFactory()


def license_of(text: str) -> list[License]:
    """Returns a license by its SPDX text."""
    return [LICENSES.make_from_string(text)]


def hash_of(digest: str) -> list[HashType]:
    """Returns a SHA-256."""
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest)]


def artifacts(plan: Plan, itself: Path) -> list[Component]:
    """Returns the artifacts as files."""
    files = (path for path in sorted(plan.dist.iterdir())
             if path.is_file() and path.name != "SHA256SUMS" and path != itself)
    return [Component(type=ComponentType.FILE, name=file.name, version=plan.version, bom_ref=f"file:{file.name}",
                      hashes=hash_of(hashlib.sha256(file.read_bytes()).hexdigest()))
            for file in files]


def scripts(plan: Plan) -> list[Component]:
    """Returns the scripts in the tools' pages, as each vendor/README.md lists them. Raises Failed if a file's
    checksum differs."""
    found: dict[str, Component] = {}
    for readme in sorted((plan.root / "python/hakmem").rglob("vendor/README.md")):
        for file, name, version, address, license_name, digest in VENDORED.findall(readme.read_text()):
            if hashlib.sha256((readme.parent / file).read_bytes()).hexdigest() != digest:
                raise Failed(f"{readme.parent / file} is not the file whose checksum {readme} has")
            if name not in found:
                url = PackageURL("npm", name=name, version=version)
                found[name] = Component(
                    type=ComponentType.LIBRARY, name=name, version=version, purl=url, bom_ref=str(url),
                    licenses=license_of(license_name), scope=ComponentScope.REQUIRED, external_references=[
                        ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(address))
                    ], properties=[Property(name="hakmem:bundled-in", value="the tools: packages hakmem and wheels")])
            found[name].hashes.update(hash_of(digest))
    if not found:
        raise Failed("no vendor/README.md of python/hakmem names a file")
    return list(found.values())


def runtimes(plan: Plan) -> list[Component]:
    """Returns what the compiler and the C library add to the programs they link."""
    gcc = plan.run("gcc", "-dumpfullversion").strip()
    musl = plan.run("dpkg-query", "-W", "-f", "${Version}", "musl-dev").strip()
    rows = (
        ("gcc", "libgcc", gcc, "GPL-3.0-or-later WITH GCC-exception-3.1",
         "the shared libraries and the tools' programs"),
        ("musl", "musl", musl, "MIT", "the tools' programs, which are linked statically"),
    )
    return [Component(type=ComponentType.LIBRARY, name=name, version=version, bom_ref=f"runtime:{name}",
                      purl=PackageURL("deb", "debian", source, version.partition(":")[2] or version),
                      licenses=license_of(license_name), scope=ComponentScope.REQUIRED,
                      properties=[Property(name="hakmem:bundled-in", value=where)])
            for source, name, version, license_name, where in rows]


def python_packages(plan: Plan) -> list[Component]:
    """Returns the packages that the tools ask pip for."""
    project = tomllib.loads((plan.root / "python/pyproject.toml").read_text())["project"]
    needed = [(line, ComponentScope.REQUIRED) for line in project["dependencies"]]
    needed += [(line, ComponentScope.OPTIONAL) for lines in project.get("optional-dependencies", {}).values()
               for line in lines]
    found: dict[str, Component] = {}
    for requirement, scope in ((Requirement(line), scope) for line, scope in needed):
        if requirement.name != "hakmem" and requirement.name not in found:
            url = PackageURL("pypi", name=requirement.name)
            found[requirement.name] = Component(
                type=ComponentType.LIBRARY, name=requirement.name, purl=url, bom_ref=str(url), scope=scope,
                properties=[Property(name="hakmem:needed-by", value="the tools"),
                            Property(name="hakmem:versions", value=str(requirement.specifier) or "any")])
    return list(found.values())


def crates(plan: Plan) -> list[Component]:
    """Returns the published crates that HAKMEM's crates need in a program, so without build dependencies."""
    lock = tomllib.loads((plan.root / "rust/Cargo.lock").read_text())["package"]
    runtime = {name for path in (plan.root / "rust").glob("*/Cargo.toml")
               for name in tomllib.loads(path.read_text()).get("dependencies", {})}
    found = []
    for package in lock:
        if "source" in package:
            url = PackageURL("cargo", name=package["name"], version=package["version"])
            scope = ComponentScope.OPTIONAL if package["name"] in runtime else ComponentScope.EXCLUDED
            found.append(
                Component(type=ComponentType.LIBRARY, name=package["name"], version=package["version"], purl=url,
                          bom_ref=str(url), scope=scope, hashes=hash_of(package["checksum"]),
                          properties=[Property(name="hakmem:needed-by", value="the Rust crates")]))
    return found


def make(plan: Plan) -> None:
    """Makes the bill of materials."""
    file = plan.dist / f"hakmem-{plan.version}.cdx.json"
    product = Component(type=ComponentType.LIBRARY, name="hakmem", version=plan.version, bom_ref="hakmem",
                        purl=PackageURL("generic", name="hakmem", version=plan.version), licenses=license_of("MIT"),
                        description="A general-purpose memory allocator for Linux")
    contents = [*scripts(plan), *runtimes(plan), *python_packages(plan), *crates(plan)]
    files = artifacts(plan, file)
    # Elsewhere the serial number is random. Here it depends only on the sources.
    number = uuid.uuid5(uuid.NAMESPACE_URL, f"pkg:generic/hakmem@{plan.version}#{plan.epoch}")
    bom = Bom(components=[*contents, *files], serial_number=number)
    bom.metadata.component = product
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(plan.epoch, datetime.timezone.utc)
    bom.register_dependency(product, contents)
    text = JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
    if errors := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise Failed(f"{file.name} is not as CycloneDX 1.6 has it: {errors}")
    file.write_text(text)
