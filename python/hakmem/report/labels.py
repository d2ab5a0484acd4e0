"""Places names beside the points of a scatter so that they cover neither each other nor the points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FONT_SIZE = 12
HEIGHT = 15
POINT = 7


# (name, x, y) of each point.
Points = Sequence[tuple[str, float, float]]


@dataclass
class Box:
    """A name's place in pixels: its middle, its half sizes, and whether it touches its point."""
    x: float
    y: float
    half_width: float
    half_height: float
    near: bool = True

    def overlap(self, other: Box) -> float:
        """Returns the area that two boxes share."""
        across = self.half_width + other.half_width - abs(self.x - other.x)
        upward = self.half_height + other.half_height - abs(self.y - other.y)
        return max(0.0, across) * max(0.0, upward)

    def closest(self, x: float, y: float) -> tuple[float, float]:
        """Returns the point of the box that is closest to another point, where a line from there ends."""
        return (min(max(x, self.x - self.half_width), self.x + self.half_width),
                min(max(y, self.y - self.half_height), self.y + self.half_height))


def at(value: float, limits: Sequence[float], length: float) -> float:
    """Returns where a value lies on a log axis of that length."""
    low, high = map(math.log, limits)
    return (math.log(value) - low) / (high - low) * length


def value(position: float, limits: Sequence[float], length: float) -> float:
    """Returns the value at a position on a log axis."""
    low, high = map(math.log, limits)
    return math.exp(low + position / length * (high - low))


def line(x: float, y: float, x2: float, y2: float) -> Box:
    """Returns the box of a vertical or horizontal line."""
    return Box((x + x2) / 2, (y + y2) / 2, abs(x - x2) / 2 + 1, abs(y - y2) / 2 + 1)


def place(points: Points, lines: list[Box], width: float, height: float) -> list[Box]:
    """Returns a box for each (name, x, y): the nearest place around the point that covers least of the points, the
    lines and the other names."""
    taken = [Box(x, y, POINT, POINT) for _, x, y in points] + lines
    boxes: dict[int, Box] = {}
    # Points with the most neighbors choose first, because they have the fewest free places.
    for number in sorted(range(len(points)), key=lambda number: -crowding(points, number)):
        name, x, y = points[number]
        half = len(name) * FONT_SIZE * 0.28 + 2
        candidates = [box for box in around(x, y, half)
                      if half <= box.x <= width - half and HEIGHT / 2 <= box.y <= height - HEIGHT / 2]
        others = taken + list(boxes.values())
        boxes[number] = min(candidates or [Box(x, y, half, HEIGHT / 2)],
                            key=lambda box: sum(box.overlap(other) for other in others))
    return [boxes[number] for number in range(len(points))]


def crowding(points: Points, number: int) -> float:
    """Returns how close the other points are to a point."""
    _, x, y = points[number]
    return sum(1 / (10 + math.hypot(x - other[1], y - other[2])) for other in points)


def around(x: float, y: float, half: float) -> Iterator[Box]:
    """Yields places around a point, from near to far; among the near ones the right side first."""
    for ring, distance in enumerate((2, 14, 28, 44, 62)):
        aside, above = POINT + distance + half, POINT + distance + HEIGHT / 2
        slant = 0.75 * (POINT + distance)
        for dx, dy in ((aside, 0), (-aside, 0), (0, -above), (0, above),
                       (slant + half, -slant - HEIGHT / 2), (-slant - half, -slant - HEIGHT / 2),
                       (slant + half, slant + HEIGHT / 2), (-slant - half, slant + HEIGHT / 2)):
            yield Box(x + dx, y + dy, half, HEIGHT / 2, ring == 0)
