"""From samples to figures: medians, ratios by round, their intervals, and means over rows.

A ratio is the subject's figure by another allocator's of the same round; below 1 the subject takes less. Its interval
is the middle 95 % of the medians of resampled rounds. A row whose interval holds 1 is a tie, and so is one of a single
round, which shows nothing of the spread."""

import warnings
from collections import defaultdict

import numpy as np

# The ratio's name -> the sample's key.
FIGURES = {"time": "time_s", "cpu": "cpu_s", "peak_rss": "peak_rss_kib", "mean_rss": "mean_rss_kib",
           "faults": "soft_faults"}
MEDIANS = ("time_s", "cpu_s", "peak_rss_kib", "mean_rss_kib", "idle_rss_kib", "soft_faults", "ns_per_op")
OVERALL = {"time": ("time", None), "time_programs": ("time", "program"), "cpu": ("cpu", None),
           "peak_rss": ("peak_rss", None), "mean_rss": ("mean_rss", None)}
RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 20251109


def interval(values):
    """(low, high) of the median of values: a percentile bootstrap, the same for the same values."""
    from scipy import stats  # half a second, which only figures are worth

    values = np.asarray(values, dtype=float)
    if len(values) < 2 or np.all(values == values[0]):
        return float(values[0]), float(values[0])
    result = stats.bootstrap((values,), np.median, axis=-1, vectorized=True, method="percentile",
                             n_resamples=RESAMPLES, confidence_level=CONFIDENCE, rng=np.random.default_rng(SEED))
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def verdict(low, high, rounds):
    if rounds < 2 or low <= 1.0 <= high:
        return "tie"
    return "lower" if high < 1.0 else "higher"


def describe_ratios(values):
    low, high = interval(values)
    return {"median": float(np.median(values)), "low": low, "high": high, "rounds": len(values),
            "verdict": verdict(low, high, len(values))}


def half_width(ratio):
    """Half the interval by the median; infinite for a single round."""
    if ratio["rounds"] < 2:
        return float("inf")
    return (ratio["high"] - ratio["low"]) / 2 / ratio["median"]


def group_samples(samples):
    """{row: {allocator: {round: sample}}} of the runs that went well."""
    grouped = defaultdict(lambda: defaultdict(dict))
    for sample in samples:
        if sample["status"] == "ok":
            grouped[sample["row"]][sample["allocator"]][sample["round"]] = sample
    return grouped


def ratios_by_round(subject, other, key):
    """The subject's figure by the other's, for each round in which both have it; a figure of 0 has no ratio."""
    pairs = ((subject[number].get(key), other[number].get(key)) for number in sorted(subject) if number in other)
    return [own / its for own, its in pairs if own and its]


def middle(samples, key):
    """The median of a figure; None where no sample has it."""
    values = [sample[key] for sample in samples if sample.get(key) is not None]
    return float(np.median(values)) if values else None


def status_of(samples):
    """An allocator's status in a row: ok when every run of it was, else that of the first that was not."""
    return next((sample["status"] for sample in samples if sample["status"] != "ok"), "ok")


def summarize_row(runs, statuses, allocators, subject):
    """{allocator: entry} of one row. An allocator that did not complete it has its status and no figures."""
    entries = {}
    complete = statuses.get(subject) == "ok"
    for name in allocators:
        if name not in statuses:
            continue
        entry = {"status": statuses[name]}
        if statuses[name] == "ok":
            for key in MEDIANS:
                value = middle(runs[name].values(), key)
                if value is not None:
                    entry[key] = value
            if complete and name != subject:
                ratios = {figure: ratios_by_round(runs[subject], runs[name], key) for figure, key in FIGURES.items()}
                entry["ratios"] = {figure: describe_ratios(values) for figure, values in ratios.items() if values}
        entries[name] = entry
    return entries


def best_peer(entries, peers, figure):
    """The peer with the least median of a figure among those that completed the row, as its name; None without any."""
    key = FIGURES[figure]
    standing = [name for name in peers if key in entries.get(name, {}) and figure in entries[name].get("ratios", {})]
    return min(standing, key=lambda name: entries[name][key]) if standing else None


def describe_best(entries, peers):
    best = {}
    for figure in ("time", "peak_rss", "mean_rss"):
        name = best_peer(entries, peers, figure)
        if name is not None:
            ratio = entries[name]["ratios"][figure]
            best[figure] = {"allocator": name, "ratio": ratio["median"], "low": ratio["low"], "high": ratio["high"]}
    return best


def geometric_mean(ratio_lists):
    """The geometric mean over rows of the medians of their rounds, with the interval that resampling each row's
    rounds gives. ratio_lists: one list of ratios a row."""
    generator = np.random.default_rng(SEED)
    logs = np.zeros(RESAMPLES)
    middle = 0.0
    for values in ratio_lists:
        values = np.asarray(values, dtype=float)
        drawn = values[generator.integers(0, len(values), (RESAMPLES, len(values)))]
        logs += np.log(np.median(drawn, axis=1))
        middle += np.log(np.median(values))
    count = len(ratio_lists)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.exp(logs / count), [tail, 1 - tail])
    return {"median": float(np.exp(middle / count)), "low": float(low), "high": float(high), "rows": count}


def summarize(samples, rows, allocators, subject, copy):
    """The summary of a result file. rows: {name: {"group", ...}}; copy: the name of the subject's copy."""
    runs = group_samples(samples)
    all_samples = defaultdict(list)
    for sample in samples:
        all_samples[sample["row"], sample["allocator"]].append(sample)
    peers = [name for name in allocators if name not in (subject, copy)]
    summary = {"rows": {}, "overall": {}, "best": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scipy warns of what it cannot compute; that would be a mistake here
        for row in rows:
            statuses = {name: status_of(all_samples[row, name]) for name in allocators if all_samples[row, name]}
            if statuses:
                summary["rows"][row] = summarize_row(runs[row], statuses, allocators, subject)
                summary["best"][row] = describe_best(summary["rows"][row], peers)
        for name in allocators:
            if name == subject:
                continue
            summary["overall"][name] = {}
            for mean, (figure, group) in OVERALL.items():
                lists = [ratios_by_round(runs[row][subject], runs[row][name], FIGURES[figure])
                         for row, entries in summary["rows"].items()
                         if figure in entries.get(name, {}).get("ratios", {})
                         and (group is None or rows[row]["group"] == group)]
                if lists:
                    summary["overall"][name][mean] = geometric_mean(lists)
    return summary
