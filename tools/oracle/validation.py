"""Records which texts and numbers the types behind `std::validate_type` accept.

    validation.py OUT.json [--mutants N]

Each type gets hand-written values, and N mutants of them (of a fixed seed) for long comparisons. The table is
`{type: {"accepted": [...], "rejected": [...]}}`. Run it with the Python of a virtualenv that has the reference.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import json
import random
import sys
import uuid
import warnings
from pathlib import Path

import pydantic

warnings.simplefilter("ignore")

DATES = """2020-01-01 2020-1-1 0001-01-01 0000-01-01 9999-12-31 10000-01-01 2020-02-29 2021-02-29 2020-02-30 2020-13-01 2020-00-10 2020-01-00
2020-01-32 20200101 2020/01/01 01-01-2020 2020-01-01T00:00:00 2020-01-01T00:00:00Z 2020-01-01T00:00:00+05:00 2020-01-01T00:00:01
2020-01-01T00:00 2020-01-01T 2020-01-01T00 2020-01 2020 0 1 -86400 86400 1577836800 1577836801 1577836800.0 1577836800.5 1577836800000 now today
-001-01-01 +2020-01-01 2020-01-01Z 2020-01-01+01:00 1e5 inf nan 2020-01-01t00:00:00z 2020-01-01_00:00:00 2020-W01-1 2020-001""".split() + [
    "", " ", " 2020-01-01", "2020-01-01 ", "2020-01-01 00:00:00", "2020-01-01 00:00", "2020-01-01\n", "２０２０-01-01", "2020‐01‐01"]
TIMES = """12:00 12:00:00 12:00:00.1 12:00:00.123456 12:00:00.1234567 12:00:00.1234567890 12:00:00. 12:00:00,5 24:00 24:00:00 23:59:59 23:59:60 12:60 25:00
-1:00 1:00 01:2:3 12 1200 120000 12:00Z 12:00z 12:00:00Z 12:00+01:00 12:00+0100 12:00+01 12:00-23:59 12:00-24:00 12:00+24:00 12:00+00:60 12:00:00+01:00
T12:00 12:00:00+01:00:00 0 3600 86399 86400 3600.5 -1 1.5 now noon 12:00AM 12.00 12:00:00+1 12:00:00Zx 12:00:00.000000Z""".split() + [
    "", " 12:00", "12:00 ", "12:00 Z", "12:00\n", "１２:00"]
DATETIMES = [f"{date}{separator}{time}" for date in ("2020-01-01", "2020-02-30", "0001-01-01", "9999-12-31", "2020-1-1") for separator in "T t_-"
             for time in ("12:00", "12:00:00Z", "12:00:00.123456+01:00", "24:00", "12:00:60", "00:00:00-23:59", "12:00:00+0100")]
DURATIONS = """P1D P1Y P1M P1W PT1H PT1M PT1S PT0.5S PT1.5H P1DT1H P1Y2M3DT4H5M6S -P1D +P1D P -P PT P1 1D P1H PT1D P1DT p1d P1.5D P-1D 1:00:00 01:00:00 1:00
100:00:00 00:00:60 00:60:00 24:00:00 1.5 1 -1 0 1d 1day 999999999 1000000000 P999999999D P1000000000D 1e3 -01:00:00 +01:00:00 12:00:00.5 12:00:00,5
12:00:00.1234567 P1W1D P0.5W""".split() + [
    "", "1 day", "1 days", "2 days 01:00:00", "1 day, 01:00:00", "-1 day, 01:00:00", "1 day 25:00:00", "1 d 01:00:00", "1 D", "1 DAYS", " 1 day", "1 day ",
    "1  day", "1 day 1:00", "P1DT 1H"]
V4 = """0.0.0.0 1.2.3.4 255.255.255.255 256.1.1.1 1.2.3 1.2.3.4.5 01.2.3.4 1.2.3.04 00.0.0.0 1.2.3.0004 1.2.3. .1.2.3 1..2.3 1.2.3.a 0x1.2.3.4 1.2.3.-4 +1.2.3.4
1.2.3.4/24 1.2.3.0/24 1.2.3.4/32 1.2.3.4/0 0.0.0.0/0 1.2.3.4/33 1.2.3.4/-1 1.2.3.4/ /24 1.2.3.4/024 1.2.3.0/0024 1.2.3.4/255.255.255.0 1.2.3.0/255.255.255.0
1.2.3.0/0.0.0.255 1.2.3.0/255.0.255.0 1.2.3.4/0.0.0.0 0.0.0.0/0.0.0.0 1.2.3.4/255.255.255.255 1.2.3.4/24/24 1.2.3.4/24.0 1.2.3.4/a 1.2.3.4%eth0 1.2.3.4:80 3232235777
1.2.3.0/1e1 10.0.0.0/8 10.0.0.0/255.0.0.1 10.0.0.0/00.255.255.255""".split() + ["", " 1.2.3.4", "1.2.3.4 ", "1.2.3.4\n", "１.2.3.4", "1.2.3.٤", "1.2.3.0/２4", "1.2.3.4/ 24"]
V6 = """:: ::1 1:: 1::2 1:2:3:4:5:6:7:8 1:2:3:4:5:6:7:: ::2:3:4:5:6:7:8 1:2:3:4::5:6:7:8 1:2:3:4:5:6:7 1:2:3:4:5:6:7:8:9 1::2::3 ::: 1:::2 :1 1: :1:2:3:4:5:6:7 12345::
g:: ::G 00001:: 0001:: ::1.2.3.4 ::ffff:1.2.3.4 1::1.2.3.4 1:2:3:4:5:6:1.2.3.4 1:2:3:4:5:6:7:1.2.3.4 1.2.3.4:: ::1.2.3 ::1.2.3.256 ::01.2.3.4 fe80::1%eth0 fe80::1% fe80::1%a%b %eth0 fe80::%1/64
fe80::1%eth0/64 2001:DB8::1 2001:db8::/32 2001:db8::1/64 ::/0 ::1/128 ::1/129 ::1/-1 ::1/ ::1/064 ::/ffff:: ::/64/64 ::1/1.2.3.4 [::1] ::1:80 1:2:3:4:5:6:7:8/128
fe80::%eth0/64 ::%/64 ::/0% 2001:db8:: ::ffff:0:0/96 1:2:3:4:5:6:7:8:: ::1:2:3:4:5:6:7:8""".split() + ["", " ::1", "::1 ", "::1\n", "１::"]
UUIDS = """f47ac10b-58cc-4372-a567-0e02b2c3d479 F47AC10B-58CC-4372-A567-0E02B2C3D479 f47ac10b58cc4372a5670e02b2c3d479 {f47ac10b-58cc-4372-a567-0e02b2c3d479}
{f47ac10b58cc4372a5670e02b2c3d479} urn:uuid:f47ac10b-58cc-4372-a567-0e02b2c3d479 URN:UUID:f47ac10b-58cc-4372-a567-0e02b2c3d479 urn:uuid:f47ac10b58cc4372a5670e02b2c3d479
f47ac10b-58cc-4372-a567-0e02b2c3d47 f47ac10b-58cc-4372-a567-0e02b2c3d4799 f47ac10b_58cc_4372_a567_0e02b2c3d479 g47ac10b-58cc-4372-a567-0e02b2c3d479 f47ac10b-58cc4372-a567-0e02b2c3d479
f47ac10b58cc-4372-a567-0e02b2c3d479 00000000-0000-0000-0000-000000000000 {f47ac10b-58cc-4372-a567-0e02b2c3d479 (f47ac10b-58cc-4372-a567-0e02b2c3d479) x 0
f-47ac10b58cc4372a5670e02b2c3d479 f47ac10b-58cc-4372-a567-0e02b2c3d479- -f47ac10b58cc4372a5670e02b2c3d479""".split() + [
    "", " f47ac10b-58cc-4372-a567-0e02b2c3d479", "f47ac10b-58cc-4372-a567-0e02b2c3d479\n", "é47ac10b-58cc-4372-a567-0e02b2c3d479"]
EMAILS = """a@b.c a@b a@b.1 a@b.c1 a@b.1c a@-b.com a@b-.com a@b.com. a@.b.com a@b..com a.b@c.com .a@c.com a.@c.com a..b@c.com "a"@c.com a@@c.com a@b@c.com @c.com a@ a
a@localhost a@x.local a@x.test a@test.com a@example.com a@x.example a@x.invalid a@x.arpa a@x.onion a@x.localhost a@[1.2.3.4] a@1.2.3.4 é@b.com a@é.com a@ドメイン.jp ドメイン@ドメイン.jp
a@☃.com a@xn--9ca.com a@xn--a.com a@XN--9CA.com a@b_c.com a!#$%&'*+-/=?^_`{|}~@b.com a,b@c.com a(b)@c.com a<b@c.com a:b@c.com a;b@c.com a\\b@c.com a[b@c.com <a@b.com>
A@B.COM a@b.c-d a@b.--c a@ab--cd.com a@a.b--c.com a@b.c0m a@ß.de a@faß.de a@0.0.0.c 🙂@b.com a‿b@c.com a@ا1.com a@1ا.com a@b.CoM a@X.LOCAL <a@b> <a@b.com a@b.com> a@x.TEST a@ｂ.com
a@b。com a@b.xn--p1ai x@y.museum 1@2.co -@b.co _@b.co a+b@c.co a@b.c.d.e.f a@3com.com a@b.co- a@b.-co""".split() + [
    "", "a b@c.com", '"a b"@c.com', "a@c com", " a@b.com", "a@b.com ", "a@b.com\n", "\ta@b.com", "a\u00a0b@c.com", "a\u0301@c.com", "\u0301a@c.com", "a\u200bb@c.com",
    "Jo <a@b.com>", "Jo Doe<a@b.com>", '"Jo, D" <a@b.com>', "Jo, D <a@b.com>", "Jo <a@b.com> ", "Jo <<a@b.com>>", "Jo <a@b.com", "Jo a@b.com>", "Jo<a@b.com>x",
    " <a@b.com>", "Jo Doe a@b.com", "Jo\tD <a@b.com>", "Jo-D <a@b.com>", "J.D. <a@b.com>", "Jö <a@b.com>", "a@b.com <a@b.com>", "Jo <a@b>", "Jo <>", '"J\\"D" <a@b.com>',
    '"" <a@b.com>', '"J"D" <a@b.com>', '" " <a@b.com>', 'J "D" <a@b.com>', '"J" D <a@b.com>', "J@D <a@b.com>", '"J><" <a@b.com>', "Jo <a@b.com>\n", "J\u0301 <a@b.com>",
    "J🙂 <a@b.com>", "J٣ <a@b.com>", "< a@b.com >", "a" * 64 + "@b.com", "a" * 65 + "@b.com", "a" * 248 + "@b.com", "a" * 249 + "@b.com", "é" * 124 + "@b.com",
    "é" * 125 + "@b.com", "a@" + "b" * 63 + ".com", "a@" + "b" * 64 + ".com", "a@" + ("b" * 62 + ".") * 3 + "b" * 59 + ".com", "a@" + ("b" * 62 + ".") * 3 + "b" * 60 + ".com",
    "a@b.c" + "d" * 62, "a@b.c" + "d" * 63, "a" * 2050 + "@b.com", "a\u2028b@c.com", "a@b\u00ad.com", "a@a\u200d.com"]
URLS = """http://a http://a/ https://a.b HTTP://A.B ftp://a http:a http:/a http:// http:///a https:// //a a a.b /a a:b mailto:a@b.c data:,x file:///a file:a javascript:1 urn:a:b http://a:80 http://a:
http://a:65535 http://a:65536 http://a:x http://[::1] http://[::1]:80 http://[::g] http://[1.2.3.4] http://1.2.3.4 http://1.2.3 http://256.1.1.1 http://1.2.3.4.5 http://0x7f.1 http://a@b
http://a:b@c http://a@b@c http://:@c http://@c http://a?b#c http://a/%zz http://a/é http://é.com http://ドメイン.jp http://xn--9ca.com http://xn--a http://a_b http://-a http://a.-b http://a..b http://.a
http://a. http://% http://a%41 http://a%20b http://a\\b http://a<b http://a|b http://a^b http://a"b http://a{b} http://a`b http://a/[] ws://a foo://a foo:// foo: foo:a 1a:b a1:b a+b:c a.b:c a_b:c :a
postgres://u:p@h/db redis://h amqp://h http://☃.com http://a\u00adb http://localhost:8080/x?y=z#w http://a/b/../c http://user%40x:p@h http://%41 http://a,b http://a;b http://a!b http://*.a http://a:-1
http://[::1 http://::1 http://a:080 http://a:0 ssh://git@host/x git+ssh://h/x""".split() + [
    "", " ", " http://a", "http://a ", "http://a b", "http:// a", "ht tp://a", "http://a\n", "h\nttp://a", "http://a\tb", "\x00http://a", "http://a/ b", "http://" + "a" * 63,
    "http://" + "a" * 64, "http://" + "a" * 300, "http://a/" + "b" * 2074, "http://a/" + "b" * 2075, "http://a/" + "é" * 2074, "http://a/" + "é" * 1037, "foo:" + "b" * 300,
    "http://a\u3002b", "http://a\uff0fb", "http://\u200d", "http://a\u2028b"]
