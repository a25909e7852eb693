"""Short English answers made of phrases whose words only fit together: "full house" and "high card"
are poker hands, "full card" is not. Every complete phrase of the family asked for is right, so
nothing but the other words decides a word."""

import re
from random import Random

from benchmarks.tasks.example import Example

FAMILIES = {
    "a poker hand": ("full house", "high card", "two pair", "royal flush", "straight flush"),
    "a capital": ("Paris, France", "Rome, Italy", "Tokyo, Japan", "Cairo, Egypt", "Lima, Peru"),
    "a chess opening": ("Ruy Lopez", "Queen's Gambit", "Sicilian Defence", "English Opening"),
    "an animal sound": ("cows moo", "dogs bark", "ducks quack", "lions roar", "bees buzz"),
    "a pair of opposites": ("hot and cold", "day and night", "up and down", "left and right"),
    "a proverb": (
        "haste makes waste",
        "practice makes perfect",
        "time flies",
        "actions speak louder than words",
    ),
}
# fmt: off
NAMES = (
    "Ada", "Alan", "Barbara", "Carl", "Claude", "Daniel", "Dora", "Edgar",
    "Elena", "Emmy", "Felix", "Grace", "Hanna", "Hugo", "Ida", "Irene",
    "Jakob", "Jane", "John", "Karen", "Laura", "Leo", "Maria", "Max",
    "Nina", "Noah", "Olga", "Oscar", "Paula", "Peter", "Rita", "Rosa",
    "Sam", "Sofia", "Theo", "Tom", "Ursula", "Vera", "Victor", "Zoe",
)
# fmt: on
VERBS = ("Name", "Give", "Pick", "Choose")
PROMPT = re.compile(rf"(?:{'|'.join(VERBS)}) (.+) for \w+\.")


def generate(rng: Random) -> Example:
    families = rng.sample(list(FAMILIES), rng.randint(1, 3))
    name = rng.choice(NAMES)
    answer = "; ".join(rng.choice(FAMILIES[family]) for family in families)
    return Example(f"{rng.choice(VERBS)} {' and '.join(families)} for {name}.", answer)


def check(prompt: str, answer: str) -> bool:
    families = PROMPT.fullmatch(prompt)[1].split(" and ")
    phrases = answer.strip().split("; ")
    if len(phrases) != len(families):
        return False
    return all(phrase in FAMILIES[family] for phrase, family in zip(phrases, families, strict=True))
