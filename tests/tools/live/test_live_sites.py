"""Protects the heap profile read from outside: it equals the file that the process writes at the same moment."""

import copy

import blackbox
import profiled as programs
import pytest

from hakmem.heap.file import read_profile
from hakmem.heap.outside import Restarted, as_text, difference, look, packed, symbols_of, whole
from hakmem.live import LiveError, ProcessMemory, find
from hakmem.live.sites import ProfileOff, read_sites


@pytest.fixture
def program(compiled):
    return compiled(programs.SOURCE, *programs.FLAGS)


@pytest.fixture
def running(program, library):
    with programs.profiled(program, library) as made:
        yield made


def seen(process):
    memory = ProcessMemory(process.pid)
    return look(memory, find(memory))


def resolved(profile):
    """A profile with its strings in place, and with resolved samples, locations and mappings."""
    text = profile.string_table
    mappings = {one.id: (one.memory_start, one.memory_limit, one.file_offset, text[one.filename], text[one.build_id])
                for one in profile.mapping}
    locations = {one.id: (one.address, mappings.get(one.mapping_id)) for one in profile.location}
    samples = [([locations[number] for number in sample.location_id], list(sample.value),
                [(text[label.key], label.num, text[label.num_unit]) for label in sample.label])
               for sample in profile.sample]
    return {
        "types": [(text[kind.type], text[kind.unit]) for kind in profile.sample_type],
        "samples": sorted(samples, key=repr),
        "mappings": sorted(mappings.values()), "drop": text[profile.drop_frames], "keep": text[profile.keep_frames],
        "period": (text[profile.period_type.type], text[profile.period_type.unit], profile.period),
        "comments": [text[place] for place in profile.comment], "default": text[profile.default_sample_type]}


def check_equal(process, folder):
    """Checks that the profile read from outside is the one that the process writes."""
    path = folder / "own.gz"
    outside = whole(seen(process))
    process.tell("write", path)
    own = read_profile(path)
    assert any(mapping.build_id for mapping in outside.mapping)
    ours, theirs = resolved(outside), resolved(own)
    for name in ours:
        assert ours[name] == theirs[name], name
    assert outside.time_nanos and 0 < outside.duration_nanos < own.duration_nanos
    again = folder / "outside.gz"
    again.write_bytes(packed(outside))
    assert read_profile(again) == outside
    return resolved(own)


@pytest.mark.parametrize("unwind", ["eh", "fp"])
def test_equals_the_file(program, library, tmp_path, unwind):
    with programs.profiled(program, library, HAKMEM_HEAP_PROFILE_UNWIND=unwind) as process:
        process.tell("keep", 3000, 20000)
        process.tell("keep", 5 << 20, 3)
        process.tell("spread", 3000)
        process.tell("drop", 2000)
        own = check_equal(process, tmp_path)
    assert len(own["samples"]) > 500, "not only a few sites"
    assert {label[0] for sample in own["samples"] for label in sample[2]} >= {"bytes", "lifetime_from"}
    assert any("[vdso]" in mapping[3] and mapping[4] for mapping in own["mappings"])
    assert own["default"] == "inuse_space"


def test_many_sites(program, library, tmp_path):
    """Sites with one block each."""
    with programs.profiled(program, library, mean=1) as process:
        process.tell("spread", 10000)
        heap = seen(process).heap
        assert len(heap.sites) >= 10000 and heap.on and heap.mean == 1
        assert len({site.frames for site in heap.sites}) == len(heap.sites)
        check_equal(process, tmp_path)


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie", "-fPIE"]], ids=["static", "static-pie"])
def test_linked_into_a_static_program(compiled, override_archive, tmp_path, flags):
    static = compiled(programs.SOURCE, *programs.FLAGS, *flags, "-Wl,--undefined=malloc", "-Wl,-u,hak_profile_write",
                      "-Wl,-u,hak_profile_start", "-Wl,-u,hak_profile_stop", "-Wl,-u,hak_collect", override_archive)
    with programs.profiled(static, None) as process:
        process.tell("keep", 3000, 5000)
        own = check_equal(process, tmp_path)
    ids = {mapping[3]: mapping[4] for mapping in own["mappings"]}
    notes = blackbox.run(["readelf", "-n", static]).stdout
    assert f"Build ID: {ids[str(static)]}\n" in notes and ids["[vdso]"]


