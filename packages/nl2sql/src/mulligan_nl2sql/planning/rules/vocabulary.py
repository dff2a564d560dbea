"""The English words that have a meaning of their own in a question, whatever the schema is.

Each table maps a phrase to its meaning. A word that is on no table, and that neither the schema nor its values explain,
makes the planner refuse.
"""

from __future__ import annotations

from collections.abc import Iterable

GT, GE, LT, LE, EQ, NE = ">", ">=", "<", "<=", "=", "<>"
NEGATED = {GT: LE, GE: LT, LT: GE, LE: GT, EQ: NE, NE: EQ}

COMPARISONS = {
    **dict.fromkeys(("over", "above", "more than", "greater than", "higher than", "larger than", "bigger than"), GT),
    **dict.fromkeys(("exceeding", "that exceeds", "in excess of", ">"), GT),
    **dict.fromkeys(("under", "below", "less than", "fewer than", "lower than", "smaller than", "<"), LT),
    **dict.fromkeys(("at least", "no less than", "not less than", "no fewer than", ">="), GE),
    **dict.fromkeys(("at most", "no more than", "not more than", "up to", "<="), LE),
    **dict.fromkeys(("exactly", "equal to", "equals", "="), EQ),
    **dict.fromkeys(("other than", "different from", "not equal to", "!=", "<>"), NE),
}
# After a number: "3 or more".
COMPARISONS_AFTER = {
    **dict.fromkeys(("or more", "or higher", "or above", "and above", "and more"), GE),
    **dict.fromkeys(("or less", "or fewer", "or lower", "or below", "and below"), LE),
}
# Comparatives that name no column: the columns that they may mean, by their last word.
COMPARATIVES = {
    "more expensive than": (GT, "price"),
    "cheaper than": (LT, "price"),
    "heavier than": (GT, "weight"),
    "lighter than": (LT, "weight"),
}
# Verbs that name no column.
MEASURING_VERBS = {
    **dict.fromkeys(("cost", "costs", "costing", "priced", "priced at"), "price"),
    **dict.fromkeys(("weigh", "weighs", "weighing"), "weight"),
}
NAMING = frozenset({"named", "called"})
LIVING = frozenset({"live", "lives", "living", "lived", "based", "located", "situated"})
PLACES = frozenset("city country region state town location address province place zip county district".split())
# Columns that an adjective or a verb may mean.
COLUMN_WORDS = {
    "price": frozenset({"price", "cost"}),
    "weight": frozenset({"weight"}),
    "name": frozenset({"name", "title"}),
}

MAXIMA = frozenset({"maximum", "max", "highest", "largest", "biggest", "greatest"})
MINIMA = frozenset({"minimum", "min", "lowest", "smallest"})
AGGREGATES = {
    **dict.fromkeys(("average", "mean", "avg", "average of", "mean of"), "avg"),
    **dict.fromkeys(("total", "sum of", "sum", "summed", "total of"), "sum"),
    **dict.fromkeys(MAXIMA, "max"),
    **dict.fromkeys(MINIMA, "min"),
    **dict.fromkeys(("maximum of", "max of"), "max"),
    **dict.fromkeys(("minimum of", "min of"), "min"),
}
DATE_AGGREGATES = {
    **dict.fromkeys(("latest", "newest", "most recent", "last"), "max"),
    **dict.fromkeys(("earliest", "oldest", "first"), "min"),
}
# Columns of these names are not listed by "the total of orders", which may also ask for the sum.
AGGREGATE_NAMES = frozenset("total sum count average mean maximum minimum max min number".split())

COUNTS = frozenset({"number of", "count of", "total number of", "total count of", "count", "count the number of"})
DISTINCT = frozenset({"distinct", "different", "unique"})

# Adjectives before a noun: is the largest value wanted, and of which column.
SUPERLATIVES = {
    **dict.fromkeys(("most expensive", "priciest", "costliest"), (True, "price")),
    **dict.fromkeys(("cheapest", "least expensive"), (False, "price")),
    "heaviest": (True, "weight"),
    "lightest": (False, "weight"),
    **dict.fromkeys(("newest", "latest", "most recent"), (True, "date")),
    **dict.fromkeys(("oldest", "earliest"), (False, "date")),
    "last": (True, "date"),
    "first": (False, "date"),
}
# "first 5 orders" may also ask for any five.
UNCLEAR_WITH_NUMBER = frozenset({"first"})
MOST = {"most": True, "highest number of": True, "largest number of": True, "greatest number of": True}
MOST |= {"fewest": False, "least": False, "lowest number of": False, "smallest number of": False}

DIRECTIONS = {
    **dict.fromkeys(("descending", "desc", "from highest to lowest", "in descending order"), True),
    **dict.fromkeys(("highest first", "largest first"), True),
    **dict.fromkeys(("ascending", "asc", "from lowest to highest", "in ascending order"), False),
    **dict.fromkeys(("lowest first", "smallest first"), False),
}
SORTING = frozenset({"sorted by", "ordered by", "order by", "sort by", "ranked by", "sorted in order of"})

