"""Records of the re module: which patterns it accepts, and what they match."""

import re
import warnings

PATTERNS = r"""
a|ab|^a|a$|^a$|^abc$|a\Z|\Aa|^$|$|^|\Z|a$b|(a$)|(a$|b)c?|a$\n|\n$|a*$|(?m)^a$|(?m)a$|(?m)^b|(?s)a.b|a.b|.|.*|.+|.?|a{2}|a{2,}|a{,2}|a{1,2}|a{0}|a{0,0}|a{}|a{,}|a{|a{1|a{1,|a{1,2|{|{1|}|a}|a{x}|x{1,y}
[abc]|[^abc]|[a-z]+|[]a]|[^]a]|[a-]|[-a]|[a\-z]|[\]a]|[[a]|[a&&b]|[a--b]|[a~~b]|[a||b]|[[:alpha:]]|[\w-]|[\d.]+|[^\d]|[\D]|[\W_]|[\s\S]|[^\s\S]|[\b]|[\n]|[.]|[$^]|[a^]|[(]|[)]|[*+?{}]|[\\]|[\x41-\x43]|[\101]|[\07]|[é]|[à-ü]|[^é]|[^\x00-\x7f]
\d+|\D+|\w+|\W+|\s+|\S+|\bfoo\b|\Bfoo|foo\B|\b|\B|\b\w|^\b|\w\b|(?a)\w+|(?a)\d|(?a)\s|(?a)\b|(?a:\w)\w|(?u)\w+|(?a)\B|\d\d:\d\d|(?a)\W
(?i)abc|(?i)[a-z]+|(?i)straße|(?i)ß|(?i)é|(?i)[à-ü]|(?i)k|(?i)[k]|(?i)i|(?i)ı|(?i)s|(?i)σ|(?i)[^a]|(?ai)k|(?ai)é|(?i:a)b|(?i)(?-i:a)b|(?-i:a)|(?i)[\W]|(?i)\u212a|(?i)[j-l]|(?i)İ|(?i)[^k]+$|(?i)ǆ|(?i)(a)\1|(?i)µ|(?i)(é)\1|(?ai)(k)\1|(?i)(s)\1
(a)(b)\2\1|(a)\1|(a*)\1b|(a)?b\1|(?P<x>a)(?P=x)|(?P<x>a)\1|(a|b)\1|([a-z])\1|(?:a)(b)\1|((a)b)\2|(.)(.)\2\1|^(.*)\1$|(a)|()|()\1|(a)(?(1)b|c)|(a)?(?(1)b|c)|(?P<q>")?x(?(q)")|(a)?(?(1)b)|(a)?(?(1)|c)
(?=a)a|(?!a).|a(?=b)|a(?!b)|(?<=a)b|(?<!a)b|(?<=ab)c|(?<=a|b)c|(?<=^)a|(?<!^)a|(?<=\b)a|(?!)|(?=)|(?<!)|(?<=)|(?!a)|(?=a)*b|(?=a)+a|(?:(?=a))*a|(?<=a{2})b|(?<=(a))b|(?=(a))\1|^(?=.*\d)(?=.*[a-z]).{4,}$|^(?!.*--)[a-z-]+$|(?!-)[a-z0-9-]{1,63}(?<!-)$
(?>a*)a|(?>a*)b|a*+a|a++b|a?+a|a{1,2}+a|(?>a|ab)c|(?:a|ab)c|(a|ab)(c|bcd)|(?:a+)+b|a*?b|a+?b|a??b|a{1,2}?b|(a*)*|(a*)+|(a|b)*|(?:)*|()*|(?:a?)*b|(a?)*b|(?:a|)+b|(|a)+|x*|(?:x*)*y|(a|b|)*c
(?x) a b # comment|(?x)a\ b|(?x)[ a]|(?x)a #c|(?x:a b)c d|(?x)a{1, 2}|(?x)a {2}|(?x)( ?:a)|(?#c)a|a(?#c)b|a(?#c)*|(?x)\#|(?x)#
\.|\-|\/|\ |\é|\_|\0|\00|\07|\011|\101|\x41|\u0041|\U00000041|\N{BULLET}|\N{LATIN SMALL LETTER A}+|\a|\f|\v|\t|\\|\^|\$|\#|\&|\~|\<|\>|\@|\!|\%|\'|\"|\`|,|<a>|a&b|a~b|a#b|a-b
\*|(\*)|\(|\)|(\))|a\|b|[|]|x?y?z?|^(a+)+$|(a+)+$|^(([a-z])+.)+[A-Z]([a-z])+$|^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$|^(\d{1,3}\.){3}\d{1,3}$|^[^@\s]+@[^@\s]+\.[a-z]+$|^/[a-z/]*$|^https?://|^([a-z0-9]+(-[a-z0-9]+)*\.)+[a-z]{2,}$
(|)|(a|())|*|+|?|a**|a*+*|a+*|a??*|a{2}{3}|a{2}*|a*{2}|^*|$+|\b+|\A?|(*)|(+a)|(?:+)|(|*)|a|*|{1}|a{2,1}|a{4294967295}|a{4294967296,}|a{99999999999}|x{0,4294967295}|(?:a{3}){4}|(?=a){2}|a{2}?|a{2}+|a{2}??|a*??|a?+?
(|(a|((a)|a)|a))|)|(a))|(?|(?P|(?P<|(?P<a|(?P<a>|(?P<>a)|(?P<1>a)|(?P<a-b>a)|(?P<é>a)|(?P<a b>x)|(?P=a)|(?P=|(?P=)|(?P=1)|(?P>a)|(?Px)|(?<a>b)|(?<|(?<=|(?<a|(?=|(?!|(?=a|(?<!a|(?:|(?:a|(?>|(?>a|(?#|(?#a|(?'a'b)|(?*)|(?+a)|(?1)|(?R)|(?&a)|(?@)|(?.)|(?é)|(?\d)
(?P<a>x)(?P<a>y)|(a\1)|(?P<a>(?P=a))|\1|\2|(a)\2|(a)\10|\10|\8|\9|\18|\100|\377|\400|\777|(a)\100|[\400]|[\8]|[\1]|[\18]|\08|\0777|[\0777]|(?(1)a)|(?(1)a|b)|(a)(?(2)b)|(?(0)a)|(?(00)a)|(?(x)a)|(?(|(?()|(?(1|(?(1)|(?(1)a|(a)(?(1)b|c|d)|(?(-1)a)|(?(1a)b)|(?(é)b)|(?(99999999999)a)|(?(²)a)|(a)(?(01)b)
[|[]|[^|[^]|[a|[a-|[a-z|[b-a]|[z-a]|[\d-z]|[a-\d]|[\w-\d]|[é-a]|[\x42-\x41]|[\]-a]|[a-\]]|[\p]|[\q]|[\A]|[\Z]|[\B]|[\z]|[\N{nope}]|[\x4]|[\u00]|[\U00110000]|[\
\p|\q|\h|\z|\G|\K|\R|\X|\Q|\E|\c|\e|\g|\i|\j|\k|\l|\m|\o|\y|\C|\H|\V|\L|\P{L}|\x|\x4|\xg|\u|\u004|\U0000004|\U00110000|\U99999999|\ud800|[\ud800]|[^\ud800]|[\ud800-\udfff]|[\ud7ff-\ue000]|[^\ud800-\ue000]|[a\ud800]|[\udfff-\ud800]|[\ud800-\ud7ff]|(?i)[\ud800-\uffff]|\N|\N{|\N{}|\N{nope}|\Nx|\N{bullet|abc\
(?i|(?i-|(?i-)|(?i-:a)|(?-|(?-)|(?-:a)|(?-i|(?-i)|(?-i:|(?-i:a|(?i:|(?i:a|(?i-i:a)|(?ii)a|(?z)|(?iz)|(?i-z:a)|(?i!)|(?i:a)(?i)|a(?i)|(?i)a(?m)|(?i)(?m)a|(?:(?i)a)|((?i)a)|a|(?i)b|(?L)a|(?L:a)|(?au)|(?a)(?u)a|(?ua:x)|(?-a:x)|(?-u:x)|(?-L:x)|(?a-i:x)|(?i-m:x)|(?t)|(?ix-s:A b)|(?imsx) a|(?a-)|(?a i)|(?iL)|(?-ia:x)|(?-é:x)|(?é:x)
(?<=a*)b|(?<=a+)b|(?<=a?)b|(?<=a|bc)d|(?<!a*)b|(?<=a{1,2})b|(?<=(a|bc))d|(?<=(a)\1)b|(a)(?<=\1)b|(a*)(?<=\1)b|(?<=(a)(?(1)b))c|(?<=(?P<x>a)(?P=x))b|(?<=(?:ab|cd))e|(?<=.)a|(?<=a(?=b))b|(?<=(?<=a)b)c|(?<=a**)|(?<=a*)(|(a)(?<=(?(1)b|c))d|(a)(?<=(?(1)b|cc))d
"""

