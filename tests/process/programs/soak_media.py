"""Protects ffmpeg: films that it encodes, filters and decodes with threads have the same bytes on either allocator."""

import hashlib

import pytest

import servers

PICTURE = "testsrc2=size={size}:rate=25:duration={seconds}"
SOUND = "sine=frequency=440:beep_factor=4:duration={seconds}"

# x264's macroblock tree reads memory that it never wrote: glibc.malloc.perturb changes its film on glibc, too.
STEADY = "mbtree=0:keyint=30"

# Encoders, and the size and length of each film.
FILMS = {
    "mpeg4": (["-c:v", "mpeg4", "-q:v", "3", "-bf", "2", "-c:a", "aac", "film.mkv"], "640x360", 4),
    "x264": (["-c:v", "libx264", "-x264-params", STEADY, "-c:a", "libmp3lame", "film.mp4"], "480x270", 3),
    "vp9": (["-c:v", "libvpx-vp9", "-cpu-used", "8", "-b:v", "300k", "-c:a", "libopus", "film.webm"], "320x180", 2),
}
FILTERS = (
    "split[a][b];[a]scale=400:224,boxblur=3[c];[b]hflip,scale=400:224,noise=alls=9:all_seed=7[d];[c][d]hstack,reverse"
)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", FILMS)
def test_ffmpeg(name):
    options, size, seconds = FILMS[name]
    exact = ["-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact", "-threads", "4"]

    def use(place):
        ffmpeg = ["ffmpeg", "-nostdin", "-v", "error", "-y"]
        film = place.folder / options[-1]
        said = []
        for number in place.rounds:
            picture, sound = (text.format(size=size, seconds=seconds + number % 3) for text in (PICTURE, SOUND))
            sources = ["-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", sound]
            said.append(place.run([*ffmpeg, *sources, *exact, *options[:-1], film], timeout=120, proof=True).stderr)
            said.append(digest(film))
            frames = [*ffmpeg, "-threads", "4", "-i", film, "-f", "framemd5", "-"]
            said.append(place.run(frames, timeout=120).stdout)
            filtered = ["-filter_complex", FILTERS, "-filter_complex_threads", "3", "-frames:v", "40"]
            said.append(place.run([*ffmpeg, "-i", film, *filtered, "-f", "framemd5", "-"], timeout=120).stdout)
        return said

    said = servers.compare(f"ffmpeg, {name}", use)
    assert said[0] == ""
    assert len(said[2].splitlines()) > 25 * seconds
