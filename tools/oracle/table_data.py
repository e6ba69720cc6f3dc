"""The values from which tables.py builds its cases."""

from __future__ import annotations

VALUES = [
    "null", "true", "false", "0", "1", "1.0", "2.5", '""', '"a"', '"1"', "[]", "[1]", "[1.0]", '["a", null]', "{}",
    '{"a": 1}', '{"a": 1.0}', "a", "b", "[a]",
]

# name, left, operator, right
BAD_OPERANDS = [
    (f"{word}_{number}", left, sign, right)
    for word, sign in {
        "plus": "+", "minus": "-", "times": "*", "divided": "/", "modulo": "%", "power": "**", "less": "<",
        "greater": ">", "at_most": "<=", "at_least": ">=",
    }.items()
    for number, (left, right) in enumerate([
        ("1", '"x"'), ('"x"', "1"), ("null", "1"), ("1", "null"), ("[1]", "[2]"), ('{"a": 1}', "2"), ("a", "1"),
        ("2.5", "true" if sign not in "+-*/%**<>=" else "[1]"), ('"x"', '"y"' if sign != "+" else "null"),
    ])
] + [
    ("zero_int", "1", "/", "0"), ("zero_float", "1.5", "/", "0.0"), ("zero_mod", "7", "%", "0"),
    ("zero_mod_float", "7.5", "%", "0.0"), ("zero_power", "0", "**", "-1"), ("zero_false", "1", "/", "false"),
    ("power_overflow", "2.5", "**", "100000"), ("negative_root", "-8", "**", "0.5"),
    ("int_too_large", "12345678901234567890 ** 20", "*", "1.0"),
    ("in_string", '"a"', "in", '"abc"'), ("in_int", "1", "in", "5"), ("in_null", "1", "in", "null"),
    ("in_instance", "1", "in", "a"), ("in_dict_int", "1", "in", '{"a": 1}'), ("in_dict_null", "null", "in", "{}"),
    ("in_unknown", "null", "in", "u"), ("not_in_unknown", "1", "not in", "u"), ("not_in_string", '"a"', "not in", '"abc"'),
    ("and_left", "1", "and", "true"), ("and_right", "true", "and", "1"), ("and_null", "null", "and", "true"),
    ("and_string", '"x"', "and", "true"), ("and_right_null", "true", "and", "null"), ("or_left", '""', "or", "true"),
    ("or_right", "false", "or", "0"), ("or_list", "[]", "or", "true"), ("or_right_list", "false", "or", "[true]"),
    ("or_instance", "a", "or", "b"), ("compare_strings", '"a"', "<", '"b"'), ("compare_null", "null", "<=", "null"),
]

CASTS = {
    "string": ["1", "1.0", "1.5", "true", "false", "null", '"x"', "[]", '[1, "a", null, true, 2.0]', '{"a": [1], "b": null}',
               "12345678901234567890", "-0.0", "100000000000000000000.0", "0.1", '"it\'s"', '["it\'s", "\\"", "\\n"]'],
    "int": ['"7"', '" 8 "', '"-3"', '"+4"', '"0012"', '"1_000"', "2.9", "-2.9", "true", "false", "5", '"\\t9\\n"',
            "123456789012345678901234567890", '"123456789012345678901234567890"', "1.0"],
    "float": ['"1.5"', '" 2 "', "3", "true", '"1e3"', '"-.5"', '"1_0.5"', "2.5", '"0.1"', '"1E-7"', '"1e22"', '"123456789.123456789"'],
    "number": ["1", "1.0", "true", "false", '"2"', '"2.5"', '"1e2"', '" 3 "'],
    "bool": ["0", "1", "0.0", '""', '"false"', "[]", "[0]", "{}", '{"a": 1}', "null", "true", "-1", "a"],
}

BAD_CASTS = [
    'int("abc")', 'int("1.5")', 'int("")', "int(null)", "int([1])", "int({})", "int(a)", 'float("x")', "float(null)",
    'float("")', "float([1])", 'number("x")', "number(null)", "number([])", "int(1, 2)", "int()", "string()", 'int(x="1")',
    "list([1])", "bool(1, 2)", "string(s=1)", 'int(float("inf"))', 'int(float("nan"))', "int(**{})", "A(1)", "dict(1)",
]