NUMBERS = [0, 1, -1, True, False, 5, 10**30, -(10**30), 0.0, -0.0, 1.0, -1.0, 1.5, -1.5, 1e300, 1e-300, float("inf"), float("-inf"), float("nan"), None, [1], {"a": 1}, 2**32 - 1, 2**32, 2**128 - 1,
           2**128, 1e18, 9e18, 1e19, -1e19, 86400, -86400, 86399, 86400.5, 20000000000, 20000000001, 10**14, 10**18, 253402300799, 253402300800, -62135596800, 0.5, 86400.0, -62135596800000, 10**11]
NUMBER_TEXTS = ["0", "1", "-1", "+1", "01", "-01", "00", "1.0", "1.", ".0", "1.00", "1.5", "-1.5", "1e3", "1E3", "1e-3", "inf", "-inf", "+inf", "Infinity", "nan", "-nan", "NaN", "1_0", "_1",
                "1_", "1__0", "1_0.0", "1_0_0", " 1", "1 ", " 1 ", "1 0", "\t1\n", "", " ", "a", "0x1", "0b1", "1j", "١", "１", "1" * 30, "-" + "1" * 30, 
                "--1", "+-1", "-+1", "++1", "- 1", "1.0.0", "1,0", "true", "None", "1e400", "-1e400", "1.0_0", "1.5_0", "0.0", "-0", "-0.0", "+0", "000.000", "1e0", "\u00a01", "1\u2003", "_", "-_1", "-1_0",
                "0_0", "1.0_", "+1.0", "-1.0", "+01.0", "1.000000000000000000000000000001"]
