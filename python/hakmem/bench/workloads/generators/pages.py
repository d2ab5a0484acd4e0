"""Makes documents for converters: XML, PostScript, PDF, and an image."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hakmem.bench.workloads.generators.text import vocabulary


def make_book(seed: int, chapters: int) -> Iterator[str]:
    """Yields an XML document: chapters of paragraphs, with references between them."""
    generator = random.Random(seed)
    words = vocabulary(generator, 3000)
    yield "<book>"
    for chapter in range(chapters):
        yield f"<chapter id='c{chapter}'><title>{' '.join(generator.choices(words, k=4))}</title>"
        for _ in range(30):
            yield (f"<para kind='{generator.choice('abc')}'>{' '.join(generator.choices(words, k=30))} "
                   f"<em>{generator.choice(words)}</em> <ref to='c{generator.randrange(chapters)}'/></para>")
        yield "</chapter>"
    yield "</book>"


def make_postscript(seed: int, pages: int) -> Iterator[str]:
    """Yields pages of text in several sizes, and curves in several colors."""
    generator = random.Random(seed)
    words = vocabulary(generator, 3000)
    yield "%!PS-Adobe-3.0"
    yield "/size { /Times-Roman findfont exch scalefont setfont } def"
    for page in range(1, pages + 1):
        yield f"%%Page: {page} {page}"
        for line in range(60):
            yield (f"{generator.randint(8, 12)} size 40 {800 - 13 * line} moveto "
                   f"({' '.join(generator.choices(words, k=12))}) show")
        for _ in range(60):
            color = " ".join(f"{generator.random():.2f}" for _ in range(3))
            curves = " ".join(" ".join(str(generator.randrange(800)) for _ in range(6)) + " curveto" for _ in range(3))
            yield f"{color} setrgbcolor newpath 300 {generator.randrange(800)} moveto {curves} stroke"
        yield "0 setgray showpage"


def make_pdf(seed: int, pages: int) -> str:
    """Returns a PDF file of text."""
    generator = random.Random(seed)
    words = vocabulary(generator, 3000)
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for _ in range(pages):
        lines = "".join(f"({' '.join(generator.choices(words, k=13))}) Tj T*\n" for _ in range(62))
        content = f"BT /F1 10 Tf 12 TL 40 800 Td\n{lines}ET"
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {len(objects)} 0 R "
                       "/Resources << /Font << /F1 3 0 R >> >> >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {pages} >>"
    parts, places, size = ["%PDF-1.4\n"], [], 9
    for number, text in enumerate(objects, 1):
        places.append(size)
        parts.append(f"{number} 0 obj\n{text}\nendobj\n")
        size += len(parts[-1])
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    return (f"{''.join(parts)}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
            f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{size}\n%%EOF\n")


def make_image(width: int, height: int) -> bytes:
    """Returns an image in the PPM form."""
    pixels = bytearray()
    for y in range(height):
        for x in range(width):
            pixels += bytes(((x * y) >> 6 & 255, (x + 3 * y) & 255, (x ^ y) & 255))
    return b"P6\n%d %d\n255\n" % (width, height) + bytes(pixels)