# value, format specifications
FORMATS = [
    ("42", ["", ":d", ":5d", ":<5d", ":^6d", ":05d", ":+d", ": d", ":x", ":X", ":#x", ":o", ":b", ":#b", ":,", ":_", ":_x", ":c", ":e", ":.2f",
            ":%", ":g", ":n", ":*^10", ":>8", "!r", "!s", "!a", "!r:>6", ":{w}", ":{w}d", ":0{w}d", ":{w}.{p}f", ":=+8d", ":z.0f"]),
    ("-1234567", ["", ":,", ":_", ":012,d", ":x", ":=15d", ":e", ":.3e", ":g", ":.1f", ":+,.2f", ":,d", ":(<12", ":010x"]),
    ("3.14159", ["", ":.2f", ":8.3f", ":<8.2f", ":08.2f", ":+.1f", ":e", ":.0f", ":g", ":.3g", ":%", ":.1%", ":#.0f", ":,.4f", ":{w}.{p}f", ":n",
                 "!r", ":G", ":E", ":F", ":.10g", ":^12.1f", ":=+10.2f", ": .3f"]),
    ("2.0", ["", ":d", ":f", ":.1f", ":5", ":e", "!r", "!s", ":x", ":,", ":g"]),
    ("1234567.891", ["", ":,", ":_", ":,.2f", ":.3e", ":.2g", ":15,.1f", ":g", ":e", ":015,.2f"]),
    ('"text"', ["", ":10", ":<10", ":>10", ":^10", ":*^11", ":.2", ":10.2", ":s", "!r", "!r:12", "!a", ":{w}", ":_<6s", ":0<6", ":06"]),
    ("true", ["", ":d", ":5", ":>5", "!r", ":x", ":.1f", "!s", ":05d"]),
    ("null", ["", "!r", "!s"]),
    ('[1, "a", null, 2.0, true]', ["", "!r", "!s", "!a"]),
    ('{"k": [1, "it\'s"], "n": null}', ["", "!r", "!s"]),
    ("0.1", ["", ":.20f", ":.17g", ":e", ":f", ":a<10", "!r"]),
    ("100000000000000000000.0", ["", ":f", ":g", ":e", ":d", ":,d"]),
    ("0.00001", ["", ":f", ":g", ":e", ":.3f", ":%"]),
    ('r"é\\n\'"', ["", "!r", "!a", "!s:>8"]),
]

BAD_FORMATS = [
    ('"x"', 'f"{v:d}"'), ("1", 'f"{v:s}"'), ("1.5", 'f"{v:d}"'), ('"x"', 'f"{v:.2f}"'), ('"x"', 'f"{v:,}"'), ("null", 'f"{v:5}"'),
    ("[1]", 'f"{v:>5}"'), ("{}", 'f"{v:x}"'), ("1", 'f"{v:zz}"'), ("1", 'f"{v!x}"'), ("1", 'f"{v"'), ("1", 'f"v}"'), ("1", 'f"{}"'),
    ("1", 'f"{0}"'), ("1", 'f"{v[0]}"'), ("1", 'f"{nope}"'), ("1", 'f"{v.x}"'), ("1", 'f"{std::x}"'), ("1", 'f"{ }"'), ("1", 'f"{v:{q}}"'),
    ("1", 'f"{v:{v:{v}}}"'), ("1", 'f"{v!}"'), ("1", 'f"{v!r"'), ('"x"', 'f"{v:=5}"'), ("1", 'f"{v:.2d}"'), ("1.5", 'f"{v:x}"'), ("1", 'f"{v:,_}"'),
    ("1", 'f"{v + 1}"'), ("-1", 'f"{v:c}"'), ("1", 'f"{{{v}"'), ("1", '"{{nope}}"'), ("1", '"{{v.x}}"'), ("1", '"{{v.}}"'), ("1", 'f"{v:5"'),
]

STRINGS = ['""', '"a"', '" "', '"1"', "1", "1.5", "true", "null", "[]", "{}"]

