"""Records of format(), string.Formatter().parse and the % operator."""

import string

VALUES = [
    "", "abc", "é中😀", "a" * 20, 0, 1, -1, 7, 65, -1234567, 1234567, 0x110000, 128512, 2**63, -(2**64), 10**30, 10**400, True, False, None, 0.0, -0.0, 0.5, 1.5, 2.5, -2.5,
    0.125, 0.375, 1e-5, 1234567.891, -1234567.891, 1e15, 1e16, 1e22, 1e300, -1e-300, 123456.0, 0.0001, 0.00001234, float("inf"), float("-inf"), float("nan"), 1 / 3, 99.995, 0.045, 5e-324, 1.0, 100.0, 1e5, 123456789.0,
]
SPECS = [
    "", "s", "d", "n", "c", "b", "o", "x", "X", "#b", "#o", "#x", "#X", "e", "E", "f", "F", "g", "G", "%", "10", "<10", ">10", "^10", "=10", "*^10", "010", "+", "-", " ", "+d", " d", "z", "z.1f", "zd", ",", "_", ",d",
    "_d", "_x", ",x", "_b", ",_", "_,", ",,", ",s", ",n", "_c", ".", ".2", ".0", ".0f", "#.0f", ".2f", "10.3f", "010.3f", "+010.3f", ",.2f", "020,.2f", "_.3e", ".3g", "#.3g", "#", "#g", "#e", "#f", ".10", ".17", ".0%", ".1%",
    "09,", "010,", "08,", "07,", "03,", "+09,d", "#010x", "#012_x", "#012_b", "<010", ">010", "^010", "=010", "0<10", "x<10", "é^9", "{<5", "y", "q", "k", "ss", "dd", "10d5", "5.d", "5.2d", "5.2s", ".1s", "1$", "é", "\n", " ",
    "#s", "+s", " s", "=5s", "05s", "05", "0", "00", "000", "0005d", "99999999999999999999", ".99999999999999999999f", ".3000000000f", "+c", "#c", "5c", "05c", "<5c", ".3c", "zc", "٥", "٥d", ".٢f", "z+", "+z", "+z.2f", "+z#05,.2f", "<z5",
    "1,000", "a<<5", "<<5", "==5", ">=5", ">", "<", "^", "=", ">>", "=^", "0=5", "0=+5,", ",.0f", "_.0f", ".50f", ".30e", ".400f", ".30g", "#.30g", "\x7f", "\x01", ".5,", "10,.5_f", "0_b", "020_b", "0,f",
]
TEMPLATES = [
    "", "a", "{}", "{a}", "{a}{b}", "x{a}y", "{{", "}}", "{{a}}", "a{{b", "{a} {{lit}} {b}", "{", "}", "a{", "a}", "{a", "{a:", "{a!", "{a!r", "{a!r}", "{a!r:x}", "{a!r:", "{a!rx}", "{a!}", "{a!:x}", "{a:{b}}", "{a:{b}.{c}f}", "{a:{b",
    "{a:{{b}}}", "{a[0]}", "{a[}]}", "{a[!]}", "{a[", "{a[b}", "{a.b.c}", "{ a }", "{a{b}}", "{a!r}}", "{a}}", "{{a}", "{}{}", "{0}{1}", "{a:}", "{:}", "{!r}", "{a:>10}", "{a:{b}{c}}", "{a:{b:{c}}}", "é{a}é", "{é}", "{a!é}", "{a:é}", "{a!r:{b}}",
    "{a[b]c}", "{a[b]:c}", "{a:}}", "{a::}", "{a!!}", "{[}", "{[]}", "{a\n}", "{{{a}}}", "{{{{", "}}}", "{a:}}}",
]
PERCENTS = [
    "", "%%", "plain", "%s", "%r", "%a", "%d", "%i", "%u", "%o", "%x", "%X", "%#o", "%#x", "%#X", "%e", "%E", "%f", "%F", "%g", "%G", "%c", "%5s", "%-5s|", "%.2s", "%5.1s", "%05d", "%+d", "% d", "%+ d", "%-05d|", "%.5d", "%8.5d",
    "%08.5d", "%+.3d", "%#010x", "%#.5x", "%-#10x|", "%010.2f", "%+.2f", "% .3e", "%.0f", "%#.0f", "%#g", "%.3g", "%q", "%y", "%é", "%", "abc%", "%5", "%.", "%.s", "%.f", "%ld", "%hd", "%Ld", "%lld", "%hhd", "%5%", "%-5%|", "%s%s", "%s %d", "%*d", "%-*d|",
    "%.*f", "%*.*f", "%(a)s", "%(a)s %(b)d", "%(a", "%(a)", "%(x)s", "%()s", "%(a(b))s", "%(a)5.1f", "%(a)s %s", "%s %(a)s", "%(a)%", "%c%c", "%99999999999999999999d", "%.99999999999d", "%05s", "%05c", "%+s", "%05x", "%+x", "%x%%", "%\n", "%b", "%0-5d|",
    "%.3c", "%3c", "%.3r", "%.3a", "%5r", "%#d", "%#f", "%0+8.2f", "%0 8d", "%-+8d|",
]
ARGUMENTS = [
    ("single", "text"), ("single", 42), ("single", -42), ("single", 3.75), ("single", True), ("single", None), ("single", "x"), ("single", 10**25), ("single", 1e300), ("single", 128512), ("single", 0x110000), ("single", -1), ("single", 2**70),
    ("single", float("inf")), ("single", float("nan")), ("single", "é"), ("single", -0.0), ("tuple", ()), ("tuple", (1,)), ("tuple", ("a", 2)), ("tuple", (5, 2)), ("tuple", (-5, 2)), ("tuple", (7, 3, 2.5)), ("tuple", ("é'", 65)),
    ("mapping", {"a": 1, "b": 2.5, "a(b)": "n", "": "empty"}), ("mapping", {"a": "text", "b": 3}), ("mapping", {}), ("single", [1, "a"]), ("tuple", ([1, "a"],)), ("tuple", (3, "b", None, 1.5)),
]