ARTICLES = frozenset(
    {"the", "all", "all the", "all of the", "all our", "our", "every", "a", "an", "any", "the list of"}
)
LEADS = frozenset(
    {
        *("show", "show me", "show us", "list", "give me", "give us", "find", "find me", "display", "get", "get me"),
        *("tell me", "return", "fetch", "what is", "what are", "what was", "what were", "which are", "which is"),
        *("i want", "i want to see", "i need", "let me see", "can you show me", "could you show me", "can you list"),
        *("please show", "please show me", "please list", "please give me", "show a list of", "make a list of"),
    }
)
WHICH = frozenset({"which", "what"})
THERE = frozenset(
    {
        "are there",
        "were there",
        "was there",
        "exist",
        "do we have",
        "have we",
        "is there",
        "are there in total",
        "do we have in total",
    }
)
TRAILERS = frozenset({"please", "thanks", "thank you", "in total", "altogether", "overall"})

PREPOSITIONS = frozenset(
    {"in", "from", "of", "with", "for", "at", "by", "via", "using", "to", "on", "within", "inside"}
)
# What relates rows of two tables.
RELATIONS = frozenset({"of", "from", "for", "with", "in", "by", "on", "having", "containing", "including"})
# Words after which a direction matters: a shipment from Berlin is none to Berlin.
DIRECTED = frozenset({"from", "to", "by"})
DESTINATIONS = frozenset("to destination dest target receiver recipient delivery shipping arrival".split())
# Things that come from one place and go to another.
MOVING = frozenset("shipment delivery transfer message email flight trip route transport parcel package letter".split())
COPULAS = frozenset({"is", "are", "was", "were", "has been", "have been", "had been", "be", "being"})
HAVE = frozenset({"have", "has", "had", "having"})
DO_NOT = frozenset({"do not", "does not", "did not", "have not", "has not"})
RELATIVES = frozenset({"that", "who", "which"})
NONE_OF = frozenset({"no", "not any", "zero", "without any"})
EACH = frozenset(
    {"for each", "for every", "in each", "in every", "of each", "of every", "by each", "from each", "each"}
)
PER = frozenset({"per", "by", "grouped by", "group by", "broken down by", "split by"})
DATE_PARTS = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d"}

# When something was recorded: columns whose other words are these alone.
RECORDING = frozenset(
    "date day time timestamp datetime created create creation placed made written posted sent recorded submitted "
    "issued logged occurred happened entered on at".split()
)
DATE_SUFFIXES = frozenset({"on", "at", "date", "day", "time", "datetime", "timestamp"})
# Verbs that say no more than that something was recorded.
RECORDING_VERBS = frozenset({"placed", "made", "created", "recorded", "dated"})
# A person's age is none of its registration.
AGED = frozenset({"birth", "birthday", "birthdate", "born", "dob", "age"})

# What a grammar word means, in the proof. Others are part of the form of a question.
MEANINGS = {
    "not": "negation",
    "no": "negation",
    "without": "negation",
    "never": "negation",
    "and": "both",
    "or": "one of them",
    "between": "from … to …, both included",
    "how": "a number is asked for",
    "many": "a number is asked for",
}


# Words of the grammar that stand in no table above.
_SINGLE = (
    "and or but not than whose where be by of to top bottom how many when do does did have without between also , a an"
)
_SINGLE += " please hi hello priced first me us"
_GRAMMAR: tuple[Iterable[str], ...] = (
    *(COMPARISONS, COMPARISONS_AFTER, COMPARATIVES, MEASURING_VERBS, NAMING, LIVING, AGGREGATES, DATE_AGGREGATES),
    *(COUNTS, DISTINCT, SUPERLATIVES, MOST, DIRECTIONS, SORTING, ARTICLES, LEADS, WHICH, THERE, TRAILERS),
    *(PREPOSITIONS, RELATIONS, COPULAS, HAVE, DO_NOT, RELATIVES, NONE_OF, EACH, PER, DATE_PARTS, RECORDING_VERBS),
)


def all_words() -> frozenset[str]:
    """Every word that some rule of the grammar reads."""
    return frozenset(word for phrases in (*_GRAMMAR, [_SINGLE]) for phrase in phrases for word in phrase.split())


def meaning_of(word: str) -> str:
    """What a word of the grammar does, for the proof."""
    if word in MEANINGS:
        return MEANINGS[word]
    for name, table in (("comparison", COMPARISONS), ("aggregate", AGGREGATES), ("superlative", SUPERLATIVES)):
        if any(word in phrase.split() for phrase in table):
            return name
    if any(word in phrase.split() for phrase in (*PER, *EACH)):
        return "groups"
    return "form of the question"