# name, type, parameters, values
VALIDATED = [
    ("date", "datetime.date", "", ['"2024-02-29"', '"2023-02-29"', '"2024-2-9"', '"20240229"', '"2024-02-29T00:00:00"', '"2024-02-29T00:00:01"',
        '"2024-02-29 00:00:00"', '"24-02-29"', '"0001-01-01"', '"0000-01-01"', '"9999-12-31"', '"2024-13-01"', '"2024-00-10"', '"2024-06-31"', '"1700000000"',
        '"1699920000"', '"0"', '"-1"', '"2024-02-29Z"', '" 2024-02-29"', '"2024-W09-4"', '"2024-060"', '"2024/02/29"'] + STRINGS),
    ("time", "datetime.time", "", ['"12:34"', '"12:34:56"', '"12:34:56.789"', '"12:34:56.7891234567"', '"24:00"', '"23:59:60"', '"1:2"', '"12:34Z"', '"12:34+01:00"',
        '"12:34:56-0530"', '"T12:34"', '"12"', '"1234"', '"12:34:56,5"', '"12:60"', '" 12:34"', '"3600"', '"86400"', '"12:34:"', '"12:34+25:00"'] + STRINGS),
    ("datetime", "datetime.datetime", "", ['"2024-02-29T12:34:56"', '"2024-02-29 12:34:56"', '"2024-02-29t12:34"', '"2024-02-29_12:34"', '"2024-02-29"', '"2024-02-29T12"',
        '"2024-02-29T12:34:56Z"', '"2024-02-29T12:34:56z"', '"2024-02-29T12:34:56+01:00"', '"2024-02-29T12:34:56+0100"', '"2024-02-29T12:34:56+01"', '"2024-02-29T24:00:00"',
        '"2024-02-29T12:34:56.123456789"', '"2023-02-29T12:00"', '"1700000000"', '"1700000000.5"', '"1700000000000"', '"-5"', '"2024-02-29T12:34:56 Z"', '"2024-02-29  12:34"'] + STRINGS),
    ("ipv4_address", "ipaddress.IPv4Address", "", ['"1.2.3.4"', '"0.0.0.0"', '"255.255.255.255"', '"256.1.1.1"', '"1.2.3"', '"1.2.3.4.5"', '"01.2.3.4"', '"1.2.3.00"',
        '" 1.2.3.4"', '"1.2.3.4 "', '"1.2.3.4/24"', '"::1"', '"1.2.3.-4"', '"1..2.3"', '"0x7f.0.0.1"', '"1.2.3.4\\n"', '"\\u0661.2.3.4"', "16909060", '"16909060"'] + STRINGS),
    ("ipv4_interface", "ipaddress.IPv4Interface", "", ['"1.2.3.4/24"', '"1.2.3.4"', '"1.2.3.4/0"', '"1.2.3.4/32"', '"1.2.3.4/33"', '"1.2.3.4/255.255.255.0"', '"1.2.3.4/0.0.0.255"',
        '"1.2.3.4/255.0.255.0"', '"1.2.3.4/"', '"1.2.3.4/-1"', '"1.2.3.4/24/3"', '"1.2.3.4/ 24"', '"1.2.3.4/024"', '"::1/64"', '"/24"'] + STRINGS),
    ("ipv4_network", "ipaddress.IPv4Network", "", ['"1.2.3.0/24"', '"1.2.3.4/24"', '"1.2.3.4"', '"1.2.3.4/32"', '"0.0.0.0/0"', '"10.0.0.0/8"', '"10.0.0.0/255.0.0.0"', '"10.0.0.0/0.255.255.255"',
        '"10.0.0.0/33"', '"10.0.0/8"', '"10.0.0.0/"', '"10.0.0.0/08"', '"::/0"'] + STRINGS),
    ("ipv6_address", "ipaddress.IPv6Address", "", ['"::"', '"::1"', '"1::"', '"1:2:3:4:5:6:7:8"', '"1:2:3:4:5:6:7"', '"1:2:3:4:5:6:7:8:9"', '"1::2::3"', '"::1.2.3.4"', '"1:2:3:4:5:6:1.2.3.4"',
        '"::ffff:256.1.1.1"', '"fe80::1%eth0"', '"fe80::1%"', '"12345::"', '"g::"', '":1"', '"1:"', '":::"', '"1:2:3:4:5:6:7::"', '"::2:3:4:5:6:7:8"', '"1:2:3:4::5:6:7:8"', '"ABCD::ef01"', '"::1/64"', '" ::1"', '"1.2.3.4"'] + STRINGS),
    ("ipv6_interface", "ipaddress.IPv6Interface", "", ['"::1/64"', '"::1"', '"::1/0"', '"::1/128"', '"::1/129"', '"::1/ffff::"', '"fe80::1%e/64"', '"::1/"', '"1.2.3.4/24"'] + STRINGS),
    ("ipv6_network", "ipaddress.IPv6Network", "", ['"::/64"', '"::1/64"', '"2001:db8::/32"', '"2001:db8::1/128"', '"2001:db8::"', '"2001:db8::/129"', '"2001:db8::/-1"', '"fe80::%e/64"'] + STRINGS),
    ("uuid", "uuid.UUID", "", ['"12345678-1234-5678-1234-567812345678"', '"12345678123456781234567812345678"', '"{12345678-1234-5678-1234-567812345678}"', '"urn:uuid:12345678-1234-5678-1234-567812345678"',
        '"12345678-1234-5678-1234-56781234567"', '"12345678-1234-5678-1234-56781234567g"', '"12345678-12345678-1234-567812345678"', '"ABCDEFAB-1234-5678-1234-567812345678"', '"00000000-0000-0000-0000-000000000000"', '" 12345678-1234-5678-1234-567812345678"'] + STRINGS),
    ("email", "pydantic.EmailStr", "", ['"a@b.example"', '"a@b.com"', '"a.b@c.org"', '"a..b@c.org"', '".a@c.org"', '"a.@c.org"', '"a+tag@c.org"', '"a@localhost"', '"a@b"', '"@b.com"', '"a@"', '"a b@c.org"', '"a@b c.org"',
        '"a@-b.com"', '"a@b-.com"', '"a@b..com"', '"a@b.com."', '" a@b.com "', '"A <a@b.com>"', '"a@1.2.3.4"', '"a@[1.2.3.4]"', '"a@b.c"', '"a@b.123"', '"a@b_c.com"', '"\\u00e9@b.com"', '"a@\\u00e9.com"', '"a@xn--9ca.com"', '"a@b.test"', '"a@b.invalid"', '"a!#$%&*+-/=?^_`|~@b.com"'] + STRINGS),
    ("name_email", "pydantic.NameEmail", "", ['"A B <a@b.com>"', '"<a@b.com>"', '"a@b.com"', '"A B a@b.com"', '"A <a@b.com"', '"A <a@b>"', '"A <>"', '"\\"Q, R\\" <a@b.com>"'] + STRINGS),
    ("any_url", "pydantic.AnyUrl", "", ['"http://a"', '"http://a.b/c?d=e#f"', '"HTTP://A"', '"ftp://x/y"', '"foo:bar"', '"foo:"', '"foo://"', '"http://"', '"http:///x"', '"//a/b"', '"a.b"', '"/a"', '"http://a b"', '"http://a:80"', '"http://a:99999"', '"http://a:x"',
        '"http://[::1]:8"', '"http://[::1"', '"http://u:p@h/"', '" http://a"', '"mailto:a@b"', '"file:///etc"', '"http:a"', '"1http://a"', '"http://a/%zz"', '"http://a_b/"', '"http://\\u00e9.com"', '"http://256.1.1.1"'] + STRINGS),
    ("any_http_url", "pydantic.AnyHttpUrl", "", ['"http://a"', '"https://a.b"', '"ftp://a"', '"http://"', '"http:a"', '"a.b"', '"https://a:443/x"'] + STRINGS),
    ("http_url", "pydantic.HttpUrl", "", ['"http://a"', '"https://a.b/c"', '"ftp://a"', '"http://localhost:8"', '"http://"'] + STRINGS),
    ("any_address", "pydantic.IPvAnyAddress", "", ['"1.2.3.4"', '"::1"', '"1.2.3"', '"1.2.3.4/8"', '"fe80::1%x"', '" ::1"'] + STRINGS),
    ("any_interface", "pydantic.IPvAnyInterface", "", ['"1.2.3.4/24"', '"1.2.3.4"', '"::1/64"', '"1.2.3.4/33"', '"::1/200"', '"x/3"'] + STRINGS),
    ("any_network", "pydantic.IPvAnyNetwork", "", ['"1.2.3.0/24"', '"1.2.3.4/24"', '"::/0"', '"::1/0"', '"1.2.3.4"', '"x"'] + STRINGS),
    ("positive_int", "pydantic.PositiveInt", "", ["2", "-1", "-0", '"3"', '"3.0"', '"3.5"', "3.0", "3.5", '" 3 "', '"1_000"', '"+3"'] + STRINGS),
    ("negative_int", "pydantic.NegativeInt", "", ["-2", "-1.0", '"-3"', "0"] + STRINGS),
    ("positive_float", "pydantic.PositiveFloat", "", ["2.5", "0.0", "-0.1", '"1e3"', '"nan"', '"inf"', '" 2 "', "7"] + STRINGS),
    ("negative_float", "pydantic.NegativeFloat", "", ["-2.5", "0.0", "-1", '"-inf"', '"-1e-3"'] + STRINGS),
    ("constr_regex", "pydantic.constr", '{"regex": "^[a-c]+$", "strict": true}', ['"abc"', '"abcd"', '"abc\\n"', '"ab\\ncd"'] + STRINGS),
    ("constr_length", "pydantic.constr", '{"min_length": 2, "max_length": 4}', ['"ab"', '"abcd"', '"abcde"', '"\\u00e9\\u00e9"'] + STRINGS),
    ("constr_strip", "pydantic.constr", '{"strip_whitespace": true, "min_length": 1}', ['"  "', '" x "'] + STRINGS),
    ("conint", "pydantic.conint", '{"gt": 1, "le": 10, "multiple_of": 3}', ["3", "9", "12", "0", "4", '"6"', "6.0"] + STRINGS),
    ("conint_bounds", "pydantic.conint", '{"ge": -2, "lt": 2}', ["-2", "-3", "1", "2"] + STRINGS),
    ("confloat", "pydantic.confloat", '{"gt": 0, "lt": 1.5}', ["0.5", "1.5", "1.0", "0.0", '"0.25"'] + STRINGS),
]

