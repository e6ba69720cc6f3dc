"""Variables that all recorded templates see, and small projects of templates for `templates.py` to record."""

from __future__ import annotations

# The beginning of every recorded model, after the prelude of `plugin_cases.py`; the tests build the same variables.
VARIABLES = """
l = [3, 1, 2]
ls = ["b", "a"]
le = []
n = null
d = {"k": 1, "l": [1, null], "n": null, "m": {"z": 2}}
ld = [{"a": 2}, {"a": 1}]
ll = std::json_loads("[[1, 2], [3]]")
o = std::linux
ol = [std::linux, std::unix]
s = "abc def"
h = host
oh = other_host
u = std::get_env("ORRERY_ABSENT")
lu = [u]
t = true
f = 1.5
big = 10 ** 20
"""

# A call and the files that it needs.
PROJECTS: list[tuple[str, dict[str, str]]] = [
    ('std::template("/t.j2")',
     {'libs/m/module.yml': 'name: m\nversion: 1.0\nlicense: x', 'libs/m/model/_init.cf': '', 'libs/m/templates/mac.j2': '{% macro a(x) %}<{{ x }}>{{ z }}{% endmacro %}{% set q = 4 %}body', 'templates/t.j2': '{% import "m/mac.j2" as mac %}{{ mac.a(1) }}{{ mac.q }}{{ mac }}{{ mac.nope is defined }}'}),
    ('std::template("/t.j2")',
     {'libs/m/module.yml': 'name: m\nversion: 1.0\nlicense: x', 'libs/m/model/_init.cf': '', 'libs/m/templates/mac.j2': '{% macro a(x) %}<{{ x }}>{{ z }}{{ w }}{% endmacro %}{% set q = 4 %}body', 'templates/t.j2': '{% set w = 9 %}{% from "m/mac.j2" import a, q as r with context %}{{ a(1) }}{{ r }}'}),
    ('std::template("/t.j2")',
     {'templates/mac.j2': '{% macro a(x) %}<{{ x }}>{% endmacro %}', 'templates/t.j2': '{% from "/mac.j2" import b %}{{ b }}'}),
    ('std::template("/t.j2")',
     {'templates/mac.j2': '{% macro a(x) %}<{{ x }}>{{ z }}{% endmacro %}', 'templates/t.j2': '{% from "/mac.j2" import a %}{{ a(1) }}'}),
    ('std::template("/t.j2", z=4)',
     {'templates/mac.j2': '{% macro a(x) %}<{{ x }}>{{ z }}{% endmacro %}', 'templates/t.j2': '{% from "/mac.j2" import a %}{{ a(1) }}'}),
    ('std::template("/t.j2")',
     {'templates/u.j2': '{{ z }}{{ w is defined }}', 'templates/t.j2': '{% set w = 1 %}{% include "/u.j2" without context %}{% include "/u.j2" %}{% for i in [1] %}{% include "/v.j2" %}{% endfor %}', 'templates/v.j2': '{{ i }}{{ loop is defined }}'}),
    ('std::template("/t.j2")',
     {'templates/u.j2': '{% set w = 2 %}{{ w }}', 'templates/t.j2': '{% set w = 1 %}{% include "/u.j2" %}{{ w }}'}),
    ('std::template("/t.j2")',
     {'templates/base.j2': '{{ q }}[{% block a %}A{{ z }}{% endblock %}|{% block b %}{% block c %}C{% endblock %}{% endblock %}]{{ self.a() }}', 'templates/t.j2': '{% extends "/base.j2" %}ignored{% set q = 5 %}{% block a %}{{ super() }}+{{ q }}{% endblock %}{% block c %}c2{% endblock %}{{ nope }}'}),
    ('std::template("/t.j2")',
     {'templates/base.j2': '[{% block a %}A{% endblock %}]', 'templates/mid.j2': '{% extends "/base.j2" %}{% block a %}M{{ super() }}{% endblock %}', 'templates/t.j2': '{% extends "/mid.j2" %}{% block a %}T{{ super() }}{{ super.super is defined }}{% endblock %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% block a %}T{{ super() }}{% endblock %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% block a required %}{% endblock %}'}),
    ('std::template("/t.j2")',
     {'templates/base.j2': '[{% block a %}A{% endblock %}]', 'templates/t.j2': '{% if z %}{% extends "/base.j2" %}{% endif %}x{% block a %}T{% endblock %}'}),
    ('std::template("m/t.j2")',
     {'libs/m/module.yml': 'name: m\nversion: 1.0\nlicense: x\n', 'libs/m/model/_init.cf': '\n', 'libs/m/templates/t.j2': '{{ s }}{% include "m/sub/u.j2" %}', 'libs/m/templates/sub/u.j2': 'u{{ 1 if false }}{{ (1 if false) + 1 }}'}),
    ('std::template("m/t.j2")',
     {'libs/m/module.yml': 'name: m\nversion: 1.0\nlicense: x\n', 'libs/m/model/_init.cf': '\n', 'libs/m/templates/t.j2': '{{ s }}{% include "m/u.j2" %}{{ self }}', 'libs/m/templates/u.j2': 'u'}),
    ('std::template("m/nope.j2")',
     {'libs/m/module.yml': 'name: m\nversion: 1.0\nlicense: x\n', 'libs/m/model/_init.cf': '\n'}),
    ('std::template("nope/t.j2")',
     {}),
    ('std::template("/nope.j2")',
     {}),
    ('std::template("./t.j2")',
     {}),
    ('std::template("t.j2")',
     {'templates/t.j2': 'x'}),
    ('std::template("")',
     {}),
    ('std::template("/t.j2", y=6, l=[1], i=std::linux, n=null)',
     {'templates/t.j2': '{{ y }}{{ s is defined }}{{ l }}{{ i.name }}{{ n }}'}),
    ('std::template("/t.j2", range=5)',
     {'templates/t.j2': '{{ range }}'}),
    ('std::template("/t.j2", **{})',
     {'templates/t.j2': '{{ s }}'}),
    ('std::template("/t.j2", y=1)',
     {'templates/t.j2': '{{ s }}'}),
    ('std::template("/t.j2", y=[std::get_env("ORRERY_ABSENT")])',
     {'templates/t.j2': '{{ y | length }}'}),
    ('std::template("/t.j2", y=[std::get_env("ORRERY_ABSENT")])',
     {'templates/t.j2': '{{ y[0] }}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% include "/t.j2" %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% include ["/a.j2", "/b.j2"] %}', 'templates/b.j2': 'b'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% include ["/a.j2", "/b.j2"] %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% include "/a.j2" ignore missing %}x'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% include "/a.j2" %}', 'templates/a.j2': '{% if %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% import "/a.j2" as a %}{{ a.m(1) }}{{ a.v }}{{ a._p is defined }}{{ a }}', 'templates/a.j2': '{% macro m(x) %}<{{ x }}>{% endmacro %}{% set v = 2 %}{% set _p = 3 %}body'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% import "/a.j2" as a with context %}{{ a.m() }}', 'templates/a.j2': '{% macro m() %}{{ s }}{% endmacro %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% from "/a.j2" import m, v as w %}{{ m(1) }}{{ w }}', 'templates/a.j2': '{% macro m(x) %}<{{ x }}>{% endmacro %}{% set v = 2 %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% from "/a.j2" import m %}{{ m() }}', 'templates/a.j2': '{% macro m() %}{{ range(2) | list }}{% endmacro %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% extends "/b.j2" %}', 'templates/b.j2': '[{% block x %}1{% endblock %}]'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% extends "/b.j2" %}{% block x %}{{ super() }}2{{ s }}{% endblock %}', 'templates/b.j2': '[{% block x %}1{% endblock %}]{% block y %}{{ self.x() }}{% endblock %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% extends "/b.j2" %}{% macro m() %}M{% endmacro %}{% block x %}{{ m() }}{% endblock %}', 'templates/b.j2': '{% block x %}{% endblock %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% extends "/b.j2" %}{% block x %}{{ i }}{% endblock %}', 'templates/b.j2': '{% for i in l %}{% block x scoped %}{% endblock %}{% endfor %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% extends "/b.j2" %}{% extends "/b.j2" %}', 'templates/b.j2': 'b'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% extends "/b.j2" %}{% block x %}X{% endblock %}', 'templates/b.j2': '{% block x required %}{% endblock %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% block x required %}a{% endblock %}'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% for i in l %}{% include "/i.j2" %}{% endfor %}', 'templates/i.j2': '{{ i }}{{ s }};'}),
    ('std::template("/t.j2")',
     {'templates/t.j2': '{% set a = 1 %}{% include "/i.j2" %}{{ a }}', 'templates/i.j2': '{{ a }}{% set a = 2 %}{{ a }}'}),
]
