"""Calls of standard plugins, good and bad, for `plugins.py` to record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """An argument that only a model can create: an instance or an unknown."""

    expression: str
    encoded: object


def instance(expression: str, name: str) -> Model:
    return Model(expression, {"$instance": name})


LINUX = instance("std::linux", "linux")
UNIX = instance("std::unix", "unix")
FREEBSD = instance("std::freebsd", "freebsd")
ARCH = instance("arch", "arch")
HOST = instance("host", "host")
OTHER_HOST = instance("other_host", "other_host")
RESOURCE = instance("resource", "resource")
UNKNOWN = Model('std::get_env("ORRERY_ABSENT")', {"$unknown": True})

# The prelude of every recorded model; the tests build the same instances.
PRELUDE = """
import std::testing
arch = std::OS(name="arch", family=std::linux, version=1.5)
host = std::Host(name="host", os=std::linux)
other_host = std::Host(name="other", os=arch, ip="192.0.2.1")
resource = std::testing::NullResource(name="r", value="v")
"""
ENVIRONMENT = {"ORRERY_WORD": "hello", "ORRERY_NUMBER": " 42 ", "ORRERY_EMPTY": ""}
FILES = {
    "files/a.txt": "content",
    "files/empty": "",
    "files/sub/b.txt": "b\n",
}

BIG = 10**30

CALLS: dict[str, list] = {
    "std::print": [["a"], [""], [None], [True], [1], [1.0], [1e22], [BIG], [[]], [[1, "a", None, [2.5]]], [{"a": {"b": None}}],
                   ["é\n\"'"], [["é\n", "'", "\"'"]], [[True, False]]],
    "std::assert": [[True], [True, "m"], [False], [False, "m"], [False, ""]],
    "std::equals": [[1, 1], [1, 1.0], [1, True], [1, 2], [1, 2, "why"], [1, 2, ""], ["a", "b"], [[1], [1.0]], [[1], [2]],
                    [{"a": 1}, {"a": 1}], [{"a": 1, "b": 2}, {"b": 2, "a": 1}], [{"a": 1}, {"a": 2}], [None, 1], [None, None],
                    [LINUX, LINUX], ([1], {"arg2": 3, "desc": "d"})],
    "std::inlineif": [[True, 1, 2], [False, 1, None], [True, [1], 2], [False, 1, LINUX]],
    "std::invert": [[True], [False]],
    "std::upper": [["abc"], ["aß"], ["ŉ"], ["ﬁ"], [""]],
    "std::lower": [["ABC"], ["İ"], ["ΑΣ"], ["Σ"], [""]],
    "std::capitalize": [["hELLO wORLD"], ["ǆabc"], ["ßa"], [""], ["1a"], ["éA"]],
    "std::length": [[""], ["abc"], ["é😀"], ["e\u0301"]],
    "std::limit": [["abcdef", 3], ["abcdef", 0], ["abcdef", -2], ["abcdef", -10], ["ab", 5], ["é😀x", 2], ["abc", BIG], ["abc", -BIG],
                   ["abc", True]],
    "std::hostname": [["a.b.c"], ["a"], [""], [".a"]],
    "std::replace": [["abc", "b", "X"], ["aaa", "a", ""], ["aaa", "", "-"], ["", "", "x"], ["abc", "z", "y"], ["aaaa", "aa", "b"],
                     (["abc"], {"new": "x", "old": "a"})],
    "std::split": [["a,b,,c", ","], ["", ","], ["abc", ","], ["a::b::c", "::"], ["abc", ""], ["a b", " "], [",", ","]],
    "std::unique_file": [["p", "seed", "s"], ["p", "seed", "s", 5], ["", "", ""], ["é", "é", "é", -1]],
    "std::count": [[[]], [[1, None]], [[UNKNOWN, 1]], [[[1, 2], 3]]],
    "std::len": [[[]], [[1, None]], [[UNKNOWN, 1]], [[1, UNKNOWN]]],
    "std::at": [[[1, 2], 0], [[1, 2], 1], [[1, 2], 2], [[1, 2], -1], [[1, 2], -2], [[1, 2], -3], [[1, 2], True], [[], 0], [[1], BIG],
                [[1, UNKNOWN], 0], [[1, UNKNOWN], 1], [[[1]], 0], [[LINUX], 0], [[None], 0]],
    "std::item": [[["ab", "cd"], 1], [["ab", "cd"], -1], [[[1, 2], [3, 4]], 1], [[[1, 2], [3]], 1], [[""], 0], [[1], 0], [[None], 0],
                  [[True], 0], [[1.5], 0], [[{"a": 1}], 0], [[LINUX], 0], [[], 0], [[UNKNOWN], 0], [["ab"], 5], [["é😀"], 1]],
    "std::flatten": [[[[1], [2, [3]]]], [[]], [["ab", "c"]], [[{"a": 1, "b": 2}]], [[1]], [[None]], [[True]], [[1.5]], [[LINUX]],
                     [["a", UNKNOWN]], [[[1], "x", {"k": 1}]], [[[]]]],
    "std::unique": [[[]], [[1, 2]], [[1, 1.0]], [[1, True]], [[1, "1"]], [[None, None]], [[0, False]], [[LINUX, UNIX]], [[LINUX, LINUX]],
                    [[{"a": 1}]], [[[1]]], [[1, 1, UNKNOWN]], [[UNKNOWN, 1]], [[1, 1, [1]]], [["a", "a"]], [[BIG, BIG]], [[0.5, 0.5]],
                    [[BIG, BIG + 1]]],
    "std::key_sort": [[[LINUX, UNIX, FREEBSD], "name"], [[LINUX, UNIX], "version"], [[ARCH, LINUX], "version"], [[LINUX, ARCH], "version"],
                      [[ARCH, LINUX], "family.name"], [[LINUX, UNIX], "nope"], [[LINUX, FREEBSD], "family"], [[LINUX, FREEBSD], "member"],
                      [[HOST, OTHER_HOST], "ip"], [[OTHER_HOST, HOST], "ip"], [[LINUX], "family"], [[LINUX], ""], [[LINUX], "name."],
                      [[LINUX, UNIX], "family"], [[LINUX], 5], [[], 5], [[], "a"], [[1, 2], "a"], [["b"], "a"], [[{"a": 1}], "a"],
                      [[[1]], "a"], [[UNKNOWN, LINUX], "name"], [[LINUX], ["name"]], [[LINUX], None], [[None], "a"]],
    "std::select": [[[LINUX, UNIX], "name"], [[], "name"], [[LINUX], "nope"], [["a"], "x"], [[LINUX], "member"], [[UNIX], "family"],
                    [[UNKNOWN], "name"]],
    "std::filter": [[[LINUX, UNIX], UNIX], [[LINUX, 1, "a", None, UNIX], UNIX], [[], UNIX], [[UNKNOWN], UNIX]],
    "std::dict_get": [[{"a": "1"}, "a"], [{"a": "1"}, "b"], [{}, "it's"], [{"a": UNKNOWN}, "a"]],
    "std::dict_keys": [[{}], [{"a": 1, "b": None}], [{"b": 1, "a": 2}], [{"a": UNKNOWN}]],
    "std::contains": [[{"a": "1"}, "a"], [{"a": "1"}, "b"], [{}, ""], [{"a": UNKNOWN}, "a"], [{"a": UNKNOWN}, "b"]],
    "std::sequence": [[3], [0], [-1], [3, 5], [2, -1], [True], [2, BIG], [-BIG], ([2], {"start": 7}), [2, 2**63 - 1], [1, 2**63 - 1]],
    "std::attr": [[LINUX, "name"], [LINUX, "nope"], [LINUX, "member"], [LINUX, "family"], [UNIX, "family"], ["a", "x"], [1, "x"],
                  [1.5, "x"], [True, "x"], [None, "x"], [[1], "x"], [{"a": 1}, "a"], [HOST, "ip"], [LINUX, ""]],
    "std::getattr": [[LINUX, "name"], [LINUX, "nope"], [LINUX, "nope", 5], [UNIX, "family", 5], [LINUX, "member"], [HOST, "ip", 6],
                     [LINUX, "nope", UNKNOWN], [UNKNOWN, "name", 5], [LINUX, UNKNOWN, 5], [LINUX, "name", 5, UNKNOWN],
                     ([LINUX, "nope"], {"no_unknown": False, "default_value": "d"})],
    "std::is_instance": [[LINUX, "std::OS"], [LINUX, "std::Entity"], [LINUX, "std::Host"], [HOST, "std::ManagedDevice"],
                         [LINUX, "std::Nope"], [LINUX, "nope::Nope"], [LINUX, "OS"], [LINUX, "int"], [1, "int"], [1, "std::port"],
                         ["a", "std::OS"], [None, "std::OS"], [[1], "std::OS"], [{"a": 1}, "std::OS"], [1.5, "std::Nope"], [True, "std::OS"],
                         [LINUX, "std::port"]],
    "std::is_unknown": [[1], [None], [UNKNOWN], [[UNKNOWN]]],
    "std::isset": [[None], [0], [""], [[]], [LINUX]],
    "std::type": [[1], ["a"], [None], [True], [1.5], [[1]], [{"value": 1}], [LINUX], [RESOURCE], [HOST]],
    "std::familyof": [[LINUX, "unix"], [LINUX, "linux"], [ARCH, "linux"], [ARCH, "unix"], [ARCH, "arch"], [UNIX, "unix"], [UNIX, "x"],
                      [ARCH, "x"]],
    "std::objid": [["a"], [1], [None], [1.5], [True]],
    "std::get_env": [["ORRERY_WORD"], ["ORRERY_WORD", "d"], ["ORRERY_EMPTY"], ["ORRERY_ABSENT", "d"], ["ORRERY_ABSENT"], ["ORRERY_ABSENT", ""],
                     ["ORRERY_ABSENT", None]],
    "std::get_env_int": [["ORRERY_NUMBER"], ["ORRERY_ABSENT", 3], ["ORRERY_ABSENT"], ["ORRERY_WORD"], ["ORRERY_EMPTY", 1], ["ORRERY_ABSENT", 0]],
    "std::environment": [[]],
    "std::environment_name": [[]],
    "std::environment_server": [[]],
    "std::server_ca": [[]],
    "std::server_ssl": [[]],
    "std::server_token": [[], [["agent", "api"]]],
    "std::server_port": [[]],
    "std::getfact": [[LINUX, "f"], [LINUX, "f", 5], ["a", "f"], [1, "f"], [RESOURCE, "f"], [RESOURCE, "f", "d"], [None, "f"]],
    "std::json_loads": [[text] for text in [
        "", "1", " 1 ", "-0", "-0.0", "1.5e3", "1E+2", "1e400", "01", "1.", "1.e5", ".5", "+1", "1e", "-", "-x", "null", "nul", "true",
        "false", "NaN", "NaNx", "Infinity", "-Infinity", "-Inf", '""', '"a"', '"a', '"\\', '"\\n\\t\\b\\f\\r\\/\\\\\\""', '"\\x"',
        '"\\u00e9\\ud83d\\ude00"', '"\\u12g4"', '"\\u12', '"a\tb"', '"é😀"', "[]", "[ ]", "[1, 2]", "[1 2]", "[1,]", "[1 ,\n ]", "[,1]",
        "[", "[1", "[1,\n\n 2 3]", "{}", '{"a": 1}', '{"a": 1, "a": 2}', '{"a" 1}', '{"a":}', '{"a":1,}', '{"a":1,\n}', '{"a":1 "b"}',
        "{", '{"a"', '{"a":', '{"a":1', "{,}", "{'a': 1}", "{1: 2}", "1 2", "é x", "\ufeff1", "\u00a01", "123456789012345678901234567890",
        '[1, [2.0, {"b": [null, true, "x"]}]]', "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 4301, "0.1",
    ]],
    "std::json_dumps": [[None], [True], [1], [BIG], [1.0], [0.1], [1e16], [1e-7], [-0.0], ["a"], ["é😀\u2028"], ["\"\\\n\r\t\b\f/\x01\x7f"], [[]], [{}],
                        [[1, "a", None]], [{"a": [1, {"b": 2.5}], "c": "d"}], [[UNKNOWN]], [{"a": UNKNOWN}]],
    "std::format": [["{} {}", 1, 2], ["{} {}", 1], ["{0} {1} {0}", 1, "x"], ["{0} {}", 1], ["{} {0}", 1], (["{a}"], {"a": 1}), (["{a}"], {"b": 1}),
                    ["{0.name}", LINUX], ["{0.nope}", LINUX], ["{0.family.name}", LINUX], ["{0[a]}", {"a": 5}], ["{0[b]}", {"a": 5}],
                    ["{0[1]}", [1, 2]], ["{0[5]}", [1, 2]], ["{0[x]}", [1, 2]], ["{0[1]}", "abc"], ["{0[x]}", "abc"], ["{0[0]}", 5],
                    ["{:>5}|{:<5}|{:^5}|", "a", 1, "b"], ["{!r} {!s} {!a}", "é", "é", "é"], ["{!r}", [1, "a"]], ["{!x}", 1], ["{", 1], ["}", 1],
                    ["{{}} {}", 1], ["{0:{1}}", "a", 5], ["{0:{1}.{2}f}", 3.14159, 8, 2], ["{0:{1:{2}}}", 1, 2, 3], ["{} {} {}", None, True, [None]],
                    ["{:d}", "a"], ["{:d}", 5], ["{:x}", 255], ["{:>20}", [1]], ["{:5}", None], ["{:.2f}", 1.5], ["{:,}", 1234567], ["{:05d}", -42],
                    ["{:e}", 12345.678], ["{:%}", 0.5], ["{:5}|", True], ["{0.}", 1], ["{0[]}", [1]], ["{0[1", [1]], ["{0[1]x}", [1]], ["{a b}", 1],
                    ["", 1], ["no fields"], ["{}", UNKNOWN], ["{{{}}}", 1], ["{{{{", 1], ["{{a}}"], ["{0[0]}", [UNKNOWN]], ["{:s}", 1], ["{:c}", 65], ["{:b}", 5], ["{:+}", 5]],
    "std::is_base64_encoded": [[text] for text in ["", "YQ==", "YQ=", "YQ", "YWI=", "YWJj", "Y Q==", "YQ==\n", "YQ==YQ==", "YR==", "=", "====", "é",
                                                   "_-==", "+/+/", "YQ=a", "A", "A===", "AB=C", "\u00e9\u00e9\u00e9\u00e9"]],
    "std::prefixlength_to_netmask": [[length] for length in [0, 1, 8, 24, 31, 32, 33, 99, -1, True, BIG]],
    "std::prefixlen": [[text] for text in ["192.0.2.1/24", "192.0.2.1", "192.0.2.1/255.255.0.0", "192.0.2.1/0.0.0.255", "::1", "2001:db8::1/64",
                                           "fe80::1%eth0/64", "192.0.2.1/024", "0.0.0.0/0.0.0.0", "0.0.0.0/255.255.255.255"]],
    "std::network_address": [[text] for text in ["192.0.2.1/24", "192.0.2.1", "192.0.2.200/25", "2001:DB8::1/64", "fe80::1%eth0/64", "::1/0", "1.2.3.4/0"]],
    "std::netmask": [[text] for text in ["192.0.2.1/24", "192.0.2.1", "192.0.2.200/25", "2001:DB8::1/64", "::1/0", "1.2.3.4/0", "::/127"]],
    "std::ipindex": [["10.0.0.0/24", 5], ["10.0.0.0/24", 5, True], ["10.0.0.0/24", 255], ["10.0.0.0/24", 256], ["10.0.0.0/24", -1],
                     ["10.0.0.0/24", -256], ["10.0.0.0/24", -257], ["10.0.0.0/24", True], ["2001:db8::/64", 5], ["2001:db8::/64", 2**64],
                     ["2001:db8::/64", 2**64 - 1, True], ["2001:db8::/64", -1], ["10.0.0.1", 0], ["10.0.0.1", 1], ["10.0.0.1", -1],
                     ["10.0.0.0/255.255.0.0", 300, True], ["::/0", 2**127], ["::/0", -1], ["::/0", 2**128], ["0.0.0.0/0", 2**32 - 1], ["0.0.0.0/0", 2**32],
                     ["10.0.0.0/24", BIG], ["10.0.0.0/24", -BIG * BIG]],
    "std::add_to_ip": [["10.0.0.1", 5], ["10.0.0.1", -5], ["10.0.0.1", 0], ["0.0.0.1", -5], ["255.255.255.255", 1], ["::1", 1], ["::1", -2],
                       ["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 1], ["fe80::1%eth0", 1], ["10.0.0.1", BIG], ["10.0.0.1", -BIG], ["::ffff:1.2.3.4", 1],
                       ["10.0.0.1", True], ["::", 2**128 - 1], ["::", BIG * BIG]],
    "std::ip_address_from_interface": [[text] for text in ["10.0.0.1/24", "10.0.0.1", "2001:DB8::0001/64", "fe80::1%eth0/64", "::ffff:1.2.3.4",
                                                           "1:0:0:2:0:0:0:3", "1:0:2:3:4:5:6:7", "0:0:0:0:0:0:0:0", "1:2:3:4:5:6:0:0", "::1.2.3.4",
                                                           "0:0:1:0:0:1:0:0", "2001:db8:0:1:1:1:1:1"]],
    "std::source": [[path] for path in ["/a.txt", "/empty", "/sub/b.txt", "/nope", "/sub", "a.txt", "./a.txt", "", "/", "std/nope", "std",
                                        "nope/a", "//a.txt"]],
    "std::file": [[path] for path in ["/a.txt", "/nope", "/sub", "a.txt", "./a.txt", "/sub/b.txt"]],
    "std::list_files": [[path] for path in ["/sub", "/sub/", "/nope", "/a.txt", ".", "./", "nope"]],
}

ADDRESSES = ["1.2.3.4", "0.0.0.0", "255.255.255.255", "256.1.1.1", "1.2.3", "1.2", "1", "16909060", "0x1.2.3.4", "01.2.3.4", "1.2.3.08", "1.2.3.4/24", "1.2.3.4/32",
             "1.2.3.4/0", "1.2.3.4/33", "1.2.3.4/", "1.2.3.4/255.255.255.0", "1.2.3.4/0.0.0.255", "1.2.3.4/255.0.255.0", "10/8", "::", "::1", "::1/64", "2001:DB8::1/64",
             "::1/129", "::ffff:1.2.3.4", "::1.2.3.4", "fe80::1%eth0", "", "a", " 1.2.3.4", "1.2.3.4 ", "1.2.3.4\n", "/24", "255.255.255.0", "255.255.0.255", "128.0.0.0",
             "1.2.3.4/24/24", "1.2.3.4/-1", "1.2.3.4/024", "1.2.3.4/ffff::", "::/ffff::", "::1/", "1::2::3", "1:2:3:4:5:6:7:8/128", "1.2.3.4 x", "1.2.3.4x", "1.2.65535",
             "1.2.65536", "1.16777215", "1.16777216", "4294967295", "4294967296", "0xffffffff", "0x", "00", "08", "1.2.3.4.", "1..2", "-1", "+1", "1.2.3.0377", "1.2.3.0400",
             "0X10.1", "1_0", "1.2.3.4.5", "1.2.3.4/ 24", "1.2.3.4/+24", "1.2.3.4/2_4", "1.2/24", "1.2.3.4/255.255.255", "ffff::", "fffe::", "ff00:ff::", "::ffff", "4294967040",
             "::1:2/128", "1:0:0:2::/64"]
NETWORKS = [["10.1.2.3/24"], ["2001:db8::1/64"], ["10.0.0.0/31"], ["10.0.0.0/32"], ["::1.2.3.4/96"]]
CALLS |= {
    **{f"ip::{check}": [[text] for text in ADDRESSES] for check in
       ("is_valid_ip", "is_valid_cidr", "is_valid_ip_v6", "is_valid_cidr_v6", "is_valid_ip_v10", "is_valid_cidr_v10", "is_valid_netmask")},
    "ip::cidr_to_network": [[text] for text in ADDRESSES],
    "ip::net_to_nm": [[text] for text in ADDRESSES[10:30]],
    "ip::hostname": [["a.b.c"], ["a"], [""]],
    "ip::concat": [["a", "b.c"], ["a.b", "c"]],
    "ip::netmask": [[length] for length in [0, 1, 24, 32, 33, -1, 24.0, 24.5, True]],
    "ip::network": [["1.2.3.4", length] for length in ["24", "0", "32", "33", "-1", "255.255.0.0", "a", "", " 24", "0.0.0.255", "+24", "2_4", "24/1", "255.255.255.0 "]]
                   + [["1", "24"]],
    "ip::ipnet": [[*network, part] for network in NETWORKS for part in ("ip", "prefixlen", "netmask", "network")],
    "ip::ipindex": [["10.0.0.0/24", position] for position in [0, 1, 255, 256, -1, -256, -257, 1.0, 1.5, True, -0.5, BIG, 1e300]]
                   + [["10.0.0.7/24", 3], ["2001:db8::/64", 5], ["2001:db8::/64", 2**64], ["2001:db8::/64", -1], ["::/96", 5], ["::/96", 2**31]],
    "ip::add": [["10.0.0.1", number] for number in [0, 5, -5, 1.0, 1.5, -0.5, -1.5, True, 2**32, 2**31, BIG]]
               + [["255.255.255.255", 1], ["0.0.0.1", -5], ["::1", 1], ["::1", -2], ["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 1], ["::ffff:1.2.3.4", 1],
                  ["2001:db8::", 2**64], ["1", 1], ["1.2", 1], ["0x1.2.3.4", 1], ["1.2.3.4 ", 1], ["::1.2.3.4", 1]],
}
CALLS["std::validate_type"] = [
    ["nope.Nope", 1], ["int", 1], ["", "x"], ["builtins.int", 1], ["pydantic.Nope", 1], ["pydantic.types.Json", "1"], ["datetime.nope", 1], ["uuid.nope", 1],
    ["datetime.date", "2020-01-01", {}], ["datetime.date", "2020-01-01", {"x": 1}], ["pydantic.PositiveInt", 3, {"lt": 5}],
    ["pydantic.PositiveInt", LINUX], ["pydantic.PositiveInt", [1]], ["pydantic.PositiveInt", {"a": 1}], ["uuid.UUID", LINUX],
    ["pydantic.conint", 5, {"ge": 0, "lt": 4}], ["pydantic.conint", "3", {"ge": 0, "lt": 4}], ["pydantic.conint", 3, {"nope": 0}], ["pydantic.conint", 3],
    ["pydantic.conint", 4, {"gt": "a"}], ["pydantic.conint", 4, {"gt": 1.5}], ["pydantic.conint", 4, {"gt": 1.0}], ["pydantic.conint", 4, {"gt": None}],
    ["pydantic.conint", 4, {"max_digits": 1}], ["pydantic.conint", 4, {"allow_inf_nan": True}], ["pydantic.confloat", 1.5, {"gt": 1}], ["pydantic.confloat", 1.5, {"gt": "a"}],
    ["pydantic.confloat", 1.5, {"nope": 1}], ["pydantic.confloat", 1.5, {"strict": True}], ["pydantic.confloat", 1, {"strict": True}],
    ["pydantic.condecimal", "1.55", {"max_digits": 2}], ["pydantic.condecimal", "1.55", {"max_digits": 3}], ["pydantic.condecimal", "1.55", {"decimal_places": 1}],
    ["pydantic.condecimal", "0.001", {"max_digits": 3}], ["pydantic.condecimal", "0.001", {"max_digits": 2}], ["pydantic.condecimal", "100", {"max_digits": 2}],
    ["pydantic.condecimal", "1e2", {"max_digits": 2}], ["pydantic.condecimal", "1e2", {"max_digits": 3}], ["pydantic.condecimal", "1.50", {"decimal_places": 1}],
    ["pydantic.condecimal", 1.5, {"nope": 1}],
    ["pydantic.constr", "a"], ["pydantic.constr", 1], ["pydantic.constr", None], ["pydantic.constr", "abc", {"regex": "^a"}], ["pydantic.constr", "bca", {"regex": "a"}],
    ["pydantic.constr", "bca", {"pattern": "a"}], ["pydantic.constr", "bc", {"pattern": "a"}], ["pydantic.constr", "bca", {"regex": "("}],
    ["pydantic.constr", "bca", {"regex": "(?=b)b"}], ["pydantic.constr", "bca", {"min_length": 4}], ["pydantic.constr", "bca", {"min_length": 3, "max_length": 3}],
    ["pydantic.constr", "é😀", {"max_length": 2}], ["pydantic.constr", "bca", {"nope": 3}], ["pydantic.constr", "a", {"regex": 1}], ["pydantic.constr", "a", {"regex": None}],
    ["pydantic.constr", " AbC ", {"strip_whitespace": True, "max_length": 3}], ["pydantic.constr", " a ", {"strip_whitespace": True, "regex": "^a$"}],
    ["pydantic.constr", "A", {"to_lower": True, "regex": "^a$"}], ["pydantic.constr", "a", {"to_upper": True, "regex": "^a$"}], ["pydantic.constr", "abc\n", {"regex": "^[a-z]*$"}],
    ["pydantic.constr", "abc", {"regex": "^[a-zA-Z0-9]*$", "strict": True}], ["pydantic.constr", "abc\n", {"regex": "^[a-zA-Z0-9]*$", "strict": True}],
    ["pydantic.constr", "ab c", {"regex": "^[a-zA-Z0-9]*$", "strict": True}], ["pydantic.constr", "a\n\n", {"regex": "^[a-zA-Z0-9]*$", "strict": True}],
    ["pydantic.constr", "é", {"regex": "^[ -~]*$", "strict": True}], ["pydantic.constr", "a b~", {"regex": "^[ -~]*$", "strict": True}],
    ["pydantic.constr", "a b", {"regex": "^[!-~]*$", "strict": True}], ["pydantic.constr", "a!", {"regex": "^[!-~]*$", "strict": True}],
    ["pydantic.constr", "00:11:22:aa:BB:cc", {"regex": "^([0-9a-fA-F]{2})(:[0-9a-fA-F]{2}){5}|$", "strict": True}],
    ["pydantic.constr", "00:11:22:aa:BB", {"regex": "^([0-9a-fA-F]{2})(:[0-9a-fA-F]{2}){5}|$", "strict": True}],
    ["pydantic.constr", "", {"regex": "^([0-9a-fA-F]{2})(:[0-9a-fA-F]{2}){5}|$", "strict": True}],
]