GOOD_ATTRIBUTES = {
    "string": ['"x"', '""', 'r"\\d"'], "int": ["1", "-5", "true", "99999999999999999999", "0"], "float": ["1.0", "-.5", "0.0"],
    "number": ["1", "2.5", "true"], "bool": ["true", "false"], "list": ["[]", '[1, "a", null, true, {"k": []}]', "[1.5]"],
    "string?": ["null", '"x"'], "int[]": ["[]", "[1, 2, true]"], "string[]?": ["null", '["a"]', "[]"], "bool?": ["null", "true"],
    "float[]": ["[1.5, 2.0]"], "dict": ["{}", '{"a": [1, {"b": null}], "c": "d"}'], "dict?": ["null", "{}"], "int?": ["null", "3"],
    "std::date": ['"2024-02-29"'], "std::time": ['"12:34:56"'], "std::datetime": ['"2024-02-29T12:34:56Z"'], "std::ipv4_address": ['"10.0.0.1"'],
    "std::ipv4_interface": ['"10.0.0.1/8"'], "std::ipv4_network": ['"10.0.0.0/8"'], "std::ipv6_address": ['"::1"'], "std::ipv6_interface": ['"::1/64"'],
    "std::ipv6_network": ['"::/64"'], "std::uuid": ['"12345678-1234-5678-1234-567812345678"'], "std::email_str": ['"a@b.com"'], "std::name_email": ['"A <a@b.com>"'],
    "std::any_url": ['"x://y"'], "std::any_http_url": ['"http://y"'], "std::http_url": ['"http://y"'], "std::ipv_any_address": ['"1.2.3.4"', '"::"'],
    "std::ipv_any_interface": ['"1.2.3.4/5"', '"::/1"'], "std::ipv_any_network": ['"1.2.3.0/24"', '"::/1"'], "std::negative_float": ["-1.5"],
    "std::negative_int": ["-1"], "std::positive_float": ["1.5"], "std::positive_int": ["1", "true"], "std::alfanum": ['"aZ09"', '""'],
    "std::base64": ['"YWJj"', '""', '"YQ=="'], "std::printable_ascii": ['" ~a"', '""'], "std::ascii_word": ['"!~"', '""'],
    "std::non_empty_string": ['" x "', '"x"'], "std::port": ["0", "65535", "true"], "std::hoststring": ['"a.b-c.d"', '"1"', '"x"'], "std::config_agent": ['"x"', '""'],
    "std::port[]": ["[1, 2]", "[]"], "std::port?": ["null", "1"], "std::ipv4_address[]": ['["1.2.3.4", "5.6.7.8"]'],
}

