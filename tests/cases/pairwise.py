"""All-pairs testing: few cases in which any two values of any two axes meet.

Greedy and without chance, so that the same axes always give the same cases. Knows nothing of what
the axes are.
"""

from itertools import combinations


def pairwise(choices, is_valid):
    """Cases, one dictionary each: `form` is an index into `choices`, which say what every axis may
    be for that form. Each pair of values that some valid case has is in one of them."""
    axes = ["form", *choices[0]]
    missing = {}
    for form, choice in enumerate(choices):
        values = {"form": [form], **choice}
        for first, second in combinations(axes, 2):
            for one in values[first]:
                for other in values[second]:
                    if is_valid({first: one, second: other}):
                        missing[pair(first, one, second, other)] = form
    cases = []
    while missing:
        (first, one, second, other), form = next(iter(missing.items()))
        case = {"form": form, first: one, second: other}
        complete(case, {"form": [form], **choices[form]}, axes, missing, is_valid)
        for key in pairs_of(case, axes):
            missing.pop(key, None)
        cases.append(case)
    return sorted(cases, key=lambda case: case["form"])


def pair(first, one, second, other):
    """The key of a pair, the axes in their order."""
    return (first, one, second, other)


def pairs_of(case, axes):
    """The keys of all pairs of a case."""
    chosen = [axis for axis in axes if axis in case]
    return [pair(a, case[a], b, case[b]) for a, b in combinations(chosen, 2)]


def complete(case, values, axes, missing, is_valid):
    """Gives every open axis the value that covers most of what is missing; the earliest wins."""
    for axis in axes:
        if axis in case:
            continue
        best = None
        for value in values[axis]:
            candidate = {**case, axis: value}
            if not is_valid(candidate):
                continue
            news = sum(key in missing for key in pairs_of(candidate, axes) if key[0] == axis
                       or key[2] == axis)
            if best is None or news > best[0]:
                best = (news, value)
        case[axis] = best[1]