SUBJECTS = [
    "", "a", "b", "ab", "abc", "aa", "aab", "aaa", "ba", "a\n", "\n", "a\nb", "ab\n", "b\na\n", "\na", "A", "AB", "abba", "aba", "c", "ac", "abcd", "abcde", "foo", "foo bar", "barfoo", "xfoo", " foo ", "1", "12:34", "0", "_",
    "a-b", "a_b", "a.b", "a b", " ", "\t", "\x1c", "\x0b", "-", "--", "]", "[", "[a]", "^", "$", ".", "*", "(", ")", "{", "}", "a{", "a{1", "{1", "a{}", "x{1,y}", "|", "\\", "/", "&", "#", "~", "<a>", "\"x\"", "x\"", "x", "xx", "y", "xxy", "aaaaaaaaaaaaaaaaaaaaaab",
    "é", "É", "à", "ÀÉ", "ü", "straße", "STRASSE", "ß", "ẞ", "K", "\u212a", "k", "i", "I", "İ", "ı", "s", "ſ", "σ", "ς", "Σ", "µ", "μ", "ǆ", "ǅ", "٣", "²", "½", "Ⅷ", "中", "a\u0300", "e\u0301x", "\u200d", "a\u200db", "\xa0", "\u2003", "\u3000", "é\n", "•", "😀", "\x00", "\x07", "\x08", "\u00e9a",
    "00:1a:2B:3c:4D:5e", "10.0.0.1", "user@example.org", "/etc/hosts", "http://x", "www.example.com", "my-host-1", "-bad", "Passw0rd", "aaaaaaaaaaaaaaaaaaaa!", "'", "A\t", "\x011", "8", "\x08a", "cd", "bc", "bcd", "abd", "abab", "ABab", "aA", "ccd", "\U0010ffff", "éÉ", "Éé", "kK", "k\u212a", "sſ", "iİ", "ßẞ", "σς", "aa\n", "é a",
]