def test_files_that_are_gone(compiled, program, library, tmp_path):
    """A file that was replaced on the disk is identified by its mapped part."""
    mine, own = tmp_path / "libmine.so", tmp_path / "program"
    mine.write_bytes(library.read_bytes())
    own.write_bytes(program.read_bytes())
    own.chmod(0o755)
    with programs.profiled(own, mine) as process:
        process.tell("keep", 3000, 5000)
        mine.unlink()
        mine.write_text("not the library")
        own.unlink()
        found = check_equal(process, tmp_path)
        named = {mapping[3]: mapping[4] for mapping in found["mappings"]}
        assert named[f"{mine} (deleted)"] and named[f"{own} (deleted)"]

        class NoFiles(ProcessMemory):
            def open_mapping(self, mapping):
                return None
        memory = NoFiles(process.pid)
        assert resolved(whole(look(memory, find(ProcessMemory(process.pid)))))["mappings"] == found["mappings"]


def test_off_on_and_stopped(program, library, tmp_path):
    with programs.profiled(program, library, mean=None) as process:
        memory = ProcessMemory(process.pid)
        descriptor = find(memory)
        with pytest.raises(ProfileOff, match=f"{process.pid}.*HAKMEM_HEAP_PROFILE"):
            read_sites(memory, descriptor)
        process.tell("start", 8192)
        heap = read_sites(memory, descriptor)
        assert heap.on and heap.mean == 8192
        process.tell("keep", 3000, 5000)
        check_equal(process, tmp_path)
        process.tell("stop")
        assert not read_sites(memory, descriptor).on
        check_equal(process, tmp_path)


def test_a_hakmem_without_a_profile_of_this_kind(running):
    memory = ProcessMemory(running.pid)
    older = copy.copy(find(memory))
    older.types = {name: size for name, size in older.types.items() if name != "site"}
    with pytest.raises(LiveError, match=str(running.pid)):
        read_sites(memory, older)


# ---- A process that makes no sense ----


class Damage:
    """Writes into the process's memory."""

    def __init__(self, process):
        self.process, self.memory = process, ProcessMemory(process.pid)
        self.descriptor = find(self.memory)
        self.sites = read_sites(self.memory, self.descriptor).sites

    def write(self, address, value, size=8):
        with open(f"/proc/{self.process.pid}/mem", "r+b", buffering=0) as file:
            file.seek(address)
            assert file.write(value.to_bytes(size, "little")) == size

    def field(self, name):
        return self.descriptor.fields[name].offset

    def check(self, address, value, *named, size=8):
        """With the value there, reading fails, and the error names these numbers. With the old value it works again."""
        kept = int.from_bytes(self.memory.read(address, size), "little")
        self.write(address, value, size)
        with pytest.raises(LiveError) as caught:
            read_sites(self.memory, self.descriptor)
        self.write(address, kept, size)
        said = str(caught.value)
        assert all(str(each) in said for each in (f"process {self.process.pid}", *named)), said
        assert len(read_sites(self.memory, self.descriptor).sites) == len(self.sites)


def test_a_damaged_list(running):
    """No list leads nowhere, in a circle or without end: each damage ends the reading with an error."""
    running.tell("spread", 2000)
    damage = Damage(running)
    place, roots = damage.field("site.next"), damage.descriptor.roots
    middle, later = damage.sites[500].address + place, damage.sites[900].address
    count = roots["profile_sites"] + damage.field("site_list.count")
    damage.check(middle, 0, 501)
    for back in (100, 500):
        damage.check(middle, damage.sites[back].address, f"{damage.sites[back].address:#x}")
    for nowhere in (0x10, later + 4, (1 << 64) - 8):
        damage.check(middle, nowhere, f"{nowhere:#x}")
    damage.check(roots["profile_sites"] + damage.field("site_list.first"), roots["profile"] + 4)
    damage.check(count, 1 << 60, f"{1 << 60:,}")
    damage.check(count, len(damage.sites) + 5, f"{len(damage.sites):,}", f"{len(damage.sites) + 5:,}")
    damage.check(damage.sites[7].address + damage.field("site.frame_count"), 129, 129, 128, size=4)
    damage.check(damage.sites[7].address + damage.field("site.in_use"), 1 << 63)
    functions = roots["python_codes"]
    damage.check(functions + damage.field("python_codes.count"), 1 << 60, f"{1 << 60:,}")
    damage.write(functions + damage.field("python_codes.count"), 3)
    damage.check(functions + damage.field("python_codes.first"), 0x10, "0x10")
    damage.check(functions + damage.field("python_codes.first"),
                 damage.sites[7].address + 64 - damage.field("python_code.name_bytes"))
    damage.write(functions + damage.field("python_codes.count"), 0)
    damage.check(roots["profile"] + damage.field("profile.mean"), 0)


