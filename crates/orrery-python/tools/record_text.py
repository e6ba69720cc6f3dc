"""Records of text: repr, case, int() and float() of it, and escapes."""

import codecs
import sys
import unicodedata
import warnings

PIECES = [
    "a", "B", "z", " ", "\t", "\n", "\r", "\\", "'", '"', "\0", "\x1b", "\x7f", "\x85", "\xa0", "\xad", "é", "ß", "İ", "ı", "ſ", "Σ", "ς",
    "σ", "ǆ", "ǅ", "ŉ", "ﬁ", "\u0300", "\u200b", "\u2028", "\u3000", "中", "한", "\ue000", "\ufeff", "\uffff", "😀", "\U0001d7d8", "\U000e0001",
    "\U0010ffff", "A", "ΑΣ", "Ὀδυσσεύς", "ΌΣΟΣ", "hello world", "x.y", ".", "-", "1",
]

INTS = [
    "0", "7", "-7", "+7", " 7 ", "\n7\t", "007", "-0", "1_000", "1__0", "_1", "1_", "", " ", "-", "+", "--1", "+-1", "1.0", "1e3", "0x10", "abc",
    "١٢٣", "１２３", "१_२", "1 2", "\u20031\u2003", "\x1c1\x1f", "\x001", "1\0", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "1" * 40, "9" * 4300, "9" * 4301, "0" * 4301, "-" + "9" * 4301, "x" * 300, "é", "½", "²", "'", "it's", "\\", "１_０", "߁", "𝟘𝟙",
    "- 1", "+\t1", "1_000_000_000_000_000_000_000", "a" * 197, "a" * 198, "a" * 199, "é" * 250, "\n" * 150 + "a",
]
FLOATS = [
    "1", "1.", ".5", ".", "", " ", "1.5", "-1.5", "+1.5", "1e3", "1E3", "1e+3", "1e-3", "1e", "e1", "1e1_0", "1_0.0_1", "1_.0", "1._0", "_1.0", "1.0_", "1e_1",
    "inf", "-inf", "+Inf", "INFINITY", "infinit", "nan", "-nan", "+NaN", "nan1", "in_f", "1e400", "-1e400", "1e-400", "0x1p3", "1.5f", "1d", "١٫٥", "١.٥", "１e２",
    " 1.5\n", "\u20031.5\u2003", "1 5", "--1", "1.7976931348623159e308", "2.4703282292062327e-324", "2.4703282292062328e-324", "9007199254740993",
    "0.1000000000000000055511151231257827021181583404541015625", "1" * 400, "it's", "1__0", "infinity ", "x" * 300, "1e99999999999999999999", "1,5",
]
ESCAPES = [
    "", "plain", r"\\", r"\'", r"\"", r"\a\b\f\n\r\t\v", r"\0", r"\7", r"\12", r"\123", r"\1234", r"\400", r"\777", r"\8", r"\9", r"\08", r"\x41", r"\x4", r"\x", r"\xg1", r"\x4g",
    r"\u00e9", r"\u00e", r"\u", r"\U0001F600", r"\U00110000", r"\U0010FFFF", r"\U0010", r"\N{BULLET}", r"\N{bullet}", r"\N{}", r"\N{", r"\N", r"\Nx", r"\N{no such}", r"\N{LATIN SMALL LETTER A",
    r"\N{LF}", r"\N{NULL}", r"\N{VS17}", r"\N{VS257}", r"\N{HANGUL SYLLABLE GAG}", r"\N{HANGUL SYLLABLE A}", r"\N{HANGUL SYLLABLE GGWAELB}", r"\N{HANGUL SYLLABLE }", r"\N{HANGUL SYLLABLE X}",
    r"\N{CJK UNIFIED IDEOGRAPH-4E00}", r"\N{CJK UNIFIED IDEOGRAPH-4e00}", r"\N{cjk unified ideograph-4e00}", r"\N{CJK UNIFIED IDEOGRAPH-0041}", r"\N{CJK UNIFIED IDEOGRAPH-20000}", r"\N{CJK UNIFIED IDEOGRAPH-020000}",
    r"\N{KEYCAP DIGIT ONE}", r"\N{LATIN_SMALL_LETTER_A}", r"\N{ BULLET}", r"\N{WEIERSTRASS ELLIPTIC FUNCTION}", r"\N{ALERT}", r"\N{BELL}", r"\N{ZWJ}", r"\q", r"\(", "\\\n", "a\\\nb", "\\\r\n", "\\é", "é\\", "\\",
    "a\\", r"\ ", r"\{", r"{{x}}\n", r"é\x41é", r"é\x4", r"中\N{nope}", r"a\qb\qc", r"\d+\.\d+", r"C:\new\table", r"\e\z\p", "\\\t", r"\x41\u0042\U00000043\103",
]


