"""What a scrape says."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hicache_fsm.metrics.catalogue import PREFIX

Series = tuple[str, tuple[tuple[str, str], ...]]


def parsed(text: str) -> dict[Series, float]:
    """Every sample of a scrape, by its name without the prefix and its labels."""
    return {
        (sample.name.removeprefix(PREFIX), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def scrape(registry: CollectorRegistry) -> dict[Series, float]:
    """What a scrape of the registry says."""
    return parsed(generate_latest(registry).decode())


def by_label(samples: dict[Series, float], name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The samples of one name that are not 0, by some of their labels."""
    found: dict[tuple[str, ...], float] = {}
    for (sample, values), value in samples.items():
        if sample == name and value:
            key = tuple(dict(values)[label] for label in labels)
            found[key] = found.get(key, 0) + value
    return found