def value_of(value, number):
    if isinstance(value, bool):
        return f"b:{value}"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        return "s:" + value
    if value is None:
        return "n:"
    return f"o:{type(value).__name__}:{value}"


def random_spec(random):
    def maybe(choices, chance):
        return random.choice(choices) if random.random() < chance else ""

    spec = maybe(["<", ">", "^", "=", "*<", "0>", " ^", "_=", ",<", "é>"], 0.3)
    spec += maybe(["+", "-", " "], 0.3) + maybe(["z"], 0.1) + maybe(["#"], 0.2) + maybe(["0"], 0.3)
    spec += maybe(["1", "5", "10", "12", "17", "25"], 0.5) + maybe([",", "_"], 0.3) + maybe([".0", ".1", ".2", ".5", ".12", ".25"], 0.4)
    spec += maybe(list("bcdeEfFgGnosxX%"), 0.8)
    if random.random() < 0.1:
        at = random.randrange(len(spec) + 1)
        spec = spec[:at] + random.choice(list("+-0,._z#<=é{} 9d")) + spec[at:]
    return spec


def unbounded(spec):
    """Widths and precisions that Python would try to allocate; the crate refuses them."""
    digits = "".join(c if c.isdigit() else " " for c in spec).split()
    return any(10**7 < int(run) < 2**63 and not spec.startswith(".3000000000") for run in digits)


def parse(template):
    parts = []
    for literal, name, spec, conversion in string.Formatter().parse(template):
        parts.append(literal if name is None else f"{literal}\1{name}\1{spec}\1{conversion or ''}")
    return "\2".join(parts)


def random_value(random):
    kind = random.randrange(4)
    if kind == 0:
        return random.choice(VALUES)
    if kind == 1:
        return random.choice([1, -1]) * random.getrandbits(random.randrange(1, 80))
    if kind == 2:
        return round(random.uniform(-1e6, 1e6), random.randrange(5)) * 10.0 ** random.randrange(-12, 12)
    return random.randrange(-4000, 4000) / 16


def records(random, scale, number, outcome):
    rows = []
    for spec in SPECS:
        for value in random.sample(VALUES, 6) + ["ab", 12, 1.5, True]:
            rows.append([value_of(value, number), spec, outcome(format, value, spec)])
    for _ in range(1500 * scale):
        value, spec = random_value(random), random_spec(random)
        if not unbounded(spec):
            rows.append([value_of(value, number), spec, outcome(format, value, spec)])
    yield "format", rows

    templates = TEMPLATES + ["".join(random.choice("{{}}ab!:[].r ") for _ in range(random.randrange(10))) for _ in range(300 * scale)]
    yield "templates", [[template, outcome(parse, template)] for template in templates]

    rows = []
    for template in PERCENTS + ["".join(random.choice(list("%%%sdxfcr()a*.-+0 #5") + ["%s", "%d"]) for _ in range(random.randrange(7))) for _ in range(150 * scale)]:
        if unbounded(template):
            continue
        for kind, arguments in random.sample(ARGUMENTS, 8):
            if kind == "mapping":
                written = {key: value_of(value, number) for key, value in arguments.items()}
            elif kind == "tuple":
                written = [value_of(value, number) for value in arguments]
            else:
                written = value_of(arguments, number)
            whole = str(arguments)
            rows.append([template, kind, written, whole, outcome(lambda t, a: t % a, template, arguments)])
    yield "percent", rows