ALIASES = ["NULL", "nul", "LF", "NEW LINE", "VS1", "VS256", "VS257", "ZWNBSP", "BYTE ORDER MARK", "LATIN CAPITAL LETTER GHA", "PRESENTATION FORM FOR VERTICAL RIGHT WHITE LENTICULAR BRACKET", "no such", "", "A"]


def named_character(name):
    return codecs.decode(f"\\N{{{name}}}".encode(), "unicode_escape")


def lower_names(characters):
    return [unicodedata.name(c).lower() for c in characters[::5]]


def sample(random, pieces, length):
    return "".join(random.choice(pieces) for _ in range(random.randrange(length)))


def decoded(text):
    """Result of the codec for text with literal non-ASCII characters, and its warning.

    The codec reads Latin-1, so each character beyond ASCII is hidden behind an escape of its own; where it
    raises, the original is asked, because positions count the bytes of the source.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        codecs.decode(text.encode(), "unicode_escape")
        invalid = bool(caught)
        hidden = "".join(c if c.isascii() else "\0" for c in text)
        plain = codecs.decode(hidden.encode(), "unicode_escape")
    others = iter([c for c in text if not c.isascii()])
    written_nuls = "\0" in text or plain.count("\0") != hidden.count("\0")
    assert not written_nuls, text
    return "".join(next(others) if c == "\0" else c for c in plain) + ("\tinvalid" if invalid else "")


def records(random, scale, number, outcome):
    texts = PIECES + [sample(random, PIECES, 8) for _ in range(300 * scale)]
    rows = []
    for text in texts:
        for name in ("repr", "ascii", "upper", "lower", "capitalize", "strip"):
            function = {"repr": repr, "ascii": ascii}.get(name) or getattr(str, name)
            rows.append([name, text, outcome(function, text)])
    for text in texts[: 100 + len(PIECES)]:
        rows.append(["split", text, {"ok": repr(text.split())}])
    yield "text", rows

    named = [chr(c) for c in range(0, sys.maxunicode + 1, 37) if unicodedata.name(chr(c), None)]
    chosen = random.sample(named, min(300 * scale, len(named)))
    rows = [[unicodedata.name(c), outcome(named_character, unicodedata.name(c))] for c in chosen]
    rows += [[name, outcome(named_character, name)] for name in lower_names(chosen) + ALIASES]
    yield "names", rows

    # Every character that is not plain, as ranges: the tables are tested over all of Unicode.
    rows = []
    for name in ("isprintable", "isspace", "isdecimal"):
        last, start = None, 0
        for code in range(sys.maxunicode + 2):
            answer = None if code > sys.maxunicode else getattr(chr(code), name)()
            if answer != last:
                if last:
                    rows.append([name, start, code - 1, {"ok": "True"}])
                start, last = code, answer
    yield "characters", rows

    rows = [["int", text, outcome(int, text)] for text in INTS]
    rows += [["float", text, outcome(float, text)] for text in FLOATS + INTS]
    for _ in range(200 * scale):
        text = sample(random, list("0123456789__..eE+- ") + ["1", "٣", "\u2003", "inf", "nan"], 9)
        rows.append(["int", text, outcome(int, text)])
        rows.append(["float", text, outcome(float, text)])
    yield "parsing", rows

    escapes = ESCAPES + [
        sample(random, list("\\\\\\\\xuUN{}0123479afFnqé ") + ["\\x4", "\\u00", "\\N{DIGIT ", "ONE}", "\n"], 9) for _ in range(300 * scale)
    ]
    # A NUL in the outcome could not be told from the placeholder, nor does the order of errors matter more.
    rows = []
    for text in escapes:
        try:
            rows.append([text, outcome(decoded, text)])
        except AssertionError:
            continue
    yield "escapes", [row for row in rows if row[-1].get("error", [""])[0] != "AssertionError"]