ATOMS = [
    "a", "b", "A", ".", r"\d", r"\w", r"\s", r"\W", r"\b", r"\B", "^", "$", r"\Z", r"\A", "[ab]", "[^a]", "[a-c]", r"[\w-]", "é", r"\n", " ", "-", "(a)", "(a|b)", "(?:ab)", "(?=a)", "(?!b)", "(?<=a)", "(?<!b)", r"\1", "(b)?", "(?(1)a|b)", "(?i:a)", "(?>a+)", "|", "(", ")", "k", "(?s:.)", "(?m:^)", "(?m:$)", "(?a:\\w)", "(?-i:a)", "(?x: a )", "(?P<n>a)", "(?P=n)", "(?(n)b)", "((a)|b)", "(?:a|b*)", "(a*)", "(?:(a)|b)", "(?=(a))", "(?!(a))", "(?<=(a))", "[^\\W]", "[\\s-]", "\\S", "\\D",
]
REPEATS = ["", "", "", "", "*", "+", "?", "*?", "+?", "{2}", "{1,2}", "{,2}", "*+", "?+"]


def random_pattern(random):
    text = random.choice(["", "", "", "", "(?i)", "(?m)", "(?s)", "(?x)", "(?a)"])
    for _ in range(random.randrange(1, 6)):
        text += random.choice(ATOMS) + random.choice(REPEATS)
    return text


def random_subject(random):
    return "".join(random.choice("aabbAké -_1\n.c") for _ in range(random.randrange(8)))


def noise(random):
    return "".join(random.choice("ab()[]{}*+?|\\^$.-=!<>:P1,dwxié#") for _ in range(random.randrange(1, 9)))


def curated():
    for line in PATTERNS.strip("\n").split("\n"):
        yield from line.split("|") if "(" not in line and "[" not in line else split_outside(line)
        yield line


def split_outside(line):
    """Cuts at bars outside of parentheses and sets, as far as that is clear; also every plain cut."""
    pieces, depth, start = [], 0, 0
    for at, c in enumerate(line):
        depth += (c in "([") - (c in ")]")
        if c == "|" and depth <= 0:
            pieces.append(line[start:at])
            start, depth = at + 1, 0
    return pieces + [line[start:]] + line.split("|")


def answers(pattern, subjects):
    compiled = re.compile(pattern)
    return "".join(str(sum(bool(getattr(compiled, name)(s)) << i for i, name in enumerate(("match", "fullmatch", "search")))) for s in subjects)


def records(random, scale, number, outcome):
    warnings.simplefilter("ignore")
    patterns = list(dict.fromkeys(curated()))
    patterns += ["a\n(b", "a\nb\\q", "\n\n*", "(?x)\n a # c\n b", "(?x)\n(", "é(", "😀*+*"]
    patterns = [p for p in patterns if "(a+)+" not in p or len(p) < 12]
    rows = [[pattern, outcome(answers, pattern, SUBJECTS)] for pattern in patterns]
    yield "regex", [["subjects", SUBJECTS]] + rows

    rows = []
    for _ in range(600 * scale):
        pattern = random_pattern(random)
        subjects = [random_subject(random) for _ in range(12)]
        rows.append([pattern, subjects, outcome(answers, pattern, subjects)])
    for _ in range(600 * scale):
        pattern = noise(random)
        subjects = [random_subject(random) for _ in range(4)]
        rows.append([pattern, subjects, outcome(answers, pattern, subjects)])
    yield "regex_random", rows

    characters = [chr(c) for c in range(0x20000) if not 0xD800 <= c <= 0xDFFF]
    text = "".join(characters)
    cased = [c for c in characters if c.lower() != c or c.upper() != c]
    rows = []
    for character in cased:
        same = re.findall(re.escape(character), text, re.IGNORECASE)
        if len(same) > 1 and character == min(same):
            rows.append(["".join(sorted(same))])
    yield "regex_cases", rows