BAD_ATTRIBUTES = {
    "string": ["1", "null", "true", '["a"]', "{}"], "int": ["1.0", '"1"', "null", "[1]"], "float": ["1", '"1.0"', "true", "null"],
    "number": ['"1"', "null", "[]"], "bool": ["1", "0", '"true"', "null"], "list": ['"a"', "{}", "null", "1"], "dict": ["[]", "null", '"a"'],
    "string?": ["1"], "int[]": ["1", '["a"]', "[1, null]", "[1, 1.5]", "null", "{}"], "string[]?": ['"a"', "[1]", '["a", null]'], "bool?": ["1"],
    "float[]": ["[1]"], "dict?": ["[]"], "string[]": ['"abc"', "[[1]]"],
    "std::date": ['"x"', "1"], "std::time": ['"25:00"'], "std::datetime": ['"x"'], "std::ipv4_address": ['"1.2.3"', "5", "null"],
    "std::ipv4_interface": ['"1.2.3.4/99"'], "std::ipv4_network": ['"1.2.3.4/8"'], "std::ipv6_address": ['":::"'], "std::ipv6_interface": ['"x"'],
    "std::ipv6_network": ['"::1/64"'], "std::uuid": ['"x"'], "std::email_str": ['"x"'], "std::name_email": ['"x"'], "std::any_url": ['"x"'],
    "std::any_http_url": ['"ftp://x"'], "std::http_url": ['"x"'], "std::ipv_any_address": ['"x"'], "std::ipv_any_interface": ['"x"'],
    "std::ipv_any_network": ['"x"'], "std::negative_float": ["1.5", "-1", "0.0"], "std::negative_int": ["1", "-1.0", '"-1"'], "std::positive_float": ["0.0", "1"],
    "std::positive_int": ["0", '"1"', "false"], "std::alfanum": ['"a b"', "1"], "std::base64": ['"a"', '"***"'], "std::printable_ascii": ['"\\n"', '"\\u00e9"'],
    "std::ascii_word": ['"a b"'], "std::non_empty_string": ['""', '"  "', "null"], "std::port": ["-1", "65536", '"22"', "1.0"], "std::hoststring": ['"a b"', '""', '".a"'],
    "std::config_agent": ['"internal"', "1"], "std::port[]": ["[1, -1]", '["a"]', "5"], "std::port?": ["-1"], "std::ipv4_address[]": ['["1.2.3.4", "x"]'],
}