CONSTRAINTS = [
    {}, {"gt": 0}, {"ge": 0}, {"lt": 0}, {"le": 0}, {"ge": 0, "lt": 4096}, {"multiple_of": 3}, {"strict": True}, {"strict": True, "gt": 1}, {"gt": -5, "le": 5}]

NAMED = {
    "datetime.date": (datetime.date, DATES + TIMES + DATETIMES),
    "datetime.time": (datetime.time, DATES + TIMES + DATETIMES[:20]),
    "datetime.datetime": (datetime.datetime, DATES + TIMES + DATETIMES),
    "datetime.timedelta": (datetime.timedelta, DURATIONS + TIMES),
    "ipaddress.IPv4Address": (ipaddress.IPv4Address, V4 + V6),
    "ipaddress.IPv4Interface": (ipaddress.IPv4Interface, V4 + V6),
    "ipaddress.IPv4Network": (ipaddress.IPv4Network, V4 + V6),
    "ipaddress.IPv6Address": (ipaddress.IPv6Address, V4 + V6),
    "ipaddress.IPv6Interface": (ipaddress.IPv6Interface, V4 + V6),
    "ipaddress.IPv6Network": (ipaddress.IPv6Network, V4 + V6),
    "uuid.UUID": (uuid.UUID, UUIDS),
    "pydantic.EmailStr": (pydantic.EmailStr, EMAILS),
    "pydantic.NameEmail": (pydantic.NameEmail, EMAILS),
    "pydantic.AnyUrl": (pydantic.AnyUrl, URLS),
    "pydantic.AnyHttpUrl": (pydantic.AnyHttpUrl, URLS),
    "pydantic.HttpUrl": (pydantic.HttpUrl, URLS),
    "pydantic.IPvAnyAddress": (pydantic.IPvAnyAddress, V4 + V6),
    "pydantic.IPvAnyInterface": (pydantic.IPvAnyInterface, V4 + V6),
    "pydantic.IPvAnyNetwork": (pydantic.IPvAnyNetwork, V4 + V6),
    "pydantic.StrictStr": (pydantic.StrictStr, ["", "a"]),
}
for name in ("NegativeFloat", "NegativeInt", "PositiveFloat", "PositiveInt", "NonNegativeInt", "NonPositiveInt", "NonNegativeFloat",
             "NonPositiveFloat", "StrictInt", "StrictFloat"):
    NAMED[f"pydantic.{name}"] = (getattr(pydantic, name), list(NUMBER_TEXTS))
