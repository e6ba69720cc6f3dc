"""Records of arithmetic, comparison and the repr of floats."""

import math
import operator
import struct

INTEGERS = [
    0, 1, -1, 2, -2, 3, -3, 7, 10, -10, 100, 255, 1000, 2**31, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1,
    2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 2**64 + 1, 10**19, -(10**20), 10**30 + 1,
    2**1023, 2**1024 - 2**970, 2**1024 - 2**970 - 1, 2**1024, -(2**1024), 10**308, 10**309, 3**700, 10**400, -(10**400) - 7,
]
FLOATS = [
    0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.0, -2.0, 2.5, 3.0, 0.1, 0.2, 1 / 3, -1 / 3, 1e16, 1e15, 9999999999999998.0,
    123456789.123, 1e22, 1e23, 1e-4, 1e-5, 12345e-9, 5e-324, -5e-324, 2.2250738585072014e-308, 2.225073858507201e-308,
    1.7976931348623157e308, -1.7976931348623157e308, 1e200, -1e200, 1e-200, 9007199254740992.0, 9007199254740993.0,
    9223372036854775807.0, -9223372036854775808.0, 1.8446744073709552e19, math.inf, -math.inf, math.nan, math.pi,
    1079711622907857.25, 1814871786330163.25, 1814871786330163.75, 70368744177664.125, 1152921504606846976.0,
]

OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
    "**": operator.pow, "<": operator.lt, "==": operator.eq, ">": operator.gt,
}


def any_float(random):
    kind = random.randrange(4)
    if kind == 0:
        return struct.unpack(">d", random.randbytes(8))[0]
    if kind == 1:
        return random.choice(FLOATS)
    if kind == 2:
        return round(random.uniform(-1000, 1000), random.randrange(6))
    return float(random.randrange(-(10**6), 10**6)) * 10.0 ** random.randrange(-20, 20)


def any_integer(random):
    kind = random.randrange(4)
    if kind == 0:
        return random.choice(INTEGERS)
    if kind == 1:
        return random.randrange(-20, 20)
    return random.choice([1, -1]) * random.getrandbits(random.choice([8, 16, 53, 54, 63, 64, 65, 128, 200, 1000, 1100, 2200]))


def any_number(random):
    return any_float(random) if random.random() < 0.5 else any_integer(random)


def near(random, value):
    """A number of the other kind close to the value, where comparison is hard."""
    try:
        if isinstance(value, int):
            return float(value)
        return int(value) + random.randrange(-1, 2)
    except (OverflowError, ValueError):
        return any_number(random)


def small_enough(symbol, a, b):
    """Python has no bound on powers; the crate refuses those that would take long."""
    if symbol != "**" or not isinstance(a, int) or not isinstance(b, int):
        return True
    return b < 0 or abs(a) <= 1 or (a.bit_length() * b if b < 10**6 else 10**9) < 14000


def records(random, scale, number, outcome):
    pairs = [(a, b) for a in INTEGERS[:12] + FLOATS[:12] for b in INTEGERS[:12] + FLOATS[:12]]
    numbers = INTEGERS + FLOATS
    pairs += [(random.choice(numbers), random.choice(numbers)) for _ in range(250 * scale)]
    for _ in range(250 * scale):
        value = any_number(random)
        pairs += [(value, near(random, value)), (value, any_number(random)), (any_float(random), random.choice([0.5, -0.5, 1.5, 2, -2, 3]))]
    rows = []
    for a, b in pairs:
        for symbol in random.sample(list(OPERATORS), 2):
            if small_enough(symbol, a, b):
                rows.append([number(a), symbol, number(b), outcome(OPERATORS[symbol], a, b)])
    yield "arithmetic", rows

    floats = FLOATS + [any_float(random) for _ in range(600 * scale)]
    rows = []
    for value in floats:
        rows.append(["repr", number(value), outcome(repr, value)])
        rows.append(["int", number(value), outcome(int, value)])
    for value in INTEGERS + [any_integer(random) for _ in range(200 * scale)]:
        rows.append(["float", number(value), outcome(float, value)])
        rows.append(["str", number(value), outcome(str, value)])
    for text in ["5", "9" * 4300, "1" + "0" * 4299, "1" + "0" * 4300, "123" * 1500]:
        value = sum(int(digit) * 10**place for place, digit in enumerate(reversed(text)))
        rows.append(["hex-str", hex(value), outcome(str, value)])
    yield "conversions", rows