GOOD_CALLS = {
    "strings": ['std::upper("aé")', 'std::upper("straße")', 'std::lower("ÀB")', 'std::capitalize("hELLO wORLD")', 'std::capitalize("")', 'std::replace("aXbX", "X", "-")',
        'std::replace("aaa", "", "-")', 'std::replace("abc", "x", "y")', 'std::split("a,b,,c", ",")', 'std::split("a", ",")', 'std::split("", ",")', 'std::split("a--b", "--")', 'std::limit("abcdef", 3)',
        'std::limit("ab", 5)', 'std::limit("abc", 0)', 'std::length("")', 'std::length("abc")', 'std::length("\\u00e9")', 'std::hostname("a.b.c")', 'std::hostname("a")', 'std::hostname("")',
        'std::format("{} {}", 1, "x")', 'std::format("{0}{1}{0}", "a", "b")', 'std::format("{x:>5}|{y}", x=1, y=null)', 'std::format("{{}} {}", [1, 2])', 'std::format("{:.2f}", 1.5)', 'std::format("{!r}", "q")',
        'std::format("{a[0]}", a=[5])', 'std::format("plain")', 'std::unique_file("pre", "seed", ".suf")', 'std::unique_file("a", "b", "c", length=5)', 'std::unique_file("a", "b", "c", 0)'],
    "lists": ["std::count([])", "std::count([1, 1, null])", "std::count([u, 1])", "std::is_unknown(std::len([u, 1]))", "std::len([1, 2])", "std::at([1, 2, 3], 1)", "std::at([1, 2, 3], -1)", "std::at([null], 0)",
        "std::unique([1, 2, 3])", "std::unique([1, 1.0])", 'std::unique(["a", "a"])', "std::unique([])", 'std::flatten(std::json_loads("[[1, 2], [3], []]"))',
        'std::key_sort([], "i")', "std::sequence(4)", "std::sequence(3, 5)", "std::sequence(0)", "std::sequence(2, start=-1)", "std::sequence(-3)", "std::sequence(5, 3)"],
    "sorted": ['std::count(std::key_sort([A(i=3), A(i=1), A(i=2)], "i"))', '[x.i for x in std::key_sort([A(i=3), A(i=1), A(i=2)], "i")]'],
    "dicts": ['std::dict_keys({"b": 1, "a": 2})', "std::dict_keys({})", 'std::dict_get({"a": "x"}, "a")', 'std::contains({"a": 1}, "a")', 'std::contains({}, "a")'],
    "json": ['std::json_dumps(null)', "std::json_dumps(true)", "std::json_dumps(1)", "std::json_dumps(1.0)", "std::json_dumps(1.5)", 'std::json_dumps("é\\"\\\\\\n")', 'std::json_dumps([1, "a", null, false])', 'std::json_dumps({"b": 1, "a": [2.0, {}]})',
        'std::json_dumps({})', "std::json_dumps([])", "std::json_dumps(100000000000000000000.0)", "std::json_dumps(0.00001)", 'std::json_loads("null")', 'std::json_loads("[1, 2.0, 1e3, true, null, \\"x\\"]")', 'std::json_loads("{\\"b\\": {\\"a\\": []}}")',
        'std::json_loads("\\"\\\\u00e9\\"")', 'std::json_loads(" 1 ")', 'std::json_loads("-0")', 'std::json_loads("123456789012345678901234567890")', 'std::json_loads("1E400")', 'std::json_loads("NaN")', 'std::json_loads("{\\"a\\": 1, \\"a\\": 2}")'],
    "reflection": ["std::isset(null)", "std::isset(1)", 'std::isset("")', "std::invert(true)", 'std::inlineif(true, 1, "x")', 'std::inlineif(false, 1, "x")', 'std::is_instance(a, "__config__::A")', 'std::is_instance(a, "std::Entity")', 'std::is_instance(a, "std::Host")',
        'std::attr(a, "i")', 'std::getattr(a, "i")', 'std::getattr(a, "nope")', 'std::getattr(a, "nope", 5)',
        'std::getattr(a, "nope", default_value="d")', "std::is_unknown(u)", "std::is_unknown(1)", "std::is_unknown([u])", "std::is_unknown(null)", 'std::objid(a) == std::objid(a)', "std::objid(a) == std::objid(b)", "std::inlineif(std::invert(false), a == a, b == a)",
        'std::familyof(std::linux, "unix")', 'std::familyof(std::linux, "windows")', 'std::familyof(std::linux, "linux")', "std::equals(1, 1)", "std::assert(true)", 'std::assert(true, "m")'],
    "addresses": ['std::ipindex("10.0.0.0/24", 5)', 'std::ipindex("10.0.0.0/24", 5, keep_prefix=true)', 'std::ipindex("10.0.0.0/24", -1)', 'std::ipindex("2001:db8::/64", 255)', 'std::ipindex("10.0.0.0/30", 0)', 'std::netmask("10.0.0.1/20")', 'std::netmask("::1/64")', 'std::netmask("1.2.3.4")',
        'std::network_address("10.1.2.3/12")', 'std::network_address("2001:db8::5/48")', 'std::prefixlen("10.0.0.1/20")', 'std::prefixlen("10.0.0.1")', 'std::prefixlen("::1")', 'std::prefixlength_to_netmask(0)', 'std::prefixlength_to_netmask(17)', 'std::prefixlength_to_netmask(32)',
        'std::add_to_ip("10.0.0.255", 1)', 'std::add_to_ip("::ffff", 1)', 'std::add_to_ip("10.0.0.1", -1)', 'std::ip_address_from_interface("10.0.0.1/8")', 'std::ip_address_from_interface("fe80::1/10")'],
    "environment": ['std::get_env("CASE_WORD")', 'std::get_env("CASE_EMPTY")', 'std::get_env("NOPE", "d")', 'std::get_env("CASE_WORD", "d")', 'std::get_env_int("CASE_NUMBER")', 'std::get_env_int("NOPE", 5)', 'std::is_unknown(std::get_env("NOPE"))',
        'std::is_unknown(std::get_env_int("NOPE"))', 'std::get_env("NOPE", default_value="")', "std::timestamp() > 1700000000"],
    "server": ["std::server_port()", "std::server_ssl()", "std::server_ca()", "std::server_token()"],
    "base64": ['std::is_base64_encoded("YWJj")', 'std::is_base64_encoded("YWJ")', 'std::is_base64_encoded("YQ==")', 'std::is_base64_encoded("YQ=")', 'std::is_base64_encoded("Y Q==")', 'std::is_base64_encoded("")', 'std::is_base64_encoded("YR==")', 'std::is_base64_encoded("a-_b")', 'std::is_base64_encoded("YWJj\\n")', 'std::is_base64_encoded("\\u00e9")'],
    "calling": ['std::replace(string="aXb", old="X", new="-")', 'std::replace("aXb", new="-", old="X")', 'std::replace("aXb", **{"old": "X", "new": "-"})', 'std::replace(**{"old": "X", "new": "-", "string": "X"})', "std::sequence(i=2)", 'std::replace(old="X", "aXb", new="-")',
        'std::sequence(2, **{})', "std::print(null)", "std::print([])", "std::print({})", 'std::print([1, [2, 3]])', 'std::print({"a": [1, null], "b": true})', "std::print(1.0)", "std::print(-0.0)", "std::print(true)", 'std::print("")', 'std::print(["a", "it\'s", "\\""])'],
    "deprecated": ['std::select([A(i=1), A(i=2)], "i")', "std::count(std::filter([a, b], a))"],
}