NAMED["pydantic.PositiveInt"][1].extend(["1" * 4300, "1" * 4301])
for name in ("conint", "confloat", "condecimal"):
    for constraints in CONSTRAINTS + ([{"allow_inf_nan": False}] if name != "conint" else []):
        function = getattr(pydantic, name)
        NAMED[f"pydantic.{name} {json.dumps(constraints)}"] = (function(**constraints), NUMBER_TEXTS)


def encoded(value: object) -> object:
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return {"$float": str(value)}
    if isinstance(value, int) and abs(value) >= 2**63:
        return {"$int": str(value)}
    return value


def mutants(values: list[str], count: int, random_source: random.Random) -> list[str]:
    """Values with a few characters removed, repeated, replaced or exchanged with parts of others."""
    alphabet = "0123456789abcdefTZtz:.-+/%@_ ,[]{}<>\"'\\#?&=!é١ﬁ" + chr(0xAD) + chr(0x3002) + chr(0x200D)
    out = []
    for _ in range(count):
        text = random_source.choice(values)
        for _ in range(random_source.choice((1, 1, 2, 3))):
            at = random_source.randrange(len(text) + 1)
            end = min(len(text), at + random_source.randrange(3))
            other = random_source.choice(values)
            insert = random_source.choice(("", random_source.choice(alphabet), other[:8], other[-6:], text[at:end] * 2))
            text = text[:at] + insert + text[end:]
        out.append(text)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("--mutants", type=int, default=0)
    options = parser.parse_args()
    table = {}
    for name, (kind, values) in NAMED.items():
        adapter = pydantic.TypeAdapter(kind)
        extra = mutants(values, options.mutants, random.Random(name))
        row: dict[str, list] = {"accepted": [], "rejected": []}
        for value in [*values, *extra, *NUMBERS]:
            try:
                adapter.validate_python(value)
                row["accepted"].append(encoded(value))
            except pydantic.ValidationError:
                row["rejected"].append(encoded(value))
        table[name] = row
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table.items())
    options.target.write_text("{\n" + lines + "\n}\n")
    print(sum(len(row["accepted"]) + len(row["rejected"]) for row in table.values()), "values")
    return 0


if __name__ == "__main__":
    sys.exit(main())