def test_while_threads_run(running):
    """Sites are only added, no sum shrinks, what is kept stays, and the program goes on."""
    running.tell("keep", 3000, 5000)
    running.tell("churn", 1)
    memory, before, kept = ProcessMemory(running.pid), [], None
    descriptor = find(memory)
    while kept is None or len(before) < 300:  # the program makes 4,096 sites after some time
        heap = read_sites(memory, descriptor)
        assert [site.frames for site in heap.sites[:len(before)]] == [site.frames for site in before]
        for old, new in zip(before, heap.sites, strict=False):
            assert new.allocated >= old.allocated and all(
                later >= earlier for later, earlier in zip(new.lifetimes, old.lifetimes, strict=True))
        assert all(site.in_use[0] <= site.allocated[0] for site in heap.sites)
        before = heap.sites
        alone = max(heap.sites, key=lambda site: site.in_use)
        kept = kept or (alone.frames, alone.in_use)
        assert (alone.frames, alone.in_use) == kept, "what is kept is not touched by what goes on"
    assert running.process.poll() is None


# ---- Differences, text and names ----


def test_differences(program, library):
    """Every block is a sample, so that the figures are exact."""
    with programs.profiled(program, library, mean=1) as running:
        check_differences(running)


def check_differences(running):
    running.tell("keep", 3000, 5000)
    first = seen(running)
    assert not difference(first, first).sample
    running.tell("spread", 2000)
    running.tell("keep", 3000, 5000)
    second = seen(running)
    made = difference(first, second, "alloc_space")
    text = made.string_table
    kinds = {text[kind.type]: place for place, kind in enumerate(made.sample_type)}
    assert text[made.default_sample_type] == "alloc_space"
    assert made.duration_nanos == second.clock_ns - first.clock_ns

    def total(profile, kind):
        return sum(sample.value[kinds[kind]] for sample in profile.sample)
    for kind in kinds:
        assert total(made, kind) == total(whole(second), kind) - total(whole(first), kind)
    assert total(made, "inuse_space") == 7000 * 3072
    running.tell("drop", 5000)
    running.tell("drop", 1000)
    less = difference(second, seen(running))
    assert total(less, "inuse_space") == -6000 * 3072
    assert total(less, "freed_objects") == 6000
    assert any(sample.label for sample in less.sample)


def test_a_difference_over_a_restart(running):
    before = seen(running)
    running.tell("stop")
    with pytest.raises(Restarted):
        difference(before, seen(running))
    running.exec()
    with pytest.raises(ProfileOff):
        seen(running)


def test_text(running):
    running.tell("keep", 3000, 5000)
    now = seen(running)
    head, *rows = as_text(now).partition("\n\n")[0].splitlines()
    assert head.startswith("heap profile: ") and head.endswith("@ heapprofile")
    samples = [sample for sample in whole(now).sample if sample.value[0]]
    assert len(rows) == len({tuple(sample.location_id) for sample in samples})
    bytes_in_use = [int(row.split()[1]) for row in rows]
    assert sum(bytes_in_use) == int(head.split()[3])
    # A stack's samples, one for each size, are rounded each.
    assert sum(bytes_in_use) == pytest.approx(sum(sample.value[3] for sample in samples), abs=len(samples))
    assert bytes_in_use == sorted(bytes_in_use, reverse=True)
    assert "MAPPED_LIBRARIES:\n" in as_text(now) and "[stack]" in as_text(now)


def test_names(running):
    running.tell("keep", 3000, 5000)
    now = seen(running)
    most = max(now.heap.sites, key=lambda site: site.in_use[1])
    names = symbols_of(ProcessMemory(running.pid), [frame - 1 for frame in most.frames] + [16])
    stack = [names[frame - 1] for frame in most.frames]
    assert [name for name in stack if name in ("keep_hay", "main")] == ["keep_hay", "main"]
    assert 16 not in names