BAD_CALLS = [
    "std::upper()", 'std::upper("a", "b")', 'std::upper(s="a")', 'std::upper("a", string="b")', "std::upper(1)", "std::upper(null)", "std::upper(a)", 'std::upper(["a"])',
    'std::replace("a", "b")', 'std::replace("a")', "std::replace()", 'std::replace("a", "b", "c", "d")', 'std::replace("a", old="b", old="c", new="d")', 'std::replace("a", "b", old="c", new="d")',
    'std::replace("a", **{"old": "b"})', 'std::replace("a", "b", "c", **{"new": "x"})', 'std::replace("a", old="b", **{"old": "x", "new": "y"})', "std::replace(**1)", "std::replace(**null)", "std::replace(**u)", 'std::replace("a", 1, "b")', 'std::replace("a", old="b", new=[])',
    "std::split(1, 2)", 'std::split("a", "")', 'std::limit("a", "b")', 'std::limit("a", 1.5)', "std::length(5)", "std::count(5)", 'std::count("abc")', "std::count(null)", "std::count({})", "std::count(a)", "std::len(1)",
    "std::at([1], 5)", "std::at([1], -2)", 'std::at([1], "0")', "std::at(1, 0)", "std::unique(1)", 'std::flatten("x")', "std::flatten([a])", 'std::key_sort([1], "x")', "std::key_sort(1, 2)", "std::sequence(1.5)", 'std::sequence("1")', "std::sequence(null)", "std::sequence()",
    "std::sequence(1, 2, 3)", "std::sequence(1, stop=2)", "std::dict_keys([])", "std::dict_keys(1)", 'std::dict_get({"a": 1}, "a")', 'std::dict_get({}, "a")', "std::contains([], 1)", 'std::json_loads("{")', 'std::json_loads("")', "std::json_loads(\"'a'\")", 'std::json_loads("[1,]")',
    'std::json_loads("nul")', 'std::json_loads("1 2")', 'std::json_loads("\\"\\n\\"")', "std::json_loads(1)", "std::json_dumps(a)", "std::json_dumps([u])", "std::inlineif(1, 2, 3)", "std::inlineif(true, 2)", "std::invert(1)", "std::invert(null)", "std::isset()", 'std::is_instance(a, "Nope")', "std::is_instance(a, 1)",
    'std::is_instance(1, "std::Entity")', 'std::is_instance(a, "x::Y")', 'std::attr(a, "nope")', 'std::attr(1, "x")', 'std::getattr(1, "x")', 'std::getattr(a, 1)', "std::getattr(a)", 'std::familyof(a, "unix")', "std::familyof(1, 2)", "std::assert(false)", 'std::assert(false, "boom")', "std::assert(1)", "std::equals(1, 2)", 'std::equals(1, 2, "why")',
    'std::ipindex("10.0.0.0/24", 300)', 'std::ipindex("10.0.0.1/24", 3)', 'std::ipindex("x", 3)', 'std::ipindex("10.0.0.0/24", "3")', 'std::netmask("x")', "std::netmask(1)", "std::prefixlength_to_netmask(33)", "std::prefixlength_to_netmask(-1)", 'std::add_to_ip("255.255.255.255", 1)', 'std::add_to_ip("x", 1)', 'std::add_to_ip("1.2.3.4", 1.5)',
    'std::get_env("NOPE", 5)', "std::get_env(1)", "std::get_env()", 'std::get_env_int("CASE_WORD")', 'std::get_env_int("CASE_NUMBER", "x")', 'std::format("{}")', 'std::format("{x}", 1)', 'std::format("{", 1)', "std::format(1)", 'std::format("{:d}", "x")', 'std::format("{0.x}", a)', "std::environment()", 'std::select([1], "x")', "std::select(1, 2)", "std::item([A()], 3)",
    'std::filter([1], 2)', 'std::source("nope/x")', 'std::source("/x")', "std::source(1)", 'std::file("nope/x")', 'std::list_files("nope")', 'std::template("nope/x")', 'std::template("/x.tmpl")', 'std::password("nope")', "std::generate_password(1)", 'std::validate_type("nope.Type", 1)', 'std::validate_type("datetime.date")', 'std::validate_type("datetime.date", 1, 2)',
    'std::validate_type("pydantic.constr", "a", {"nope": 1})', 'std::validate_type("pydantic.constr", "a", {"regex": "("})', "std::nope()", "nope()", "nope::f()", "std::print()", "std::print(1, 2)", "std::print(m=1)", "std::print", "std::is_unknown()", 'std::create_int_reference("x") + 1', "std::timestamp(1, 2)", 'std::unique_file("a", "b")', "std::server_port(1)", "A()()", "a()", "u()",
    'std::flatten([1, "a"])', "std::type(1)", "std::type(a)", "std::type([1])", "std::environment_name()", "std::environment_server()", "std::item([A()], 0)", "std::type(null)", 'std::item([{"a": 1}], "a")',
]
